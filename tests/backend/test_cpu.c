/* The CPU device against the reference device, bit for bit: every expression of the tables of
 * expressions, in float32, forward and backward, under every way of cutting the batch; then random
 * graphs. Guards after every value detect a kernel that writes too far. One instruction set, the
 * best or LOCKSTEP_ISA's; single ops at random shapes on all of them: test_reference_bits.c. Read
 * on at right_on_the_cpu. How rows are written: graph_cases.h.
 *
 * test_opencl_graphs.c is this file with two OpenCL devices in the place of the CPU's (ON_OPENCL),
 * of which random graphs are cut finely over all, the CPU among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "check.h"
#include "expressions.h"
#include "graph/rules.h"
#include "run/runs.h"
#include "skip.h"

#ifdef ON_OPENCL
#include "amount.h"
#include "opencl.h"
#define SEEDS  (SANITIZED ? 6 : test_is_sample() ? 12 : 30)
#define IS_CPU false
static const int64_t batches[] = { 7 };
static const int lanes[] = { 1, 3 };
#else
#define SEEDS  200
#define IS_CPU true
static const int64_t batches[] = { 0, 1, 7, 33 };
static const int lanes[] = { 1, 3, 5 };
#endif
#define DEVICES 2
static ls_context *reference, *cpu;

/* ---- What ran ---- */

static bool own[LS_OP_COUNT], fell[LS_OP_COUNT], alias[LS_OP_COUNT]; /* by op: how it was seen to run */

static bool is_reference(const ls_kernel *kernel)
{
    return strcmp(kernel->name, "reference") == 0;
}

static void note_kernels(const ls_plan *plan)
{
    for (int g = 0; g < plan->group_count; g++) {
        const ls_group *group = &plan->groups[g];
        for (int i = 0; group->needed && i < group->node_count; i++) {
            ls_op op = group->nodes[i]->op;
            if (group->alias)
                alias[op] = true;
            else if (group->kernel)
                *(is_reference(group->kernel) ? &fell[op] : &own[op]) = true;
        }
    }
}

/* ---- One graph on one device ---- */

#define MOST_FETCHES 64

typedef struct setting {
    int lanes;
    int64_t micro;
    bool unfused;
    bool finely; /* every group a segment of its own, on any device */
} setting;

typedef struct side {
    test_graph t;
    size_t count;
    ls_tensor *fetch[MOST_FETCHES];
    size_t bytes[MOST_FETCHES];
    void *value[MOST_FETCHES];
    ls_status status;
    char message[512];
} side;

static void forget_values(side *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->value[i]);
        s->value[i] = NULL;
    }
}

static void side_close(side *s)
{
    forget_values(s);
    test_graph_close(&s->t);
}

/* One of the devices of a map, or of all CPUs; ops that only the CPU has stay there. */
static int any_device(const ls_task_map *map, const ls_task_map_point *at)
{
    int which = (at->group * 5 + at->lane * 3) % 7;
    if (at->lane < 0 || (map->count > 0 && at->kind != LS_ANY_KIND))
        return LS_ANY_DEVICE;
    return map->count > 0 ? map->devices[which % map->count] : which % DEVICES;
}

static ls_runs *apply_setting(ls_graph *graph, const setting *how)
{
    ls_runs *runs = NULL;
    assert_int_equal(ls_runs_of(graph, &runs), LS_OK);
    ls_runs_clear(runs);
    runs->settings.plan = (ls_plan_options){
        .lanes = how->lanes, .micro = how->micro, .unfused = how->unfused, .cut_everywhere = how->finely, .guards = true
    };
    if (how->finely)
        runs->settings.plan.map.device = any_device;
#ifdef ON_OPENCL
    static const int devices[] = { 1, 0, 2 }; /* the CPU is the first that there is */
    if (how->finely && graph->context == cpu) {
        runs->settings.plan.map.devices = devices;
        runs->settings.plan.map.count = (int)LENGTH(devices);
    }
#endif
    return runs;
}

/* how NULL: again, by the plan that is there. */
static void side_run(side *s, const setting *how)
{
    ls_runs *runs = how ? apply_setting(s->t.graph, how) : s->t.graph->runs;
    forget_values(s);
    s->status = test_run(&s->t, s->fetch, s->count);
    snprintf(s->message, sizeof s->message, "%s", s->status == LS_OK ? "" : ls_last_error());
    if (s->status != LS_OK)
        return;
    for (size_t i = 0; i < s->count; i++)
        s->value[i] = test_copy_value(s->fetch[i], &s->bytes[i]);
    if (s->t.ctx == cpu)
        note_kernels(ls_executor_plan(runs->cached[0].executor));
}

/* ---- Comparing ---- */

/* NULL, or what is wrong, in memory of its own. Not a number is only what a mean of no samples is.
 * tolerance: of the largest element, at least 1; 0: the bits. */
static char *difference(const char *where, const side *got, const side *wanted, size_t i, double tolerance)
{
    ls_dtype dtype = got->fetch[i]->dtype;
    size_t width = ls_dtype_bytes(dtype), n = got->bytes[i] / width;
    char label[LS_NODE_TEXT];
    if (got->bytes[i] != wanted->bytes[i])
        return test_text("%s: %s has %zu bytes, %zu are expected", where, ls_node_label(got->fetch[i], label),
                         got->bytes[i], wanted->bytes[i]);
    double largest = 1;
    for (size_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(test_number(wanted->value[i], dtype, k)));
    for (size_t k = 0; k < n; k++) {
        const char *a = (const char *)got->value[i] + k * width, *b = (const char *)wanted->value[i] + k * width;
        double x = test_number(a, dtype, 0), y = test_number(b, dtype, 0);
        bool same = (memcmp(a, b, width) == 0 && x == x) || (tolerance > 0 && fabs(x - y) <= tolerance * largest) ||
                    (got->t.batch == 0 && isnan(x) && isnan(y));
        if (!same)
            return test_text("%s: fetch %zu, %s (op %s), element %zu of %zu is %a, the reference has %a", where, i,
                             ls_node_label(got->fetch[i], label), ls_tensor_op(got->fetch[i]), k, n, x, y);
    }
    return NULL;
}

static void compare(const char *where, const side *got, const side *wanted, size_t i, double tolerance)
{
    const char *message = difference(where, got, wanted, i, tolerance);
    if (message)
        fail_msg("%s", message);
}

/* Values that are nearly all zero prove little. */
static void check_trust(const char *where, const side *s, size_t i, bool mostly_zero)
{
    ls_dtype dtype = s->fetch[i]->dtype;
    size_t n = s->bytes[i] / ls_dtype_bytes(dtype), live = 0;
    for (size_t k = 0; k < n; k++)
        live += test_number(s->value[i], dtype, k) != 0;
    if (n > 0 && (live == 0 || (!mostly_zero && live * 10 < n)))
        fail_msg("%s: fetch %zu mistrusted: %zu of %zu elements are not zero", where, i, live, n);
}

/* ---- One row ---- */

static bool is_empty(const test_case *c)
{
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++)
        for (const char *s = c->in[i]; *s; s++)
            if (*s == '0' && !(s > c->in[i] && s[-1] >= '0' && s[-1] <= '9'))
                return true;
    return false;
}

/* The row's value, and the gradients of its inputs where it has some; false: not with this kind of
 * leaf. */
static bool side_open(side *s, const test_case *c, ls_context *ctx, test_kind kind, int64_t batch)
{
    ls_tensor *x[TEST_INPUTS] = { NULL }, *real[TEST_INPUTS], *g[TEST_INPUTS] = { NULL };
    size_t reals = 0;
    *s = (side){ .count = 1 };
    test_graph_open_in(&s->t, ctx, batch, LS_F32);
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++) {
        test_leaf *leaf = test_add(&s->t, c->in[i], kind);
        x[i] = leaf->tensor;
        if (leaf->dtype == LS_F32 && !(c->fixed >> i & 1))
            real[reals++] = leaf->source;
    }
    ls_tensor *y = s->fetch[0] = test_build(c, x);
    if (ls_tensor_is_error(y)) {
        if (kind != TEST_GATHERED)
            fail_msg("%s (%s): %s", c->op, c->variant, y ? y->message : ls_last_error());
        return false;
    }
    if (!test_has_op(s->t.graph, c->op))
        fail_msg("%s (%s): the expression has no node of the op", c->op, c->variant);
    if (y->dtype != LS_F32)
        return true;
    bool gathered = false; /* no leaf has such a shape: the gradient of squares */
    for (int i = 0; i < y->shape.rank; i++)
        gathered = gathered || (y->shape.dims[i] == LS_BATCH && !(y->per_sample && i == 0));
    ls_gradients_options options = { .cotangent = gathered ? NULL : test_add_like(&s->t, y)->tensor };
    ls_status status = ls_gradients_with(gathered ? ls_op_square(y) : y, real, reals, options, g);
    if (status != LS_OK && status != LS_ERR_UNSUPPORTED)
        fail_msg("%s (%s): %s", c->op, c->variant, ls_last_error());
    for (size_t i = 0; i < reals; i++)
        if (g[i])
            s->fetch[s->count++] = g[i];
    return true;
}

/* The reference's bits, however the lanes are cut into micro-batches. */
static void check_setting(const char *row, side *ours, const side *theirs, const setting *how)
{
    char where[256];
    snprintf(where, sizeof where, "%s, %d lanes, micro-batch %d%s", row, how->lanes, (int)how->micro,
             how->unfused ? ", unfused" : "");
    side_run(ours, how);
    if (ours->status != theirs->status)
        fail_msg("%s: %s, the reference: %s", where, ours->status == LS_OK ? "fine" : ours->message,
                 theirs->status == LS_OK ? "fine" : theirs->message);
    for (size_t i = 0; ours->status == LS_OK && i < ours->count; i++)
        compare(where, ours, theirs, i, 0);
}

#define OTHER_LANES 1e-4 /* other lanes are another order of sums: far apart only what is wrong */

static void check_kind(const test_case *c, test_kind kind, int64_t batch)
{
    static const char *const kinds[] = { "constants", "variables", "fed", "gathered" };
    char row[160];
    side ours, theirs, uncut;
    snprintf(row, sizeof row, "%s (%s), %s, batch %d", c->op, c->variant, kinds[kind], (int)batch);
    bool taken = side_open(&ours, c, cpu, kind, batch);
    side_open(&theirs, c, reference, kind, batch);
    side_open(&uncut, c, reference, kind, batch);
    bool cuts = IS_CPU && kind == TEST_FED && batch > 1; /* others do a lane at once */
    if (taken)
        side_run(&uncut, &(setting){ .lanes = 1, .micro = batch, .unfused = true });
    for (size_t i = 0; taken && uncut.status == LS_OK && batch > 1 && !is_empty(c) && i < uncut.count; i++)
        check_trust(row, &uncut, i, c->mostly_zero || c->many);
    for (int l = 0; taken && l < (kind == TEST_VARIABLE ? 1 : (int)LENGTH(lanes)); l++) {
        side_run(&theirs, &(setting){ lanes[l], batch, .unfused = true });
        for (size_t i = 0; theirs.status == LS_OK && i < theirs.count; i++)
            compare(row, &theirs, &uncut, i, OTHER_LANES);
        for (int64_t micro = 0; micro <= (cuts ? 2 : 0); micro++) {
            check_setting(row, &ours, &theirs, &(setting){ lanes[l], micro, .unfused = false });
            check_setting(row, &ours, &theirs, &(setting){ lanes[l], micro, .unfused = true });
        }
    }
    side_close(&ours);
    side_close(&theirs);
    side_close(&uncut);
}

static void right_on_the_cpu(void **state)
{
    const test_case *c = *state;
    bool has_batch = false;
#ifdef ON_OPENCL
    static int rows;
    if (test_is_sample() && rows++ % (SANITIZED ? 8 : 2) != 0) /* it takes long */
        return;
#endif
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++)
        has_batch = has_batch || test_spec_has_batch(c->in[i]);
    if (!c->fed_only)
        check_kind(c, TEST_VARIABLE, 7);
    for (size_t b = 0; has_batch && b < sizeof batches / sizeof *batches; b++)
        check_kind(c, TEST_FED, batches[b]);
    if (has_batch && !c->fed_only)
        check_kind(c, TEST_GATHERED, 7);
}

/* ---- Large values: tiles, and micro-batches by size ---- */

/* Every elementwise op on as many elements as the leaves have. */
static ls_tensor *everything(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *y = ls_op_div(ls_op_mul(x[0], x[2]), x[1]);
    for (size_t i = 0; i < test_unary_count; i++)
        y = ls_op_add(y, test_build(&test_unary[i], &x[i % 2]));
    y = ls_op_maximum(ls_op_sub(y, x[2]), ls_op_minimum(x[1], ls_op_sub(x[2], y)));
    return ls_op_mul(y,
                     ls_op_add(x[1], ls_op_fill(x[0]->graph, x[0]->dtype, c->number ? LS_SHAPE(1) : LS_SCALAR, 0.5)));
}

/* Values of several tiles, enough of them that several workers take part. */
static void tiles_are_right(void **state)
{
    (void)state;
    static const test_case rows[] = {
        { "tanh", "three tiles", { "+40001", "+40001", "+" }, .build = everything },
        { "tanh", "exactly two tiles", { "+32768", "+32768", "+" }, .build = everything, .number = 1 },
        { "tanh", "one more than a tile", { "+16385", "+1", "+" }, .build = everything },
        { "tanh", "rows", { "+211,190", "+190", "+" }, .build = everything },
        { "tanh", "samples", { "+N,3001", "+3001", "+" }, .build = everything },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_kind(&rows[i], test_spec_has_batch(rows[i].in[0]) ? TEST_FED : TEST_VARIABLE, 7);
}

static ls_tensor *same_conv(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_conv2d(x[0], x[1], .padding = LS_SAME);
}

/* With few ways of cutting, as it takes long. Returns whether the plan cut lanes into micro-batches
 * by itself. */
static bool check_large(const test_case *row, int64_t batch)
{
    side ours, theirs;
    bool cut = false;
    side_open(&ours, row, cpu, TEST_FED, batch);
    side_open(&theirs, row, reference, TEST_FED, batch);
    for (int lanes = 1; lanes <= 3; lanes += 2) {
        side_run(&theirs, &(setting){ .lanes = lanes, .micro = batch, .unfused = true });
        for (int unfused = 0; unfused < 2; unfused++) {
            check_setting(row->op, &ours, &theirs, &(setting){ .lanes = lanes, .unfused = unfused });
            assert_string_equal(ours.message, "");
            const ls_plan *plan = ls_executor_plan(ours.t.graph->runs->cached[0].executor);
            for (int i = 0; i < plan->segment_count; i++)
                cut = cut || plan->segments[i].micro < batch / lanes;
        }
    }
    side_close(&ours);
    side_close(&theirs);
    return cut;
}

/* Weights that no cache holds have loops of their own. */
static void large_kernels_are_right(void **state)
{
    (void)state;
    const test_case row = { "conv2d", "large", { "N,2,3,368", "3,3,368,320" }, .build = same_conv };
    check_large(&row, 3);
}

/* Where a sample's values are large, the plan cuts lanes into micro-batches by itself, which
 * changes no bit. */
static void large_samples_are_right(void **state)
{
    (void)state;
    const test_case row = {
        "batch_norm", "large", { "N,33,31,8", "3,3,8,8", "+8", "8" }, .build = test_residual_blocks, .real = 0.1
    };
    assert_true(check_large(&row, 17));
}

/* ---- Updates ---- */

#define UPDATES 15

typedef struct update {
    ls_apply_rule rule;
    int slots;
    double momentum, weight_decay;
} update;

static const update updates[UPDATES] = {
    { LS_APPLY_SGD, 0, 0, 0 },          { LS_APPLY_SGD, 0, 0, 0.01 },        { LS_APPLY_MOMENTUM, 1, 0.9, 0 },
    { LS_APPLY_NESTEROV, 1, 0.9, 0.1 }, { LS_APPLY_ADAM, 2, 0, 0.01 },       { LS_APPLY_RMSPROP, 1, 0, 0 },
    { LS_APPLY_RMSPROP, 2, 0.8, 0 },    { LS_APPLY_RMSPROP_TF1, 2, 0.9, 0 }, { LS_APPLY_ADAGRAD, 1, 0, 0 },
    { LS_APPLY_SUM, 0, 0, 0 },          { LS_APPLY_ADADELTA, 2, 0, 0.01 },   { LS_APPLY_ADAMAX, 2, 0, 0.01 },
    { LS_APPLY_NADAM, 2, 0, 0 },        { LS_APPLY_FTRL, 2, 0, 0.01 },       { LS_APPLY_LION, 1, 0, 0.01 },
};

/* How an update's value is used: not at all, fetched, or by another op, so that it cannot be done
 * in place. */
typedef enum use { UNUSED, FETCHED, USED } use;

#define WAITING 20001 /* elements: more than a tile, and no multiple of a vector */

/* A variable and its slots for one rule, by a gradient that is fed; `when` too, if there is one. */
typedef struct waiting {
    ls_graph *graph;
    ls_tensor *gradient, *when, *fetch, *state[3];
    int count;
} waiting;

static void open_waiting(waiting *v, const update *u, ls_dtype dtype, use how, bool waits)
{
    *v = (waiting){ 0 };
    assert_int_equal(ls_graph_create(cpu, &v->graph), LS_OK);
    size_t bytes = ls_dtype_bytes(dtype);
    char *start = calloc(WAITING, bytes);
    assert_non_null(start);
    for (int i = 0; i < WAITING;
         i++) /* zeros of both signs, and numbers that arithmetic with a rate of 0 would change */
        if (dtype == LS_F32)
            ((float *)start)[i] = i % 3 == 0 ? -0.0F : i % 3 == 1 ? 1e-42F : 1.0F / (float)(i + 1);
        else
            ((double *)start)[i] = i % 3 == 0 ? -0.0 : i % 3 == 1 ? 1e-310 : 1.0 / (i + 1);
    for (int k = 0; k <= u->slots; k++)
        v->state[v->count++] = ls_op_variable(v->graph, NULL, dtype, LS_SHAPE(WAITING), .data = start);
    v->gradient = ls_op_input(v->graph, NULL, dtype, LS_SHAPE(WAITING));
    v->when = waits ? ls_op_input(v->graph, NULL, LS_BOOL, LS_SCALAR) : NULL;
    ls_tensor *one = ls_op_scalar(v->graph, dtype, 1);
    ls_tensor *updated =
        ls_op_apply(v->state[0], v->gradient, u->rule, ls_op_scalar(v->graph, dtype, 0.05), .step = one,
                    .slots = { v->state[1], v->state[2] }, .momentum = u->momentum, .beta_1 = 0.9, .beta_2 = 0.99,
                    .rho = 0.9, .epsilon = 1e-6, .weight_decay = u->weight_decay, .l1 = 0.1, .l2 = 0.2,
                    .shrinkage = 0.3, .beta = 0.4, .when = v->when);
    v->fetch = how == UNUSED ? ls_op_group(&updated, 1) : how == FETCHED ? updated : ls_op_neg(updated);
    assert_int_equal(ls_graph_status(v->graph), LS_OK);
    free(start);
}

/* Runs with a gradient of ones; all state and what was fetched, one after the other. */
static char *run_waiting(waiting *v, ls_dtype dtype, use how, bool now)
{
    size_t bytes = WAITING * ls_dtype_bytes(dtype);
    char *state = calloc((size_t)v->count + 2, bytes), *ones = state + ((size_t)v->count + 1) * bytes;
    assert_non_null(state);
    for (int i = 0; i < WAITING; i++)
        if (dtype == LS_F32)
            ((float *)ones)[i] = 1;
        else
            ((double *)ones)[i] = 1;
    ls_feed feeds[] = { { v->gradient, ls_array_of(dtype, LS_SHAPE(WAITING), ones) },
                        { v->when, ls_array_of(LS_BOOL, LS_SCALAR, &now) } };
    assert_int_equal(ls_eval(v->graph, feeds, v->when ? 2 : 1, &v->fetch, 1), LS_OK);
    for (int k = 0; k < v->count; k++)
        assert_int_equal(ls_variable_get(v->state[k], state + (size_t)k * bytes, bytes), LS_OK);
    if (how != UNUSED)
        assert_int_equal(ls_read(v->fetch, state + (size_t)v->count * bytes, bytes), LS_OK);
    return state;
}

/* A predicate that is false leaves every byte of the variable and its slots; true, it is as if
 * there were none. */
static void updates_wait_for_their_predicate(void **state)
{
    (void)state;
    for (int rule = 0; ls_apply_slots((ls_apply_rule)rule, false) >= 0; rule++) {
        int seen = 0;
        for (int i = 0; i < UPDATES; i++)
            seen += updates[i].rule == (ls_apply_rule)rule;
        if (!seen)
            fail_msg("rule %d of ls_apply_rule is not among the updates", rule);
    }
    for (int i = 0; i < UPDATES; i++)
        for (ls_dtype dtype = LS_F32; dtype <= LS_F64; dtype++)
            for (use how = UNUSED; how <= USED; how++) {
                waiting plain, waits;
                open_waiting(&plain, &updates[i], dtype, how, false);
                open_waiting(&waits, &updates[i], dtype, how, true);
                size_t bytes = WAITING * ls_dtype_bytes(dtype), all = ((size_t)plain.count + 1) * bytes;
                char *before = calloc((size_t)plain.count, bytes);
                assert_non_null(before);
                for (int k = 0; k < plain.count; k++)
                    assert_int_equal(ls_variable_get(plain.state[k], before + (size_t)k * bytes, bytes), LS_OK);
                char *kept = run_waiting(&waits, dtype, how, false);
                char *done = run_waiting(&waits, dtype, how, true), *expected = run_waiting(&plain, dtype, how, true);
                if (memcmp(before, kept, (size_t)plain.count * bytes) != 0)
                    fail_msg("update %d (%s, use %d): changed though it was not to", i, ls_dtype_name(dtype), how);
                if (how == FETCHED && memcmp(before, kept + (size_t)plain.count * bytes, bytes) != 0)
                    fail_msg("update %d (%s): its value is not the old one", i, ls_dtype_name(dtype));
                if (memcmp(done, expected, all) != 0)
                    fail_msg("update %d (%s, use %d): other bits than without a predicate", i, ls_dtype_name(dtype),
                             how);
                if (memcmp(before, done, bytes) == 0)
                    fail_msg("update %d (%s, use %d): nothing has changed", i, ls_dtype_name(dtype), how);
                free(before);
                free(kept);
                free(done);
                free(expected);
                ls_graph_destroy(plain.graph);
                ls_graph_destroy(waits.graph);
            }
}

/* A run reads every variable as it was at its start, even if another op updates it meanwhile. */
static void updates_in_place_show_at_the_end(void **state)
{
    (void)state;
    const float start[2][3] = { { 1, 2, 3 }, { 10, 20, 30 } };
    test_graph t;
    float now[3];
    test_graph_open_in(&t, cpu, 1, LS_F32);
    ls_tensor *a = ls_op_variable(t.graph, "a", LS_F32, LS_SHAPE(3), .data = start[0]);
    ls_tensor *b = ls_op_variable(t.graph, "b", LS_F32, LS_SHAPE(3), .data = start[1]);
    ls_tensor *one = ls_op_scalar(t.graph, LS_F32, 1);
    ls_tensor *fetch[] = { ls_op_apply(a, b, LS_APPLY_SGD, one),
                           ls_op_apply(b, ls_op_reshape(a, LS_SHAPE(3)), LS_APPLY_SGD, one),
                           ls_op_reshape(a, LS_SHAPE(3, 1)), ls_op_stop_gradient(b) };
    assert_int_equal(ls_eval(t.graph, NULL, 0, fetch, 4), LS_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ls_read(fetch[i], now, sizeof now), LS_OK);
        for (int k = 0; k < 3; k++) {
            float old[] = { start[0][k], start[1][k] };
            float expected = i < 2 ? old[i] - old[1 - i] : old[i - 2];
            if (now[k] != expected)
                fail_msg("fetch %d, element %d is %g, expected %g", i, k, (double)now[k], (double)expected);
        }
    }
    test_graph_close(&t);
}

/* The gradient of a ReLU may use its output, but not that of a node which is made, and so computed,
 * later. */
static void a_relu_after_the_gradient_is_not_awaited(void **state)
{
    (void)state;
    side s;
    s = (side){ .count = 2 };
    test_graph_open_in(&s.t, cpu, 5, LS_F32);
    ls_tensor *x = test_add(&s.t, "N,7", TEST_FED)->tensor, *y = ls_op_mul(x, x);
    ls_tensor *dy = test_add(&s.t, "N,7", TEST_FED)->tensor;
    s.fetch[0] = ls_op_relu_grad(dy, ls_op_shift(y, -1), 0);
    s.fetch[1] = ls_op_relu(s.fetch[0]->in[1]);
    side_run(&s, &(setting){ .lanes = 1 });
    assert_string_equal(s.message, "");
    for (size_t i = 0; i < s.t.leaf[0].count; i++) {
        float v = ((float *)s.t.leaf[0].data)[i], d = ((float *)s.t.leaf[1].data)[i];
        assert_true(((float *)s.value[0])[i] == (v * v - 1 > 0 ? d : 0 * d));
    }
    side_close(&s);
}

/* ---- Random graphs ---- */

#define MOST_VALUES 48
#define MOST_SLOTS  16

/* A graph that grows: every choice is drawn from the seed and the shapes, so that both devices get
 * the same. */
typedef struct maker {
    side *s;
    ls_philox_key key;
    uint32_t drawn;
    int64_t batch;
    ls_tensor *value[MOST_VALUES]; /* float32 */
    uint32_t count;
    ls_tensor *slot[MOST_SLOTS]; /* zeros before every run */
    size_t slots;
    ls_tensor *write[MOST_SLOTS];
    size_t writes;
} maker;

static uint32_t draw(maker *m, uint32_t below)
{
    return ls_random_block(m->key, 0, 0, m->drawn++).word[0] % below;
}

/* Refused expressions (samples would mix) are left out. */
static void keep(maker *m, ls_tensor *x)
{
    if (!ls_tensor_is_error(x) && m->count < MOST_VALUES)
        m->value[m->count++] = x;
}

/* A value, preferably a late one. */
static ls_tensor *pick(maker *m)
{
    uint32_t a = draw(m, m->count), b = draw(m, m->count);
    return m->value[a > b ? a : b];
}

/* A tensor with this number of axes, if one is found soon. */
static ls_tensor *pick_rank(maker *m, int rank)
{
    ls_tensor *x = pick(m);
    for (int i = 0; i < 6 && x->shape.rank != rank; i++)
        x = pick(m);
    return x;
}

/* A tensor that can replace x, or x. */
static ls_tensor *pick_like(maker *m, const ls_tensor *x)
{
    for (int i = 0; i < 8; i++) {
        ls_tensor *y = pick(m);
        if (y != x && y->per_sample == x->per_sample && ls_shape_equal(&y->shape, &x->shape))
            return y;
    }
    return (ls_tensor *)x;
}

/* A leaf whose sizes are given; NULL when there are enough. */
static ls_tensor *leaf(maker *m, test_kind kind, const char *format, ...)
{
    char spec[64];
    va_list list;
    va_start(list, format);
    vsnprintf(spec, sizeof spec, format, list);
    va_end(list);
    return m->s->t.count < TEST_LEAVES - 1 ? test_add(&m->s->t, spec, kind)->tensor : NULL;
}

static int64_t last_size(const ls_tensor *x)
{
    return x->shape.dims[x->shape.rank - 1];
}

/* An axis that is not the batch's; x has one. */
static int inner_axis(maker *m, const ls_tensor *x)
{
    int first = x->shape.dims[0] == LS_BATCH ? 1 : 0;
    return first + (int)draw(m, (uint32_t)(x->shape.rank - first));
}

static bool has_inner(const ls_tensor *x)
{
    return x->shape.rank > (x->shape.rank > 0 && x->shape.dims[0] == LS_BATCH ? 1 : 0);
}

static ls_tensor *positive(ls_tensor *x)
{
    return ls_op_shift(ls_op_abs(x), 0.5);
}

static ls_tensor *grow_unary(maker *m, ls_tensor *x)
{
    static ls_tensor *(*const any[])(ls_tensor *) = { ls_op_neg,  ls_op_abs,     ls_op_relu,     ls_op_relu,
                                                      ls_op_tanh, ls_op_sigmoid, ls_op_softplus, ls_op_silu,
                                                      ls_op_erf,  ls_op_square,  ls_op_relu };
    static ls_tensor *(*const above[])(ls_tensor *) = { ls_op_log, ls_op_sqrt, ls_op_rsqrt };
    switch (draw(m, 8)) {
    case 0:
        return above[draw(m, 3)](positive(x));
    case 1:
        return ls_op_leaky_relu(x, 0.1);
    case 2:
        return ls_op_gelu(x, draw(m, 2));
    case 3:
        return ls_op_clip(x, -0.7, 0.9);
    case 4:
        return ls_op_scale(ls_op_elu(x, 1.3), 0.7);
    default:
        return any[draw(m, sizeof any / sizeof *any)](x);
    }
}

static ls_tensor *two_of(maker *m, ls_tensor *a, ls_tensor *b)
{
    switch (draw(m, 8)) {
    case 0:
        return ls_op_sub(a, b);
    case 1:
        return ls_op_mul(a, b);
    case 2:
        return ls_op_div(a, positive(b));
    case 3:
        return ls_op_maximum(a, b);
    case 4:
        return ls_op_minimum(a, b);
    case 5:
        return ls_op_select(ls_op_compare(a, LS_LESS, b), a, ls_op_scale(b, 0.5));
    default:
        return ls_op_add(a, b);
    }
}

static ls_tensor *reduction(maker *m, ls_tensor *x, bool keepdims)
{
    int64_t mask = 1 + draw(m, (1u << x->shape.rank) - 1);
    ls_axes axes = ls_axes_of_mask(mask);
    switch (draw(m, 5)) {
    case 0:
        return ls_op_reduce_max(x, axes, keepdims);
    case 1:
        return ls_op_reduce_min(x, axes, keepdims);
    case 2:
        return ls_op_scale(ls_op_reduce_sum(x, axes, keepdims), 0.1);
    default:
        return ls_op_reduce_mean(x, axes, keepdims);
    }
}

/* x with a value of its own shape, a reduction of such a one (a join, and levels, where it goes
 * over the batch), a leaf row or a number. */
static ls_tensor *grow_binary(maker *m, ls_tensor *x)
{
    ls_tensor *other = pick_like(m, x);
    uint32_t how = draw(m, 5);
    if (how == 0 && x->shape.rank > 0)
        other = reduction(m, other, true);
    if (how == 1 && has_inner(x) && last_size(x) > 0)
        other = leaf(m, TEST_VARIABLE, "%d", (int)last_size(x));
    if (how == 2)
        other = ls_op_scalar(x->graph, LS_F32, 0.75);
    if (!other)
        return NULL;
    return draw(m, 2) ? two_of(m, x, other) : two_of(m, other, x);
}

static ls_tensor *grow_dense(maker *m, ls_tensor *x)
{
    if (x->shape.rank != 2 || last_size(x) <= 0)
        return NULL;
    int in = (int)last_size(x), out = 1 + (int)draw(m, 9);
    ls_tensor *w = leaf(m, TEST_VARIABLE, "%d,%d", in, out), *b = draw(m, 3) ? leaf(m, TEST_VARIABLE, "%d", out) : NULL;
    if (!w)
        return NULL;
    ls_tensor *y = ls_op_matmul(x, w);
    y = b ? ls_op_add(y, b) : y;
    if (draw(m, 4) == 0)
        keep(m, y); /* others may want it before the ReLU */
    return draw(m, 2) ? ls_op_relu(y) : ls_op_scale(y, 0.5);
}

static ls_tensor *grow_norm(maker *m, ls_tensor *x)
{
    if (x->shape.rank < 2 || !has_inner(x) || last_size(x) <= 0)
        return NULL;
    int channels = (int)last_size(x);
    ls_tensor *gamma = leaf(m, TEST_VARIABLE, "+%d", channels), *beta = leaf(m, TEST_VARIABLE, "%d", channels);
    ls_tensor *y = ls_op_batch_norm(x, .gamma = gamma, .beta = beta, .training = true, .epsilon = 0.1);
    y = draw(m, 3) ? y : ls_op_add(y, pick_like(m, x));
    switch (draw(m, 6)) {
    case 0:
        return ls_op_capped_relu(y, 0.6);
    case 1:
        return ls_op_silu(y);
    default:
        return draw(m, 2) ? ls_op_relu(y) : y;
    }
}

static ls_tensor *grow_image(maker *m, ls_tensor *x)
{
    if (x->shape.rank != 4 || x->shape.dims[1] < 2 || x->shape.dims[2] < 2)
        return NULL;
    int64_t window = 2 + draw(m, 2), stride = 1 + draw(m, 2);
    ls_padding padding = draw(m, 2) && x->shape.dims[1] > 3 && x->shape.dims[2] > 3 ? LS_VALID : LS_SAME;
    ls_pool2d_op pool = { .window = { window, window }, .stride = { stride, stride }, .padding = padding };
    int out = 1 + (int)draw(m, 6);
    ls_tensor *kernel, *bias;
    switch (draw(m, 4)) {
    case 0:
        return ls_op_max_pool2d_with(draw(m, 2) ? ls_op_relu(x) : x, pool);
    case 1:
        return ls_op_average_pool2d_with(x, pool);
    default:
        kernel = leaf(m, TEST_VARIABLE, "%d,3,%d,%d", (int)window, (int)last_size(x), out);
        bias = draw(m, 2) ? leaf(m, TEST_VARIABLE, "%d", out) : NULL;
        if (!kernel)
            return NULL;
        x = ls_op_conv2d(x, kernel, .stride = { stride, 1 }, .padding = padding);
        x = bias ? ls_op_add(x, bias) : x;
        return draw(m, 2) ? ls_op_relu(x) : ls_op_scale(x, 0.3);
    }
}

static ls_tensor *grow_shape(maker *m, ls_tensor *x)
{
    if (!has_inner(x))
        return NULL;
    int axis = inner_axis(m, x), rank = x->shape.rank;
    ls_axes begin = { .count = rank }, size = { .count = rank }, turn = { .count = rank };
    for (int i = 0; i < rank; i++) {
        size.axis[i] = i == axis && x->shape.dims[i] > 1 ? x->shape.dims[i] - 1 : -1;
        turn.axis[i] = i;
    }
    int other = inner_axis(m, x);
    turn.axis[axis] = other;
    turn.axis[other] = axis;
    switch (draw(m, 5)) {
    case 0:
        return x->shape.dims[0] == LS_BATCH ? ls_op_reshape(x, LS_SHAPE(LS_BATCH, LS_REMAINING)) : ls_op_flatten(x);
    case 1:
        return ls_op_slice(x, begin, size);
    case 2:
        return ls_op_transpose(x, turn);
    case 3:
        return ls_op_reshape(ls_op_relu(ls_op_reshape(x, x->shape)), x->shape);
    default:
        return ls_op_concat((ls_tensor *[]){ x, pick_like(m, x) }, 2, axis);
    }
}

static ls_tensor *grow_row(maker *m, ls_tensor *x)
{
    if (!has_inner(x) || last_size(x) <= 0)
        return NULL;
    int axis = inner_axis(m, x);
    switch (draw(m, 6)) {
    case 0:
        return ls_op_softmax(x, axis);
    case 1:
        return ls_op_log_softmax(x, axis);
    case 2:
        return ls_op_top_k(x, 1 + draw(m, (uint32_t)last_size(x)));
    case 3:
        return ls_op_one_hot(ls_op_argmax(x, axis), LS_F32, x->shape.dims[axis]);
    case 4:
        return ls_op_dropout(x, ls_op_scalar(x->graph, LS_F32, 0.25));
    default:
        return ls_op_softmax(x, -1);
    }
}

/* Samples meet: all of them gathered, each against all. */
static ls_tensor *grow_batch(maker *m, ls_tensor *x)
{
    if (!x->per_sample)
        return NULL;
    ls_tensor *all = ls_op_gather_batch(x);
    if (draw(m, 3) == 0)
        return all;
    if (draw(m, 2) || x->shape.rank != 2 || last_size(x) <= 0)
        return ls_op_scatter_batch(draw(m, 2) ? ls_op_softmax(all, 0) : ls_op_tanh(all));
    ls_tensor *scores = ls_op_matmul(x, all, .transpose_b = true);
    return ls_op_matmul(ls_op_softmax(scores, -1), all);
}

static ls_tensor *grow_other(maker *m, ls_tensor *x)
{
    switch (draw(m, 4)) {
    case 0:
        return ls_op_stop_gradient(x);
    case 1:
        return ls_op_cast(ls_op_cast(x, LS_F64), LS_F32);
    case 2:
        return ls_op_add(x, ls_op_random_uniform(x->graph, LS_F32, x->shape, -0.5, 0.5));
    default:
        return ls_op_mul(x, ls_op_fill(x->graph, LS_F32, x->shape, 0.5));
    }
}

static void grow(maker *m)
{
    ls_tensor *x = pick(m), *y = NULL;
    switch (draw(m, 16)) {
    case 0:
    case 1:
    case 2:
        y = grow_unary(m, x);
        break;
    case 3:
    case 4:
    case 5:
        y = grow_binary(m, x);
        break;
    case 6:
    case 7:
        y = grow_dense(m, pick_rank(m, 2));
        break;
    case 8:
    case 9:
    case 10:
        y = grow_image(m, pick_rank(m, 4));
        break;
    case 11:
        y = grow_norm(m, pick_rank(m, 4));
        break;
    case 12:
        y = grow_shape(m, x);
        break;
    case 13:
        y = grow_row(m, x);
        break;
    case 14:
        y = draw(m, 2) ? grow_batch(m, x) : x->shape.rank > 0 ? reduction(m, x, false) : NULL;
        break;
    default:
        y = grow_other(m, x);
    }
    if (y)
        keep(m, y);
}

/* The mean of squares of some values, and a cross-entropy; or also of a gradient. */
static ls_tensor *loss_of(maker *m)
{
    ls_tensor *loss = NULL;
    for (int i = 0; i < 3; i++) {
        ls_tensor *x = i < 2 ? pick(m) : m->value[m->count - 1];
        ls_tensor *part = ls_op_reduce_mean(ls_op_square(x), LS_ALL_AXES, false);
        loss = loss ? ls_op_add(loss, part) : part;
    }
    ls_tensor *scores = pick(m), *labels = NULL;
    if (scores->per_sample && scores->shape.rank == 2 && last_size(scores) > 0)
        labels = leaf(m, TEST_FED, "%c%d:N", "iju"[draw(m, 3)], (int)last_size(scores));
    if (labels) {
        ls_tensor *entropy = ls_op_sparse_cross_entropy(labels, scores, LS_LOGITS);
        loss = ls_op_add(loss, ls_op_reduce_mean(entropy, LS_ALL_AXES, false));
    }
    ls_tensor *x = pick(m), *g = NULL, *gg;
    if (draw(m, 4) || ls_gradients(loss, &x, 1, &g) != LS_OK || !g)
        return loss;
    ls_tensor *both = ls_op_add(loss, ls_op_reduce_mean(ls_op_square(g), LS_ALL_AXES, false));
    return ls_gradients(both, &x, 1, &gg) == LS_OK ? both : loss; /* not every op has a second derivative */
}

static ls_tensor *new_slot(maker *m, ls_shape shape)
{
    return m->slot[m->slots++] = ls_op_variable(m->s->t.graph, NULL, LS_F32, shape);
}

/* An update of a variable, or a moving sum of a whole value. */
static void add_write(maker *m, ls_tensor *variable, ls_tensor *gradient)
{
    if (m->slots + 2 > MOST_SLOTS || m->writes == MOST_SLOTS)
        return;
    ls_tensor *rate = ls_op_scalar(variable->graph, LS_F32, 0.1);
    if (variable->op != LS_OP_variable) {
        ls_tensor *sum = new_slot(m, ls_tensor_shape(variable));
        m->write[m->writes++] = draw(m, 2) ? ls_op_assign_add(sum, variable) : ls_op_assign(sum, variable);
    } else if (draw(m, 2)) {
        m->write[m->writes++] = ls_op_apply(variable, gradient, LS_APPLY_SGD, rate, .weight_decay = 0.01);
    } else {
        ls_tensor *slot = new_slot(m, ls_tensor_shape(variable));
        m->write[m->writes++] =
            ls_op_apply(variable, gradient, LS_APPLY_MOMENTUM, rate, .slots = { slot }, .momentum = 0.9);
    }
}

static void fetch(maker *m, ls_tensor *x)
{
    for (size_t i = 0; i < m->s->count; i++)
        if (m->s->fetch[i] == x)
            return;
    if (m->s->count < MOST_FETCHES)
        m->s->fetch[m->s->count++] = x;
}

/* Gradients of all leaves and of some inner values, each fetched or used for a write. */
static void add_gradients(maker *m, ls_tensor *loss)
{
    ls_tensor *x[TEST_LEAVES + 2], *g[TEST_LEAVES + 2];
    size_t count = 0;
    for (int i = 0; i < m->s->t.count; i++)
        if (m->s->t.leaf[i].dtype == LS_F32)
            x[count++] = m->s->t.leaf[i].source;
    x[count++] = pick(m);
    x[count++] = pick(m);
    if (ls_gradients(loss, x, count, g) != LS_OK)
        fail_msg("a random graph is wrong: %s", ls_last_error());
    for (size_t i = 0; i < count; i++) {
        bool written = g[i] && x[i]->op == LS_OP_variable && draw(m, 2) && i + 2 < count;
        if (written)
            add_write(m, x[i], g[i]);
        else if (g[i] && draw(m, 4))
            fetch(m, g[i]);
    }
    if (draw(m, 2)) /* nodes after the gradient that share its inputs */
        keep(m, ls_op_relu(pick(m)));
    for (int i = 0; i < 4; i++) {
        ls_tensor *y = pick(m);
        bool known = true; /* every size */
        for (int k = 0; k < y->shape.rank; k++)
            known = known && y->shape.dims[k] != LS_BATCH;
        if (i == 0 && known && !y->per_sample && y->op != LS_OP_variable)
            add_write(m, y, NULL);
        else
            fetch(m, y);
    }
}

static void random_open(side *s, maker *m, ls_context *ctx, uint32_t seed)
{
    static const int64_t batches[] = { 7, 1, 2, 13, 5, 0 };
    *s = (side){ .count = 0 };
    *m = (maker){ .s = s, .key = ls_random_key(seed, LS_RANDOM_TEST, 77, 0) };
    m->batch = batches[draw(m, 5)];
    test_graph_open_in(&s->t, ctx, m->batch, LS_F32);
    keep(m, leaf(m, TEST_FED, "N,%d", 1 + (int)draw(m, 9)));
    keep(m, leaf(m, TEST_FED, "N,%d,%d,%d", 3 + (int)draw(m, 4), 3 + (int)draw(m, 3), 1 + (int)draw(m, 5)));
    keep(m, leaf(m, TEST_VARIABLE, "%d,%d", 1 + (int)draw(m, 5), 1 + (int)draw(m, 9)));
    uint32_t steps = 4 + draw(m, 20);
    for (uint32_t i = 0; i < steps; i++)
        grow(m);
    ls_tensor *loss = loss_of(m);
    fetch(m, loss);
    add_gradients(m, loss);
    if (m->writes > 0)
        fetch(m, draw(m, 2) ? ls_op_group(m->write, m->writes) : m->write[0]);
    if (m->writes > 0 && draw(m, 3) == 0)
        fetch(m, ls_op_scale(m->write[m->writes - 1], 2));
    for (size_t i = 0; i < m->slots; i++)
        fetch(m, m->slot[i]);
    for (int i = 0; i < s->t.count; i++)
        if (s->t.leaf[i].kind == TEST_VARIABLE)
            fetch(m, s->t.leaf[i].source);
}

static void random_run(side *s, maker *m, const setting *how)
{
    for (size_t i = 0; i < m->slots; i++) {
        ls_array value;
        int64_t count = 0;
        assert_int_equal(ls_value(m->slot[i], &value), LS_OK);
        ls_shape_count(&value.shape, 0, &count);
        memset(value.data, 0, (size_t)count * sizeof(float));
    }
    side_run(s, how);
}

static char *other_bits(const char *where, const side *a, const side *b, const char *when)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->bytes[i] != b->bytes[i] || memcmp(a->value[i], b->value[i], a->bytes[i]) != 0)
            return test_text("%s: fetch %zu (op %s) has other bits %s", where, i, ls_tensor_op(a->fetch[i]), when);
    return NULL;
}

/* One way of cutting: the reference's bits, also when run again and when every group is a segment
 * of its own. */
static char *check_cut(const char *where, uint32_t seed, const setting *how)
{
    side theirs, ours, again;
    maker m, n;
    char *message = NULL;
    setting finely = { how->lanes, how->micro, how->unfused, true };
    random_open(&theirs, &m, reference, seed);
    random_run(&theirs, &m, &(setting){ .lanes = how->lanes, .micro = theirs.t.batch, .unfused = true });
    random_open(&ours, &m, cpu, seed);
    random_open(&again, &n, cpu, seed);
    random_run(&ours, &m, how);
    if (ours.status != LS_OK || theirs.status != LS_OK)
        message = test_text("%s: %s, the reference: %s", where, ours.message, theirs.message);
    for (size_t i = 0; !message && i < ours.count; i++)
        message = difference(where, &ours, &theirs, i, 0);
    for (int k = 0; !message && k < 2; k++) {
        random_run(&again, &n, k == 0 ? &finely : NULL);
        message = again.status != LS_OK ? test_text("%s, finely: %s", where, again.message)
                                        : other_bits(where, &ours, &again, k ? "when run again" : "when cut finely");
    }
    side_close(&theirs);
    side_close(&ours);
    side_close(&again);
    return message;
}

/* NULL, or what is wrong. */
static char *check_random(uint32_t seed)
{
    maker m = { .key = ls_random_key(seed, LS_RANDOM_TEST, 78, 0) };
    char *message = NULL;
    for (int l = 0; !message && l < (int)LENGTH(lanes); l++) {
        setting how = { .lanes = lanes[l], .micro = draw(&m, 4), .unfused = draw(&m, 4) == 0 };
        char *where = test_text("seed %u, %d lanes, micro-batch %d%s", seed, how.lanes, (int)how.micro,
                                how.unfused ? ", unfused" : "");
        message = check_cut(where, seed, &how);
        free(where);
    }
    return message;
}

static void random_graphs_are_right(void **state)
{
    (void)state;
    int failed = 0;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        char *message = check_random(seed);
        if (message)
            print_error("%s\n", message);
        failed += message != NULL;
        free(message);
    }
    if (failed)
        fail_msg("%d of %d random graphs", failed, SEEDS);
}

/* ---- Coverage ---- */

/* Ops without a kernel in backend/cpu: they move elements, are rare, or draw numbers. A kernel that
 * is made for one leaves this list; one that is lost is missed here. */
static const ls_op fall_backs[] = {
    LS_OP_fill,        LS_OP_count,   LS_OP_random_uniform, LS_OP_random_normal, LS_OP_assign,        LS_OP_assign_add,
    LS_OP_group,       LS_OP_pow,     LS_OP_gather_batch,   LS_OP_compare,       LS_OP_select,        LS_OP_sign,
    LS_OP_transpose,   LS_OP_concat,  LS_OP_slice,          LS_OP_slice_grad,    LS_OP_pad,           LS_OP_gather,
    LS_OP_gather_grad, LS_OP_one_hot, LS_OP_argmax,         LS_OP_top_k,         LS_OP_top_k_indices, LS_OP_warp,
    LS_OP_warp_grad,   LS_OP_ctc,     LS_OP_ctc_grad,
};

static bool falls_back(ls_op op)
{
    for (size_t i = 0; i < sizeof fall_backs / sizeof *fall_backs; i++)
        if (fall_backs[i] == op)
            return true;
    return false;
}

static void print_ops(const char *title, bool ours, bool theirs)
{
    printf("%s:", title);
    for (int i = 0; i < LS_OP_COUNT; i++)
        if (own[i] == ours && fell[i] == theirs && ls_ops[i].kernel != LS_KERNEL_NONE && !alias[i])
            printf(" %s", ls_ops[i].name);
    printf("\n");
}

/* After all others: every op was seen to run, by a kernel of backend/cpu, or it is in the list. */
static void every_op_has_its_kernel(void **state)
{
    (void)state;
    print_ops("by kernels of ours", true, false);
    print_ops("by ours, for some uses by the reference's", true, true);
    print_ops("by the reference's", false, true);
    for (int i = 0; i < LS_OP_COUNT; i++) {
        if (ls_ops[i].kernel == LS_KERNEL_NONE || alias[i])
            continue;
        if (!own[i] && !fell[i])
            fail_msg("%s was never run", ls_ops[i].name);
        if (!own[i] && !falls_back((ls_op)i))
            fail_msg("%s has lost its kernel: only the reference's was seen", ls_ops[i].name);
        if (own[i] && falls_back((ls_op)i))
            fail_msg("%s has a kernel of its own: take it off the list", ls_ops[i].name);
    }
}

/* ---- All together ---- */

static void there_is_such_a_device(void **state)
{
    (void)state;
    SKIP("no OpenCL device with two cores (tools/deps.sh install opencl)");
}

static bool open_ours(void)
{
#ifdef ON_OPENCL
    opencl_cut(DEVICES);
    return opencl_open(&(ls_context_options){ .threads = 1 }, "opencl:0-1", &cpu);
#else
    LS_CHECK(ls_context_open(&(ls_context_options){ .threads = DEVICES, .cpu_devices = DEVICES }, &cpu));
    return true;
#endif
}

int main(void)
{
    mallopt(M_PERTURB, 0x80); /* memory that is read before it is written has large numbers, not zeros */
    if (!open_ours()) {
        TEST_SUITE_ADD(there_is_such_a_device);
        return test_suite_run("opencl");
    }
    LS_CHECK(ls_context_open(&(ls_context_options){ .reference = true, .threads = 1 }, &reference));
    test_expressions_add();
    test_kernel_expressions_add();
    test_suite_add_cases(right_on_the_cpu);
    TEST_SUITE_ADD(tiles_are_right);
    TEST_SUITE_ADD(updates_wait_for_their_predicate);
    TEST_SUITE_ADD(updates_in_place_show_at_the_end);
    TEST_SUITE_ADD(random_graphs_are_right);
    if (IS_CPU) { /* these depend on its kernels, and on how it cuts */
        TEST_SUITE_ADD(large_kernels_are_right);
        TEST_SUITE_ADD(large_samples_are_right);
        TEST_SUITE_ADD(a_relu_after_the_gradient_is_not_awaited);
        TEST_SUITE_ADD(every_op_has_its_kernel);
    }
    int failed = test_suite_run(IS_CPU ? "cpu" : "opencl");
    ls_context_close(cpu);
    ls_context_close(reference);
    return failed;
}
