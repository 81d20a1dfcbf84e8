/* The plain C kernels are the definition of the bits (docs/bits.md), and every other kernel equals
 * them: expressions of every op at random shapes (shapes.c), with NaN, infinities, subnormals and
 * -0 among the numbers, fused and not, with any lanes and micro-batches, on every instruction set
 * this CPU has, against the reference device, bit for bit. Any NaN equals any NaN.
 *
 * So that a wrong definition cannot agree with itself, each op's float32 value is also held to its
 * own float64 kernel, fed with the same numbers, within the bound of the op's family (`families`;
 * docs/bits.md has the table). An op that is in no family, or that no expression has, fails.
 *
 * `make test` takes a sample; LS_BITS=all (`make bits`) more shapes; LS_BITS=<seed> one of them.
 *
 * test_opencl_bits.c and test_cuda_bits.c are this file with another device in the place of
 * instruction sets (ON_OPENCL, ON_CUDA). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/simd.h"
#include "backend/ref/ref.h"
#include "graph/rules.h"
#include "run/runs.h"
#include "sanitized.h"
#include "shapes.h"
#include "skip.h"

#ifdef ON_OPENCL
#include "opencl.h"
#define SAMPLE 700 /* expressions in `make test`: enough for every op */
static const char *const instruction_sets[] = { "opencl" };
#elif defined ON_CUDA
#include "cuda.h"
#define SAMPLE 700
static const char *const instruction_sets[] = { "cuda" };
#else
#define SAMPLE (SANITIZED ? 700 : 1380)
static const char *const instruction_sets[] = { "base", "avx2", "avx512" };
#endif
#define ALL  12000
#define SETS (sizeof instruction_sets / sizeof *instruction_sets)

static ls_context *reference, *fast[SETS]; /* fast: NULL where this CPU cannot run it */
static bool broken;                        /* the device is: differences are expected, and not printed */

/* ---- Families: how far float32 may be from float64 ---- */

#define U 0x1p-24 /* half a unit in the last place of 1 */

/* y: the float64 value. S: the sum of the magnitudes of its terms. n: how many terms. */
typedef enum bound {
    EXACT,   /* the same number */
    ROUNDED, /* 2 U |y|: one rounding, of the result, of an attribute, or of both */
    SCALED,  /* 4 U |y|: a few roundings, no sum */
    DOUBLE,  /* 2 U |y| + 2^-44 S: a sum in float64, rounded once */
    CHAIN,   /* (4 + 2 sqrt n) U S: a sum in float32 */
    MOMENTS, /* 2^-44 S: a sum in float64 that stays there */
    NORM,    /* 16 U S: differences of numbers rounded to float32, S counting both, and sums of such in blocks */
    SLOPE,   /* 8 U |dy|: a slope that is near 0 somewhere, times the gradient dy, which is input 0 */
    DRAWN,   /* no bound: float64 draws other numbers, or a step's error goes on into the next steps */
    STATE,   /* 16 U S, by rule: updates_have_the_reference_s_bits */
} bound;

/* clang-format off */
static const struct family {
    bound bound;
    int count;
    ls_op ops[32];
} families[] = {
    { EXACT, 29, { LS_OP_capped_relu_grad, LS_OP_count, LS_OP_group, LS_OP_gather_batch, LS_OP_scatter_batch, LS_OP_stop_gradient, LS_OP_maximum,
                   LS_OP_minimum, LS_OP_compare, LS_OP_select, LS_OP_neg, LS_OP_abs, LS_OP_sign, LS_OP_relu,
                   LS_OP_reshape, LS_OP_transpose, LS_OP_broadcast, LS_OP_concat, LS_OP_slice, LS_OP_slice_grad,
                   LS_OP_gather, LS_OP_one_hot, LS_OP_reduce_max, LS_OP_reduce_min, LS_OP_argmax, LS_OP_top_k,
                   LS_OP_top_k_indices, LS_OP_max_pool2d, LS_OP_assign } },
    { ROUNDED, 28, { LS_OP_capped_relu, LS_OP_fill, LS_OP_pad, LS_OP_cast, LS_OP_random_normal, LS_OP_add, LS_OP_sub, LS_OP_mul, LS_OP_div, LS_OP_pow,
                     LS_OP_square, LS_OP_clip, LS_OP_exp, LS_OP_log, LS_OP_sqrt, LS_OP_rsqrt, LS_OP_erf,
                     LS_OP_leaky_relu, LS_OP_relu_grad, LS_OP_sigmoid, LS_OP_tanh, LS_OP_softplus, LS_OP_gelu,
                     LS_OP_silu, LS_OP_elu, LS_OP_softmax, LS_OP_log_softmax, LS_OP_sparse_cross_entropy } },
    { SCALED, 2, { LS_OP_dropout, LS_OP_sparse_cross_entropy_grad } },
    { DOUBLE, 4, { LS_OP_average_pool2d, LS_OP_average_pool2d_grad, LS_OP_reduce_sum, LS_OP_warp } },
    { CHAIN, 7, { LS_OP_conv2d, LS_OP_conv2d_grad_input, LS_OP_conv2d_grad_kernel, LS_OP_matmul, LS_OP_gather_grad,
                  LS_OP_max_pool2d_grad, LS_OP_warp_grad } },
    { MOMENTS, 1, { LS_OP_moments } },
    { NORM, 3, { LS_OP_batch_norm, LS_OP_batch_norm_grad_input, LS_OP_batch_norm_grad_moments } },
    { SLOPE, 1, { LS_OP_silu_grad } },
    { DRAWN, 9, { LS_OP_random_uniform, LS_OP_recurrent, LS_OP_recurrent_grad, LS_OP_attention, LS_OP_attention_grad,
                  LS_OP_custom, LS_OP_custom_grad, LS_OP_ctc, LS_OP_ctc_grad } },
    { STATE, 2, { LS_OP_assign_add, LS_OP_apply } },
};
/* clang-format on */

static const struct family *family_of(ls_op op)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int i = 0; i < families[f].count; i++)
            if (families[f].ops[i] == op)
                return &families[f];
    return NULL;
}

/* Sums over the batch are chains, other ones in float64. */
static bound bound_of(const ls_tensor *node)
{
    if (node->op == LS_OP_reduce_sum && node->use == LS_USE_REDUCES)
        return CHAIN;
    return family_of(node->op)->bound;
}

static void every_op_has_a_family(void **state)
{
    (void)state;
    for (int op = 0; op < LS_OP_COUNT; op++) {
        int found = 0;
        for (size_t f = 0; f < sizeof families / sizeof *families; f++)
            for (int i = 0; i < families[f].count; i++)
                found += families[f].ops[i] == (ls_op)op;
        if (found != (ls_ops[op].kernel != LS_KERNEL_NONE))
            fail_msg("%s is in %d families of bounds", ls_ops[op].name, found);
    }
}

/* ---- One expression on one device ---- */

#define MOST_FETCHES 100

typedef struct side {
    test_graph t;
    size_t count;
    ls_tensor *fetch[MOST_FETCHES];
    size_t bytes[MOST_FETCHES];
    void *value[MOST_FETCHES];
} side;

typedef struct cut {
    int lanes;
    int64_t micro;
    bool unfused;
} cut;

/* How the numbers of leaves are changed, so that what they usually hide is seen. */
typedef enum numbers {
    SPECIAL, /* a few of NaN, infinities, subnormals, -0, huge ones */
    APART,   /* leaves scaled, far up or down */
    EQUAL,   /* few different ones, zeros of both signs; where all are on one side, zero is an extreme */
    FAR,     /* few are far above all others: the logarithm of a sum of exponentials has only small terms */
    CANCEL,  /* large ones that cancel: what is left shows the order of any sum */
    USUAL,
    NUMBERS = USUAL + 4, /* drawn for expressions */
    TINY                 /* subnormals alone; for updates */
} numbers;

/* Choices for an expression, drawn before its shapes. */
typedef struct plan {
    uint32_t seed;
    const test_shapes *family;
    int64_t batch;
    cut whole, cuts[SETS];
    enum numbers numbers;
} plan;

static bool seen[LS_OP_COUNT];

static void side_close(side *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->value[i]);
    test_graph_close(&s->t);
}

/* The expression's value and the gradients of its real leaves; false: what was drawn does not go
 * together. */
static bool side_open(side *s, const plan *p, ls_context *ctx)
{
    ls_tensor *real[TEST_LEAVES], *g[TEST_LEAVES] = { NULL };
    size_t reals = 0;
    test_draws d = test_draws_of(p->seed, 1);
    *s = (side){ .count = 1 };
    test_graph_open_in(&s->t, ctx, p->batch, LS_F32);
    s->t.blank = ctx != reference;
    ls_tensor *y = s->fetch[0] = p->family->make(&s->t, &d);
    if (!y || ls_tensor_is_error(y))
        return false;
    for (int i = 0; i < s->t.count; i++)
        if (s->t.leaf[i].dtype == LS_F32)
            real[reals++] = s->t.leaf[i].source;
    bool gathered = false; /* no leaf has such a shape */
    for (int i = 0; i < y->shape.rank; i++)
        gathered = gathered || (y->shape.dims[i] == LS_BATCH && !(y->per_sample && i == 0));
    if (y->dtype != LS_F32 || gathered)
        return true;
    ls_gradients_options options = { .cotangent = test_add_like(&s->t, y)->tensor };
    ls_status status = ls_gradients_with(y, real, reals, options, g);
    if (status != LS_OK && status != LS_ERR_UNSUPPORTED)
        fail_msg("seed %u (%s): %s", p->seed, p->family->name, ls_last_error());
    for (size_t i = 0; i < reals; i++)
        if (g[i])
            s->fetch[s->count++] = g[i];
    return true;
}

static float change_number(test_draws *d, numbers how, int side, float scale, float x)
{
    float few = (float)test_draw(d, 3);
    switch (how) {
    case APART:
        return x * scale;
    case EQUAL:
        return test_draw(d, 2) ? copysignf(0, x) : side < 2 ? copysignf(few, x) : side == 2 ? few : -few;
    case TINY:
        return x * 0x1p-130f;
    case FAR:
        return test_draw(d, 24) ? x - 31 : 0;
    default:
        return x;
    }
}

static void change_numbers(side *s, const plan *p)
{
    static const float special[] = { NAN,  INFINITY,  -INFINITY,  1e-40f, -1e-44f, -0.0f,
                                     0.0f, 0x1p-149f, -0x1p-126f, 1e30f,  -1e30f,  FLT_MAX };
    test_draws d = test_draws_of(p->seed, 2);
    for (int i = 0; i < s->t.count; i++) {
        test_leaf *l = &s->t.leaf[i];
        float *x = l->data, scale = ldexpf(1, (int)test_draw(&d, 160) - 120);
        int sides = (int)test_draw(&d, 4);
        if (l->dtype != LS_F32 || l->count == 0)
            continue;
        for (size_t k = 0; (p->numbers < USUAL || p->numbers == TINY) && k < l->count; k++)
            x[k] = change_number(&d, p->numbers, sides, scale, x[k]);
        for (uint32_t k = test_draw(&d, 4); p->numbers == SPECIAL && k > 0; k--)
            x[test_draw(&d, (uint32_t)l->count)] = special[test_draw(&d, sizeof special / sizeof *special)];
        for (size_t k = 0; p->numbers == CANCEL && k < l->count / 3; k++) {
            uint32_t from = test_draw(&d, (uint32_t)l->count), to = test_draw(&d, (uint32_t)l->count);
            x[from] = ldexpf(x[from], (int)test_draw(&d, 60));
            x[to] = -x[from];
        }
    }
}

static void copy_numbers(side *to, const side *from)
{
    for (int i = 0; i < to->t.count; i++)
        memcpy(to->t.leaf[i].data, from->t.leaf[i].data, from->t.leaf[i].count * ls_dtype_bytes(from->t.leaf[i].dtype));
}

/* No product in float32 is left to the reference kernels: they are a hundred times slower. */
static void check_kernels(const plan *p, ls_runs *runs)
{
    const ls_plan *made = ls_executor_plan(runs->cached[0].executor);
    for (int g = 0; g < made->group_count; g++) {
        const ls_group *group = &made->groups[g];
        const ls_tensor *node = group->nodes[0];
        char label[LS_NODE_TEXT];
        if (group->kernel && ls_node_is(node, LS_TRAIT_PRODUCT) && node->dtype == LS_F32 &&
            strcmp(group->kernel->name, "reference") == 0)
            fail_msg("LS_BITS=%u, %s: %s (%s) runs on a reference kernel", p->seed, p->family->name,
                     ls_node_label(node, label), ls_tensor_op(node));
    }
}

static ls_status side_run(side *s, const cut *how)
{
    ls_runs *runs = NULL;
    assert_int_equal(ls_runs_of(s->t.graph, &runs), LS_OK);
    ls_runs_clear(runs);
    runs->settings.plan =
        (ls_plan_options){ .lanes = how->lanes, .micro = how->micro, .unfused = how->unfused, .guards = true };
    LS_TRY(test_run(&s->t, s->fetch, s->count));
    for (size_t i = 0; i < s->count; i++) {
        free(s->value[i]);
        s->value[i] = test_copy_value(s->fetch[i], &s->bytes[i]);
    }
    return LS_OK;
}

/* ---- Bits ---- */

static bool same_bits(const plan *p, const char *set, const cut *how, const side *got, const side *wanted)
{
    for (size_t i = 0; i < got->count; i++) {
        ls_dtype dtype = got->fetch[i]->dtype;
        size_t width = ls_dtype_bytes(dtype), n = got->bytes[i] / width;
        assert_int_equal(got->bytes[i], wanted->bytes[i]);
        for (size_t k = 0; k < n; k++) {
            double a = test_number(got->value[i], dtype, k), b = test_number(wanted->value[i], dtype, k);
            if ((a != a && b != b) ||
                memcmp((const char *)got->value[i] + k * width, (const char *)wanted->value[i] + k * width, width) == 0)
                continue;
            if (!broken)
                print_error(
                    "LS_BITS=%u, %s on %s (%d lanes, micro-batch %d%s), batch %d: fetch %zu (op %s), element %zu of "
                    "%zu is %a, the reference has %a\n",
                    p->seed, p->family->name, set, how->lanes, (int)how->micro, how->unfused ? ", unfused" : "",
                    (int)p->batch, i, ls_tensor_op(got->fetch[i]), k, n, a, b);
            return false;
        }
    }
    return true;
}

/* ---- float64 ---- */

/* A node's arrays in float64: the same numbers, room for the result. */
typedef struct wide_call {
    ls_ref_call call;
    ls_ref_array in[TEST_LEAVES];
} wide_call;

static int64_t elements_of(const ls_ref_array *a)
{
    int64_t count = 0;
    ls_shape_count(&a->shape, 0, &count);
    return count;
}

static ls_ref_array wide_array(const ls_tensor *node, int64_t batch)
{
    ls_ref_array a = { .dtype = node->dtype == LS_F32 ? LS_F64 : node->dtype,
                       .shape = ls_ref_shape(node, batch, batch) };
    a.data = calloc((size_t)elements_of(&a) + 1, 8);
    assert_non_null(a.data);
    return a;
}

static void wide_open(wide_call *w, const ls_tensor *node, int64_t batch)
{
    *w = (wide_call){ .call = { .node = node, .batch = batch, .lane = batch, .seed = 1 } };
    assert_true(node->input_count <= TEST_LEAVES);
    for (int i = 0; i < node->input_count; i++) {
        ls_array value;
        w->in[i] = wide_array(node->in[i], batch);
        if (ls_value(node->in[i], &value) != LS_OK)
            fail_msg("no value of input %d of %s: %s", i, ls_tensor_op(node), ls_last_error());
        int64_t n = elements_of(&w->in[i]);
        if (value.dtype == LS_F32)
            for (int64_t k = 0; k < n; k++)
                ((double *)w->in[i].data)[k] = ((const float *)value.data)[k];
        else if (n > 0)
            memcpy(w->in[i].data, value.data, (size_t)n * ls_dtype_bytes(value.dtype));
    }
    w->call.in = w->in;
    w->call.out = wide_array(node, batch);
}

static void wide_close(wide_call *w)
{
    for (int i = 0; i < w->call.node->input_count; i++)
        free(w->in[i].data);
    free(w->call.out.data);
}

static double magnitude(double x)
{
    return fabs(x);
}

static double one(double x)
{
    (void)x;
    return 1;
}

/* For an op whose result is a sum of products of its inputs: the same op with other numbers. Their
 * magnitudes: S. Ones: how many terms there are. The places of a maximum and of
 * a warp are not to change. */
static double *sum_of(const wide_call *w, double (*number)(double))
{
    const ls_tensor *node = w->call.node;
    int64_t n = elements_of(&w->call.out);
    double *s = calloc((size_t)n + 1, sizeof *s);
    ls_ref_array in[TEST_LEAVES];
    ls_ref_call call = w->call;
    assert_non_null(s);
    call.in = in;
    call.out.data = s;
    for (int i = 0; i < node->input_count; i++) {
        bool place = node->op == LS_OP_max_pool2d_grad
                         ? i == 0
                         : (node->op == LS_OP_warp || node->op == LS_OP_warp_grad) && i == 1;
        bool changes = w->in[i].dtype == LS_F64 && !place;
        int64_t count = elements_of(&w->in[i]);
        in[i] = w->in[i];
        if (changes && !(in[i].data = calloc((size_t)count + 1, sizeof(double))))
            fail_msg("no memory");
        for (int64_t k = 0; changes && k < count; k++)
            ((double *)in[i].data)[k] = number(((const double *)w->in[i].data)[k]);
    }
    assert_int_equal(ls_ref_run(&call), LS_OK);
    for (int i = 0; i < node->input_count; i++)
        if (in[i].data != w->in[i].data)
            free(in[i].data);
    return s;
}

/* S of the ops of batch norm, by element: magnitudes of all that is added or subtracted. */
static double *norm_magnitudes(const wide_call *w)
{
    const ls_tensor *node = w->call.node;
    bool forward = node->op == LS_OP_batch_norm, sums = node->op == LS_OP_batch_norm_grad_moments;
    const ls_ref_array *x = &w->in[forward ? 0 : 1];
    int64_t channels = x->shape.dims[x->shape.rank - 1], n = elements_of(x);
    const double *moments = w->in[forward ? 1 : 2].data, *dy = w->in[0].data;
    double *s = calloc((size_t)n + 2 * (size_t)channels + 1, sizeof *s),
           count = (double)(n / (channels ? channels : 1));
    assert_non_null(s);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = i % channels;
        double mean = moments[c] / count, variance = fmax(0, moments[channels + c] / count - mean * mean);
        double inv = 1 / sqrt(variance + node->attr.norm.epsilon);
        double normal = (fabs(((const double *)x->data)[i]) + fabs(mean)) * inv;
        if (forward) {
            s[i] = normal * fabs(((const double *)w->in[2].data)[c]) + fabs(((const double *)w->in[3].data)[c]);
        } else if (sums) {
            s[c] += fabs(dy[i]);
            s[channels + c] += fabs(dy[i]) * normal;
        } else {
            const double *g = w->in[4].data;
            s[i] = fabs(((const double *)w->in[3].data)[c]) * inv *
                   (fabs(dy[i]) + fabs(g[c] / count) + normal * fabs(g[channels + c] / count));
        }
    }
    return s;
}

/* The allowed difference of element k. The float64 kernels have errors as well: 2^-50 of what
 * numbers of size 1 are made of. */
static double *magnitudes_of(const ls_ref_array *array)
{
    int64_t n = elements_of(array);
    double *s = calloc((size_t)n + 1, sizeof *s);
    assert_non_null(s);
    for (int64_t k = 0; k < n; k++)
        s[k] = fabs(((const double *)array->data)[k]);
    return s;
}

static double allowed(bound b, double y, double s, double terms)
{
    const double least = 0x1p-149, wide = 0x1p-44;
    switch (b) {
    case EXACT:
        return 0;
    case ROUNDED:
        return 2 * U * fabs(y) + 0x1p-46 + least;
    case SCALED:
        return 4 * U * fabs(y) + 0x1p-46 + least;
    case DOUBLE:
        return 2 * U * fabs(y) + wide * s + least;
    case CHAIN:
        return (4 + 2 * sqrt(terms)) * U * s + terms * least;
    case MOMENTS:
        return wide * s;
    case NORM:
        return 16 * U * s + 16 * least;
    case SLOPE:
        return 8 * U * s + 8 * least;
    default:
        return (double)INFINITY;
    }
}

static double worst[LS_OP_COUNT]; /* error, as a part of what is allowed */

/* The node's float32 value, which it holds, against its float64 kernel. */
static bool near_enough(const plan *p, ls_tensor *node)
{
    bound b = bound_of(node);
    wide_call w;
    ls_array got;
    assert_int_equal(ls_value(node, &got), LS_OK);
    wide_open(&w, node, p->batch);
    ls_status status = ls_ref_run(&w.call);
    if (status != LS_OK)
        fail_msg("%s in float64: %s", ls_tensor_op(node), ls_last_error());
    int64_t n = elements_of(&w.call.out);
    double *s = NULL, *terms = NULL;
    const void *y = w.call.out.data;
    if (b == NORM)
        s = norm_magnitudes(&w);
    else if (b == DOUBLE || b == CHAIN || b == MOMENTS)
        s = sum_of(&w, magnitude);
    if (b == CHAIN)
        terms = sum_of(&w, one);
    if (b == SLOPE)
        s = magnitudes_of(&w.in[0]);
    bool good = true;
    for (int64_t k = 0; good && k < n; k++) {
        double x = test_number(got.data, got.dtype, (size_t)k), z = test_number(y, w.call.out.dtype, (size_t)k);
        double most = allowed(b, z, s ? s[k] : 0, terms ? terms[k] : 1), error = fabs(x - z);
        good = error <= most || (x != x && z != z) || x == z;
        if (!good)
            print_error("LS_BITS=%u, %s: op %s, element %lld of %lld is %.9g, in float64 %.17g: %.3g apart, %.3g is "
                        "allowed\n",
                        p->seed, p->family->name, ls_tensor_op(node), (long long)k, (long long)n, x, z, error, most);
        else if (most > 0 && error / most > worst[node->op])
            worst[node->op] = error / most;
    }
    free(s);
    free(terms);
    wide_close(&w);
    return good;
}

/* Every node of the graph, held by the reference device after one run that fetches them all. */
static int check_accuracy(const plan *p, side *s)
{
    int wrong = 0;
    size_t kept = s->count;
    for (size_t i = 0; i < s->t.graph->node_count && s->count < MOST_FETCHES; i++) {
        ls_tensor *node = s->t.graph->nodes[i];
        bool twice = ls_tensor_is_error(node);
        for (size_t k = 0; k < s->count; k++)
            twice = twice || s->fetch[k] == node;
        if (!twice)
            s->fetch[s->count++] = node;
    }
    ls_status status = side_run(s, &(cut){ .lanes = 1, .micro = p->batch, .unfused = true });
    if (status != LS_OK)
        fail_msg("seed %u: %s", p->seed, ls_last_error());
    for (size_t i = 0; i < s->count; i++) {
        ls_tensor *node = s->fetch[i];
        bound b = ls_node_is_given(node) ? DRAWN : bound_of(node);
        if (b != DRAWN && b != STATE)
            wrong += !near_enough(p, node);
    }
    while (s->count > kept)
        free(s->value[--s->count]);
    return wrong;
}

/* ---- One seed ---- */

static void note_ops(const side *s)
{
    for (size_t i = 0; i < s->t.graph->node_count; i++)
        seen[s->t.graph->nodes[i]->op] = true;
}

static plan draw_plan(uint32_t seed)
{
    static const int64_t batches[] = { 1, 2, 3, 4, 5, 7, 8, 9, 13, 17, 33, 0 };
    test_draws d = test_draws_of(seed, 0);
    int shares = 0;
    for (size_t i = 0; i < test_shape_family_count; i++)
        shares += test_shape_families[i].share;
    const test_shapes *family = test_shape_families;
    for (int at = (int)(seed % (uint32_t)shares); at >= family->share; family++)
        at -= family->share;
    plan p = { .seed = seed, .family = family, .numbers = (numbers)test_draw(&d, NUMBERS) };
    p.batch = batches[test_draw(&d, test_draw(&d, 10) ? 11 : 12)];
    p.whole = (cut){ .lanes = 1 + (int)test_draw(&d, 3), .micro = p.batch, .unfused = true };
    for (size_t i = 0; i < SETS; i++)
        p.cuts[i] = (cut){ p.whole.lanes, (int64_t)test_draw(&d, 4), test_draw(&d, 3) == 0 };
    return p;
}

/* How many things are wrong; -1: what was drawn does not go together. */
static int check_seed(uint32_t seed)
{
    plan p = draw_plan(seed);
    side theirs, ours;
    int wrong = 0;
    if (!side_open(&theirs, &p, reference)) {
        side_close(&theirs);
        return -1;
    }
    note_ops(&theirs);
    change_numbers(&theirs, &p);
    ls_status status = side_run(&theirs, &p.whole);
    for (size_t i = 0; i < SETS; i++) {
        if (!fast[i])
            continue;
        assert_true(side_open(&ours, &p, fast[i]));
        copy_numbers(&ours, &theirs);
        ls_status other = side_run(&ours, &p.cuts[i]);
        if (other == LS_OK)
            check_kernels(&p, ours.t.graph->runs);
        if (other != status) {
            print_error("LS_BITS=%u, %s on %s: %s\n", seed, p.family->name, instruction_sets[i], ls_last_error());
            wrong++;
        } else if (status == LS_OK) {
            wrong += !same_bits(&p, instruction_sets[i], &p.cuts[i], &ours, &theirs);
        }
        side_close(&ours);
    }
    if (status == LS_OK && p.numbers >= EQUAL && p.numbers != CANCEL && p.batch > 0)
        wrong += check_accuracy(&p, &theirs);
    side_close(&theirs);
    return wrong;
}

static bool asked_for_all(void)
{
    const char *asked = getenv("LS_BITS");
    return asked && strcmp(asked, "all") == 0;
}

/* The one seed of LS_BITS; 0: there is none. */
static uint32_t asked_seed(void)
{
    const char *asked = getenv("LS_BITS");
    return asked ? (uint32_t)strtoul(asked, NULL, 10) : 0;
}

static void random_shapes_have_the_reference_s_bits(void **state)
{
    (void)state;
    uint32_t first = asked_seed(), count = asked_for_all() ? ALL : SAMPLE;
    int wrong = 0, refused = 0;
    for (uint32_t seed = first ? first : 1; seed <= (first ? first : count); seed++) {
        int found = check_seed(seed);
        refused += found < 0;
        wrong += found > 0;
    }
    if (wrong)
        fail_msg("%d of %u expressions; LS_BITS=<seed> runs one", wrong, count);
    if (!first && refused * 4 > (int)count)
        fail_msg("%d of %u expressions drawn are no expressions", refused, count);
}

/* ---- Updates: every rule, in place and not ---- */

/* A variable with slots that is updated by a fed gradient, and two that are assigned. Leaves: the
 * gradient, the step, the variables, the slots; fetched behind fetch[0]: all variables, in the same
 * order. */
static ls_tensor *open_update(side *s, uint32_t seed, ls_apply_rule rule, ls_context *ctx)
{
    static const int sizes[] = { 1, 2, 7, 8, 16, 33, 65, 100, 200, 1000, 16385 };
    test_draws d = test_draws_of(seed, 3);
    char spec[16], slot_spec[20];
    ls_tensor *part[3], *slot[2] = { NULL, NULL };
    snprintf(spec, sizeof spec, "%d", sizes[test_draw(&d, sizeof sizes / sizeof *sizes)]);
    snprintf(slot_spec, sizeof slot_spec, "+%s", spec);
    double momentum = test_draw(&d, 2) ? (double)0.9F : 0, decay = test_draw(&d, 2) ? (double)0.01F : 0;
    *s = (side){ .count = 1 };
    test_graph_open_in(&s->t, ctx, 1, LS_F32);
    s->t.blank = ctx != reference;
    ls_tensor *g = test_add(&s->t, spec, TEST_FED)->tensor, *step = test_add(&s->t, "+", TEST_FED)->tensor;
    ls_tensor *computed = ls_op_neg(ls_op_neg(g)); /* by the device: an update runs where its gradient was computed */
    *(float *)s->t.leaf[1].data = (float)(1 + test_draw(&d, 9));
    for (int i = 0; i < 3; i++)
        s->fetch[s->count++] = test_add(&s->t, spec, TEST_VARIABLE)->source;
    for (int i = 0; i < ls_apply_slots(rule, momentum != 0); i++)
        slot[i] = s->fetch[s->count++] = test_add(&s->t, slot_spec, TEST_VARIABLE)->source;
    part[0] = ls_op_apply(s->fetch[1], computed, rule, ls_op_scalar(s->t.graph, LS_F32, (double)0.05F), .step = step,
                          .slots = { slot[0], slot[1] }, .momentum = momentum, .beta_1 = (double)0.9F,
                          .beta_2 = (double)0.99F, .rho = (double)0.9F, .epsilon = (double)1e-6F, .weight_decay = decay,
                          .l1 = momentum != 0 ? 0.125 : 0, .l2 = 0.25, .shrinkage = 0.0625, .beta = 0.5);
    part[1] = ls_op_assign(s->fetch[2], g);
    part[2] = ls_op_assign_add(s->fetch[3], g);
    s->fetch[0] = ls_op_group(part, 3);
    uint32_t use =
        test_draw(&d, 3); /* use of the new value: none, fetched, or by another op, so that it is not in place */
    if (use > 0)
        s->fetch[s->count++] = use == 1 ? part[0] : ls_op_neg(part[0]);
    if (ls_graph_status(s->t.graph) != LS_OK)
        fail_msg("rule %d: %s", (int)rule, ls_last_error());
    return part[0];
}

/* The rule in float64, from one element's gradient, variable and slots to the new ones. */
static void update_wide(const ls_tensor *node, double step, double g, const double old[3], double new[3])
{
    double rate = (double)0.05F;
    ls_ref_array in[] = { { &g, LS_F64, LS_SCALAR }, { &rate, LS_F64, LS_SCALAR }, { &step, LS_F64, LS_SCALAR } };
    ls_ref_call call = { .node = node,
                         .in = in,
                         .out = { new, LS_F64, LS_SCALAR },
                         .state = { old, old + 1, old + 2 },
                         .slots = { new + 1, new + 2 },
                         .batch = 1,
                         .lane = 1 };
    new[1] = new[2] = 0;
    assert_int_equal(ls_ref_run(&call), LS_OK);
}

/* 16 U S, where S is what the rule makes when all it adds and subtracts has one sign: of the signs
 * that gradient and slots may have, those that give the most. A slot that a root is taken of keeps
 * its own. */
static void update_allowed(const ls_tensor *node, double step, double g, const double old[3], double most[3])
{
    most[0] = most[1] = most[2] = 0;
    for (int signs = 0; signs < 8; signs++) {
        double from[3] = { fabs(old[0]), signs & 1 ? -old[1] : old[1], signs & 2 ? -old[2] : old[2] }, to[3];
        ls_apply_rule rule = (ls_apply_rule)node->attr.apply.rule;
        bool root_0 = rule == LS_APPLY_RMSPROP || rule == LS_APPLY_RMSPROP_TF1 || rule == LS_APPLY_ADAGRAD ||
                      rule == LS_APPLY_ADADELTA || rule == LS_APPLY_FTRL;
        bool root_1 = rule == LS_APPLY_ADAM || rule == LS_APPLY_ADADELTA || rule == LS_APPLY_NADAM;
        if ((root_0 && signs & 1) || (root_1 && signs & 2))
            continue;
        update_wide(node, step, signs & 4 ? -fabs(g) : fabs(g), from, to);
        for (int i = 0; i < 3; i++)
            most[i] = fmax(most[i], 16 * U * fmax(fabs(to[i]), fabs(from[i])));
    }
    if (node->attr.apply.rule == LS_APPLY_FTRL) { /* it subtracts roots, which no signs add */
        double roots = (sqrt(old[1] + g * g) + sqrt(old[1])) / (double)0.05F * fabs(old[0]);
        most[2] += 16 * U * roots;
        most[0] += most[2] / (sqrt(old[1] + g * g) / (double)0.05F);
    }
}

static int check_update_accuracy(uint32_t seed, const side *s, const ls_tensor *node)
{
    const float *g = s->t.leaf[0].data, *step = s->t.leaf[1].data, *before = s->t.leaf[4].data;
    int slots = s->t.count - 5;
    for (size_t k = 0; k < s->t.leaf[0].count; k++) {
        double old[3] = { ((const float *)s->t.leaf[2].data)[k] }, new[3], most[3], got[3];
        got[0] = ((const float *)s->value[1])[k];
        for (int i = 1; i <= slots; i++) {
            old[i] = ((const float *)s->t.leaf[4 + i].data)[k];
            got[i] = ((const float *)s->value[3 + i])[k];
        }
        update_wide(node, *step, g[k], old, new);
        update_allowed(node, *step, g[k], old, most);
        for (int i = 0; i <= slots; i++)
            if (!(fabs(got[i] - new[i]) <= most[i])) {
                print_error(
                    "seed %u, rule %d, element %zu: %s is %.9g, in float64 %.17g, %.3g apart, %.3g is allowed\n", seed,
                    (int)node->attr.apply.rule, k, i ? "a slot" : "the variable", got[i], new[i], fabs(got[i] - new[i]),
                    most[i]);
                return 1;
            }
        if (((const float *)s->value[2])[k] != g[k] || ((const float *)s->value[3])[k] != before[k] + g[k]) {
            print_error("seed %u, element %zu: assigned wrongly\n", seed, k);
            return 1;
        }
    }
    return 0;
}

static int check_update(uint32_t seed, ls_apply_rule rule)
{
    static const numbers kinds[] = { SPECIAL, APART, USUAL, TINY };
    plan p = { .seed = seed, .family = &(test_shapes){ .name = "updates" }, .batch = 1, .numbers = kinds[seed % 4] };
    const cut how = { .lanes = 1 };
    side theirs, ours;
    int wrong = 0;
    const ls_tensor *node = open_update(&theirs, seed, rule, reference);
    change_numbers(&theirs, &p);
    if (!(*(float *)theirs.t.leaf[1].data >= 1))
        *(float *)theirs.t.leaf[1].data = 1;
    note_ops(&theirs);
    ls_status status = side_run(&theirs, &how); /* an update that is not finite is refused */
    for (size_t i = 0; i < SETS; i++) {
        if (!fast[i])
            continue;
        open_update(&ours, seed, rule, fast[i]);
        copy_numbers(&ours, &theirs);
        wrong += side_run(&ours, &how) != status;
        wrong += status == LS_OK && !same_bits(&p, instruction_sets[i], &how, &ours, &theirs);
        side_close(&ours);
    }
    if (p.numbers == USUAL)
        wrong += check_update_accuracy(seed, &theirs, node);
    side_close(&theirs);
    return wrong;
}

static void updates_have_the_reference_s_bits(void **state)
{
    (void)state;
    int wrong = 0;
    for (int rule = 0; ls_apply_slots((ls_apply_rule)rule, false) >= 0; rule++)
        for (uint32_t seed = 1; seed <= (SANITIZED ? 6 : 18); seed++)
            wrong += check_update(seed, (ls_apply_rule)rule) != 0;
    if (wrong)
        fail_msg("%d updates", wrong);
}

/* ---- Faults that the comparisons must notice ---- */

#ifdef ON_CUDA
/* It ends at the first that differs: a test that does not notice these would pass on any device. */
#define FEW 300

/* Both devices: a reference that used them by mistake would have the same fault. */
static bool break_devices(const char *fault)
{
    cuda_controls standin = cuda_control();
    return standin.break_device(0, fault) && standin.break_device(1, fault);
}

static void a_broken_device_is_noticed(const char *fault, bool updates_too)
{
    int wrong = 0, wrong_updates = 0;
    if (!break_devices(fault))
        SKIP("the stand-in cannot flush subnormals on this machine");
    broken = true;
    for (uint32_t seed = 1; seed <= FEW && wrong == 0; seed++)
        wrong += check_seed(seed) > 0;
    for (uint32_t seed = 1; updates_too && seed <= FEW && wrong_updates == 0; seed++)
        wrong_updates += check_update(seed, LS_APPLY_ADAM) > 0;
    broken = false;
    assert_true(break_devices(""));
    assert_true(wrong > 0);
    assert_true(!updates_too || wrong_updates > 0);
}

static void products_that_round_twice_are_noticed(void **state)
{
    (void)state;
    a_broken_device_is_noticed("fma", false);
}

static void flushed_subnormals_are_noticed(void **state)
{
    (void)state;
    a_broken_device_is_noticed("subnormals", true);
}
#endif

/* ---- All together ---- */

static void there_is_such_a_device(void **state)
{
    (void)state;
    SKIP("no such device, see the first line (tools/deps.sh install opencl; make test builds the stand-in for CUDA)");
}

#ifdef ON_OPENCL
static bool open_fast(void)
{
    ls_context_options ours = { .threads = 1 };
    return opencl_open(&ours, "opencl:0", &fast[0]);
}
#elif defined ON_CUDA
static bool open_fast(void)
{
    ls_context_options ours = { .threads = 1 };
    return cuda_stand_in() && cuda_open(&ours, "cuda:0", &fast[0]);
}
#else
static bool open_fast(void)
{
    ls_context_options ours = { .threads = 1 };
    for (size_t i = 0; i < SETS; i++) {
        if (!ls_simd_named(instruction_sets[i]))
            continue;
        setenv("LOCKSTEP_ISA", instruction_sets[i], 1);
        LS_CHECK(ls_context_open(&ours, &fast[i]));
    }
    unsetenv("LOCKSTEP_ISA");
    return true;
}
#endif

/* After all others: nothing is left out. */
static void every_op_was_seen(void **state)
{
    (void)state;
    for (int op = 0; asked_seed() == 0 && op < LS_OP_COUNT; op++)
        if (!seen[op] && ls_ops[op].kernel != LS_KERNEL_NONE)
            fail_msg("no expression had the op %s", ls_ops[op].name);
}

int main(void)
{
    ls_context_options plain = { .reference = true, .threads = 1 };
    mallopt(M_PERTURB, 0x80); /* memory that is read before it is written has large numbers, not zeros */
    if (!open_fast()) {
        TEST_SUITE_ADD(there_is_such_a_device);
        return test_suite_run("reference bits");
    }
    LS_CHECK(ls_context_open(&plain, &reference));
    TEST_SUITE_ADD(every_op_has_a_family);
    TEST_SUITE_ADD(random_shapes_have_the_reference_s_bits);
    TEST_SUITE_ADD(updates_have_the_reference_s_bits);
#ifdef ON_CUDA
    TEST_SUITE_ADD(products_that_round_twice_are_noticed);
    TEST_SUITE_ADD(flushed_subnormals_are_noticed);
#endif
    TEST_SUITE_ADD(every_op_was_seen);
    int failed = test_suite_run("reference bits");
    for (int op = 0; getenv("LS_BITS") && op < LS_OP_COUNT; op++)
        if (worst[op] > 0)
            printf("%-28s %4.0f %% of its bound\n", ls_ops[op].name, 100 * worst[op]);
    for (size_t i = 0; i < SETS; i++)
        if (fast[i])
            ls_context_close(fast[i]);
    ls_context_close(reference);
    return failed;
}
