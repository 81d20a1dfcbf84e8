/* The kernels' source, as it is in the library: texts.inc is made from the files at build time. */
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/gpu.h"
#include "backend/gpu/texts.inc"

/* What the tables of src/base/math.c are in kernels. */
static const char tables_begin[] = "#ifdef __OPENCL_VERSION__\n"
                                   "#define static __constant\n"
                                   "#else\n"
                                   "#define static static __device__\n"
                                   "#endif\n";
static const char tables_end[] = "#undef static\n";

static const struct module {
    const char *name;
    const char *parts[5]; /* behind what all have; NULL ends them */
} modules[LS_GPU_MODULES] = {
    [LS_GPU_ELEMENTWISE] = { "elementwise", { text_functions_cl, text_elementwise_cl } },
    [LS_GPU_MOVES] = { "moves", { text_moves_cl } },
    [LS_GPU_PRODUCTS] = { "products", { text_products_cl } },
    [LS_GPU_POOLS] = { "pools", { text_pools_cl } },
    [LS_GPU_SUMS] = { "sums", { text_sums_cl } },
    [LS_GPU_NORM] = { "norm", { text_norm_cl } },
    [LS_GPU_SOFTMAX] = { "softmax", { text_softmax_cl } },
    [LS_GPU_RANDOM] = { "random", { text_random_cl } },
    [LS_GPU_UPDATE] = { "update", { tables_begin, text_math_tables_h, tables_end, text_update_cl, text_apply_def } },
    [LS_GPU_CHAINS] = { "chain", { text_functions_cl, text_chain_cl } },
};

/* What every module begins with. */
static const char *const common[] = { text_prelude_cl, text_calls_h,   text_polynomials_h,
                                      text_math_cl,    text_vector_cl, text_walk_cl };
#define COMMON (sizeof(common) / sizeof(*common))

const char *ls_gpu_module_name(ls_gpu_module module)
{
    return modules[module].name;
}

char *ls_gpu_source_with(ls_gpu_module module, const char *before, const char *behind)
{
    const char *const *parts = modules[module].parts;
    size_t bytes = strlen(before) + strlen(behind) + 1;
    for (size_t i = 0; i < COMMON; i++)
        bytes += strlen(common[i]);
    for (int i = 0; i < 5 && parts[i]; i++)
        bytes += strlen(parts[i]);
    char *text = malloc(bytes), *to = text;
    if (!text)
        return NULL;
    to = stpcpy(to, before);
    for (size_t i = 0; i < COMMON; i++)
        to = stpcpy(to, common[i]);
    for (int i = 0; i < 5 && parts[i]; i++)
        to = stpcpy(to, parts[i]);
    strcpy(to, behind);
    return text;
}

char *ls_gpu_source(ls_gpu_module module)
{
    return ls_gpu_source_with(module, "", "");
}

const ls_gpu_tuning ls_gpu_tuning_cpu = {
    .name = "cpu", .vector = 16, .rows = 8, .wide = true, .group = 64, .heavy = 8
};
const ls_gpu_tuning ls_gpu_tuning_gpu = { .name = "gpu", .vector = 1, .rows = 4, .group = 128, .heavy = 128 };
