/* Every dnnl_ call of the project, for oneDNN 2.6 (3.x has other calls: this is the file to write again). Calls that
 * take memory go through onednn_guard.h, which keeps C++'s exceptions from C. */
#include "backend/cpu/onednn.h"

#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "backend/cpu/onednn_guard.h"
#include "base/status.h"

/* libgomp's. Its header comes with gcc only. */
extern void omp_set_num_threads(int count);
extern int omp_get_max_threads(void);

#define MAX_ARGS 5 /* three arrays, bias, scratch */

struct ls_dnn {
    dnnl_engine_t engine;
    int workers;
    dnnl_stream_t streams[]; /* a stream must not be shared by threads */
};

typedef enum kind { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS, REORDER, MATMUL } kind;

static const char *const kind_names[] = { "convolution", "convolution's data gradient", "convolution's kernel gradient",
                                          "reorder of the kernel of a convolution", "matmul" };

struct ls_dnn_op {
    ls_dnn *dnn;
    kind kind;
    char what[256]; /* for messages: the sizes */
    char name[64];
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t hwio, packed; /* of the kernel */
    size_t scratch_bytes;
    bool bias; /* is among the arguments */
    int args;  /* of each worker: three arrays (a reorder: two) as its run function has them, then bias, then scratch */
    dnnl_exec_arg_t arg[]; /* MAX_ARGS for each worker */
};

/* ---- the process: instruction set, threads ---- */

#if defined(__x86_64__) || defined(__i386__)
/* AMX is announced, but the leaf that describes its tiles is hidden (some virtual machines): oneDNN 2.6 dies there. */
static bool tiles_unreadable(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return false;
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    return (edx & (amx_bf16 | amx_tile | amx_int8)) != 0 && __get_cpuid_max(0, NULL) < 0x1D;
}
#else
static bool tiles_unreadable(void)
{
    return false;
}
#endif

static const struct {
    dnnl_cpu_isa_t isa;
    const char *name;
} isas[] = {
    { dnnl_cpu_isa_sse41, "sse41" },
    { dnnl_cpu_isa_avx, "avx" },
    { dnnl_cpu_isa_avx2, "avx2" },
    { dnnl_cpu_isa_avx2_vnni, "avx2_vnni" },
    { dnnl_cpu_isa_avx512_mic, "avx512_mic" },
    { dnnl_cpu_isa_avx512_mic_4ops, "avx512_mic_4ops" },
    { dnnl_cpu_isa_avx512_core, "avx512_core" },
    { dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni" },
    { dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16" },
    { dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx" },
};

#define ISA_COUNT (sizeof isas / sizeof *isas)

static bool equal_but_for_case(const char *a, const char *b)
{
    while (*a != '\0' && tolower((unsigned char)*a) == tolower((unsigned char)*b))
        a++, b++;
    return *a == *b;
}

/* The environment keeps oneDNN below AMX already. It is read as oneDNN reads it; setting a limit would override it. */
static bool limited_below_amx(void)
{
    const char *limit = getenv("ONEDNN_MAX_CPU_ISA");
    if (limit == NULL || *limit == '\0')
        limit = getenv("DNNL_MAX_CPU_ISA");
    for (size_t i = 0; limit != NULL && i < ISA_COUNT; i++)
        if (equal_but_for_case(limit, isas[i].name))
            return isas[i].isa != dnnl_cpu_isa_avx512_core_amx;
    return false;
}

/* oneDNN takes a limit only once, and before anything else. If the program has used oneDNN before us, its choice stays:
 * float32 kernels have no use for tiles, and ls_dnn_identity says what is in effect. */
static void prepare_once(void)
{
    if (tiles_unreadable() && !limited_below_amx())
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

static void prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare_once);
}

void ls_dnn_enter_thread(void)
{
    prepare();
    omp_set_num_threads(1);
}

static ls_status check_thread(void)
{
    if (omp_get_max_threads() != 1)
        return ls_fail(LS_ERR_INTERNAL, "oneDNN is called on a thread that did not enter (OpenMP has %d threads here)",
                       omp_get_max_threads());
    return LS_OK;
}

void ls_dnn_identity(char *text, size_t size)
{
    prepare();
    const dnnl_version_t *version = dnnl_version();
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    char unknown[32];
    snprintf(unknown, sizeof unknown, "isa_%x", (unsigned)isa);
    const char *name = unknown;
    for (size_t i = 0; i < ISA_COUNT; i++)
        if (isas[i].isa == isa)
            name = isas[i].name;
    bool ymm = dnnl_get_cpu_isa_hints() == dnnl_cpu_isa_prefer_ymm;
    snprintf(text, size, "oneDNN %d.%d.%d %s%s", version->major, version->minor, version->patch, name,
             ymm ? " prefer_ymm" : "");
}

bool ls_dnn_has_avx512(void)
{
    prepare();
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

/* ---- failing ---- */

static ls_status status_of(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success:
        return LS_OK;
    case dnnl_out_of_memory:
        return LS_ERR_MEMORY;
    case dnnl_unimplemented:
        return LS_ERR_UNSUPPORTED;
    default:
        return LS_ERR_DEVICE;
    }
}

static ls_status check(dnnl_status_t status, const ls_dnn_op *op)
{
    if (status == dnnl_success)
        return LS_OK;
    return ls_fail(status_of(status), "oneDNN: %s: status %d", op->what, (int)status);
}

/* ---- engine ---- */

ls_status ls_dnn_open(int workers, ls_dnn **out)
{
    prepare();
    ls_dnn *dnn = workers < 1 ? NULL : calloc(1, sizeof *dnn + (size_t)workers * sizeof *dnn->streams);
    if (dnn == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for oneDNN with %d workers", workers);
    dnnl_cpu_isa_t isa;
    dnnl_status_t status = ls_dnnl_get_effective_cpu_isa(&isa); /* so that asking later cannot fail */
    if (status == dnnl_success)
        status = ls_dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
    while (status == dnnl_success && dnn->workers < workers) {
        status = ls_dnnl_stream_create(&dnn->streams[dnn->workers], dnn->engine, dnnl_stream_default_flags);
        dnn->workers += status == dnnl_success;
    }
    if (status != dnnl_success) {
        ls_dnn_close(dnn);
        return ls_fail(status_of(status), "oneDNN: the CPU's engine with %d workers: status %d", workers, (int)status);
    }
    *out = dnn;
    return LS_OK;
}

void ls_dnn_close(ls_dnn *dnn)
{
    if (dnn == NULL)
        return;
    for (int i = 0; i < dnn->workers; i++)
        dnnl_stream_destroy(dnn->streams[i]);
    if (dnn->engine != NULL)
        dnnl_engine_destroy(dnn->engine);
    free(dnn);
}

/* ---- operations in general ---- */

static ls_status op_new(ls_dnn *dnn, kind kind, ls_dnn_op **out)
{
    LS_TRY(check_thread());
    ls_dnn_op *op = calloc(1, sizeof *op + (size_t)dnn->workers * MAX_ARGS * sizeof *op->arg);
    if (op == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for a %s of oneDNN", kind_names[kind]);
    op->dnn = dnn;
    op->kind = kind;
    *out = op;
    return LS_OK;
}

/* Hands out an operation that was filled, or destroys it. */
static ls_status finish(ls_status status, ls_dnn_op *op, ls_dnn_op **out)
{
    if (status == LS_OK)
        *out = op;
    else
        ls_dnn_op_destroy(op);
    return status;
}

void ls_dnn_op_destroy(ls_dnn_op *op)
{
    if (op == NULL)
        return;
    for (int w = 0; w < op->dnn->workers; w++)
        for (int i = 0; i < op->args; i++)
            if (op->arg[w * MAX_ARGS + i].memory != NULL)
                dnnl_memory_destroy(op->arg[w * MAX_ARGS + i].memory);
    if (op->primitive != NULL)
        dnnl_primitive_destroy(op->primitive);
    free(op);
}

/* The next argument of every worker; run functions give its pointer in the same place. */
static ls_status add_arg(ls_dnn_op *op, int which, const dnnl_memory_desc_t *desc)
{
    int at = op->args++;
    for (int w = 0; w < op->dnn->workers; w++) {
        dnnl_exec_arg_t *arg = &op->arg[w * MAX_ARGS + at];
        arg->arg = which;
        dnnl_status_t status = ls_dnnl_memory_create(&arg->memory, desc, op->dnn->engine, DNNL_MEMORY_NONE);
        LS_TRY(check(status, op));
    }
    return LS_OK;
}

/* Takes what is asked of a primitive's descriptor, and makes the primitive. */
static ls_status make_primitive(ls_dnn_op *op, dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    snprintf(op->name, sizeof op->name, "%s", name);
    if (op->kind != REORDER && strncmp(name, "ref", 3) == 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "oneDNN: %s: only its slow reference kernel takes these", op->what);
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    op->scratch_bytes = scratch == NULL ? 0 : dnnl_memory_desc_get_size(scratch);
    return check(ls_dnnl_primitive_create(&op->primitive, pd), op);
}

static ls_status add_scratch(ls_dnn_op *op)
{
    if (op->scratch_bytes == 0)
        return LS_OK;
    const_dnnl_primitive_desc_t pd;
    LS_TRY(check(dnnl_primitive_get_primitive_desc(op->primitive, &pd), op));
    return add_arg(op, DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

/* Scratch memory is the caller's: oneDNN's own belongs to the thread that made the primitive. float32 stays float32
 * whatever the environment says. */
static dnnl_status_t make_attr(bool relu, dnnl_primitive_attr_t *out)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = ls_dnnl_primitive_attr_create(&attr);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict);
    dnnl_post_ops_t ops = NULL;
    if (status == dnnl_success && relu && (status = ls_dnnl_post_ops_create(&ops)) == dnnl_success)
        status = ls_dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
    if (status == dnnl_success && relu)
        status = ls_dnnl_primitive_attr_set_post_ops(attr, ops);
    if (ops != NULL)
        dnnl_post_ops_destroy(ops);
    if (status == dnnl_success)
        *out = attr;
    else
        dnnl_primitive_attr_destroy(attr);
    return status;
}

/* ---- convolutions ---- */

typedef struct descs {
    dnnl_memory_desc_t x, y, kernel, bias;
    dnnl_memory_desc_t *bias_or_null;
    dnnl_dim_t stride[DNNL_MAX_NDIMS], dilation[DNNL_MAX_NDIMS], before[DNNL_MAX_NDIMS], after[DNNL_MAX_NDIMS];
} descs;

static void name_conv(ls_dnn_op *op, const ls_dnn_conv *v)
{
    snprintf(op->what, sizeof op->what,
             "%s of [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] by %" PRId64 "x%" PRId64 " to [%" PRId64
             ",%" PRId64 ",%" PRId64 "], stride %" PRId64 "x%" PRId64 ", dilation %" PRId64 "x%" PRId64
             ", padding %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ", groups %" PRId64,
             kind_names[op->kind], v->n, v->h, v->w, v->c, v->kh, v->kw, v->oh, v->ow, v->o, v->stride[0], v->stride[1],
             v->dilation[0], v->dilation[1], v->pad[0], v->pad[1], v->pad[2], v->pad[3], v->groups);
}

static ls_status check_sizes(const ls_dnn_op *op, const ls_dnn_conv *v)
{
    const int64_t positive[] = { v->n,  v->h,  v->w,         v->c,         v->kh,          v->kw,          v->o,
                                 v->oh, v->ow, v->stride[0], v->stride[1], v->dilation[0], v->dilation[1], v->groups };
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return ls_fail(LS_ERR_INVALID, "oneDNN: %s: a size is below 1", op->what);
    for (int i = 0; i < 4; i++)
        if (v->pad[i] < 0)
            return ls_fail(LS_ERR_INVALID, "oneDNN: %s: a padding is below 0", op->what);
    if (v->c % v->groups != 0 || v->o % v->groups != 0)
        return ls_fail(LS_ERR_INVALID, "oneDNN: %s: the groups do not divide the channels", op->what);
    return LS_OK;
}

/* The kernel's axes in oneDNN's order ([group,] out, in, height, width), and their strides in our HWIO array. */
static int kernel_axes(const ls_dnn_conv *v, dnnl_dim_t dims[], dnnl_dim_t strides[])
{
    int64_t in = v->c / v->groups, out = v->o / v->groups;
    int at = 0;
    if (v->groups > 1) {
        dims[at] = v->groups, strides[at] = out;
        at++;
    }
    const int64_t sizes[] = { out, in, v->kh, v->kw }, steps[] = { 1, v->o, v->kw * in * v->o, in * v->o };
    for (int i = 0; i < 4; i++, at++)
        dims[at] = sizes[i], strides[at] = steps[i];
    return at;
}

/* With one channel NHWC is NCHW, with 16 it is NCHW in blocks of 16: the same bytes under names for which oneDNN has a
 * kernel that was measured to be twice as fast (one channel to 16, 3x3: 96 GFLOPS against 51). With narrower vectors
 * there are no blocks of 16. */
static dnnl_status_t describe(const ls_dnn_conv *v, bool forward, const ls_dnn_op *like, dnnl_memory_desc_t *hwio,
                              descs *d)
{
    dnnl_dim_t x[DNNL_MAX_NDIMS] = { v->n, v->c, v->h, v->w }, y[DNNL_MAX_NDIMS] = { v->n, v->o, v->oh, v->ow };
    dnnl_dim_t kernel[DNNL_MAX_NDIMS], strides[DNNL_MAX_NDIMS], bias[DNNL_MAX_NDIMS] = { v->o };
    int axes = kernel_axes(v, kernel, strides);
    for (int i = 0; i < 2; i++) {
        d->stride[i] = v->stride[i];
        d->dilation[i] = v->dilation[i] - 1;
        d->before[i] = v->pad[2 * i];
        d->after[i] = v->pad[2 * i + 1];
    }
    bool blocks = forward && ls_dnn_has_avx512() && v->c == 1 && v->o == 16 && v->groups == 1;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&d->x, 4, x, dnnl_f32, blocks ? dnnl_nchw : dnnl_nhwc);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&d->y, 4, y, dnnl_f32, blocks ? dnnl_nChw16c : dnnl_nhwc);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(hwio, axes, kernel, dnnl_f32, strides);
    if (status == dnnl_success && like == NULL)
        status = dnnl_memory_desc_init_by_tag(&d->kernel, axes, kernel, dnnl_f32, dnnl_format_tag_any);
    if (like != NULL)
        d->kernel = like->packed;
    d->bias_or_null = v->bias ? &d->bias : NULL;
    return status;
}

/* Kernels of oneDNN 2.6.3 that must not run. The AVX2 kernel gradient of a strided 1x1 convolution gathers pixels in
 * its scratch as whole vectors, and has room for the channels alone. The SSE4.1 1x1 convolution takes it that outputs
 * are aligned for vectors. */
static bool is_broken(const_dnnl_primitive_desc_t pd, const dnnl_convolution_desc_t *v)
{
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    bool gradient = v->prop_kind == dnnl_backward_weights, strided = v->strides[0] > 1 || v->strides[1] > 1;
    return strcmp(name, "jit_1x1:sse41") == 0 ||
           (strcmp(name, "jit_1x1:avx2") == 0 && gradient && strided && v->src_desc.dims[1] % 8 != 0);
}

/* oneDNN's first choice that works. */
static dnnl_status_t choose(dnnl_engine_t engine, const dnnl_convolution_desc_t *desc, dnnl_primitive_attr_t attr,
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t choices;
    dnnl_status_t status = ls_dnnl_primitive_desc_iterator_create(&choices, desc, attr, engine, hint);
    if (status != dnnl_success)
        return status;
    dnnl_primitive_desc_t pd = NULL;
    status = ls_dnnl_primitive_desc_iterator_fetch(choices, &pd);
    while (status == dnnl_success && is_broken(pd, desc)) {
        dnnl_primitive_desc_destroy(pd);
        status = ls_dnnl_primitive_desc_iterator_next(choices);
        if (status == dnnl_success)
            status = ls_dnnl_primitive_desc_iterator_fetch(choices, &pd);
    }
    dnnl_primitive_desc_iterator_destroy(choices);
    if (status == dnnl_success)
        *out = pd;
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

static dnnl_status_t forward_desc(dnnl_engine_t engine, const descs *d, dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &d->x, &d->kernel, d->bias_or_null, &d->y, d->stride,
        d->dilation, d->before, d->after);
    return status != dnnl_success ? status : choose(engine, &desc, attr, NULL, out);
}

/* hint: the forward descriptor that oneDNN wants beside a backward one. */
static dnnl_status_t backward_desc(dnnl_engine_t engine, kind kind, const descs *d, dnnl_primitive_attr_t attr,
                                   dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    if (kind == BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &d->x, &d->kernel,
                                                                  &d->y, d->stride, d->dilation, d->before, d->after);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &d->x, &d->kernel,
                                                                     d->bias_or_null, &d->y, d->stride, d->dilation,
                                                                     d->before, d->after);
    return status != dnnl_success ? status : choose(engine, &desc, attr, hint, out);
}

static dnnl_status_t conv_desc(ls_dnn *dnn, kind kind, const ls_dnn_conv *v, const descs *d, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = make_attr(kind == FORWARD && v->relu, &attr);
    if (status != dnnl_success)
        return status;
    if (kind == FORWARD) {
        status = forward_desc(dnn->engine, d, attr, out);
    } else {
        descs any = *d;
        any.kernel.format_kind = dnnl_format_kind_any;
        dnnl_primitive_desc_t hint;
        status = forward_desc(dnn->engine, &any, attr, &hint);
        if (status == dnnl_success) {
            status = backward_desc(dnn->engine, kind, d, attr, hint, out);
            dnnl_primitive_desc_destroy(hint);
        }
    }
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* Arguments in the order of the run functions. */
static ls_status add_conv_args(ls_dnn_op *op, const descs *d)
{
    static const int order[3][4] = {
        [FORWARD] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS },
        [BACKWARD_DATA] = { DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC },
        [BACKWARD_WEIGHTS] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS },
    };
    const dnnl_memory_desc_t *const arrays[3][3] = {
        [FORWARD] = { &d->x, &op->packed, &d->y },
        [BACKWARD_DATA] = { &d->y, &op->packed, &d->x },
        [BACKWARD_WEIGHTS] = { &d->x, &d->y, &op->packed },
    };
    for (int i = 0; i < 3; i++)
        LS_TRY(add_arg(op, order[op->kind][i], arrays[op->kind][i]));
    op->bias = op->kind != BACKWARD_DATA && d->bias_or_null != NULL;
    if (op->bias)
        LS_TRY(add_arg(op, order[op->kind][3], &d->bias));
    return add_scratch(op);
}

static ls_status fill_conv(ls_dnn_op *op, const ls_dnn_conv *conv, const ls_dnn_op *like)
{
    name_conv(op, conv);
    LS_TRY(check_sizes(op, conv));
    descs d;
    LS_TRY(check(describe(conv, op->kind == FORWARD, like, &op->hwio, &d), op));
    if (like != NULL && !dnnl_memory_desc_equal(&op->hwio, &like->hwio))
        return ls_fail(LS_ERR_INVALID, "oneDNN: %s: its kernel has another shape than the %s has", op->what,
                       like->what);
    dnnl_primitive_desc_t pd;
    LS_TRY(check(conv_desc(op->dnn, op->kind, conv, &d, &pd), op));
    dnnl_query_t kernel = op->kind == BACKWARD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    op->packed = *dnnl_primitive_desc_query_md(pd, kernel, 0);
    ls_status status = make_primitive(op, pd);
    dnnl_primitive_desc_destroy(pd);
    return status != LS_OK ? status : add_conv_args(op, &d);
}

static ls_status make_conv(ls_dnn *dnn, kind kind, const ls_dnn_conv *conv, const ls_dnn_op *like, ls_dnn_op **out)
{
    ls_dnn_op *op = NULL;
    LS_TRY(op_new(dnn, kind, &op));
    return finish(fill_conv(op, conv, like), op, out);
}

ls_status ls_dnn_conv_forward(ls_dnn *dnn, const ls_dnn_conv *conv, const ls_dnn_op *like, ls_dnn_op **out)
{
    return make_conv(dnn, FORWARD, conv, like, out);
}

ls_status ls_dnn_conv_backward_data(ls_dnn *dnn, const ls_dnn_conv *conv, const ls_dnn_op *like, ls_dnn_op **out)
{
    return make_conv(dnn, BACKWARD_DATA, conv, like, out);
}

ls_status ls_dnn_conv_backward_weights(ls_dnn *dnn, const ls_dnn_conv *conv, const ls_dnn_op *like, ls_dnn_op **out)
{
    return make_conv(dnn, BACKWARD_WEIGHTS, conv, like, out);
}

/* ---- reorders ---- */

static dnnl_status_t reorder_desc(dnnl_engine_t engine, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                  dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = make_attr(false, &attr);
    if (status != dnnl_success)
        return status;
    status = ls_dnnl_reorder_primitive_desc_create(out, from, engine, to, engine, attr);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static ls_status fill_reorder(ls_dnn_op *op, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to)
{
    dnnl_primitive_desc_t pd;
    LS_TRY(check(reorder_desc(op->dnn->engine, from, to, &pd), op));
    ls_status status = make_primitive(op, pd);
    dnnl_primitive_desc_destroy(pd);
    LS_TRY(status);
    LS_TRY(add_arg(op, DNNL_ARG_FROM, from));
    LS_TRY(add_arg(op, DNNL_ARG_TO, to));
    return add_scratch(op);
}

static ls_status make_reorder(ls_dnn *dnn, const ls_dnn_op *of, bool to_hwio, ls_dnn_op **out)
{
    ls_dnn_op *op = NULL;
    LS_TRY(op_new(dnn, REORDER, &op));
    snprintf(op->what, sizeof op->what, "reorder for a %.200s", of->what);
    op->hwio = of->hwio;
    op->packed = of->packed;
    ls_status status = to_hwio ? fill_reorder(op, &op->packed, &op->hwio) : fill_reorder(op, &op->hwio, &op->packed);
    return finish(status, op, out);
}

ls_status ls_dnn_reorder_from_hwio(ls_dnn *dnn, const ls_dnn_op *op, ls_dnn_op **out)
{
    return make_reorder(dnn, op, false, out);
}

ls_status ls_dnn_reorder_to_hwio(ls_dnn *dnn, const ls_dnn_op *op, ls_dnn_op **out)
{
    return make_reorder(dnn, op, true, out);
}

/* ---- matrix products ---- */

/* rows x columns, rows `lead` floats apart; transposed: the array holds columns x rows. */
static dnnl_status_t matrix(int64_t rows, int64_t columns, bool transposed, int64_t lead, dnnl_memory_desc_t *out)
{
    int64_t dense = transposed ? rows : columns;
    dnnl_dim_t dims[DNNL_MAX_NDIMS] = { rows, columns }, strides[DNNL_MAX_NDIMS] = { 0 };
    strides[transposed] = lead == 0 ? dense : lead;
    strides[!transposed] = 1;
    return dnnl_memory_desc_init_by_strides(out, 2, dims, dnnl_f32, strides);
}

static dnnl_status_t matmul_desc(dnnl_engine_t engine, const ls_dnn_matmul *v, dnnl_memory_desc_t m[4],
                                 dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = matrix(v->m, v->k, v->ta, v->lda, &m[0]);
    if (status == dnnl_success)
        status = matrix(v->k, v->n, v->tb, v->ldb, &m[1]);
    if (status == dnnl_success)
        status = matrix(v->m, v->n, false, v->ldc, &m[2]);
    if (status == dnnl_success)
        status = matrix(1, v->n, false, 0, &m[3]);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&desc, &m[0], &m[1], v->bias ? &m[3] : NULL, &m[2]);
    if (status != dnnl_success)
        return status;
    dnnl_primitive_attr_t attr;
    status = make_attr(false, &attr);
    if (status != dnnl_success)
        return status;
    status = ls_dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static ls_status fill_matmul(ls_dnn_op *op, const ls_dnn_matmul *v)
{
    snprintf(op->what, sizeof op->what,
             "matmul of %" PRId64 "x%" PRId64 "%s and %" PRId64 "x%" PRId64 "%s, leading %" PRId64 ", %" PRId64
             ", %" PRId64,
             v->m, v->k, v->ta ? " transposed" : "", v->k, v->n, v->tb ? " transposed" : "", v->lda, v->ldb, v->ldc);
    if (v->m < 1 || v->n < 1 || v->k < 1)
        return ls_fail(LS_ERR_INVALID, "oneDNN: %s: a size is below 1", op->what);
    dnnl_memory_desc_t m[4];
    dnnl_primitive_desc_t pd;
    LS_TRY(check(matmul_desc(op->dnn->engine, v, m, &pd), op));
    ls_status status = make_primitive(op, pd);
    dnnl_primitive_desc_destroy(pd);
    LS_TRY(status);
    LS_TRY(add_arg(op, DNNL_ARG_SRC, &m[0]));
    LS_TRY(add_arg(op, DNNL_ARG_WEIGHTS, &m[1]));
    LS_TRY(add_arg(op, DNNL_ARG_DST, &m[2]));
    op->bias = v->bias;
    if (op->bias)
        LS_TRY(add_arg(op, DNNL_ARG_BIAS, &m[3]));
    return add_scratch(op);
}

ls_status ls_dnn_matmul_create(ls_dnn *dnn, const ls_dnn_matmul *matmul, ls_dnn_op **out)
{
    ls_dnn_op *op = NULL;
    LS_TRY(op_new(dnn, MATMUL, &op));
    return finish(fill_matmul(op, matmul), op, out);
}

/* ---- asking ---- */

const char *ls_dnn_op_name(const ls_dnn_op *op)
{
    return op->name;
}

size_t ls_dnn_op_scratch_bytes(const ls_dnn_op *op)
{
    return op->scratch_bytes;
}

size_t ls_dnn_op_weights_bytes(const ls_dnn_op *op)
{
    return dnnl_memory_desc_get_size(&op->packed);
}

bool ls_dnn_op_multiplies_padding(const ls_dnn_op *op)
{
    return strstr(op->name, "gemm") != NULL; /* copies windows, padding included, to the columns of a matrix */
}

bool ls_dnn_op_weights_are_hwio(const ls_dnn_op *op)
{
    return dnnl_memory_desc_equal(&op->packed, &op->hwio);
}

bool ls_dnn_same_weights(const ls_dnn_op *a, const ls_dnn_op *b)
{
    return dnnl_memory_desc_equal(&a->packed, &b->packed);
}

/* ---- running ---- */

/* Setting a pointer also clears the padding behind it, so it is left alone when it stays the same. */
static dnnl_status_t point(dnnl_memory_t memory, void *data, dnnl_stream_t stream)
{
    void *old;
    dnnl_status_t status = dnnl_memory_get_data_handle(memory, &old);
    if (status != dnnl_success || old == data)
        return status;
    return ls_dnnl_memory_set_data_handle_v2(memory, data, stream);
}

static ls_status run(ls_dnn_op *op, kind kind, int worker, void *const data[MAX_ARGS])
{
    LS_TRY(check_thread());
    if (op->kind != kind || worker < 0 || worker >= op->dnn->workers)
        return ls_fail(LS_ERR_INTERNAL, "oneDNN: a %s is run as a %s by worker %d of %d", kind_names[op->kind],
                       kind_names[kind], worker, op->dnn->workers);
    dnnl_exec_arg_t *arg = op->arg + worker * MAX_ARGS;
    dnnl_stream_t stream = op->dnn->streams[worker];
    for (int i = 0; i < op->args; i++) {
        if (data[i] == NULL)
            return ls_fail(LS_ERR_INTERNAL, "oneDNN: %s: array %d of %d is missing", op->what, i + 1, op->args);
        LS_TRY(check(point(arg[i].memory, data[i], stream), op));
    }
    LS_TRY(check(ls_dnnl_primitive_execute(op->primitive, stream, op->args, arg), op));
    return check(ls_dnnl_stream_wait(stream), op);
}

ls_status ls_dnn_run_forward(ls_dnn_op *op, int worker, const float *x, const float *kernel, const float *bias,
                             float *y, void *scratch)
{
    void *last = op->bias ? (void *)bias : scratch;
    return run(op, FORWARD, worker, (void *[MAX_ARGS]){ (void *)x, (void *)kernel, y, last, scratch });
}

ls_status ls_dnn_run_backward_data(ls_dnn_op *op, int worker, const float *dy, const float *kernel, float *dx,
                                   void *scratch)
{
    return run(op, BACKWARD_DATA, worker, (void *[MAX_ARGS]){ (void *)dy, (void *)kernel, dx, scratch });
}

ls_status ls_dnn_run_backward_weights(ls_dnn_op *op, int worker, const float *x, const float *dy, float *dkernel,
                                      float *dbias, void *scratch)
{
    void *last = op->bias ? (void *)dbias : scratch;
    return run(op, BACKWARD_WEIGHTS, worker, (void *[MAX_ARGS]){ (void *)x, (void *)dy, dkernel, last, scratch });
}

ls_status ls_dnn_run_reorder(ls_dnn_op *op, int worker, const float *from, float *to, void *scratch)
{
    return run(op, REORDER, worker, (void *[MAX_ARGS]){ (void *)from, to, scratch });
}

ls_status ls_dnn_run_matmul(ls_dnn_op *op, int worker, const float *a, const float *b, const float *bias, float *c,
                            void *scratch)
{
    void *last = op->bias ? (void *)bias : scratch;
    return run(op, MATMUL, worker, (void *[MAX_ARGS]){ (void *)a, (void *)b, c, last, scratch });
}

ls_status ls_dnn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                       int64_t ldb, float beta, float *c, int64_t ldc)
{
    LS_TRY(check_thread());
    dnnl_status_t status = ls_dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
    if (status != dnnl_success)
        return ls_fail(status_of(status),
                       "oneDNN: matmul of %" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64 ", leading %" PRId64
                       ", %" PRId64 ", %" PRId64 ": status %d",
                       m, k, k, n, lda, ldb, ldc, (int)status);
    return LS_OK;
}
