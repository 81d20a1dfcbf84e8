/* Gradients of every op against central differences in float64, elementwise, signed, with a random
 * cotangent. The table of expressions.c serves first and second derivatives, variables, constants
 * and per-sample inputs. The coverage test at the end fails when an op of ops.def has no row. How
 * leaves are written ("N,7"): graph_cases.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expressions.h"
#include "graph/rules.h"

#define STEP        1e-5
#define TOLERANCE   1e-6
#define MOST_SECOND 200 /* elements of a leaf that are moved for a second derivative */

/* ---- One expression under test ---- */

typedef struct probe {
    const test_case *c;
    char where[160]; /* for messages */
    test_graph t;
    int inputs;
    ls_tensor *y;
    test_leaf *dy;
    int reals; /* inputs that have a gradient or might have one */
    int number[TEST_INPUTS + 1];
    test_leaf *leaf[TEST_INPUTS + 1]; /* the reals, then dy */
    ls_tensor *g[TEST_INPUTS];
} probe;

/* Tensors, each with the weights of its elements: what is differentiated is the sum of all
 * products. */
typedef struct objective {
    size_t count;
    ls_tensor *y[TEST_INPUTS];
    const test_leaf *weight[TEST_INPUTS];
} objective;

static double objective_value(probe *p, const objective *o)
{
    double sum = 0;
    if (test_run(&p->t, o->y, o->count) != LS_OK)
        fail_msg("%s: %s", p->where, ls_last_error());
    for (size_t k = 0; k < o->count; k++) {
        ls_array value;
        assert_int_equal(ls_value(o->y[k], &value), LS_OK);
        const double *y = value.data, *w = o->weight[k]->data;
        for (size_t i = 0; i < o->weight[k]->count; i++)
            sum += w[i] * y[i];
    }
    return sum;
}

static double central_difference(probe *p, const objective *o, test_leaf *leaf, size_t i)
{
    double *x = leaf->data, old = x[i], step = p->c->step ? p->c->step : STEP;
    x[i] = old + step;
    double up = objective_value(p, o);
    x[i] = old - step;
    double down = objective_value(p, o);
    x[i] = old;
    return (up - down) / (2 * step);
}

/* An analytic gradient that is nearly all exact zeros proves little. */
static void check_trust(const probe *p, const char *order, int number, const double *g, size_t n)
{
    size_t live = 0;
    for (size_t i = 0; i < n; i++)
        live += g[i] != 0;
    if (live == 0 || (!p->c->mostly_zero && live * 10 < n))
        fail_msg("%s: %s of input %d mistrusted: %zu of %zu elements are not zero", p->where, order, number, live, n);
}

static void check_shape(const probe *p, const char *order, int number, const ls_tensor *x, const ls_tensor *g)
{
    if (!ls_shape_equal(&g->shape, &x->shape) || g->dtype != x->dtype || g->per_sample != x->per_sample)
        fail_msg("%s: %s of input %d has another shape, type or batch axis than the input", p->where, order, number);
}

/* One leaf: g (NULL: none) against differences of the objective, at most `most` elements. */
static void check_leaf(probe *p, const char *order, const objective *o, int k, ls_tensor *g, bool trust, size_t most)
{
    test_leaf *leaf = p->leaf[k];
    size_t n = leaf->count;
    double *analytic = calloc(n + 1, sizeof *analytic);
    if (g) {
        free(analytic);
        check_shape(p, order, p->number[k], leaf->tensor, g);
        if (test_run(&p->t, &g, 1) != LS_OK)
            fail_msg("%s: %s of input %d: %s", p->where, order, p->number[k], ls_last_error());
        analytic = test_values(g, &n);
        assert_int_equal(n, leaf->count);
        if (trust)
            check_trust(p, order, p->number[k], analytic, n);
    }
    size_t stride = n > most ? (n + most - 1) / most : 1;
    for (size_t i = 0; i < n; i += stride) {
        double numeric = central_difference(p, o, leaf, i);
        if (!test_is_near(analytic[i], numeric, TOLERANCE))
            fail_msg("%s: %s of input %d, element %zu of %zu: %.12g, but differences say %.12g", p->where, order,
                     p->number[k], i, n, analytic[i], numeric);
    }
    free(analytic);
}

static void probe_open(probe *p, const test_case *c, test_kind kind, int64_t batch)
{
    static const char *const kinds[] = { "constants", "variables", "fed" };
    ls_tensor *x[TEST_INPUTS] = { NULL };
    *p = (probe){ .c = c };
    snprintf(p->where, sizeof p->where, "%s (%s), %s, batch %d", c->op, c->variant, kinds[kind], (int)batch);
    test_graph_open(&p->t, batch);
    for (; p->inputs < TEST_INPUTS && c->in[p->inputs]; p->inputs++) {
        test_leaf *leaf = test_add(&p->t, c->in[p->inputs], kind);
        x[p->inputs] = leaf->tensor;
        if (test_spec_is_real(c->in[p->inputs]) && !(c->fixed >> p->inputs & 1)) {
            p->number[p->reals] = p->inputs;
            p->leaf[p->reals++] = leaf;
        }
    }
    p->y = test_build(c, x);
    if (ls_tensor_is_error(p->y))
        fail_msg("%s: %s", p->where, p->y ? p->y->message : ls_last_error());
    if (!test_has_op(p->t.graph, c->op))
        fail_msg("%s: the expression has no node of the op", p->where);
    p->dy = p->leaf[p->reals] = test_add_like(&p->t, p->y);
    p->number[p->reals] = p->inputs;
}

static void differentiate(probe *p)
{
    ls_tensor *x[TEST_INPUTS];
    for (int k = 0; k < p->reals; k++)
        x[k] = p->leaf[k]->tensor;
    ls_gradients_options options = { .cotangent = p->dy->tensor };
    if (ls_gradients_with(p->y, x, (size_t)p->reals, options, p->g) != LS_OK)
        fail_msg("%s: %s", p->where, ls_last_error());
    for (int k = 0; k < p->reals; k++)
        if ((p->g[k] == NULL) != (bool)(p->c->none >> p->number[k] & 1))
            fail_msg("%s: input %d has %s gradient", p->where, p->number[k], p->g[k] ? "a" : "no");
}

static void check_first(probe *p)
{
    objective o = { .count = 1, .y = { p->y }, .weight = { p->dy } };
    for (int k = 0; k < p->reals; k++)
        check_leaf(p, "the gradient", &o, k, p->g[k], true, SIZE_MAX);
}

/* Gradients of the gradients, of the inputs and of the cotangent, which they must depend on. */
static void check_second(probe *p)
{
    objective o = { .count = 0 };
    ls_tensor *sum = NULL, *x[TEST_INPUTS + 1], *gg[TEST_INPUTS + 1];
    for (int k = 0; k < p->reals; k++) {
        if (!p->g[k])
            continue;
        const test_leaf *weight = test_add_like(&p->t, p->g[k]);
        ls_tensor *part = ls_op_reduce_sum(ls_op_mul(weight->tensor, p->g[k]), LS_ALL_AXES, false);
        sum = sum ? ls_op_add(sum, part) : part;
        o.y[o.count] = p->g[k];
        o.weight[o.count++] = weight;
    }
    for (int k = 0; k <= p->reals; k++)
        x[k] = p->leaf[k]->tensor;
    if (ls_gradients(sum, x, (size_t)p->reals + 1, gg) != LS_OK)
        fail_msg("%s: the second gradient: %s", p->where, ls_last_error());
    if (!gg[p->reals])
        fail_msg("%s: the gradient does not depend on the cotangent", p->where);
    for (int k = 0; k <= p->reals; k++)
        check_leaf(p, "the second gradient", &o, k, gg[k], k == p->reals, MOST_SECOND);
}

/* Constants have the very gradients that variables of the same values have. */
static void check_constants(const test_case *c, probe *variables)
{
    probe p;
    probe_open(&p, c, TEST_CONSTANT, variables->t.batch);
    differentiate(&p);
    for (int k = 0; k < p.reals; k++) {
        size_t n, m;
        if (!p.g[k])
            continue;
        assert_int_equal(test_run(&p.t, &p.g[k], 1), LS_OK);
        assert_int_equal(test_run(&variables->t, &variables->g[k], 1), LS_OK);
        double *a = test_values(p.g[k], &n), *b = test_values(variables->g[k], &m);
        assert_int_equal(n, m);
        test_assert_near(p.where, a, b, n, 0);
        free(a);
        free(b);
    }
    test_graph_close(&p.t);
}

static void check_case(const test_case *c, test_kind kind, int64_t batch)
{
    probe p;
    probe_open(&p, c, kind, batch);
    differentiate(&p);
    check_first(&p);
    if (kind == TEST_VARIABLE)
        check_constants(c, &p);
    if (!c->once)
        check_second(&p);
    test_graph_close(&p.t);
}

static void gradient_is_right(void **state)
{
    const test_case *c = *state;
    int64_t batch = c->batch ? c->batch : 7;
    bool has_batch = false;
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++)
        has_batch = has_batch || test_spec_has_batch(c->in[i]);
    if (!c->fed_only)
        check_case(c, TEST_VARIABLE, batch);
    if (has_batch)
        check_case(c, TEST_FED, batch);
    if (has_batch && !c->many)
        check_case(c, TEST_FED, 1);
}

/* ---- Ops without a gradient ---- */

static ls_tensor *constant(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_constant(x[0]->graph, LS_F64, LS_SHAPE(2), (const double[]){ 1, 2 });
}

static ls_tensor *fill(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_fill(x[0]->graph, LS_F64, ls_tensor_shape(x[0]), 2);
}

static ls_tensor *input(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_input(x[0]->graph, "fed", LS_F64, LS_SHAPE(LS_BATCH, 3));
}

static ls_tensor *variable(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_variable(x[0]->graph, "other", LS_F64, LS_SHAPE(3));
}

static ls_tensor *count(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_count(x[0]->graph, LS_F64);
}

static ls_tensor *random_uniform(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_random_uniform(x[0]->graph, LS_F64, LS_SHAPE(3), 0, 1);
}

static ls_tensor *random_normal(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_random_normal(x[0]->graph, LS_F64, LS_SHAPE(3), 0, 1);
}

static ls_tensor *compare(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_cast(ls_op_compare(x[0], LS_GREATER, ls_op_scale(x[0], 2)), LS_F64);
}

static ls_tensor *argmax(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_cast(ls_op_argmax(x[0], -1), LS_F64);
}

static ls_tensor *top_k_indices(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_cast(ls_op_top_k_indices(x[0], 2), LS_F64);
}

static ls_tensor *cast_to_integer(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_cast(ls_op_cast(x[0], LS_I32), LS_F64);
}

static ls_tensor *group(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_cast(ls_op_group(x, 1), LS_F64);
}

static ls_tensor *assign(const test_case *c, ls_tensor *const *x)
{
    return c->number ? ls_op_assign_add(x[0], ls_op_square(x[0])) : ls_op_assign(x[0], ls_op_square(x[0]));
}

static ls_tensor *apply(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_apply(x[0], ls_op_square(x[0]), LS_APPLY_SGD, ls_op_scalar(x[0]->graph, LS_F64, 0.1));
}

static ls_tensor *moments(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_node_make1(LS_OP_moments, x[0], ls_no_attrs());
}

/* Nothing flows back to input 0. */
static const test_case silent[] = {
    { "constant", "", { "3" }, .build = constant },
    { "fill", "", { "3" }, .build = fill },
    { "input", "", { "3" }, .build = input },
    { "variable", "", { "3" }, .build = variable },
    { "count", "", { "3" }, .build = count },
    { "random_uniform", "", { "3" }, .build = random_uniform },
    { "random_normal", "", { "3" }, .build = random_normal },
    { "group", "", { "3" }, .build = group },
    { "stop_gradient", "", { "3" }, .one = ls_op_stop_gradient },
    { "compare", "", { "3" }, .build = compare },
    { "sign", "", { "3" }, .one = ls_op_sign },
    { "one_hot", "", { "3" }, .build = test_one_hot },
    { "argmax", "", { "3" }, .build = argmax },
    { "top_k_indices", "", { "3" }, .build = top_k_indices },
    { "cast", "to an integer", { "3" }, .build = cast_to_integer },
};

/* Asking for the gradient of input 0 is an error that names the op. */
static const test_case missing[] = {
    { "assign", "", { "3" }, .build = assign },
    { "assign_add", "", { "3" }, .build = assign, .number = 1 },
    { "apply", "", { "3" }, .build = apply },
    { "max_pool2d_grad",
      "",
      { "1,4,4,1", "1,2,2,1" },
      .build = test_max_pool_grad,
      .options = POOL(.window = { 2, 2 }) },
    { "recurrent_grad",
      "",
      { "2,3,4", "1,4", "2,3,1" },
      .build = test_recurrent_grad,
      .options = CELL(LSTM, TANH, SIGMOID, false) },
    { "attention_grad",
      "",
      { "2,3,4", "2,3,4", "2,3,4", "2,3,4" },
      .build = test_attention_grad,
      .options = HEADS(.heads = 2) },
    { "custom_grad", "", { "2,3", "3", "2,3" }, .build = test_custom_grad },
    { "ctc_grad", "", { "2,3,4", "i4:2,1", "2" }, .build = test_ctc_grad },
    { "moments", "", { "5,3" }, .build = moments },
    { "batch_norm_grad_moments",
      "of gamma's gradient",
      { "5,3", "3", "3", "5,3" },
      .build = test_batch_norm_grad,
      .number = 1 },
    { "batch_norm_grad_input",
      "of the input's gradient",
      { "5,3", "3", "3", "5,3" },
      .build = test_batch_norm_grad,
      .number = 0 },
};

/* Builds the row's expression on variables; returns what ls_gradients says of input 0. */
static ls_status ask(const test_case *c, test_graph *t, ls_tensor **g)
{
    ls_tensor *x[TEST_INPUTS] = { NULL };
    test_graph_open(t, 1);
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++)
        x[i] = test_add(t, c->in[i], TEST_VARIABLE)->tensor;
    ls_tensor *y = test_build(c, x);
    if (ls_tensor_is_error(y) || !test_has_op(t->graph, c->op))
        fail_msg("%s: no such node: %s", c->op, ls_last_error());
    return ls_gradients(y, x, 1, g);
}

static void no_gradient_flows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        test_graph t;
        ls_tensor *g = NULL;
        if (ask(&silent[i], &t, &g) != LS_OK)
            fail_msg("%s: %s", silent[i].op, ls_last_error());
        if (g)
            fail_msg("%s: something flows back", silent[i].op);
        test_graph_close(&t);
    }
}

static void a_missing_rule_names_the_op(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        test_graph t;
        ls_tensor *g = NULL;
        ls_status status = ask(&missing[i], &t, &g);
        if (status != LS_ERR_UNSUPPORTED)
            fail_msg("%s: %s, not LS_ERR_UNSUPPORTED", missing[i].op, ls_status_name(status));
        char words[64];
        snprintf(words, sizeof words, "the op %s ", missing[i].op);
        if (!strstr(ls_last_error(), words))
            fail_msg("%s: the message does not name it: %s", missing[i].op, ls_last_error());
        assert_null(g);
        test_graph_close(&t);
    }
}

/* ---- Coverage ---- */

static void every_op_has_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < LS_OP_COUNT; i++) {
        const ls_op_info *op = &ls_ops[i];
        if (op->gradient == ls_grad_zero) {
            if (!test_cases_have(silent, sizeof silent / sizeof *silent, op->name))
                fail_msg("%s has no gradient and no row in `silent`", op->name);
        } else if (op->gradient == ls_grad_missing) {
            if (!test_cases_have(missing, sizeof missing / sizeof *missing, op->name))
                fail_msg("%s has no gradient rule and no row in `missing`", op->name);
        } else if (!test_cases_have(test_cases, test_case_count, op->name)) {
            fail_msg("%s has a gradient rule and no row in the table", op->name);
        }
    }
}

/* ---- Whole graphs ---- */

/* A graph with one variable of three numbers. */
static ls_tensor *three(test_graph *t)
{
    test_graph_open(t, 4);
    return test_add(t, "3", TEST_VARIABLE)->tensor;
}

static void assert_values(test_graph *t, ls_tensor *got, const double *expected, size_t n)
{
    size_t have;
    if (test_run(t, &got, 1) != LS_OK)
        fail_msg("%s", ls_last_error());
    double *values = test_values(got, &have);
    assert_int_equal(have, n);
    test_assert_near("gradient", values, expected, n, 1e-12);
    free(values);
}

static void several_gradients_of_one_graph(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *first, *again, *other, *second;
    const double *v = t.leaf[0].data;
    ls_tensor *square = ls_op_square(x), *cube = ls_op_mul(square, x);
    assert_int_equal(ls_gradients(square, &x, 1, &first), LS_OK);
    assert_int_equal(ls_gradients(square, &x, 1, &again), LS_OK);
    assert_int_equal(ls_gradients(cube, &x, 1, &other), LS_OK);
    assert_int_equal(ls_gradients(other, &x, 1, &second), LS_OK);
    assert_values(&t, first, (double[]){ 2 * v[0], 2 * v[1], 2 * v[2] }, 3);
    assert_values(&t, again, (double[]){ 2 * v[0], 2 * v[1], 2 * v[2] }, 3);
    assert_values(&t, other, (double[]){ 3 * v[0] * v[0], 3 * v[1] * v[1], 3 * v[2] * v[2] }, 3);
    assert_values(&t, second, (double[]){ 6 * v[0], 6 * v[1], 6 * v[2] }, 3);
    test_graph_close(&t);
}

static void a_loss_that_is_no_scalar_is_summed(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *g;
    test_leaf *batch = test_add(&t, "N,3", TEST_FED);
    double expected[3] = { 0 };
    for (size_t i = 0; i < batch->count; i++)
        expected[i % 3] += ((double *)batch->data)[i];
    assert_int_equal(ls_gradients(ls_op_mul(batch->tensor, x), &x, 1, &g), LS_OK);
    assert_values(&t, g, expected, 3);
    assert_int_equal(ls_gradients(ls_op_gather_batch(ls_op_mul(batch->tensor, x)), &x, 1, &g), LS_OK);
    assert_values(&t, g, expected, 3);
    test_graph_close(&t);
}

static void stop_gradient_stops_one_path_only(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *g;
    const double *v = t.leaf[0].data;
    assert_int_equal(ls_gradients(ls_op_mul(x, ls_op_stop_gradient(ls_op_square(x))), &x, 1, &g), LS_OK);
    assert_values(&t, g, (double[]){ v[0] * v[0], v[1] * v[1], v[2] * v[2] }, 3);
    test_graph_close(&t);
}

static void a_variable_off_the_path_has_none_or_zeros(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *off = test_add(&t, "2,2", TEST_VARIABLE)->tensor;
    ls_tensor *sample = test_add(&t, "N,2", TEST_FED)->tensor, *gathered = test_add(&t, "N,2", TEST_GATHERED)->tensor;
    ls_tensor *v[] = { off, x, sample, gathered, ls_op_square(x) }, *g[5];
    assert_int_equal(ls_gradients(ls_op_exp(x), v, 5, g), LS_OK);
    assert_null(g[0]);
    assert_non_null(g[1]);
    assert_null(g[2]);
    assert_null(g[3]);
    assert_null(g[4]); /* made from x, but the loss is not made from it */
    assert_int_equal(ls_gradients_with(ls_op_exp(x), v, 5, (ls_gradients_options){ .zeros = true }, g), LS_OK);
    const size_t sizes[] = { 4, 3, 8, 8, 3 };
    for (int i = 0; i < 5; i++) {
        const double zeros[8] = { 0 };
        assert_true(ls_tensor_is_per_sample(g[i]) == ls_tensor_is_per_sample(v[i]));
        if (i != 1)
            assert_values(&t, g[i], zeros, sizes[i]);
    }
    test_graph_close(&t);
}

static void uses_accumulate_also_through_diamonds(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *g, *side[2];
    const double *v = t.leaf[0].data;
    ls_tensor *same = ls_op_add(ls_op_add(x, x), x);
    assert_int_equal(ls_gradients(same, &x, 1, &g), LS_OK);
    assert_values(&t, g, (double[]){ 3, 3, 3 }, 3);
    ls_tensor *top = ls_op_scale(x, 2); /* 2x: left 2x * 2x, right 3 * 2x */
    side[0] = ls_op_square(top);
    side[1] = ls_op_scale(top, 3);
    assert_int_equal(ls_gradients(ls_op_add(side[0], side[1]), &x, 1, &g), LS_OK);
    assert_values(&t, g, (double[]){ 8 * v[0] + 6, 8 * v[1] + 6, 8 * v[2] + 6 }, 3);
    ls_tensor *many = x; /* ten diamonds in a row: 2^10 paths */
    for (int i = 0; i < 10; i++)
        many = ls_op_add(many, many);
    assert_int_equal(ls_gradients(many, &x, 1, &g), LS_OK);
    assert_values(&t, g, (double[]){ 1024, 1024, 1024 }, 3);
    test_graph_close(&t);
}

static void the_loss_and_inner_tensors_have_gradients(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *inner = ls_op_square(x), *loss = ls_op_scale(inner, 3), *g[3];
    const double *v = t.leaf[0].data;
    assert_int_equal(ls_gradients(loss, (ls_tensor *[]){ loss, inner, x }, 3, g), LS_OK);
    assert_values(&t, g[0], (double[]){ 1, 1, 1 }, 3);
    assert_values(&t, g[1], (double[]){ 3, 3, 3 }, 3);
    assert_values(&t, g[2], (double[]){ 6 * v[0], 6 * v[1], 6 * v[2] }, 3);
    test_graph_close(&t);
}

static void integers_and_unknown_tensors_are_refused(void **state)
{
    (void)state;
    test_graph t, other;
    ls_tensor *x = three(&t), *far = three(&other), *g = NULL;
    ls_tensor *whole = test_add(&t, "i5:3", TEST_VARIABLE)->tensor;
    assert_int_equal(ls_gradients(ls_op_square(x), &whole, 1, &g), LS_ERR_DTYPE);
    assert_non_null(strstr(ls_last_error(), "int64"));
    assert_int_equal(ls_gradients(whole, &x, 1, &g), LS_ERR_DTYPE);
    assert_int_equal(ls_gradients(ls_op_square(x), &far, 1, &g), LS_ERR_INVALID);
    assert_int_equal(ls_gradients(NULL, &x, 1, &g), LS_ERR_INVALID);
    assert_int_equal(ls_gradients(ls_op_matmul(x, x), &x, 1, &g), LS_ERR_SHAPE);
    assert_non_null(strstr(ls_last_error(), "matmul"));
    ls_gradients_options options = { .cotangent = ls_op_scalar(t.graph, LS_F64, 1) };
    assert_int_equal(ls_gradients_with(ls_op_square(x), &x, 1, options, &g), LS_ERR_SHAPE);
    assert_non_null(strstr(ls_last_error(), "cotangent"));
    assert_null(g);
    test_graph_close(&t);
    test_graph_close(&other);
}

static void dropout_s_rate_has_no_gradient(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *rate = test_add(&t, "~", TEST_FED)->tensor, *g;
    assert_int_equal(ls_gradients(ls_op_dropout(x, rate), &rate, 1, &g), LS_OK);
    assert_null(g);
    test_graph_close(&t);
}

static void a_chain_of_ten_thousand_nodes(void **state)
{
    (void)state;
    test_graph t;
    ls_tensor *x = three(&t), *y = x, *g;
    double slope = 1;
    for (int i = 0; i < 5000; i++) { /* y = 1.0002 y + x */
        y = ls_op_add(ls_op_scale(y, 1.0002), x);
        slope = 1.0002 * slope + 1;
    }
    assert_true(ls_graph_node_count(t.graph) > 10000);
    assert_int_equal(ls_gradients(y, &x, 1, &g), LS_OK);
    assert_values(&t, g, (double[]){ slope, slope, slope }, 3);
    test_graph_close(&t);
}

/* ---- All together ---- */

int main(void)
{
    test_expressions_add();
    test_suite_add_cases(gradient_is_right);
    TEST_SUITE_ADD(no_gradient_flows);
    TEST_SUITE_ADD(a_missing_rule_names_the_op);
    TEST_SUITE_ADD(every_op_has_a_row);
    TEST_SUITE_ADD(several_gradients_of_one_graph);
    TEST_SUITE_ADD(a_loss_that_is_no_scalar_is_summed);
    TEST_SUITE_ADD(stop_gradient_stops_one_path_only);
    TEST_SUITE_ADD(a_variable_off_the_path_has_none_or_zeros);
    TEST_SUITE_ADD(uses_accumulate_also_through_diamonds);
    TEST_SUITE_ADD(the_loss_and_inner_tensors_have_gradients);
    TEST_SUITE_ADD(integers_and_unknown_tensors_are_refused);
    TEST_SUITE_ADD(dropout_s_rate_has_no_gradient);
    TEST_SUITE_ADD(a_chain_of_ten_thousand_nodes);
    return test_suite_run("gradients");
}
