/* The kernels' source, embedded at build time (texts.inc). */
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/gpu.h"
#include "backend/gpu/texts.inc"

/* A storage class for the tables of base/math_tables.h. */
static const char tables_begin[] = "#ifdef __OPENCL_VERSION__\n"
                                   "#define static __constant\n"
                                   "#else\n"
                                   "#define static static __device__\n"
                                   "#endif\n";
static const char tables_end[] = "#undef static\n";

#define PARTS 15
#define COMMON_PARTS                                                                                                   \
    text_functions_cl, text_elementwise_cl, text_moves_cl, text_products_cl, text_pools_cl, text_sums_cl,              \
        text_norm_cl, text_softmax_cl, tables_begin, text_math_tables_h, tables_end, text_wide_cl, text_update_cl,     \
        text_apply_def, text_small_cl

static const struct module {
    const char *name;
    const char *parts[PARTS]; /* after the common texts; ends with NULL */
} modules[LS_GPU_MODULES] = {
    [LS_GPU_ELEMENTWISE] = { "elementwise", { text_functions_cl, text_elementwise_cl } },
    [LS_GPU_MOVES] = { "moves", { text_moves_cl } },
    [LS_GPU_PRODUCTS] = { "products", { text_products_cl } },
    [LS_GPU_POOLS] = { "pools", { text_pools_cl } },
    [LS_GPU_WARP] = { "warp", { text_warp_cl } },
    [LS_GPU_ATTENTION] = { "attention", { text_random_cl, text_attention_cl } },
    [LS_GPU_CTC] = { "ctc", { text_softmax_cl, text_ctc_cl } },
    [LS_GPU_RECURRENT] = { "recurrent", { text_recurrent_cl } },
    [LS_GPU_SUMS] = { "sums", { text_sums_cl } },
    [LS_GPU_NORM] = { "norm", { text_norm_cl } },
    [LS_GPU_SOFTMAX] = { "softmax", { text_softmax_cl } },
    [LS_GPU_RANDOM] = { "random", { text_random_cl } },
    [LS_GPU_NORMAL] = { "normal",
                        { tables_begin, text_math_tables_h, tables_end, text_wide_cl, text_random_cl,
                          text_normal_cl } },
    [LS_GPU_UPDATE] = { "update",
                        { tables_begin, text_math_tables_h, tables_end, text_wide_cl, text_update_cl,
                          text_apply_def } },
    [LS_GPU_CHAINS] = { "chain", { text_functions_cl, text_chain_cl } },
    [LS_GPU_COMMON] = { "common", { COMMON_PARTS } },
    [LS_GPU_DEEPER] = { "deeper", { COMMON_PARTS } },
};

/* Drivers compile whole modules and first read their own built-in functions: one module of few
 * kernels takes a fraction of the time of eight with 400. LS_GPU_COMMON has the kernels of a small
 * network, LS_GPU_DEEPER what others most often need in addition. */
/* clang-format off */
#define COMMON_KERNELS(X)                                                                                              \
    X(small) X(conv2d_wide) X(conv2d_grad_kernel_wide)                                                                 \
    X(matmul_whole) X(matmul_wide) X(max_pool2d) X(max_pool2d_grad_apart)                                              \
    X(add_blocks_f32) X(sum_blocks_f32) X(sum_blocks_f32_columns)                                                      \
    X(join_sum_f32) X(join_sum_f64) X(join_lanes_sum_f32) X(finite_f32)                                                \
    X(softmax_rows) X(update_SGD) X(update_ADAM)
#define DEEPER_KERNELS(X)                                                                                              \
    X(add_f32_rows) X(add_f32_vectors) X(mul_f32_one) X(add_f64) X(sub_f64) X(mul_f64) X(mul_f64_rows) X(square_f64)   \
    X(div_f64_rows) X(maximum_f64_rows) X(rsqrt_f32) X(relu_f32_vectors) X(relu_grad_f32_vectors)                      \
    X(copy_4) X(cast_f32_f64) X(cast_f64_f32)                                                                          \
    X(conv2d_whole) X(conv2d_grad_kernel_whole)                                                                        \
    X(matmul) X(max_pool2d_grad) X(sum_f32)                                                                            \
    X(moments) X(batch_norm) X(batch_norm_grad_moments) X(batch_norm_grad_input) X(norm_statistics)                    \
    X(update_MOMENTUM)
/* clang-format on */
#define WANT(name) "#define LS_WANT_" #name " , WANTED\n"
static const char *const wanted[LS_GPU_MODULES] = { [LS_GPU_COMMON] = "#define LS_SOME\n" COMMON_KERNELS(WANT),
                                                    [LS_GPU_DEEPER] = "#define LS_SOME\n" DEEPER_KERNELS(WANT) };
#undef WANT

ls_gpu_found ls_gpu_find_kernel(const char *name, ls_gpu_module module)
{
    static const struct {
        const char *name;
        ls_gpu_module module;
    } rows[] = {
#define IN_COMMON(name) { #name, LS_GPU_COMMON },
#define IN_DEEPER(name) { #name, LS_GPU_DEEPER },
        COMMON_KERNELS(IN_COMMON) DEEPER_KERNELS(IN_DEEPER)
#undef IN_COMMON
#undef IN_DEEPER
    };
#define NAME(name, places) #name,
    static const char *const small[] = { LS_GPU_SMALL(NAME) };
#undef NAME
    for (int i = 0; i < LS_SMALL_COUNT; i++)
        if (strcmp(small[i], name) == 0)
            return (ls_gpu_found){ LS_GPU_COMMON, "small", i, LS_GPU_SMALL_PLACES };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            module = rows[i].module;
    return (ls_gpu_found){ module, name, -1, 0 };
}

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
    for (int i = 0; i < PARTS && parts[i]; i++)
        bytes += strlen(parts[i]);
    char *text = malloc(bytes), *to = text;
    if (!text)
        return NULL;
    to = stpcpy(to, before);
    for (size_t i = 0; i < COMMON; i++)
        to = stpcpy(to, common[i]);
    for (int i = 0; i < PARTS && parts[i]; i++)
        to = stpcpy(to, parts[i]);
    strcpy(to, behind);
    return text;
}

char *ls_gpu_source(ls_gpu_module module)
{
    return ls_gpu_source_with(module, wanted[module] ? wanted[module] : "", "");
}

/* The sums of a product use 12 of 16 vector registers, or 16 of 32. */
const ls_gpu_tuning ls_gpu_tuning_cpu = {
    .name = "cpu", .vector = 8, .rows = 6, .wide = true, .group = 64, .heavy = 8
};
const ls_gpu_tuning ls_gpu_tuning_cpu_512 = {
    .name = "cpu-512", .vector = 16, .rows = 8, .wide = true, .group = 64, .heavy = 8
};
const ls_gpu_tuning ls_gpu_tuning_gpu = { .name = "gpu", .vector = 1, .rows = 4, .group = 128, .heavy = 128 };
