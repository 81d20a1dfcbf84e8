/* Tests every op with the batch axis in every position it can take. A row of the table is an
 * expression with its inputs; graph_cases.h explains how inputs are written ("N,3").
 *
 * The test tries each input that begins with N as a constant, as a per-sample input and as a
 * gathered batch, in all combinations. The combination with constants only has no batch axis; its
 * values and gradients are the expected ones. Every other combination must give the same values
 * and gradients, or be refused with a message that names an op. For the combinations with all
 * inputs per-sample, and with all of them gathered, the row has the required outcome.
 *
 * test_opencl_axis.c includes this file with ON_OPENCL: it computes in float32 on an OpenCL device,
 * and also compares the bits with those of the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/rules.h"
#include "graph_cases.h"
#include "skip.h"

#ifdef ON_OPENCL
#include "opencl.h"
#define TOLERANCE 1e-4
#define REAL      LS_F32
static const int64_t batches[] = { 1, 5 };
#else
#define TOLERANCE 1e-12
#define REAL      LS_F64
static const int64_t batches[] = { 1, 2, 5 };
#endif
static ls_context *cpu, *device; /* NULL: each graph has a context of its own */
#define BATCHES (sizeof batches / sizeof *batches)

/* ---- One combination ---- */

typedef struct outcome {
    bool refused;
    char message[1200];
    bool per_sample;
    ls_shape shape; /* with the batch's size */
    size_t count;
    double *values;
    size_t gradient_count[TEST_INPUTS];
    double *gradient[TEST_INPUTS]; /* gradient of the sum of (y + 0.37)^2 by each real input */
} outcome;

static void outcome_close(outcome *o)
{
    free(o->values);
    for (int i = 0; i < TEST_INPUTS; i++)
        free(o->gradient[i]);
}

static void read_gradients(const test_case *c, test_graph *t, ls_tensor *y, const char *where, outcome *o)
{
    ls_tensor *x[TEST_INPUTS], *g[TEST_INPUTS];
    int number[TEST_INPUTS];
    size_t reals = 0;
    for (int i = 0; i < t->count; i++)
        if (test_spec_is_real(c->in[i])) {
            number[reals] = i;
            x[reals++] = t->leaf[i].source;
        }
    ls_tensor *loss = ls_op_reduce_sum(ls_op_square(ls_op_shift(y, 0.37)), LS_ALL_AXES, false);
    if (ls_gradients_with(loss, x, reals, (ls_gradients_options){ .zeros = true }, g) != LS_OK ||
        test_run(t, g, reals) != LS_OK)
        fail_msg("%s: the gradient: %s", where, ls_last_error());
    for (size_t i = 0; i < reals; i++)
        o->gradient[number[i]] = test_values(g[i], &o->gradient_count[number[i]]);
}

static void run_combination_in(ls_context *ctx, const test_case *c, const test_kind *kinds, int64_t batch,
                               const char *where, outcome *o)
{
    test_graph t;
    ls_tensor *x[TEST_INPUTS] = { NULL };
    bool whole = true;
    *o = (outcome){ .refused = false };
    if (ctx)
        test_graph_open_in(&t, ctx, batch, REAL);
    else
        test_graph_open(&t, batch);
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++) {
        whole = whole && kinds[i] == TEST_CONSTANT;
        x[i] = test_add(&t, c->in[i], kinds[i])->tensor;
    }
    ls_tensor *y = whole && c->whole ? c->whole(c, x) : test_build(c, x);
    o->refused = ls_tensor_is_error(y);
    if (o->refused) {
        snprintf(o->message, sizeof o->message, "%s", y ? y->message : ls_last_error());
    } else {
        if (!(whole && c->whole) && !test_has_op(t.graph, c->op))
            fail_msg("%s: the expression has no node of the op", where);
        if (test_run(&t, &y, 1) != LS_OK)
            fail_msg("%s: %s", where, ls_last_error());
        ls_array value;
        assert_int_equal(ls_value(y, &value), LS_OK);
        o->shape = value.shape;
        o->per_sample = ls_tensor_is_per_sample(y);
        o->values = test_values(y, &o->count);
        if (ls_tensor_dtype(y) == REAL && !c->values_only)
            read_gradients(c, &t, y, where, o);
    }
    test_graph_close(&t);
}

/* Any NaN equals any NaN. */
static void check_bits(const char *where, const double *a, const double *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %zu is %a, on the CPU %a", where, i, a[i], b[i]);
}

/* Runs a combination on the device. With ON_OPENCL, also compares the bits with the CPU's. */
static void run_combination(const test_case *c, const test_kind *kinds, int64_t batch, const char *where, outcome *o)
{
    outcome other;
    run_combination_in(device, c, kinds, batch, where, o);
    if (!cpu)
        return;
    run_combination_in(cpu, c, kinds, batch, where, &other);
    assert_int_equal(o->refused, other.refused);
    assert_int_equal(o->count, other.count);
    check_bits(where, o->values, other.values, o->count);
    for (int i = 0; i < TEST_INPUTS; i++) {
        assert_int_equal(o->gradient_count[i], other.gradient_count[i]);
        check_bits(where, o->gradient[i], other.gradient[i], o->gradient_count[i]);
    }
    outcome_close(&other);
}

/* ---- All combinations of a row ---- */

static void check_equal(const char *where, const outcome *o, const outcome *whole)
{
    char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT], what[320];
    if (!ls_shape_equal(&o->shape, &whole->shape))
        fail_msg("%s: the shape is %s, without a batch axis %s", where, ls_shape_format(&o->shape, a),
                 ls_shape_format(&whole->shape, b));
    snprintf(what, sizeof what, "%s: values", where);
    test_assert_near(what, o->values, whole->values, whole->count, TOLERANCE);
    for (int i = 0; i < TEST_INPUTS; i++) {
        if (!whole->gradient[i])
            continue;
        snprintf(what, sizeof what, "%s: the gradient of input %d", where, i);
        assert_int_equal(o->gradient_count[i], whole->gradient_count[i]);
        test_assert_near(what, o->gradient[i], whole->gradient[i], whole->gradient_count[i], TOLERANCE);
    }
}

/* Returns whether a message ("matmul(a: ...", "split: ...") begins with this name; NULL: with the
 * name of any op. */
static bool begins_with_op(const char *message, const char *name)
{
    size_t length = strcspn(message, "(:");
    if (name)
        return strlen(name) == length && strncmp(message, name, length) == 0;
    for (int i = 0; i < LS_OP_COUNT; i++)
        if (begins_with_op(message, ls_ops[i].name))
            return true;
    return false;
}

/* Checks that a combination was refused, with a message that contains `says` (NULL: any text). */
static void check_refusal(const test_case *c, const char *where, const outcome *o, const char *says)
{
    if (!o->refused)
        fail_msg("%s: accepted, but it must be refused", where);
    const char *name = c->named ? c->named : c->op;
    if (!begins_with_op(o->message, name) && (says || !begins_with_op(o->message, NULL)))
        fail_msg("%s: the message does not begin with %s: %s", where, name, o->message);
    if (says && !strstr(o->message, says))
        fail_msg("%s: the message does not say \"%s\": %s", where, says, o->message);
}

typedef enum expectation { EITHER, RIGHT, REFUSED } expectation;

static void check_combination(const test_case *c, const test_kind *kinds, int64_t batch, const outcome *whole)
{
    static const char letters[] = "cvfg";
    char where[256], kind[TEST_INPUTS + 1] = "";
    bool all_fed = true, all_gathered = true;
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++) {
        kind[i] = letters[kinds[i]];
        all_fed = all_fed && (kinds[i] == TEST_FED || !test_spec_has_batch(c->in[i]));
        all_gathered = all_gathered && (kinds[i] == TEST_GATHERED || !test_spec_has_batch(c->in[i]));
    }
    if (c->alone && !all_fed)
        return;
    snprintf(where, sizeof where, "%s (%s), batch %d, inputs %s (constant, fed, gathered)", c->op, c->variant,
             (int)batch, kind);
    const char *says = c->never || all_fed ? c->refused : all_gathered ? c->not_gathered : NULL;
    expectation expected = says ? REFUSED : all_fed || all_gathered ? RIGHT : EITHER;
    outcome o;
    run_combination(c, kinds, batch, where, &o);
    if (expected == REFUSED || (expected == EITHER && o.refused))
        check_refusal(c, where, &o, says);
    else if (o.refused)
        fail_msg("%s: refused: %s", where, o.message);
    else
        check_equal(where, &o, whole);
    if (!o.refused && all_fed && o.per_sample == c->reduces)
        fail_msg("%s: the result is %s", where, o.per_sample ? "per-sample" : "whole");
    outcome_close(&o);
}

static void right_or_refused(void **state)
{
    const test_case *c = *state;
    test_kind kinds[TEST_INPUTS] = { TEST_CONSTANT };
    int vary[TEST_INPUTS], count = 0, combinations = 1;
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++)
        if (test_spec_has_batch(c->in[i])) {
            vary[count++] = i;
            combinations *= 3;
        }
    assert_true(count > 0);
    for (size_t b = 0; b < BATCHES; b++) {
        static const test_kind choice[] = { TEST_CONSTANT, TEST_FED, TEST_GATHERED };
        outcome whole;
        memset(kinds, 0, sizeof kinds);
        run_combination(c, kinds, batches[b], c->variant, &whole);
        if (whole.refused != c->never)
            fail_msg("%s (%s), without a batch axis: %s", c->op, c->variant,
                     whole.refused ? whole.message : "accepted");
        for (int k = 1; k < combinations; k++) {
            for (int i = 0, rest = k; i < count; i++, rest /= 3)
                kinds[vary[i]] = choice[rest % 3];
            check_combination(c, kinds, batches[b], &whole);
        }
        outcome_close(&whole);
    }
}

/* ---- Builders that only this table uses ---- */

static int64_t first_size(const ls_tensor *x)
{
    return ls_tensor_shape(x).dims[0];
}

static ls_tensor *compare(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_compare(x[0], LS_LESS, x[1]);
}

static ls_tensor *stop_gradient(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_mul(x[0], ls_op_stop_gradient(x[0]));
}

static ls_tensor *argmax(const test_case *c, ls_tensor *const *x)
{
    return ls_op_argmax(x[0], c->number);
}

static ls_tensor *top_k_indices(const test_case *c, ls_tensor *const *x)
{
    return ls_op_top_k_indices(x[0], c->number);
}

/* Returns the shape in c->options, with each 0 replaced by the size of axis 0 of x. */
static ls_shape shape_for(const test_case *c, const ls_tensor *x)
{
    ls_shape shape = *(const ls_shape *)c->options;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] == 0)
            shape.dims[i] = first_size(x);
    return shape;
}

static ls_tensor *reshape(const test_case *c, ls_tensor *const *x)
{
    return ls_op_reshape(x[0], shape_for(c, x[0]));
}

static ls_tensor *flatten(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_flatten(x[0]);
}

static ls_tensor *flatten_each(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_reshape(x[0], LS_SHAPE(first_size(x[0]), LS_REMAINING));
}

static ls_tensor *broadcast(const test_case *c, ls_tensor *const *x)
{
    return ls_op_broadcast(x[0], shape_for(c, x[0]));
}

/* Splits x[0] into the first sample and the others. x[1] has as many elements as there are
 * samples. */
static ls_tensor *split_samples(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    ls_tensor *part[2];
    ls_op_split(x[0], 0, LS_AXES(1, first_size(x[1]) - 1), part);
    return part[0];
}

static ls_tensor *split(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    ls_tensor *part[2];
    ls_op_split(x[0], 1, LS_AXES(1, 2), part);
    return ls_op_mul(part[0], part[1]);
}

/* Takes all of axis 0 and every second element of axis 1. */
static ls_tensor *every_second(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_strided_slice(x[0], LS_AXES(0, 0), LS_AXES(first_size(x[0]), 3), LS_AXES(1, 2));
}

static ls_tensor *matmul_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_matmul(c, x), x[1], x[2]);
}

static ls_tensor *moments(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_node_make1(LS_OP_moments, x[0], ls_no_attrs());
}

static ls_tensor *same_tensor(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return x[0];
}

static ls_tensor *gather_batch(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_gather_batch(x[0]);
}

static ls_tensor *scatter_batch(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_scatter_batch(ls_op_gather_batch(x[0]));
}

static ls_tensor *broadcast_to_second(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_mul(ls_op_broadcast(x[0], ls_tensor_shape(x[1])), x[1]);
}

static ls_tensor *fill(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_mul(ls_op_fill(x[0]->graph, REAL, ls_tensor_shape(x[0]), 1.5), x[0]);
}

/* Returns the moving mean and variance after one training step. */
static ls_tensor *moving_statistics(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *mean = ls_op_variable(x[0]->graph, "mean", REAL, LS_SHAPE(3));
    ls_tensor *variance = ls_op_variable(x[0]->graph, "variance", REAL, LS_SHAPE(3)), *updates[2];
    ls_op_batch_norm(x[0], .moving_mean = mean, .moving_variance = variance, .training = true, .momentum = 0.5,
                     .unbiased = c->number, .updates = updates);
    return ls_op_concat(updates, 2, 0);
}

/* Computes a softmax over the samples, then gives each sample its row. */
static ls_tensor *softmax_over_batch(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_scatter_batch(ls_op_softmax(ls_op_gather_batch(x[0]), 0));
}

/* Compares every sample with all: logits [N,N]; label i is the index of the sample that sample i
 * must match. */
static ls_tensor *contrast(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    ls_tensor *pairs = ls_op_matmul(x[0], ls_op_gather_batch(x[1]), .transpose_b = true);
    return ls_op_reduce_mean(ls_op_sparse_cross_entropy(x[2], ls_op_scale(pairs, 2), LS_LOGITS), LS_ALL_AXES, false);
}

static ls_tensor *contrast_whole(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    ls_tensor *pairs = ls_op_matmul(x[0], x[1], .transpose_b = true);
    return ls_op_reduce_mean(ls_op_sparse_cross_entropy(x[2], ls_op_scale(pairs, 2), LS_LOGITS), LS_ALL_AXES, false);
}

static ls_tensor *contrast_with_itself(const test_case *c, ls_tensor *const *x)
{
    return contrast(c, (ls_tensor *[]){ x[0], x[0], x[1] });
}

static ls_tensor *contrast_with_itself_whole(const test_case *c, ls_tensor *const *x)
{
    return contrast_whole(c, (ls_tensor *[]){ x[0], x[0], x[1] });
}

/* ---- The table ---- */

#define MIXES "mix samples"

/* clang-format off */
static const test_case table[] = {
    { "gather_batch", "and nothing else", { "N,3" }, .build = gather_batch, .whole = same_tensor, .reduces = true,
      .alone = true },
    { "scatter_batch", "gives each sample its row", { "N,3" }, .build = scatter_batch, .whole = same_tensor,
      .alone = true },
    { "gather_batch", "contrast", { "N,3", "N,3", "i1:N" }, .build = contrast, .whole = contrast_whole, .reduces = true,
      .alone = true },
    { "gather_batch", "contrast with itself", { "N,3", "i1:N" }, .build = contrast_with_itself,
      .whole = contrast_with_itself_whole, .reduces = true, .alone = true },
    { "scatter_batch", "softmax over the batch", { "N,3" }, .build = softmax_over_batch, .whole = test_softmax,
      .alone = true },
    { "fill", "", { "N,3" }, .build = fill, .alone = true },
    { "broadcast", "to every sample", { "3", "N,3" }, .build = broadcast_to_second, .named = "mul",
      .not_gathered = MIXES },
    { "assign", "moving statistics", { "N,3" }, .build = moving_statistics, .reduces = true, .values_only = true },
    { "assign", "moving statistics of images, unbiased", { "N,2,2,3" }, .build = moving_statistics, .number = 1,
      .reduces = true, .values_only = true },
    { "stop_gradient", "", { "N,3" }, .build = stop_gradient },
    { "cast", "", { "#N,3" }, .build = test_cast },
    { "sign", "", { "N,3" }, .one = ls_op_sign },
    { "compare", "one shape", { "N,3", "N,3" }, .build = compare },
    { "compare", "with a whole row", { "N,3", "3" }, .build = compare },
    { "compare", "broadcast against more axes", { "N,3", "2,1,3" }, .build = compare, .refused = MIXES },
    { "select", "one shape", { "b:N,3", "N,3", "N,3" }, .build = test_select },
    { "select", "a column of conditions", { "b:N,1", "3", "N,3" }, .build = test_select },
    { "select", "a whole condition", { "b:3", "N,3", "" }, .build = test_select },
    { "select", "broadcast against more axes", { "b:N,3", "2,1,3", "N,3" }, .build = test_select, .refused = MIXES },
    { "capped_relu_grad", "", { "N,3", "N,3" }, .build = test_capped_relu_grad, .real = 0.8 },
    { "silu_grad", "", { "N,3", "N,3" }, .build = test_silu_grad },
    { "relu_grad", "", { "N,3", "N,3" }, .build = test_relu_grad, .real = 0.1 },

    { "reshape", "keeps axis 0", { "N,2,3" }, .build = reshape, .options = TO(0, 6) },
    { "reshape", "the rest of a sample", { "N,2,3" }, .build = reshape, .options = TO(0, 3, LS_REMAINING) },
    { "reshape", "samples into axis 1", { "N,4" }, .build = reshape, .options = TO(4, 0), .refused = MIXES },
    { "reshape", "samples cut up", { "N,4" }, .build = reshape, .options = TO(LS_REMAINING, 2), .refused = MIXES,
      .not_gathered = "do not fit" },
    { "reshape", "an axis in front", { "N,4" }, .build = reshape, .options = TO(1, 0, 4), .refused = MIXES },
    { "reshape", "flatten", { "N,2,3" }, .build = flatten, .whole = flatten_each, .alone = true },
    { "transpose", "inner axes", { "N,2,3" }, .build = test_transpose, .options = AXES(0, 2, 1) },
    { "transpose", "axis 0 away", { "N,2,3" }, .build = test_transpose, .options = AXES(1, 0, 2), .refused = MIXES },
    { "transpose", "axis 0 to the end", { "N,3" }, .build = test_transpose, .options = AXES(-1, 0), .refused = MIXES },
    { "broadcast", "an inner axis", { "N,1" }, .build = broadcast, .options = TO(0, 3), .not_gathered = MIXES },
    { "broadcast", "an axis in front", { "N,3" }, .build = broadcast, .options = TO(2, 0, 3), .refused = MIXES },
    { "concat", "last axis", { "N,3", "N,2" }, .build = test_concat, .number = -1 },
    { "concat", "middle axis", { "N,3,2", "N,1,2" }, .build = test_concat, .number = 1 },
    { "concat", "samples after samples", { "N,3", "N,3" }, .build = test_concat, .refused = MIXES,
      .not_gathered = "no known size" },
    { "concat", "samples after rows", { "2,3", "N,3" }, .build = test_concat,
      .refused = "input 1 differs from input 0", .not_gathered = "no known size" },
    { "concat", "rows after samples", { "N,3", "2,3" }, .build = test_concat, .refused = MIXES,
      .not_gathered = "no known size" },
    { "slice", "a part of each sample", { "N,3" }, .build = test_slice, .options = CUT(EACH(0, 1), EACH(-1, 2)) },
    { "slice", "the first sample", { "N,3" }, .build = test_slice, .options = CUT(EACH(0, 0), EACH(1, 3)),
      .refused = MIXES, .not_gathered = "not known" },
    { "slice", "from sample 1 on", { "N,3" }, .build = test_slice, .options = CUT(EACH(1, 0), EACH(-1, 3)),
      .refused = MIXES, .not_gathered = "not known" },
    { "slice", "every second of each sample", { "N,3" }, .build = every_second },
    { "slice", "every second sample", { "N,3" }, .build = test_slice,
      .options = CUT_BY(EACH(0, 0), EACH(1, 3), EACH(2, 1)), .refused = MIXES, .not_gathered = "not known" },
    { "slice", "split", { "N,3" }, .build = split },
    { "slice", "split of samples", { "N,3", "n" }, .build = split_samples, .named = "split",
      .refused = MIXES, .not_gathered = "the parts add up to" },
    { "slice_grad", "", { "N,3", "N,2" }, .build = test_slice_grad, .named = "ls_gradients",
      .options = CUT(EACH(0, 1), EACH(-1, 2)) },
    { "pad", "each sample", { "N,3" }, .build = test_pad, .options = CUT(EACH(0, 1), EACH(0, 2)), .real = 0.5 },
    { "pad", "the batch", { "N,3" }, .build = test_pad, .options = CUT(EACH(1, 0), EACH(0, 0)), .refused = MIXES,
      .not_gathered = "not known" },
    { "gather", "an embedding", { "5,3", "i5:N,2" }, .build = test_gather },
    { "gather", "axis 1, whole indices", { "N,3,2", "i3:4" }, .build = test_gather, .number = 1 },
    { "gather", "last axis, one index", { "N,3", "i3:" }, .build = test_gather, .number = -1 },
    { "gather", "samples", { "N,3", "i1:4" }, .build = test_gather, .refused = MIXES },
    { "gather", "axis 1, per-sample indices", { "2,5", "i5:N" }, .build = test_gather, .number = 1, .refused = MIXES },
    { "gather", "axis 1, both per-sample", { "N,5", "i5:N" }, .build = test_gather, .number = 1,
      .refused = "has its own indices" },
    { "gather", "axis 0, both per-sample", { "N,5", "i1:N" }, .build = test_gather, .refused = MIXES },
    { "gather_grad", "an embedding", { "5,3", "i5:N,2", "N,2,3" }, .build = test_gather_grad, .named = "ls_gradients",
      .reduces = true },
    { "gather_grad", "axis 1", { "N,3,2", "i3:4", "N,4,2" }, .build = test_gather_grad, .named = "ls_gradients",
      .number = 1 },
    { "one_hot", "", { "i3:N,2" }, .build = test_one_hot },

    { "argmax", "last axis", { "N,3" }, .build = argmax, .number = -1 },
    { "argmax", "middle axis", { "N,3,2" }, .build = argmax, .number = 1 },
    { "argmax", "over the batch", { "N,3" }, .build = argmax, .number = 0, .refused = MIXES },
    { "argmax", "over the batch, counted from the end", { "N,3" }, .build = argmax, .number = -2, .refused = MIXES },
    { "top_k", "", { "N,5" }, .build = test_top_k, .number = 2 },
    { "top_k", "of samples", { "N" }, .build = test_top_k, .number = 1, .refused = MIXES, .not_gathered = "not known" },
    { "top_k_indices", "", { "N,5" }, .build = top_k_indices, .number = 2 },
    { "top_k_indices", "of samples", { "N" }, .build = top_k_indices, .number = 1, .refused = MIXES,
      .not_gathered = "not known" },
    { "softmax", "last axis", { "N,3" }, .build = test_softmax, .number = -1 },
    { "softmax", "middle axis", { "N,3,2" }, .build = test_softmax, .number = 1 },
    { "softmax", "over the batch", { "N,3" }, .build = test_softmax, .number = 0, .refused = MIXES },
    { "log_softmax", "last axis", { "N,3" }, .build = test_log_softmax, .number = -1 },
    { "log_softmax", "over the batch", { "N,3" }, .build = test_log_softmax, .number = -2, .refused = MIXES },

    { "conv2d", "", { "N,4,4,2", "3,3,2,3" }, .build = test_conv2d,
      .options = CONV(.padding = LS_SAME, .stride = { 2, 1 }) },
    { "conv2d", "a per-sample kernel", { "2,7,4,2", "N,3,2,3" }, .build = test_conv2d, .refused = "must be whole",
      .not_gathered = "not known" },
    { "conv2d_grad_input", "", { "N,4,4,2", "3,3,2,3", "N,2,2,3" }, .build = test_conv2d_grad_input,
      .named = "ls_gradients" },
    { "conv2d_grad_kernel", "", { "N,4,4,2", "3,3,2,3", "N,2,2,3" }, .build = test_conv2d_grad_kernel,
      .named = "ls_gradients", .reduces = true },
    { "max_pool2d", "", { "N,4,4,2" }, .build = test_max_pool, .options = POOL(.window = { 2, 2 }) },
    { "recurrent", "LSTM", { "N,3,8", "2,8" }, .build = test_recurrent, .options = CELL(LSTM, TANH, SIGMOID, false) },
    { "recurrent", "GRU, a mask", { "N,3,6", "2,6", "6", "b:N,3" }, .build = test_recurrent, .number = 3,
      .options = CELL(GRU_RESET_AFTER, TANH, SIGMOID, false) },
    { "recurrent", "GRU, reset before", { "N,3,6", "2,6" }, .build = test_recurrent, .options = CELL(GRU, TANH, SIGMOID, false) },
    { "recurrent_grad", "LSTM", { "N,3,8", "2,8", "N,3,2" }, .build = test_recurrent_grad, .options = CELL(LSTM, TANH, SIGMOID, false),
      .named = "ls_gradients", .values_only = true },
    { "recurrent_grad", "GRU, a mask", { "N,3,6", "2,6", "6", "b:N,3", "N,3,2" }, .build = test_recurrent_grad,
      .number = 3, .options = CELL(GRU_RESET_AFTER, TANH, SIGMOID, false), .named = "ls_gradients", .values_only = true },
    { "attention", "", { "N,3,4", "N,4,4", "N,4,2" }, .build = test_attention, .options = HEADS(.heads = 2, .causal = true) },
    { "attention", "packed, a mask", { "N,3,12", "b:N,3,3" }, .build = test_attention, .number = 3, .options = HEADS(.heads = 2) },
    { "attention", "a mask for all samples", { "N,3,4", "N,3,4", "N,3,2", "b:3,3" }, .build = test_attention, .number = 2,
      .options = HEADS(.heads = 2) },
    { "attention", "keys without samples", { "N,3,4", "9,4,4", "9,4,2" }, .build = test_attention, .never = true, .options = HEADS(.heads = 2),
      .refused = "samples" },
    { "attention_grad", "", { "N,3,4", "N,4,4", "N,4,2", "N,3,2" }, .build = test_attention_grad, .options = HEADS(.heads = 2),
      .named = "ls_gradients", .values_only = true },
    { "attention_grad", "packed, a mask", { "N,3,12", "b:N,3,3", "N,3,4" }, .build = test_attention_grad, .number = 3,
      .options = HEADS(.heads = 2), .named = "ls_gradients", .values_only = true },
    { "custom", "", { "N,2,3", "N,2,3" }, .build = test_custom, .alone = true },
    { "custom", "a whole input", { "N,2,3", "3" }, .build = test_custom, .not_gathered = "gathered batch" },
    { "custom_grad", "", { "N,2,3", "3", "N,2,3" }, .build = test_custom_grad, .named = "ls_gradients",
      .alone = true, .values_only = true },
    { "max_pool2d_grad", "", { "N,4,4,2", "N,2,2,2" }, .build = test_max_pool_grad, .options = POOL(.window = { 2, 2 }),
      .named = "ls_gradients", .values_only = true },
    { "average_pool2d", "", { "N,4,5,2" }, .build = test_average_pool,
      .options = POOL(.window = { 3, 2 }, .padding = LS_SAME) },
    { "average_pool2d_grad", "", { "N,4,4,2", "N,2,2,2" }, .build = test_average_pool_grad,
      .options = POOL(.window = { 2, 2 }), .named = "ls_gradients" },
    { "warp", "", { "N,4,5,2", "N,6" }, .build = test_warp, .options = WARP(.fill_mode = LS_FILL_REFLECT) },
    { "warp", "other matrices", { "N,4,5,2", "99,6" }, .build = test_warp, .options = WARP(.fill_value = 1),
      .never = true, .refused = "one matrix per image" },
    { "warp_grad", "", { "N,4,5,2", "N,6", "N,3,2,2" }, .build = test_warp_grad, .options = WARP(.size = { 3, 2 }),
      .named = "ls_gradients" },
    { "reduce_max", "global pool", { "N,2,3,2" }, .one = ls_op_global_max_pool2d },
    { "reduce_sum", "global average pool", { "N,2,3,2" }, .one = ls_op_global_average_pool2d },

    { "moments", "", { "N,2,3" }, .build = moments, .reduces = true, .values_only = true },
    { "batch_norm", "training", { "N,3", "3", "3" }, .build = test_batch_norm_training, .real = 0.1 },
    { "batch_norm", "training, images", { "N,2,2,3", "3", "3" }, .build = test_batch_norm_training },
    { "batch_norm", "training, a per-sample gamma", { "3,n", "N", "n" }, .build = test_batch_norm_training,
      .refused = "gamma must be whole", .not_gathered = "gamma is" },
    { "batch_norm", "training, a per-sample beta", { "3,n", "n", "N" }, .build = test_batch_norm_training,
      .refused = "beta must be whole", .not_gathered = "beta is" },
    { "batch_norm", "training, the samples are the channels", { "N" }, .build = test_batch_norm_training, .never = true,
      .refused = "at least 2 axes" },
    { "batch_norm_grad_moments", "", { "N,3", "3", "3", "N,3" }, .build = test_batch_norm_grad, .number = 1,
      .named = "ls_gradients", .reduces = true, .values_only = true },
    { "batch_norm_grad_input", "", { "N,3", "3", "3", "N,3" }, .build = test_batch_norm_grad, .number = 0,
      .named = "ls_gradients", .values_only = true },
    { "rsqrt", "batch norm, inference", { "N,3", "3", "3", "3", "+3" }, .build = test_batch_norm_inference },
    { "rsqrt", "layer norm", { "N,2,3", "3", "3" }, .build = test_layer_norm },
    { "rsqrt", "layer norm, two axes", { "N,2,3", "2,3", "2,3" }, .build = test_layer_norm, .number = 2 },
    { "rsqrt", "layer norm, samples too", { "N,3" }, .build = test_layer_norm, .number = 2, .named = "layer_norm",
      .refused = "cannot be normalized" },

    { "sparse_cross_entropy", "logits", { "N,5", "i5:N" }, .build = test_sparse_cross_entropy },
    { "sparse_cross_entropy", "probabilities", { "~N,5", "j5:N" }, .build = test_sparse_cross_entropy, .number = 1 },
    { "sparse_cross_entropy", "softmax", { "N,5", "u5:N" }, .build = test_sparse_cross_entropy, .number = 2 },
    { "sparse_cross_entropy", "a sequence", { "N,2,5", "i5:N,2" }, .build = test_sparse_cross_entropy },
    { "sparse_cross_entropy", "labels [N,1]", { "N,5", "i5:N,1" }, .build = test_sparse_cross_entropy, .never = true,
      .refused = "labels have shape" },
    { "sparse_cross_entropy", "one label for all", { "N,5", "i5:" }, .build = test_sparse_cross_entropy, .never = true,
      .refused = "labels have shape" },
    { "sparse_cross_entropy", "samples as classes", { "N", "i1:" }, .build = test_sparse_cross_entropy,
      .refused = "an axis of classes besides the batch axis" },
    { "sparse_cross_entropy_grad", "", { "N,5", "i5:N", "N" }, .build = test_sparse_cross_entropy_grad,
      .named = "ls_gradients" },
    { "ctc", "", { "N,5,4", "i4:N,2" }, .build = test_ctc },
    { "ctc", "labels of all samples", { "N,5,4", "i4:3,2" }, .build = test_ctc, .never = true,
      .refused = "labels have shape" },
    { "ctc_grad", "", { "N,5,4", "i4:N,2", "N" }, .build = test_ctc_grad, .named = "ls_gradients",
      .values_only = true },
    { "log_softmax", "cross-entropy, logits", { "N,5", "~N,5" }, .build = test_cross_entropy,
      .named = "cross_entropy" },
    { "log", "cross-entropy, probabilities", { "~N,5", "~N,5" }, .build = test_cross_entropy, .number = 1,
      .named = "cross_entropy" },
    { "log_softmax", "cross-entropy, labels [5]", { "N,5", "~5" }, .build = test_cross_entropy, .never = true,
      .named = "cross_entropy", .refused = "they must be equal" },
    { "log_softmax", "cross-entropy of samples", { "N", "~N" }, .build = test_cross_entropy, .named = "cross_entropy",
      .refused = "no axis to reduce" },
    { "softplus", "binary cross-entropy, logits", { "N,5", "~N,5" }, .build = test_binary_cross_entropy,
      .named = "binary_cross_entropy" },
    { "log", "binary cross-entropy, probabilities", { "~N,5", "~N,5" }, .build = test_binary_cross_entropy, .number = 1,
      .named = "binary_cross_entropy" },
    { "softplus", "binary cross-entropy, labels [N]", { "N,1", "~N" }, .build = test_binary_cross_entropy,
      .never = true, .named = "binary_cross_entropy", .refused = "they must be equal" },
    { "square", "mean squared error", { "N,3", "N,3" }, .two = ls_op_mean_squared_error,
      .named = "mean_squared_error" },
    { "square", "mean squared error of samples", { "N", "N" }, .two = ls_op_mean_squared_error,
      .named = "mean_squared_error", .refused = "no axis to reduce" },
    { "abs", "mean absolute error", { "N,3", "N,3" }, .two = ls_op_mean_absolute_error,
      .named = "mean_absolute_error" },
    { "select", "huber", { "N,3", "N,3" }, .build = test_huber, .real = 1.1, .named = "huber" },
};
/* clang-format on */

/* ---- Generated rows ---- */

static void add_elementwise(void)
{
    static const struct {
        const char *a, *b, *refused;
    } shapes[] = {
        { "N,3", "N,3", NULL },     { "N,3", "3", NULL },      { "3", "N,3", NULL },   { "N,3", "", NULL },
        { "", "N,3", NULL },        { "N,3", "1,3", NULL },    { "1,3", "N,3", NULL }, { "N,3", "N,1", NULL },
        { "N,1", "N,3", NULL },     { "N", "N", NULL },        { "N", "1", NULL },     { "N,1,3", "2,3", NULL },
        { "N,1,3", "N,2,1", NULL }, { "N", "2,1", MIXES },     { "2,1", "N", MIXES },  { "N,3", "2,1,3", MIXES },
        { "2,1,3", "N,3", MIXES },  { "N,1", "1,1,3", MIXES },
    };
    for (size_t i = 0; i < test_unary_count; i++) {
        test_case c = test_unary[i];
        c.variant = test_text("number %d", c.number);
        c.in[0] = test_text("%sN,3", c.in[0] ? c.in[0] : "");
        test_cases_add(&c, 1);
    }
    for (size_t i = 0; i < test_binary_count; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            test_case c = test_binary[i];
            const char *sides[] = { shapes[k].a, shapes[k].b };
            for (int side = 0; side < 2; side++)
                c.in[side] = test_text("%s%s", c.in[side] ? c.in[side] : "", sides[side]);
            c.variant = test_text("(%s) and (%s)", sides[0], sides[1]);
            c.refused = shapes[k].refused;
            test_cases_add(&c, 1);
        }
    }
}

static const struct {
    const char *a, *b;
    int transposes; /* 1: a, 2: b */
    const char *refused;
    bool reduces;
    const char *not_gathered;
} products[] = {
    /* Each sample is a row. */
    { "N,4", "4,3", 0, NULL, false, NULL },
    { "N,4", "3,4", 2, NULL, false, NULL },
    { "N,4", "N,3", 1, NULL, true, NULL },
    { "N,4", "3,n", 3, "inner sizes differ", false, "inner sizes differ" },
    { "N,4", "n,3", 1, "inner sizes differ", false, "inner sizes differ" },
    { "n,4", "N,3", 1, "inner sizes differ", false, "inner sizes differ" },
    { "4,n", "N,3", 0, "inner sizes differ", false, "inner sizes differ" },
    { "N,4", "N,4", 2, MIXES, false, NULL },
    { "5,4", "N,4", 2, MIXES, false, NULL },
    { "4,5", "N,4", 3, MIXES, false, NULL },
    /* Each sample is a matrix. */
    { "N,2,4", "4,3", 0, NULL, false, NULL },
    { "N,4,2", "4,3", 1, NULL, false, NULL },
    { "N,2,4", "3,4", 2, NULL, false, NULL },
    { "N,4,2", "3,4", 3, NULL, false, NULL },
    { "2,4", "N,4,3", 0, NULL, false, NULL },
    { "4,2", "N,4,3", 1, NULL, false, NULL },
    { "2,4", "N,3,4", 2, NULL, false, NULL },
    { "4,2", "N,3,4", 3, NULL, false, NULL },
    { "N,2,4", "N,4,3", 0, NULL, false, NULL },
    { "N,4,2", "N,4,3", 1, NULL, false, NULL },
    { "N,2,4", "N,3,4", 2, NULL, false, NULL },
    { "N,4,2", "N,3,4", 3, NULL, false, NULL },
    { "N,2,4", "1,4,3", 0, NULL, false, NULL },
    { "1,2,4", "N,4,3", 0, NULL, false, NULL },
    { "N,1,2,4", "2,4,3", 0, NULL, false, NULL },
    { "N,2,2,4", "4,3", 0, NULL, false, NULL },
    /* Refused: the batch axis would not stay axis 0. */
    { "N,4", "1,4,3", 0, MIXES, false, NULL },
    { "N,4", "2,4,3", 0, MIXES, false, NULL },
    { "N,4", "2,3,4", 2, MIXES, false, NULL },
    { "N,4", "N,4,3", 0, MIXES, false, NULL },
    { "2,5,4", "N,4", 2, MIXES, false, NULL },
    { "N,5,4", "N,4", 2, MIXES, false, NULL },
    { "2,5,n", "N,3", 0, "inner sizes differ", false, "inner sizes differ" },
    { "N,4", "2,n,3", 1, "inner sizes differ", false, "inner sizes differ" },
    { "N,2,4", "2,1,4,3", 0, MIXES, false, NULL },
    { "2,1,2,4", "N,4,3", 0, MIXES, false, NULL },
};

static void add_products(void)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        int t = products[i].transposes;
        test_case c = { "matmul",
                        test_text("(%s)%s times (%s)%s", products[i].a, t & 1 ? " transposed" : "", products[i].b,
                                  t & 2 ? " transposed" : ""),
                        { products[i].a, products[i].b },
                        .build = test_matmul,
                        .number = t,
                        .refused = products[i].refused,
                        .reduces = products[i].reduces,
                        .not_gathered = products[i].not_gathered };
        test_cases_add(&c, 1);
    }
    for (int t = 0; t < 4; t++) { /* a weight's gradient, of rows and of matrices */
        test_case c = { "matmul",
                        test_text("the gradient of b, transposes %d", t),
                        { t & 1 ? "N,4,2" : "N,2,4", t & 2 ? "3,4" : "4,3", "N,2,3" },
                        .build = matmul_grad,
                        .number = t,
                        .named = "ls_gradients",
                        .reduces = true };
        test_cases_add(&c, 1);
    }
}

static void add_reductions(void)
{
    for (size_t i = 0; i < test_reduction_count; i++) {
        for (int axes = 0; axes < 8; axes++) {
            for (int keep = 0; keep <= 64; keep += 64) {
                test_case c = { test_reductions[i].op,
                                test_text("%s, axes %d, keep %d", test_reductions[i].name, axes, keep),
                                { "N,3,2" },
                                .build = test_reduce,
                                .options = &test_reductions[i],
                                .number = axes | keep,
                                .reduces = axes & 1 };
                test_cases_add(&c, 1);
            }
        }
    }
}

/* ---- Leaves, writes, random numbers ---- */

static void assert_refused(const ls_tensor *y, const char *op, const char *says)
{
    if (!ls_tensor_is_error(y))
        fail_msg("%s: taken", op);
    if (!begins_with_op(y->message, op) || !strstr(y->message, says))
        fail_msg("%s: the message does not say \"%s\": %s", op, says, y->message);
}

static void leaves_that_are_whole(void **state)
{
    (void)state;
    test_graph t;
    double one = 1;
    test_graph_open(&t, 1);
    assert_refused(ls_op_constant(t.graph, LS_F64, LS_SHAPE(LS_BATCH), &one), "constant", "batch axis");
    assert_refused(ls_op_variable(t.graph, NULL, LS_F64, LS_SHAPE(LS_BATCH, 3)), "variable", "batch axis");
    test_graph_close(&t);
}

static void the_batch_axis_of_a_leaf_is_axis_0(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 1);
    ls_shape wrong = LS_SHAPE(3, LS_BATCH);
    assert_refused(ls_op_input(t.graph, NULL, LS_F64, wrong), "input", "batch axis must be axis 0");
    assert_refused(ls_op_fill(t.graph, LS_F64, wrong, 1), "fill", "batch axis must be axis 0");
    assert_refused(ls_op_random_uniform(t.graph, LS_F64, wrong, 0, 1), "random_uniform", "batch axis must be axis 0");
    assert_refused(ls_op_random_normal(t.graph, LS_F64, wrong, 0, 1), "random_normal", "batch axis must be axis 0");
    assert_refused(ls_op_input(t.graph, NULL, LS_F64, LS_SHAPE(LS_BATCH, LS_BATCH)), "input",
                   "batch axis must be axis 0");
    test_graph_close(&t);
}

static void variables_are_written_with_whole_values(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 3);
    ls_tensor *v = test_add(&t, "3", TEST_VARIABLE)->tensor, *fed = test_add(&t, "N", TEST_FED)->tensor;
    ls_tensor *gathered = test_add(&t, "N", TEST_GATHERED)->tensor, *rate = ls_op_scalar(t.graph, LS_F64, 0.1);
    assert_refused(ls_op_assign(v, fed), "assign", "must be whole");
    assert_refused(ls_op_assign_add(v, fed), "assign_add", "must be whole");
    assert_refused(ls_op_apply(v, fed, LS_APPLY_SGD, rate), "apply", "must be whole");
    assert_refused(ls_op_group((ls_tensor *[]){ v, fed }, 2), "group", "must be whole");
    assert_false(ls_tensor_is_error(ls_op_group((ls_tensor *[]){ v, gathered }, 2)));
    assert_refused(ls_op_assign(v, gathered), "assign", "has shape");
    assert_refused(ls_op_apply(v, v, LS_APPLY_SGD, fed), "apply", "must be a scalar");
    test_graph_close(&t);
}

static void gather_and_scatter_take_one_kind_each(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 3);
    ls_tensor *fed = test_add(&t, "N,2", TEST_FED)->tensor, *gathered = test_add(&t, "N,2", TEST_GATHERED)->tensor;
    ls_tensor *whole = test_add(&t, "N,2", TEST_CONSTANT)->tensor;
    assert_refused(ls_op_gather_batch(gathered), "gather_batch", "no batch axis to gather");
    assert_refused(ls_op_gather_batch(whole), "gather_batch", "no batch axis to gather");
    assert_refused(ls_op_scatter_batch(fed), "scatter_batch", "one row per sample");
    assert_refused(ls_op_scatter_batch(whole), "scatter_batch", "one row per sample");
    ls_tensor *turned = ls_op_transpose(gathered, LS_AXES(1, 0)); /* [2,N]: rows are not samples */
    assert_refused(ls_op_scatter_batch(turned), "scatter_batch", "one row per sample");
    assert_refused(ls_op_add(fed, gathered), "add", MIXES);
    test_graph_close(&t);
}

/* Runs one graph with batches of different sizes. */
static void count_and_mean_follow_what_is_fed(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 5);
    ls_tensor *x = ls_op_input(t.graph, "x", LS_F64, LS_SHAPE(LS_BATCH, 2));
    ls_tensor *mean = ls_op_reduce_mean(x, LS_ALL_AXES, false), *gradient;
    assert_int_equal(ls_gradients(mean, &x, 1, &gradient), LS_OK);
    ls_tensor *fetches[] = { ls_op_count(t.graph, LS_F64), ls_op_count(t.graph, LS_I64), ls_op_count(t.graph, LS_F32),
                             mean, gradient };
    double data[10];
    test_random(data, 10, 1, -1, 1);
    for (size_t b = 0; b < BATCHES; b++) {
        double sum = 0, slope;
        int64_t n = batches[b];
        for (int64_t i = 0; i < 2 * n; i++)
            sum += data[i];
        ls_feed feed = { x, ls_array_of(LS_F64, LS_SHAPE(n, 2), data) };
        assert_int_equal(ls_eval(t.graph, &feed, 1, fetches, 5), LS_OK);
        for (int i = 0; i < 3; i++)
            assert_true(test_scalar(fetches[i]) == (double)n);
        assert_true(test_is_near(test_scalar(mean), sum / (double)(2 * n), TOLERANCE));
        size_t count;
        double *g = test_values(gradient, &count);
        assert_int_equal(count, 2 * n);
        slope = g[count - 1];
        free(g);
        assert_true(test_is_near(slope, 1 / (double)(2 * n), TOLERANCE));
    }
    /* Without a batch there is no count. */
    assert_int_equal(ls_eval(t.graph, NULL, 0, fetches, 1), LS_ERR_STATE);
    test_graph_close(&t);
}

/* The random numbers of sample i depend on i, not on the batch size. Different samples get
 * different numbers. */
static void random_numbers_do_not_depend_on_the_batch_size(void **state)
{
    (void)state;
    double *drawn[BATCHES][3];
    for (size_t b = 0; b < BATCHES; b++) {
        test_graph t;
        test_graph_open(&t, batches[b]);
        test_leaf *x = test_add(&t, "N,8", TEST_FED);
        for (size_t i = 0; i < x->count; i++)
            ((double *)x->data)[i] = 1;
        ls_shape shape = ls_tensor_shape(x->tensor);
        ls_tensor *y[] = { ls_op_random_uniform(t.graph, LS_F64, shape, 0, 1),
                           ls_op_random_normal(t.graph, LS_F64, shape, 0, 1),
                           ls_op_dropout(x->tensor, ls_op_scalar(t.graph, LS_F64, 0.5)) };
        assert_int_equal(test_run(&t, y, 3), LS_OK);
        for (int k = 0; k < 3; k++) {
            size_t n;
            assert_true(ls_tensor_is_per_sample(y[k]));
            drawn[b][k] = test_values(y[k], &n);
            assert_int_equal(n, x->count);
        }
        test_graph_close(&t);
    }
    for (int k = 0; k < 3; k++) {
        for (size_t b = 0; b + 1 < BATCHES; b++)
            test_assert_near("draws", drawn[b][k], drawn[BATCHES - 1][k], (size_t)batches[b] * 8, 0);
        assert_memory_not_equal(drawn[BATCHES - 1][k], drawn[BATCHES - 1][k] + 8, 8 * sizeof(double));
        for (size_t b = 0; b < BATCHES; b++)
            free(drawn[b][k]);
    }
}

/* The gradient uses the mask of the forward pass. A per-sample rate is refused. */
static void dropout_keeps_its_mask(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 5);
    ls_tensor *x = test_add(&t, "N,7", TEST_FED)->tensor, *rate = test_add(&t, "~", TEST_FED)->tensor, *g;
    ls_tensor *y = ls_op_dropout(x, rate);
    assert_int_equal(ls_gradients(y, &x, 1, &g), LS_OK);
    ls_tensor *fetches[] = { y, ls_op_mul(x, g) };
    assert_int_equal(test_run(&t, fetches, 2), LS_OK);
    size_t n;
    double *a = test_values(fetches[0], &n), *b = test_values(fetches[1], &n);
    test_assert_near("dropout", a, b, n, TOLERANCE);
    free(a);
    free(b);
    assert_refused(ls_op_dropout(x, test_add(&t, "~N", TEST_FED)->tensor), "dropout", "must be a scalar");
    test_graph_close(&t);
}

/* Labels are 0, 1, 2, ...: sample i must match itself. */
static void contrast_finds_itself(void **state)
{
    (void)state;
    double losses[2];
    double *gradients[2];
    size_t n = 0;
    for (int whole = 0; whole < 2; whole++) {
        test_graph t;
        test_graph_open(&t, 5);
        test_kind kind = whole ? TEST_CONSTANT : TEST_FED;
        ls_tensor *x = test_add(&t, "N,4", kind)->tensor, *g;
        ls_tensor *labels = ls_op_constant(t.graph, LS_I64, LS_SHAPE(5), (const int64_t[]){ 0, 1, 2, 3, 4 });
        if (!whole) {
            test_leaf *leaf = test_add(&t, "i1:N", TEST_FED);
            for (int64_t i = 0; i < 5; i++)
                ((int64_t *)leaf->data)[i] = i;
            labels = leaf->tensor;
        }
        ls_tensor *in[] = { x, x, labels }, *loss = (whole ? contrast_whole : contrast)(NULL, in);
        assert_int_equal(ls_gradients(loss, &x, 1, &g), LS_OK);
        assert_int_equal(test_run(&t, (ls_tensor *[]){ loss, g }, 2), LS_OK);
        losses[whole] = test_scalar(loss);
        gradients[whole] = test_values(g, &n);
        test_graph_close(&t);
    }
    test_assert_near("loss", &losses[0], &losses[1], 1, TOLERANCE);
    test_assert_near("gradient", gradients[0], gradients[1], n, TOLERANCE);
    free(gradients[0]);
    free(gradients[1]);
}

/* ---- Coverage ---- */

/* Ops without a row that the tests above use. */
static const char *const tried[] = { "constant",      "input",      "variable", "count",   "random_uniform",
                                     "random_normal", "assign_add", "apply",    "dropout", "group" };

static void every_op_has_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < LS_OP_COUNT; i++) {
        bool found = test_cases_have(test_cases, test_case_count, ls_ops[i].name);
        for (size_t k = 0; k < sizeof tried / sizeof *tried; k++)
            found = found || strcmp(tried[k], ls_ops[i].name) == 0;
        if (!found)
            fail_msg("%s has no row: nothing tries it with a batch axis", ls_ops[i].name);
    }
}

static void needs_an_opencl_device(void **state)
{
    (void)state;
    SKIP("no OpenCL device (tools/deps.sh install opencl)");
}

static void add_rows(void)
{
    test_cases_add(table, sizeof table / sizeof *table);
    add_elementwise();
    add_products();
    add_reductions();
    test_suite_add_cases(right_or_refused);
}

#ifdef ON_OPENCL
static bool open_contexts(void)
{
    ls_context_options options = { .threads = 1 };
    return opencl_open(&options, "opencl:0", &device) && opencl_open(&options, "cpu:0", &cpu);
}
#else
static bool open_contexts(void)
{
    return true;
}
#endif

int main(void)
{
    if (!open_contexts()) {
        TEST_SUITE_ADD(needs_an_opencl_device);
        return test_suite_run("batch axis");
    }
    add_rows();
    if (!device) { /* other tests cover these on devices */
        TEST_SUITE_ADD(leaves_that_are_whole);
        TEST_SUITE_ADD(the_batch_axis_of_a_leaf_is_axis_0);
        TEST_SUITE_ADD(variables_are_written_with_whole_values);
        TEST_SUITE_ADD(gather_and_scatter_take_one_kind_each);
        TEST_SUITE_ADD(count_and_mean_follow_what_is_fed);
        TEST_SUITE_ADD(random_numbers_do_not_depend_on_the_batch_size);
        TEST_SUITE_ADD(dropout_keeps_its_mask);
        TEST_SUITE_ADD(contrast_finds_itself);
    }
    TEST_SUITE_ADD(every_op_has_a_row);
    int failed = test_suite_run("batch axis");
    ls_context_close(device);
    ls_context_close(cpu);
    return failed;
}
