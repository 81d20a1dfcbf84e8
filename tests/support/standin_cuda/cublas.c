/* libcublas.so.13 of the stand-in: see standin.h. Sums go from the last product to the first, and
 * products are rounded. / */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13, LEAST_WORKSPACE = 1 << 20 };

typedef struct handle {
    void *context, *stream, *workspace;
    size_t bytes;
    int math, atomics;
} handle;

static int misuse(int error)
{
    standin_misuse();
    return error;
}

/* Every call of a handle begins so. */
static int enter(const char *name, const handle *h)
{
    int error = standin_call(name);
    if (error == SUCCESS && (!h || h->context != standin_current()))
        error = misuse(INVALID_VALUE);
    return error;
}

API int cublasGetProperty(int type, int *value)
{
    static const int version[] = { 13, 0, 2 };
    *value = type >= 0 && type < 3 ? version[type] : 0;
    return standin_call("cublasGetProperty");
}

API int cublasCreate_v2(handle **out)
{
    int error = standin_call("cublasCreate_v2");
    if (error == SUCCESS && !standin_current())
        error = misuse(1);
    handle *h = error == SUCCESS ? calloc(1, sizeof *h) : NULL;
    if (error == SUCCESS && !h)
        error = ALLOC_FAILED;
    if (h) {
        h->context = standin_current();
        standin_hold(1);
        *out = h;
    }
    return error;
}

API int cublasDestroy_v2(handle *h)
{
    standin_hold(-1);
    free(h);
    return SUCCESS;
}

API int cublasSetStream_v2(handle *h, void *stream)
{
    int error = enter("cublasSetStream_v2", h);
    if (error == SUCCESS && standin_context_of(stream) != h->context)
        error = misuse(INVALID_VALUE);
    if (error == SUCCESS) {
        h->stream = stream;
        h->workspace = NULL; /* as the real one does */
    }
    return error;
}

API int cublasSetWorkspace_v2(handle *h, void *workspace, size_t bytes)
{
    int error = enter("cublasSetWorkspace_v2", h);
    if (error == SUCCESS && (size_t)workspace % 256 != 0)
        error = misuse(INVALID_VALUE);
    if (error == SUCCESS) {
        h->workspace = workspace;
        h->bytes = bytes;
    }
    return error;
}

API int cublasSetMathMode(handle *h, int mode)
{
    int error = enter("cublasSetMathMode", h);
    if (error == SUCCESS)
        h->math = mode;
    return error;
}

API int cublasSetAtomicsMode(handle *h, int mode)
{
    int error = enter("cublasSetAtomicsMode", h);
    if (error == SUCCESS)
        h->atomics = mode + 1;
    return error;
}

/* c [m,n] is op(a) [m,k] times op(b) [k,n], column by column. */
typedef struct product {
    standin_area area[4]; /* a, b, c, workspace */
    int turn_a, turn_b, m, n, k, lda, ldb, ldc, count;
    long long step_a, step_b, step_c;
    float alpha, beta;
} product;

static void run(const void *packed)
{
    const product *p = packed;
    memset((void *)p->area[3].at, 0xff, p->area[3].bytes);
    for (int i = 0; i < p->count; i++) {
        const float *a = (const float *)p->area[0].at + i * p->step_a,
                    *b = (const float *)p->area[1].at + i * p->step_b;
        float *c = (float *)p->area[2].at + i * p->step_c;
        for (int col = 0; col < p->n; col++)
            for (int row = 0; row < p->m; row++) {
                float sum = 0;
                for (int t = p->k; t-- > 0;) {
                    float product_ = a[p->turn_a ? row * p->lda + t : t * p->lda + row] *
                                     b[p->turn_b ? t * p->ldb + col : col * p->ldb + t];
                    sum += product_;
                }
                float *to = &c[col * p->ldc + row];
                *to = p->beta == 0 ? p->alpha * sum : p->alpha * sum + p->beta * *to;
            }
    }
}

/* Bytes from the first element to behind the last. */
static size_t reach(int turned, int rows, int columns, int ld, long long step, int count)
{
    size_t last = (size_t)(turned ? rows - 1 : columns - 1) * (size_t)ld + (size_t)(turned ? columns : rows);
    return (last + (size_t)(count - 1) * (size_t)step) * sizeof(float);
}

static int begin(const char *name, handle *h, product p)
{
    int error = enter(name, h);
    if (error != SUCCESS)
        return error;
    if (p.m < 1 || p.n < 1 || p.k < 1 || p.lda < (p.turn_a ? p.k : p.m) || p.ldb < (p.turn_b ? p.n : p.k) ||
        p.ldc < p.m || h->math != 2 || h->atomics != 1 || !h->stream || !h->workspace || h->bytes < LEAST_WORKSPACE)
        return misuse(INVALID_VALUE);
    p.area[0].bytes = reach(p.turn_a, p.m, p.k, p.lda, p.step_a, p.count);
    p.area[1].bytes = reach(p.turn_b, p.k, p.n, p.ldb, p.step_b, p.count);
    p.area[2].bytes = reach(0, p.m, p.n, p.ldc, p.step_c, p.count);
    p.area[3] = (standin_area){ h->workspace, h->bytes };
    product *packed = malloc(sizeof *packed);
    if (!packed)
        return ALLOC_FAILED;
    *packed = p;
    return standin_enqueue(h->stream, run, packed, packed->area, 4) == SUCCESS ? SUCCESS : EXECUTION_FAILED;
}

API int cublasSgemm_v2(handle *h, int turn_a, int turn_b, int m, int n, int k, const float *alpha, const float *a,
                       int lda, const float *b, int ldb, const float *beta, float *c, int ldc)
{
    return begin("cublasSgemm_v2", h,
                 (product){ .area = { { a, 0 }, { b, 0 }, { c, 0 } },
                            .turn_a = turn_a,
                            .turn_b = turn_b,
                            .m = m,
                            .n = n,
                            .k = k,
                            .lda = lda,
                            .ldb = ldb,
                            .ldc = ldc,
                            .count = 1,
                            .alpha = *alpha,
                            .beta = *beta });
}

API int cublasSgemmStridedBatched(handle *h, int turn_a, int turn_b, int m, int n, int k, const float *alpha,
                                  const float *a, int lda, long long step_a, const float *b, int ldb, long long step_b,
                                  const float *beta, float *c, int ldc, long long step_c, int count)
{
    return begin("cublasSgemmStridedBatched", h,
                 (product){ .area = { { a, 0 }, { b, 0 }, { c, 0 } },
                            .turn_a = turn_a,
                            .turn_b = turn_b,
                            .m = m,
                            .n = n,
                            .k = k,
                            .lda = lda,
                            .ldb = ldb,
                            .ldc = ldc,
                            .count = count,
                            .step_a = step_a,
                            .step_b = step_b,
                            .step_c = step_c,
                            .alpha = *alpha,
                            .beta = *beta });
}
