/* libcudnn.so.9 of the stand-in: see standin.h. Of convolutions what src/backend/cuda/vendor.c asks
 * for: NHWC, float32 without TF32, algorithms whose sums have one order. They go from the last
 * product to the first, and products are rounded. The forward algorithm that needs no workspace
 * goes from the first to the last. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, ALLOC_FAILED = 1003, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { FLOAT = 0, NHWC = 1, CROSS = 1, FMA_MATH = 3 };

typedef struct handle {
    void *context, *stream;
} handle;

typedef struct tensor {
    int n, c, h, w;
} tensor;

typedef struct convolution {
    int pad[2], stride[2], dilation[2], groups, math;
} convolution;

static int misuse(int error)
{
    standin_misuse();
    return error;
}

API int cudnnGetProperty(int type, int *value)
{
    static const int version[] = { 9, 13, 0 };
    *value = type >= 0 && type < 3 ? version[type] : 0;
    return standin_call("cudnnGetProperty");
}

/* Something new, of all zeros, that is held until it is destroyed. */
static int create(const char *name, size_t bytes, void *out)
{
    int error = standin_call(name);
    void *made = error == SUCCESS ? calloc(1, bytes) : NULL;
    if (error == SUCCESS && !made)
        error = ALLOC_FAILED;
    if (made) {
        standin_hold(1);
        memcpy(out, &made, sizeof made);
    }
    return error;
}

static int destroy(void *what)
{
    standin_hold(-1);
    free(what);
    return SUCCESS;
}

API int cudnnCreate(handle **out)
{
    int error = create("cudnnCreate", sizeof(handle), out);
    if (error == SUCCESS)
        (*out)->context = standin_current();
    return error == SUCCESS && !(*out)->context ? misuse(BAD_PARAM) : error;
}

API int cudnnDestroy(handle *h)
{
    return destroy(h);
}

API int cudnnSetStream(handle *h, void *stream)
{
    int error = standin_call("cudnnSetStream");
    if (error == SUCCESS && (h->context != standin_current() || standin_context_of(stream) != h->context))
        error = misuse(BAD_PARAM);
    if (error == SUCCESS)
        h->stream = stream;
    return error;
}

API int cudnnCreateTensorDescriptor(tensor **out)
{
    return create("cudnnCreateTensorDescriptor", sizeof(tensor), out);
}

API int cudnnDestroyTensorDescriptor(tensor *t)
{
    return destroy(t);
}

static int set(const char *name, tensor *t, int format, int type, tensor to)
{
    int error = standin_call(name);
    if (error == SUCCESS && (format != NHWC || type != FLOAT || to.n < 1 || to.c < 1 || to.h < 1 || to.w < 1))
        error = misuse(BAD_PARAM);
    if (error == SUCCESS)
        *t = to;
    return error;
}

API int cudnnSetTensor4dDescriptor(tensor *t, int format, int type, int n, int c, int h, int w)
{
    return set("cudnnSetTensor4dDescriptor", t, format, type, (tensor){ n, c, h, w });
}

API int cudnnCreateFilterDescriptor(tensor **out)
{
    return create("cudnnCreateFilterDescriptor", sizeof(tensor), out);
}

API int cudnnDestroyFilterDescriptor(tensor *t)
{
    return destroy(t);
}

API int cudnnSetFilter4dDescriptor(tensor *t, int type, int format, int k, int c, int h, int w)
{
    return set("cudnnSetFilter4dDescriptor", t, format, type, (tensor){ k, c, h, w });
}

API int cudnnCreateConvolutionDescriptor(convolution **out)
{
    return create("cudnnCreateConvolutionDescriptor", sizeof(convolution), out);
}

API int cudnnDestroyConvolutionDescriptor(convolution *c)
{
    return destroy(c);
}

API int cudnnSetConvolution2dDescriptor(convolution *c, int pad_h, int pad_w, int stride_h, int stride_w,
                                        int dilation_h, int dilation_w, int mode, int type)
{
    int error = standin_call("cudnnSetConvolution2dDescriptor");
    if (error == SUCCESS && (mode != CROSS || type != FLOAT))
        error = misuse(BAD_PARAM);
    if (error == SUCCESS)
        *c = (convolution){ { pad_h, pad_w }, { stride_h, stride_w }, { dilation_h, dilation_w }, 1, 0 };
    return error;
}

API int cudnnSetConvolutionGroupCount(convolution *c, int groups)
{
    int error = standin_call("cudnnSetConvolutionGroupCount");
    if (error == SUCCESS)
        c->groups = groups;
    return error;
}

API int cudnnSetConvolutionMathType(convolution *c, int math)
{
    int error = standin_call("cudnnSetConvolutionMathType");
    if (error == SUCCESS)
        c->math = math;
    return error;
}

/* ---- Convolutions ---- */

typedef enum kind { FORWARD, DATA, FILTER } kind;

/* Bytes that an algorithm needs. */
static size_t workspace_bytes(const tensor *w, int algorithm)
{
    const char *more = getenv("STANDIN_CUDNN_WORKSPACE");
    return algorithm == 1 && w->h * w->w > 1 ? 64 + (size_t)w->c * 4 + (more ? strtoul(more, NULL, 10) : 0) : 0;
}

/* What is done later; a, b: what it is given, in the order of the call. */
typedef struct job {
    standin_area area[4]; /* a, b, out, workspace */
    kind kind;
    bool forwards; /* from the first product to the last */
    tensor x, w, y;
    convolution c;
    float alpha, beta;
} job;

static size_t elements(const tensor *t)
{
    return (size_t)t->n * (size_t)t->c * (size_t)t->h * (size_t)t->w;
}

static int outputs(int size, int window, const convolution *c, int axis)
{
    return (size + 2 * c->pad[axis] - ((window - 1) * c->dilation[axis] + 1)) / c->stride[axis] + 1;
}

/* Some bytes, by shape; NOT_SUPPORTED: groups with dilation, and a number of samples that a test
 * asks for. */
static int workspace_of(const char *name, kind kind, const handle *h, const tensor *x, const tensor *w, const tensor *y,
                        const convolution *c, int algorithm, size_t *bytes)
{
    int error = standin_call(name);
    const char *refused = getenv("STANDIN_CUDNN_REFUSES");
    if (error != SUCCESS)
        return error;
    if (h->context != standin_current() || (algorithm != 1 && (algorithm != 0 || kind != FORWARD)) ||
        c->math != FMA_MATH || x->n != y->n || x->c != w->c * c->groups || y->c != w->n || w->n % c->groups != 0 ||
        y->h != outputs(x->h, w->h, c, 0) || y->w != outputs(x->w, w->w, c, 1))
        return misuse(BAD_PARAM);
    if ((c->groups > 1 && c->dilation[0] > 1) || (refused && atoi(refused) == x->n))
        return NOT_SUPPORTED + 2;
    *bytes = workspace_bytes(w, algorithm);
    return SUCCESS;
}

API int cudnnGetConvolutionForwardWorkspaceSize(handle *h, tensor *x, tensor *w, convolution *c, tensor *y,
                                                int algorithm, size_t *bytes)
{
    return workspace_of("cudnnGetConvolutionForwardWorkspaceSize", FORWARD, h, x, w, y, c, algorithm, bytes);
}

API int cudnnGetConvolutionBackwardDataWorkspaceSize(handle *h, tensor *w, tensor *y, convolution *c, tensor *x,
                                                     int algorithm, size_t *bytes)
{
    return workspace_of("cudnnGetConvolutionBackwardDataWorkspaceSize", DATA, h, x, w, y, c, algorithm, bytes);
}

API int cudnnGetConvolutionBackwardFilterWorkspaceSize(handle *h, tensor *x, tensor *y, convolution *c, tensor *w,
                                                       int algorithm, size_t *bytes)
{
    return workspace_of("cudnnGetConvolutionBackwardFilterWorkspaceSize", FILTER, h, x, w, y, c, algorithm, bytes);
}

/* out += what one output, one tap and one channel of its group have to do with each other. */
static void touch(const job *j, int n, int row, int column, int filter, int kh, int kw, int c)
{
    const tensor *x = &j->x, *w = &j->w, *y = &j->y;
    int h = row * j->c.stride[0] - j->c.pad[0] + kh * j->c.dilation[0];
    int v = column * j->c.stride[1] - j->c.pad[1] + kw * j->c.dilation[1];
    if (h < 0 || h >= x->h || v < 0 || v >= x->w)
        return;
    int channel = filter / (w->n / j->c.groups) * w->c + c;
    size_t at_x = (((size_t)n * (size_t)x->h + (size_t)h) * (size_t)x->w + (size_t)v) * (size_t)x->c + (size_t)channel;
    size_t at_w = (((size_t)filter * (size_t)w->h + (size_t)kh) * (size_t)w->w + (size_t)kw) * (size_t)w->c + (size_t)c;
    size_t at_y =
        (((size_t)n * (size_t)y->h + (size_t)row) * (size_t)y->w + (size_t)column) * (size_t)y->c + (size_t)filter;
    size_t a = j->kind == DATA ? at_w : at_x, b = j->kind == FORWARD ? at_w : at_y;
    size_t out = j->kind == FORWARD ? at_y : j->kind == DATA ? at_x : at_w;
    float product = ((const float *)j->area[0].at)[a] * ((const float *)j->area[1].at)[b];
    ((float *)j->area[2].at)[out] += product;
}

static void run(const void *packed)
{
    const job *j = packed;
    memset((void *)j->area[2].at, 0, j->area[2].bytes);
    if (j->area[3].bytes)
        memset((void *)j->area[3].at, 0xff, j->area[3].bytes);
    for (int n = j->y.n; n-- > 0;)
        for (int row = j->y.h; row-- > 0;)
            for (int column = j->y.w; column-- > 0;)
                for (int kh = j->w.h; kh-- > 0;)
                    for (int kw = j->w.w; kw-- > 0;)
                        for (int c = j->w.c; c-- > 0;)
                            for (int filter = j->w.n; filter-- > 0;)
                                if (j->forwards)
                                    touch(j, n, row, column, filter, j->w.h - 1 - kh, j->w.w - 1 - kw, j->w.c - 1 - c);
                                else
                                    touch(j, n, row, column, filter, kh, kw, c);
}

static int begin(const char *name, const handle *h, int algorithm, job j)
{
    const tensor *a = j.kind == DATA ? &j.w : &j.x, *b = j.kind == FORWARD ? &j.w : &j.y;
    const tensor *out = j.kind == FORWARD ? &j.y : j.kind == DATA ? &j.x : &j.w;
    size_t wanted = 0;
    int error = standin_call(name);
    if (error != SUCCESS)
        return error;
    wanted = workspace_bytes(&j.w, algorithm);
    j.forwards = algorithm == 0;
    if (h->context != standin_current() || !h->stream || (algorithm != 1 && (algorithm != 0 || j.kind != FORWARD)) ||
        j.c.math != FMA_MATH || j.alpha != 1 || j.beta != 0 || j.area[3].bytes < wanted)
        return misuse(BAD_PARAM);
    j.area[0].bytes = elements(a) * sizeof(float);
    j.area[1].bytes = elements(b) * sizeof(float);
    j.area[2].bytes = elements(out) * sizeof(float);
    job *packed = malloc(sizeof *packed);
    if (!packed)
        return ALLOC_FAILED;
    *packed = j;
    return standin_enqueue(h->stream, run, packed, packed->area, j.area[3].bytes ? 4 : 3) == SUCCESS ? SUCCESS
                                                                                                     : EXECUTION_FAILED;
}

API int cudnnConvolutionForward(handle *h, const float *alpha, tensor *x, const void *a, tensor *w, const void *b,
                                convolution *c, int algorithm, void *space, size_t bytes, const float *beta, tensor *y,
                                void *out)
{
    return begin(
        "cudnnConvolutionForward", h, algorithm,
        (job){ { { a, 0 }, { b, 0 }, { out, 0 }, { space, bytes } }, FORWARD, false, *x, *w, *y, *c, *alpha, *beta });
}

API int cudnnConvolutionBackwardData(handle *h, const float *alpha, tensor *w, const void *a, tensor *y, const void *b,
                                     convolution *c, int algorithm, void *space, size_t bytes, const float *beta,
                                     tensor *x, void *out)
{
    return begin(
        "cudnnConvolutionBackwardData", h, algorithm,
        (job){ { { a, 0 }, { b, 0 }, { out, 0 }, { space, bytes } }, DATA, false, *x, *w, *y, *c, *alpha, *beta });
}

API int cudnnConvolutionBackwardFilter(handle *h, const float *alpha, tensor *x, const void *a, tensor *y,
                                       const void *b, convolution *c, int algorithm, void *space, size_t bytes,
                                       const float *beta, tensor *w, void *out)
{
    return begin(
        "cudnnConvolutionBackwardFilter", h, algorithm,
        (job){ { { a, 0 }, { b, 0 }, { out, 0 }, { space, bytes } }, FILTER, false, *x, *w, *y, *c, *alpha, *beta });
}
