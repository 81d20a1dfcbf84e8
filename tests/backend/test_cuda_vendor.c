/* Kernels of cuBLAS and cuDNN (LS_KERNELS_VENDOR), on a stand-in for them (standin_cuda/standin.h):
 * results are close to those of our own kernels, and have one hash on one, two and three devices,
 * also where cuDNN takes one size of lanes and not the other; what would mix the two sets is
 * refused; every call may fail. On a GPU none of this was ever run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/gpu.h"
#include "cuda_fixture.h"
#include "lockstep.h"
#include "machine.h"
#include "networks.h"
#include "other_kind.h"

static ls_context *open_with(ls_kernels kernels, const char *devices)
{
    ls_context *ctx = NULL;
    assert_true(cuda_open(&(ls_context_options){ .threads = 1, .kernels = kernels }, devices, &ctx));
    return ctx;
}

/* ---- Op by op ---- */

#define SAMPLES 5
#define MOST    4096
#define NEAR    2e-5f
#define VALUES  4

typedef ls_tensor *maker(ls_tensor *a, ls_tensor *b);

typedef struct trial {
    const char *name;
    ls_shape a, b; /* b has no batch axis, unless a has none either */
    maker *make;
    bool convolves;
    bool ours; /* the library does not take it */
} trial;

static void fill(float *to, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (float)((i * 2654435761u + seed * 40503u) % 65536u) / 65536.0f - 0.5f;
}

static size_t elements(ls_shape s)
{
    size_t count = 1;
    for (int i = 0; i < s.rank; i++)
        count *= s.dims[i] == LS_BATCH ? SAMPLES : (size_t)s.dims[i];
    return count;
}

static size_t copy_value(ls_tensor *t, float *to)
{
    ls_array value;
    int64_t count;
    OK(ls_value(t, &value));
    assert_true(ls_shape_count(&value.shape, 0, &count));
    assert_true(count <= MOST);
    memcpy(to, value.data, (size_t)count * sizeof(float));
    return (size_t)count;
}

/* The result, and the gradients of its product with some numbers. */
static void compute(ls_context *ctx, const trial *t, float out[VALUES][MOST], size_t count[VALUES])
{
    static float a_data[MOST], b_data[MOST], weight[MOST];
    ls_graph *graph;
    ls_tensor *gradients[2], *fetches[VALUES];
    assert_true(elements(t->a) <= MOST && elements(t->b) <= MOST);
    fill(a_data, elements(t->a), 1);
    fill(b_data, elements(t->b), 2);
    fill(weight, MOST, 3);
    OK(ls_graph_create(ctx, &graph));
    OK(ls_graph_set_lanes(graph, 2));
    ls_tensor *a = ls_op_input(graph, "a", LS_F32, t->a);
    ls_tensor *b = ls_op_variable(graph, "b", LS_F32, t->b, .data = b_data);
    ls_tensor *y = t->make(a, b);
    ls_tensor *loss = ls_op_reduce_sum(ls_op_square(y), LS_ALL_AXES, false);
    OK(ls_gradients(loss, (ls_tensor *[]){ a, b }, 2, gradients));
    fetches[0] = y;
    fetches[1] = gradients[0];
    fetches[2] = gradients[1];
    fetches[3] = loss;
    ls_shape fed = t->a;
    fed.dims[0] = SAMPLES;
    OK(ls_eval(graph, &(ls_feed){ a, ls_array_of(LS_F32, fed, a_data) }, 1, fetches, VALUES));
    for (int i = 0; i < VALUES; i++)
        count[i] = copy_value(fetches[i], out[i]);
    ls_graph_destroy(graph);
}

static ls_tensor *product(ls_tensor *a, ls_tensor *b)
{
    return ls_op_matmul(a, b);
}

static ls_tensor *product_b_turned(ls_tensor *a, ls_tensor *b)
{
    return ls_op_matmul(a, b, .transpose_b = true);
}

static ls_tensor *product_a_turned(ls_tensor *a, ls_tensor *b)
{
    return ls_op_matmul(a, b, .transpose_a = true);
}

static ls_tensor *plain(ls_tensor *x, ls_tensor *k)
{
    return ls_op_conv2d(x, k);
}

static ls_tensor *same(ls_tensor *x, ls_tensor *k)
{
    return ls_op_conv2d(x, k, .padding = LS_SAME);
}

static ls_tensor *strided(ls_tensor *x, ls_tensor *k)
{
    return ls_op_conv2d(x, k, .stride = { 2, 1 }, .padding = LS_EXPLICIT, .pad = { 1, 1, 0, 0 });
}

static ls_tensor *dilated(ls_tensor *x, ls_tensor *k)
{
    return ls_op_conv2d(x, k, .dilation = { 2, 2 });
}

static ls_tensor *grouped(ls_tensor *x, ls_tensor *k)
{
    return ls_op_conv2d(x, k, .groups = 2);
}

static ls_tensor *grouped_dilated(ls_tensor *x, ls_tensor *k)
{
    return ls_op_conv2d(x, k, .groups = 2, .dilation = { 2, 2 });
}

static ls_tensor *uneven(ls_tensor *x, ls_tensor *k)
{
    return ls_op_conv2d(x, k, .stride = { 2, 2 }, .padding = LS_SAME);
}

static long calls(bool convolves)
{
    return convolves ? standin.count("cudnnConvolutionForward") + standin.count("cudnnConvolutionBackwardData") +
                           standin.count("cudnnConvolutionBackwardFilter")
                     : standin.count("cublasSgemm_v2") + standin.count("cublasSgemmStridedBatched");
}

/* Values and gradients of every kind of product and convolution; what the library takes, it
 * computes, both ways. */
static void ops_are_close_to_ours(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static float ours[VALUES][MOST], theirs[VALUES][MOST];
    size_t count[VALUES], again[VALUES];
    const trial trials[] = {
        { "dense", LS_SHAPE(LS_BATCH, 7), LS_SHAPE(7, 6), product, false, false },
        { "dense, turned", LS_SHAPE(LS_BATCH, 7), LS_SHAPE(6, 7), product_b_turned, false, false },
        { "rows of samples", LS_SHAPE(LS_BATCH, 3, 7), LS_SHAPE(7, 6), product, false, false },
        { "rows, turned", LS_SHAPE(LS_BATCH, 7, 3), LS_SHAPE(7, 6), product_a_turned, false, false },
        { "rows, b turned", LS_SHAPE(LS_BATCH, 3, 7), LS_SHAPE(6, 7), product_b_turned, false, false },
        { "matrices of both", LS_SHAPE(LS_BATCH, 2, 3, 7), LS_SHAPE(2, 7, 6), product, false, false },
        { "matrices repeated", LS_SHAPE(LS_BATCH, 2, 3, 7), LS_SHAPE(1, 7, 6), product, false, false },
        { "matrices of b repeated", LS_SHAPE(LS_BATCH, 1, 3, 7), LS_SHAPE(2, 7, 6), product, false, false },
        { "convolution", LS_SHAPE(LS_BATCH, 8, 7, 3), LS_SHAPE(3, 3, 3, 6), plain, true, false },
        { "1x1", LS_SHAPE(LS_BATCH, 8, 7, 3), LS_SHAPE(1, 1, 3, 6), plain, true, false },
        { "same", LS_SHAPE(LS_BATCH, 8, 7, 3), LS_SHAPE(5, 3, 3, 6), same, true, false },
        { "strided", LS_SHAPE(LS_BATCH, 8, 7, 3), LS_SHAPE(3, 2, 3, 6), strided, true, false },
        { "dilated", LS_SHAPE(LS_BATCH, 8, 7, 3), LS_SHAPE(3, 3, 3, 6), dilated, true, false },
        { "grouped", LS_SHAPE(LS_BATCH, 8, 7, 4), LS_SHAPE(3, 3, 2, 6), grouped, true, false },
        { "grouped and dilated", LS_SHAPE(LS_BATCH, 8, 7, 4), LS_SHAPE(3, 3, 2, 6), grouped_dilated, true, true },
        { "more padding at the end", LS_SHAPE(LS_BATCH, 8, 8, 3), LS_SHAPE(3, 3, 3, 6), uneven, true, false },
    };
    ls_context *own = open_with(LS_KERNELS_OWN, "cuda:0"), *vendor = open_with(LS_KERNELS_VENDOR, "cuda:0");
    for (size_t i = 0; i < LENGTH(trials); i++) {
        const trial *t = &trials[i];
        compute(own, t, ours, count);
        long before = calls(t->convolves);
        compute(vendor, t, theirs, again);
        long made = calls(t->convolves) - before;
        if (t->ours ? made != 0 : made < 6) /* calls for two lanes */
            fail_msg("%s: %ld calls of the library", t->name, made);
        for (int v = 0; v < VALUES; v++)
            for (size_t k = 0; k < count[v]; k++)
                if (!(fabsf(ours[v][k] - theirs[v][k]) <= NEAR * (1 + fabsf(ours[v][k])) * (v == 3 ? 10 : 1)))
                    fail_msg("%s: value %d, element %zu: %.9g, ours is %.9g", t->name, v, k, (double)theirs[v][k],
                             (double)ours[v][k]);
    }
    ls_context_close(own);
    ls_context_close(vendor);
}

/* ---- Whole trainings ---- */

#define STEPS 3

typedef struct outcome {
    char hash[65];
    float weights[1 << 20];
    size_t count;
} outcome;

static void train(ls_kernels kernels, network_kind kind, const char *devices, int64_t batch, int lanes, outcome *out)
{
    ls_context *ctx = open_with(kernels, devices);
    network n;
    OK(network_create(ctx, kind, &n));
    OK(ls_graph_set_lanes(n.graph, lanes));
    OK(network_train(&n, batch, STEPS, out->hash));
    out->count = 0;
    for (size_t i = 0; i < n.trained_count; i++) {
        ls_array value;
        int64_t count;
        OK(ls_value(n.trained[i], &value));
        assert_true(ls_shape_count(&value.shape, 0, &count));
        assert_true(out->count + (size_t)count <= LENGTH(out->weights));
        memcpy(out->weights + out->count, value.data, (size_t)count * sizeof(float));
        out->count += (size_t)count;
    }
    network_destroy(&n);
    ls_context_close(ctx);
}

static void are_near(const outcome *a, const outcome *b, network_kind kind)
{
    float worst = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        float apart = fabsf(a->weights[i] - b->weights[i]);
        worst = !(apart <= worst) ? apart : worst;
    }
    if (!(worst <= 2e-3f)) /* Adam amplifies rounding where gradients are nearly zero */
        fail_msg("%s: a weight is %g from ours", network_name(kind), (double)worst);
}

/* Lanes of two sizes on one device, two and three. */
static void train_everywhere(network_kind kind)
{
    static outcome own, one, other;
    train(LS_KERNELS_OWN, kind, "cuda:0-1", 11, 4, &own);
    train(LS_KERNELS_VENDOR, kind, "cuda:0", 11, 4, &one);
    assert_string_not_equal(one.hash, own.hash);
    are_near(&one, &own, kind);
    static const char *const devices[] = { "cuda:0", "cuda:1", "cuda:0-1", "cuda:0-2" };
    for (size_t i = 0; i < LENGTH(devices); i++) {
        train(LS_KERNELS_VENDOR, kind, devices[i], 11, 4, &other);
        if (strcmp(other.hash, one.hash) != 0)
            fail_msg("%s on %s: %s, on cuda:0: %s", network_name(kind), devices[i], other.hash, one.hash);
    }
}

static void trainings_have_one_hash_on_any_number_of_devices(void **state)
{
    (void)state;
    NEED_STAND_IN;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        train_everywhere(kind);
}

/* Lanes have 2 and 3 samples: one size is computed by cuDNN, the other by us, in one step. */
static void a_size_of_lanes_that_is_not_taken_is_ours(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static const char *const sizes[] = { "2", "3" };
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        setenv("STANDIN_CUDNN_REFUSES", sizes[i], 1);
        train_everywhere(NETWORK_CNN);
    }
    unsetenv("STANDIN_CUDNN_REFUSES");
}

/* ---- What is refused ---- */

static void kernels_are_chosen_by_option_and_environment(void **state)
{
    (void)state;
    NEED_STAND_IN;
    ls_context *ctx = NULL;
    ls_device_info *list;
    size_t count;
    char *text;
    setenv("LOCKSTEP_KERNELS", "vendor", 1);
    ctx = open_with(LS_KERNELS_DEFAULT, "cuda:0");
    OK(ls_bit_class(ctx, &text));
    machine_has(text, "kernels of the vendor: cuBLAS 13.0.2 and cuDNN 9.13.0 on sm_80 with 108 multiprocessors");
    machine_has(text, "CUDA canary ");
    assert_null(strstr(text, "self-check")); /* the vendor's products are not held to ours */
    free(text);
    ls_context_close(ctx);
    ctx = open_with(LS_KERNELS_OWN, "cuda:0");
    OK(ls_bit_class(ctx, &text));
    assert_null(strstr(text, "vendor"));
    free(text);
    ls_context_close(ctx);
    ctx = open_with(LS_KERNELS_DEFAULT, ""); /* the CPU alone */
    FAILS(ls_list_logical_devices(ctx, NULL, &list, &count), LS_ERR_UNSUPPORTED, "CUDA devices", "not visible");
    ls_context_close(ctx);
    setenv("LOCKSTEP_KERNELS", "theirs", 1);
    FAILS(ls_context_open(NULL, &ctx), LS_ERR_INVALID, "LOCKSTEP_KERNELS=theirs", "own or vendor");
    unsetenv("LOCKSTEP_KERNELS");
    FAILS(ls_context_open(&(ls_context_options){ .kernels = (ls_kernels)7 }, &ctx), LS_ERR_INVALID, "kernels 7");
}

static const char *on_the_cpu(void *user, int layer)
{
    (void)user;
    return layer == 1 ? "cpu:0" : NULL;
}

static void a_mix_of_kernels_is_refused(void **state)
{
    (void)state;
    NEED_STAND_IN;
    ls_context *ctx = open_with(LS_KERNELS_VENDOR, "cuda:0");
    network n;
    char hash[65];
    OK(network_create(ctx, NETWORK_CNN, &n));
    FAILS(ls_graph_set_strategy(n.graph, ls_mirrored(.devices = "cpu:0,cuda:0")), LS_ERR_UNSUPPORTED, "cpu:0", "CUDA");
    OK(network_train(&n, 4, 1, hash)); /* by itself on CUDA */
    network_destroy(&n);
    OK(network_create_placed(ctx, NETWORK_CNN, &(network_places){ on_the_cpu, NULL }, &n));
    assert_int_equal(network_train(&n, 4, 1, hash), LS_ERR_UNSUPPORTED);
    machine_has(ls_last_error(), "op conv2d");
    machine_has(ls_last_error(), "CPU:0");
    network_destroy(&n);
    ls_context_close(ctx);
}

/* ---- What fails ---- */

/* Each function fails once, early and late: the error names it, and all memory is freed. */
static void every_call_of_the_libraries_may_fail(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static const char *const names[] = { "cublasCreate_v2",
                                         "cublasSetStream_v2",
                                         "cublasSetWorkspace_v2",
                                         "cublasSetMathMode",
                                         "cublasSetAtomicsMode",
                                         "cublasSgemm_v2",
                                         "cudnnCreate",
                                         "cudnnSetStream",
                                         "cudnnCreateTensorDescriptor",
                                         "cudnnSetTensor4dDescriptor",
                                         "cudnnCreateFilterDescriptor",
                                         "cudnnSetFilter4dDescriptor",
                                         "cudnnCreateConvolutionDescriptor",
                                         "cudnnSetConvolution2dDescriptor",
                                         "cudnnSetConvolutionGroupCount",
                                         "cudnnSetConvolutionMathType",
                                         "cudnnGetConvolutionForwardWorkspaceSize",
                                         "cudnnGetConvolutionBackwardDataWorkspaceSize",
                                         "cudnnGetConvolutionBackwardFilterWorkspaceSize",
                                         "cudnnConvolutionForward",
                                         "cudnnConvolutionBackwardData",
                                         "cudnnConvolutionBackwardFilter" };
    char hash[65], expected[65];
    OK(other_two_steps(open_with(LS_KERNELS_VENDOR, "cuda:0-1"), expected));
    for (size_t i = 0; i < LENGTH(names); i++) {
        int noticed = 0;
        for (int nth = 1; nth < 40; nth = nth * 3 + 1) {
            standin.fail_next(names[i], nth, 14);
            ls_status status = other_two_steps(open_with(LS_KERNELS_VENDOR, "cuda:0-1"), hash);
            bool came = standin.fail_next(names[i], 0, 0);
            if (status == LS_OK ? came : status != LS_ERR_DEVICE)
                fail_msg("%s %d: %s: %s", names[i], nth, ls_status_name(status), ls_last_error());
            if (status == LS_OK) {
                assert_string_equal(hash, expected);
            } else {
                machine_has(ls_last_error(), "Stand-in ");
                machine_has(ls_last_error(), names[i][2] == 'b' ? "cuBLAS" : "cuDNN");
                machine_has(ls_last_error(), "error 14");
            }
            noticed += status != LS_OK;
            if (standin.held() != 0)
                fail_msg("%s %d: %d things of CUDA's are still held", names[i], nth, standin.held());
        }
        if (noticed == 0)
            fail_msg("%s never failed", names[i]);
    }
    OK(other_two_steps(open_with(LS_KERNELS_VENDOR, "cuda:0-1"), hash));
    assert_string_equal(hash, expected);
}

/* In the middle of a step: reported by the library, or by a wait for the device. */
static void a_lost_device_is_reported(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char hash[65];
    for (int nth = 1; nth < 200; nth = nth * 3 + 1) {
        standin.lose(1, nth, 719);
        assert_int_equal(other_two_steps(open_with(LS_KERNELS_VENDOR, "cuda:0-1"), hash), LS_ERR_DEVICE);
        machine_has(ls_last_error(), "Stand-in 1");
        standin.lose(1, 0, 0);
    }
}

/* ---- Workspaces, and limits of memory ---- */

/* On these devices ("cuda:0", "cuda:1" or both), each with a limit; cuDNN wants a workspace of
 * workspace_mib. */
static ls_context *open_limited(size_t first_mib, size_t second_mib, size_t workspace_mib)
{
    char bytes[24];
    ls_context *ctx = open_with(LS_KERNELS_VENDOR, second_mib ? "cuda:0-1" : "cuda:0");
    snprintf(bytes, sizeof(bytes), "%zu", workspace_mib << 20);
    setenv("STANDIN_CUDNN_WORKSPACE", bytes, 1);
    OK(ls_set_logical_devices(ctx, "cuda:0", &(ls_logical_device){ LS_MIB(first_mib) }, 1));
    if (second_mib)
        OK(ls_set_logical_devices(ctx, "cuda:1", &(ls_logical_device){ LS_MIB(second_mib) }, 1));
    return ctx;
}

typedef struct limited {
    char hash[65];
    long forward, data, filter; /* calls of cuDNN */
    size_t peak;
} limited;

static void train_limited(size_t mib, bool both, size_t workspace_mib, limited *out)
{
    ls_context *ctx = open_limited(mib, both ? mib : 0, workspace_mib);
    network n;
    out->forward = -standin.count("cudnnConvolutionForward");
    out->data = -standin.count("cudnnConvolutionBackwardData");
    out->filter = -standin.count("cudnnConvolutionBackwardFilter");
    OK(network_create(ctx, NETWORK_CNN, &n));
    OK(ls_graph_set_lanes(n.graph, 4));
    OK(network_train(&n, 11, STEPS, out->hash));
    out->peak = machine_memory(ctx, "cuda:0").peak;
    out->forward += standin.count("cudnnConvolutionForward");
    out->data += standin.count("cudnnConvolutionBackwardData");
    out->filter += standin.count("cudnnConvolutionBackwardFilter");
    network_destroy(&n);
    assert_int_equal(machine_memory(ctx, "cuda:0").in_use, 0);
    ls_context_close(ctx);
    unsetenv("STANDIN_CUDNN_WORKSPACE");
}

/* A workspace may have 16 of 64 MiB. One of 12 is counted; one of 24 is not taken: then forward
 * convolutions have the algorithm that needs none, and gradients are ours, on any number of
 * devices. */
static void a_workspace_that_does_not_fit_is_not_taken(void **state)
{
    (void)state;
    NEED_STAND_IN;
    limited small, fits, large, again;
    train_limited(64, false, 0, &small);
    train_limited(64, false, 12, &fits);
    assert_string_equal(fits.hash, small.hash);
    assert_true(fits.peak >= small.peak + LS_MIB(12) - LS_MIB(4)); /* cuBLAS's has 4 */
    train_limited(64, false, 24, &large);
    assert_string_not_equal(large.hash, small.hash);
    assert_int_equal(large.forward, small.forward);
    assert_true(small.data > 0 && small.filter > 0);
    assert_int_equal(large.data, 0);
    assert_int_equal(large.filter, 0);
    assert_true(large.peak <= small.peak + LS_MIB(1));
    train_limited(64, true, 24, &again);
    assert_string_equal(again.hash, large.hash);
    train_limited(128, false, 24, &again); /* a workspace may have 32 of 128 */
    assert_string_equal(again.hash, small.hash);
}

/* The memory that a workspace may have is part of the bit class; devices that differ in it are
 * refused. */
static void a_limit_that_decides_bits_is_in_their_class(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char *text;
    ls_device_info *list;
    size_t count;
    ls_context *ctx = open_limited(100, 70, 0); /* a workspace may have 16 MiB on either */
    OK(ls_bit_class(ctx, &text));
    machine_has(text, "multiprocessors, workspaces of up to 16384 KiB; CUDA canary");
    free(text);
    ls_context_close(ctx);
    ctx = open_limited(100, 60, 0);
    FAILS(ls_list_logical_devices(ctx, NULL, &list, &count), LS_ERR_UNSUPPORTED, "CUDA:0 (limit 100 MiB)", "16384 KiB",
          "CUDA:1 (60 MiB) up to 8192 KiB");
    ls_context_close(ctx);
    unsetenv("STANDIN_CUDNN_WORKSPACE");
}

/* A product whose workspace has no room beside the variables: told with the op, the bytes and the
 * limit. */
static void a_workspace_without_room_is_reported(void **state)
{
    (void)state;
    NEED_STAND_IN;
    enum { SIDE = 1280 }; /* 6.25 MiB a matrix, twice */
    ls_graph *graph;
    float *zeros = calloc((size_t)SIDE * SIDE, sizeof(*zeros));
    assert_non_null(zeros);
    ls_context *ctx = open_limited(16, 0, 0);
    OK(ls_graph_create(ctx, &graph));
    ls_tensor *a = ls_op_variable(graph, "a", LS_F32, LS_SHAPE(SIDE, SIDE), .data = zeros);
    ls_tensor *b = ls_op_reduce_sum(a, LS_AXES(0), true);
    ls_tensor *y = ls_op_matmul(b, a);
    FAILS(ls_eval(graph, NULL, 0, &y, 1), LS_ERR_MEMORY, "op matmul", "scratch memory of kernels, 4.00 MiB",
          "limit 16.00 MiB");
    ls_graph_destroy(graph);
    ls_context_close(ctx);
    free(zeros);
    unsetenv("STANDIN_CUDNN_WORKSPACE");
}

/* ---- Calls ---- */

/* One call a lane, whatever the number of devices. */
static void a_lane_is_a_call(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static outcome out;
    static const int lanes[] = { 2, 4, 8 };
    long each[LENGTH(lanes)];
    for (size_t i = 0; i < LENGTH(lanes); i++) {
        long before = calls(true);
        train(LS_KERNELS_VENDOR, NETWORK_CNN, "cuda:0", 8, lanes[i], &out);
        each[i] = calls(true) - before;
        before = calls(true);
        train(LS_KERNELS_VENDOR, NETWORK_CNN, "cuda:0-1", 8, lanes[i], &out);
        assert_int_equal(calls(true) - before, each[i]);
    }
    assert_int_equal(each[1], 2 * each[0]);
    assert_int_equal(each[2], 4 * each[0]);
}

int main(void)
{
    setenv("STANDIN_CUDA_DEVICES", "3", 1);
    setenv("STANDIN_CUDA_MEMORY", "4294967296", 1); /* enough for any workspace */
    there = cuda_stand_in();
    if (there)
        standin = cuda_control();
#define TEST(name) cmocka_unit_test_teardown(name, nothing_is_left)
    const struct CMUnitTest tests[] = {
        TEST(ops_are_close_to_ours),
        TEST(trainings_have_one_hash_on_any_number_of_devices),
        TEST(a_size_of_lanes_that_is_not_taken_is_ours),
        TEST(kernels_are_chosen_by_option_and_environment),
        TEST(a_mix_of_kernels_is_refused),
        TEST(every_call_of_the_libraries_may_fail),
        TEST(a_lost_device_is_reported),
        TEST(a_workspace_that_does_not_fit_is_not_taken),
        TEST(a_limit_that_decides_bits_is_in_their_class),
        TEST(a_workspace_without_room_is_reported),
        TEST(a_lane_is_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
