/* Matrix products by cuBLAS and convolutions by cuDNN. Their bits differ from ours but are the same
 * every time on one kind of GPU: cuBLAS without atomics and TF32, with a workspace of fixed size;
 * cuDNN's algorithms that add in a fixed order, without TF32.
 *
 * Descriptors of a convolution are created when a plan first asks for it, and kept until the device
 * is closed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

#define WORKSPACE       ((size_t)4 << 20)  /* for cuBLAS, as NVIDIA recommends */
#define LARGE_WORKSPACE ((size_t)32 << 20) /* from sm_90 on */
#define BUCKETS         256

/* cuDNN's descriptors and algorithm of a convolution. */
typedef struct convolution {
    struct convolution *next;
    ls_gpu_call call; /* with the workspace that the algorithm needs */
    ls_cu_enum algorithm;
    bool can;
    ls_cudnn_tensor x, y;
    ls_cudnn_filter kernel;
    ls_cudnn_convolution how;
} convolution;

struct ls_vendor {
    const ls_vendor_libraries *libraries;
    ls_cublas_handle cublas;
    ls_cudnn_handle cudnn;
    void *workspace; /* set last in cuBLAS */
    convolution *known[BUCKETS];
};

static ls_status cublas_failed(const ls_cuda_opened *d, const char *what, int error)
{
    return ls_fail(error == LS_CUBLAS_STATUS_ALLOC_FAILED ? LS_ERR_MEMORY : LS_ERR_DEVICE, "%s: cuBLAS: %s: error %d",
                   d->what->name, what, error);
}

static ls_status cudnn_failed(const ls_cuda_opened *d, const char *what, int error)
{
    return ls_fail(LS_ERR_DEVICE, "%s: cuDNN: %s: error %d", d->what->name, what, error);
}

/* Calls with the device's context as the thread's current one. */
#define VENDOR_TRY(d, failed, doing, call)                                                                             \
    do {                                                                                                               \
        char why_[96];                                                                                                 \
        int error_ = (d)->cu->CtxPushCurrent((d)->context);                                                            \
        if (error_ != LS_CUDA_SUCCESS)                                                                                 \
            return ls_fail(LS_ERR_DEVICE, "%s: %s: %s", (d)->what->name, doing, ls_cuda_error((d)->cu, error_, why_)); \
        error_ = (call);                                                                                               \
        (d)->cu->CtxPopCurrent(NULL);                                                                                  \
        if (error_ != 0)                                                                                               \
            return failed(d, doing, error_);                                                                           \
    } while (0)

static int open_cublas(const ls_cuda_opened *d, ls_vendor *v)
{
    const ls_cublas *b = &v->libraries->cublas;
    int error = b->Create(&v->cublas);
    if (error != LS_CUBLAS_STATUS_SUCCESS) {
        v->cublas = NULL;
        return error;
    }
    error = b->SetStream(v->cublas, d->stream);
    if (error == LS_CUBLAS_STATUS_SUCCESS)
        error = b->SetMathMode(v->cublas, LS_CUBLAS_PEDANTIC_MATH);
    if (error == LS_CUBLAS_STATUS_SUCCESS)
        error = b->SetAtomicsMode(v->cublas, LS_CUBLAS_ATOMICS_NOT_ALLOWED);
    return error;
}

static int open_cudnn(const ls_cuda_opened *d, ls_vendor *v)
{
    const ls_cudnn *n = &v->libraries->cudnn;
    int error = n->Create(&v->cudnn);
    if (error != LS_CUDNN_STATUS_SUCCESS) {
        v->cudnn = NULL;
        return error;
    }
    return n->SetStream(v->cudnn, d->stream);
}

ls_status ls_vendor_open(ls_cuda_opened *d)
{
    const ls_vendor_libraries *found = ls_vendor_get();
    if (found->problem[0])
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: the vendor's kernels are requested, but %s; name the folders in LOCKSTEP_CUDA_PATH, "
                       "or use the library's own kernels",
                       d->what->name, found->problem);
    d->vendor = calloc(1, sizeof(*d->vendor));
    if (!d->vendor)
        return ls_fail(LS_ERR_MEMORY, "no memory for cuBLAS and cuDNN");
    d->vendor->libraries = found;
    VENDOR_TRY(d, cublas_failed, "opening", open_cublas(d, d->vendor));
    VENDOR_TRY(d, cudnn_failed, "opening", open_cudnn(d, d->vendor));
    return LS_OK;
}

static void drop_descriptors(const ls_cudnn *n, convolution *c)
{
    if (c->x)
        n->DestroyTensor(c->x);
    if (c->y)
        n->DestroyTensor(c->y);
    if (c->kernel)
        n->DestroyFilter(c->kernel);
    if (c->how)
        n->DestroyConvolution(c->how);
    c->x = c->y = NULL;
    c->kernel = NULL;
    c->how = NULL;
}

static int close_handles(ls_vendor *v)
{
    for (int i = 0; i < BUCKETS; i++)
        for (convolution *c = v->known[i], *next; c; c = next) {
            next = c->next;
            drop_descriptors(&v->libraries->cudnn, c);
            free(c);
        }
    if (v->cudnn)
        v->libraries->cudnn.Destroy(v->cudnn);
    if (v->cublas)
        v->libraries->cublas.Destroy(v->cublas);
    return 0;
}

void ls_vendor_close(ls_cuda_opened *d)
{
    int ignored;
    if (!d->vendor)
        return;
    LS_CUDA_WITHIN(d, ignored, close_handles(d->vendor));
    (void)ignored;
    free(d->vendor);
    d->vendor = NULL;
}

void ls_vendor_describe(const ls_cuda_device *device, size_t limit, ls_text *text)
{
    const ls_vendor_libraries *found = ls_vendor_get();
    const int *b = found->cublas_version, *n = found->cudnn_version;
    ls_text_add(text, "cuBLAS %d.%d.%d and cuDNN %d.%d.%d on sm_%d%d with %d multiprocessors", b[0], b[1], b[2], n[0],
                n[1], n[2], device->major, device->minor, device->multiprocessors);
    /* It decides which algorithms are used. */
    if (ls_gpu_workspace_limit(limit) < ls_gpu_workspace_limit(0))
        ls_text_add(text, ", workspaces of up to %zu KiB", ls_gpu_workspace_limit(limit) >> 10);
}

static size_t bucket_of(const ls_gpu_call *call)
{
    const i64 *words = (const i64 *)(const void *)&call->of.window;
    uint64_t hash = (uint64_t)call->kind;
    for (size_t i = 0; i < sizeof(call->of.window) / sizeof(*words); i++)
        hash = (hash ^ (uint64_t)words[i]) * 1099511628211ull;
    return (size_t)(hash >> 32) % BUCKETS;
}

static convolution *find(const ls_vendor *v, const ls_gpu_call *call)
{
    convolution *c = v->known[bucket_of(call)];
    while (c &&
           (c->call.kind != call->kind || memcmp(&c->call.of.window, &call->of.window, sizeof(call->of.window)) != 0))
        c = c->next;
    return c;
}

#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        int error_ = (call);                                                                                           \
        if (error_ != LS_CUDNN_STATUS_SUCCESS)                                                                         \
            return error_;                                                                                             \
    } while (0)

static int describe_tensor(const ls_cudnn *n, ls_cudnn_tensor *out, i64 samples, i64 h, i64 w, i64 c)
{
    STEP(n->CreateTensor(out));
    return n->SetTensor(*out, LS_CUDNN_TENSOR_NHWC, LS_CUDNN_DATA_FLOAT, (int)samples, (int)c, (int)h, (int)w);
}

static int describe(const ls_cudnn *n, convolution *c)
{
    const ls_gpu_window *v = &c->call.of.window;
    STEP(describe_tensor(n, &c->x, v->n, v->h, v->w, v->c));
    STEP(describe_tensor(n, &c->y, v->n, v->yh, v->yw, v->out));
    STEP(n->CreateFilter(&c->kernel));
    STEP(n->SetFilter(c->kernel, LS_CUDNN_DATA_FLOAT, LS_CUDNN_TENSOR_NHWC, (int)v->out, (int)v->group_in, (int)v->kh,
                      (int)v->kw));
    STEP(n->CreateConvolution(&c->how));
    STEP(n->SetConvolution(c->how, (int)v->pad[0], (int)v->pad[1], (int)v->stride[0], (int)v->stride[1],
                           (int)v->dilation[0], (int)v->dilation[1], LS_CUDNN_CROSS_CORRELATION, LS_CUDNN_DATA_FLOAT));
    STEP(n->SetGroups(c->how, (int)v->groups));
    return n->SetMath(c->how, LS_CUDNN_FMA_MATH);
}

/* Those that add in a fixed order, by preference. FFT and Winograd need even larger workspaces. */
static const struct {
    int count;
    ls_cu_enum list[2];
} algorithms[] = {
    [LS_GPU_CALL_CONV] = { 2,
                           { LS_CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                             LS_CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM } },
    [LS_GPU_CALL_CONV_GRAD_INPUT] = { 1, { LS_CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 } },
    [LS_GPU_CALL_CONV_GRAD_KERNEL] = { 1, { LS_CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 } },
};

static int ask_workspace(const ls_vendor *v, const convolution *c, size_t *bytes)
{
    const ls_cudnn *n = &v->libraries->cudnn;
    switch (c->call.kind) {
    case LS_GPU_CALL_CONV:
        return n->ForwardWorkspace(v->cudnn, c->x, c->kernel, c->how, c->y, c->algorithm, bytes);
    case LS_GPU_CALL_CONV_GRAD_INPUT:
        return n->DataWorkspace(v->cudnn, c->kernel, c->y, c->how, c->x, c->algorithm, bytes);
    default:
        return n->FilterWorkspace(v->cudnn, c->x, c->y, c->how, c->kernel, c->algorithm, bytes);
    }
}

static bool is_unsupported(const ls_vendor *v, int error)
{
    return v->libraries->cudnn_version[0] >= 9 ? error / 1000 == LS_CUDNN_STATUS_NOT_SUPPORTED / 1000 : error == 9;
}

/* The first that cuDNN supports with a workspace that is not too large. */
static int choose_algorithm(const ls_vendor *v, convolution *c)
{
    size_t most = c->call.workspace, bytes = 0;
    for (int i = 0; i < algorithms[c->call.kind].count && !c->can; i++) {
        c->algorithm = algorithms[c->call.kind].list[i];
        int error = ask_workspace(v, c, &bytes);
        if (error != LS_CUDNN_STATUS_SUCCESS && !is_unsupported(v, error))
            return error;
        c->can = error == LS_CUDNN_STATUS_SUCCESS && bytes <= most;
    }
    c->call.workspace = bytes;
    return LS_CUDNN_STATUS_SUCCESS;
}

static int get_to_know(const ls_vendor *v, convolution *c)
{
    int error = describe(&v->libraries->cudnn, c);
    if (error == LS_CUDNN_STATUS_SUCCESS)
        error = choose_algorithm(v, c);
    if (!c->can)
        drop_descriptors(&v->libraries->cudnn, c);
    return is_unsupported(v, error) ? LS_CUDNN_STATUS_SUCCESS : error;
}

static ls_status meet(ls_cuda_opened *d, convolution *c)
{
    VENDOR_TRY(d, cudnn_failed, "a convolution", get_to_know(d->vendor, c));
    return LS_OK;
}

static ls_status ask_convolution(ls_cuda_opened *d, ls_gpu_call *call, bool *can)
{
    ls_vendor *v = d->vendor;
    convolution *c = find(v, call);
    if (!c) {
        c = calloc(1, sizeof(*c));
        if (!c)
            return ls_fail(LS_ERR_MEMORY, "no memory for a convolution of cuDNN");
        c->call = *call;
        ls_status status = meet(d, c);
        if (status != LS_OK) {
            free(c);
            return status;
        }
        c->next = v->known[bucket_of(call)];
        v->known[bucket_of(call)] = c;
    }
    *can = c->can;
    call->workspace = c->call.workspace;
    return LS_OK;
}

ls_status ls_vendor_ask(void *device, ls_gpu_call *call, bool *can)
{
    if (call->kind != LS_GPU_CALL_PRODUCT)
        return ask_convolution(device, call, can);
    size_t bytes = ((const ls_cuda_opened *)device)->what->major >= 9 ? LARGE_WORKSPACE : WORKSPACE;
    *can = bytes <= call->workspace;
    call->workspace = bytes;
    return LS_OK;
}

static void *at_place(ls_memory_place place)
{
    return (char *)place.memory + place.offset;
}

static int convolve(const ls_vendor *v, const convolution *c, const ls_memory_place *at)
{
    static const float one = 1, zero = 0;
    const ls_cudnn *n = &v->libraries->cudnn;
    const void *a = at_place(at[0]), *b = at_place(at[1]);
    void *out = at_place(at[2]), *space = c->call.workspace ? at_place(at[3]) : NULL;
    size_t bytes = c->call.workspace;
    switch (c->call.kind) {
    case LS_GPU_CALL_CONV:
        return n->Forward(v->cudnn, &one, c->x, a, c->kernel, b, c->how, c->algorithm, space, bytes, &zero, c->y, out);
    case LS_GPU_CALL_CONV_GRAD_INPUT:
        return n->BackwardData(v->cudnn, &one, c->kernel, a, c->y, b, c->how, c->algorithm, space, bytes, &zero, c->x,
                               out);
    default:
        return n->BackwardFilter(v->cudnn, &one, c->x, a, c->y, b, c->how, c->algorithm, space, bytes, &zero, c->kernel,
                                 out);
    }
}

/* cuBLAS sees our matrices transposed: out' [n,m] is b' [n,k] times a' [k,m]. beta 1: adds to
 * `out`. */
static int multiply(const ls_vendor *v, const ls_gpu_matrices *m, const float *a, const float *b, float beta,
                    float *out)
{
    static const float one = 1;
    ls_cu_enum turn_a = m->transpose_a ? LS_CUBLAS_OP_T : LS_CUBLAS_OP_N;
    ls_cu_enum turn_b = m->transpose_b ? LS_CUBLAS_OP_T : LS_CUBLAS_OP_N;
    int a_row = (int)(m->transpose_a ? m->m : m->k), b_row = (int)(m->transpose_b ? m->k : m->n);
    return v->libraries->cublas.Sgemm(v->cublas, turn_b, turn_a, (int)m->n, (int)m->m, (int)m->k, &one, b, b_row, a,
                                      a_row, &beta, out, (int)m->n);
}

static int multiply_each(const ls_vendor *v, const ls_gpu_matrices *m, const float *a, const float *b, float *out)
{
    static const float one = 1, zero = 0;
    const ls_gpu_walk *w = &m->leading;
    i64 last = w->rank - 1;
    ls_cu_enum turn_a = m->transpose_a ? LS_CUBLAS_OP_T : LS_CUBLAS_OP_N;
    ls_cu_enum turn_b = m->transpose_b ? LS_CUBLAS_OP_T : LS_CUBLAS_OP_N;
    int a_row = (int)(m->transpose_a ? m->m : m->k), b_row = (int)(m->transpose_b ? m->k : m->n);
    return v->libraries->cublas.SgemmStridedBatched(v->cublas, turn_b, turn_a, (int)m->n, (int)m->m, (int)m->k, &one, b,
                                                    b_row, w->stride[1][last], a, a_row, w->stride[0][last], &zero, out,
                                                    (int)m->n, m->m * m->n, (int)w->size[last]);
}

/* Offset in array k of index i of the first `rank` axes. */
static i64 walk_at(const ls_gpu_walk *w, i64 rank, int k, i64 i)
{
    i64 at = w->start[k];
    for (i64 axis = rank - 1; axis >= 0; i /= w->size[axis], axis--)
        at += i % w->size[axis] * w->stride[k][axis];
    return at;
}

static int multiply_all(ls_vendor *v, const ls_gpu_call *call, const ls_memory_place *at)
{
    const ls_gpu_matrices *m = &call->of.matrices;
    const ls_gpu_walk *w = &m->leading;
    const float *a = at_place(at[0]), *b = at_place(at[1]);
    float *out = at_place(at[2]);
    bool each = !m->sums && w->rank > 0;
    i64 axes = each ? w->rank - 1 : w->rank, together = each ? w->size[w->rank - 1] : 1;
    if (v->workspace != at_place(at[3])) {
        v->workspace = NULL;
        STEP(v->libraries->cublas.SetWorkspace(v->cublas, at_place(at[3]), call->workspace));
        v->workspace = at_place(at[3]);
    }
    for (i64 i = 0; i < w->n / together; i++) {
        const float *from_a = a + walk_at(w, axes, 0, i), *from_b = b + walk_at(w, axes, 1, i);
        STEP(each ? multiply_each(v, m, from_a, from_b, out + i * together * m->m * m->n)
                  : multiply(v, m, from_a, from_b, m->sums && i > 0 ? 1.0f : 0.0f, out));
    }
    return LS_CUBLAS_STATUS_SUCCESS;
}

ls_status ls_vendor_call(void *device, const ls_gpu_call *call, const ls_memory_place *at)
{
    ls_cuda_opened *d = device;
    if (call->kind == LS_GPU_CALL_PRODUCT) {
        VENDOR_TRY(d, cublas_failed, "a matrix product", multiply_all(d->vendor, call, at));
        return LS_OK;
    }
    const convolution *c = find(d->vendor, call);
    if (!c || !c->can)
        return ls_fail(LS_ERR_INTERNAL, "%s: cuDNN was not asked about this convolution", d->what->name);
    VENDOR_TRY(d, cudnn_failed, "a convolution", convolve(d->vendor, c, at));
    return LS_OK;
}
