/* Plans: what each pass makes of small graphs; plans that are kept and plans that end; what a step
 * computes however it is cut. Memory of plans: test_plan_memory.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/size.h"
#include "bed.h"
#include "check.h"
#include "run/compile.h"
#include "sanitized.h"
#include "skip.h"

#if !SANITIZED
#define COUNTS_ALLOCATIONS
#endif

/* ---- Allocations, counted where our own code asks for them: libraries' are theirs ---- */

#ifdef COUNTS_ALLOCATIONS
static atomic_long allocations;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern char __executable_start, etext;

/* The address that a call returns to is in this program, into which the library is linked. */
static void count(const void *caller)
{
    if ((uintptr_t)caller >= (uintptr_t)&__executable_start && (uintptr_t)caller < (uintptr_t)&etext)
        atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t each, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_calloc(each, bytes);
}

void *realloc(void *old, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    count(__builtin_return_address(0));
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : 12; /* ENOMEM */
}
#endif

/* ---- Small graphs ---- */

static const ls_plan *plan_of(bed *b, ls_tensor *const *fetches, size_t fetch_count, int64_t batch)
{
    ls_executor *executor = NULL;
    ls_runs_clear(b->runs);
    if (ls_runs_get(b->graph, NULL, fetches, fetch_count, batch, &executor) != LS_OK)
        fail_msg("no plan: %s", ls_last_error());
    return ls_executor_plan(executor);
}

/* "conv2d+add+relu" */
static const char *group_text(const ls_group *group)
{
    static char text[256];
    text[0] = '\0';
    for (int i = 0; i < group->node_count; i++)
        strcat(strcat(text, i ? "+" : ""), ls_tensor_op(group->nodes[i]));
    return text;
}

static int count_groups(const ls_plan *plan, const char *text)
{
    int found = 0;
    for (int g = 0; g < plan->group_count; g++)
        found += plan->groups[g].needed && strcmp(group_text(&plan->groups[g]), text) == 0;
    return found;
}

/* ---- Pass 1: nodes ---- */

static void only_needed_nodes_are_planned(void **state)
{
    (void)state;
    bed b;
    open_bed(&b);
    ls_tensor *x = ls_op_input(b.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 4));
    ls_tensor *y = ls_op_input(b.graph, "y", LS_F32, LS_SHAPE(LS_BATCH, 4));
    ls_tensor *used = ls_op_exp(x), *unused = ls_op_log(ls_op_add(used, y));
    const ls_plan *plan = plan_of(&b, &used, 1, 3);
    assert_int_equal(plan->node_count, 2);
    assert_int_equal(plan->group_count, 1);
    assert_true(plan->newest < unused->id);
    /* Its input is not fed, and need not be. */
    const float data[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(2, 4), data) };
    assert_int_equal(ls_eval(b.graph, &feed, 1, &used, 1), LS_OK);
    assert_int_equal(ls_eval(b.graph, &feed, 1, &unused, 1), LS_ERR_INVALID);
    close_bed(&b);
}

/* ---- Pass 2: fusion ---- */

#define PATTERN_VALUES 8
typedef struct pattern {
    ls_tensor *x;                     /* the input */
    ls_tensor *inner[PATTERN_VALUES]; /* values inside a group */
    ls_tensor *early[PATTERN_VALUES]; /* other uses of them, made before those in the pattern; NULL: none can be */
    int inner_count;
    ls_tensor *out[PATTERN_VALUES]; /* fetched in any case */
    int out_count;
} pattern;

static ls_tensor *inside(pattern *p, ls_tensor *value)
{
    p->inner[p->inner_count] = value;
    p->early[p->inner_count++] = sum(ls_op_exp(value));
    return value;
}

static void conv_pattern(bed *b, pattern *p)
{
    p->x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 9, 7, 5));
    ls_tensor *conv = inside(p, ls_op_conv2d(p->x, variable(b, "k", LS_SHAPE(3, 3, 5, 16))));
    ls_tensor *biased = inside(p, ls_op_add(conv, variable(b, "b", LS_SHAPE(16))));
    p->out[p->out_count++] = ls_op_relu(biased);
}

static void dense_pattern(bed *b, pattern *p)
{
    p->x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 21));
    ls_tensor *product = inside(p, ls_op_matmul(p->x, variable(b, "w", LS_SHAPE(21, 17))));
    ls_tensor *biased = inside(p, ls_op_add(product, variable(b, "b", LS_SHAPE(17))));
    p->out[p->out_count++] = ls_op_relu(biased);
}

static void pool_pattern(bed *b, pattern *p)
{
    p->x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 9, 7, 5));
    ls_tensor *relu = inside(p, ls_op_relu(p->x));
    p->out[p->out_count++] = ls_op_max_pool2d(relu, { 2, 2 });
}

/* The first node of that op. */
static ls_tensor *node_of(bed *b, ls_op op)
{
    for (size_t i = 0; i < b->graph->node_count; i++)
        if (b->graph->nodes[i]->op == op)
            return b->graph->nodes[i];
    fail_msg("no node of op %d", (int)op);
    return NULL;
}

static void pool_backward_pattern(bed *b, pattern *p)
{
    p->x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 9, 7, 5));
    ls_tensor *k = variable(b, "k", LS_SHAPE(3, 3, 5, 16)), *bias = variable(b, "b", LS_SHAPE(16));
    ls_tensor *y = ls_op_relu(ls_op_add(ls_op_conv2d(p->x, k), bias));
    ls_tensor *loss = sum(ls_op_square(ls_op_max_pool2d(y, { 2, 2 })));
    assert_int_equal(ls_gradients(loss, (ls_tensor *[]){ k, bias }, 2, p->out), LS_OK);
    p->out_count = 2;
    p->inner[p->inner_count++] = node_of(b, LS_OP_max_pool2d_grad);
}

static ls_tensor *normed(bed *b, ls_tensor *x, ls_tensor **gamma, ls_tensor **beta)
{
    *gamma = variable(b, NULL, LS_SHAPE(5));
    *beta = variable(b, NULL, LS_SHAPE(5));
    return ls_op_batch_norm(x, *gamma, *beta, .training = true);
}

static void norm_pattern(bed *b, pattern *p)
{
    ls_tensor *gamma, *beta;
    p->x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 9, 7, 5));
    ls_tensor *norm = inside(p, normed(b, p->x, &gamma, &beta));
    p->out[p->out_count++] = ls_op_relu(norm);
}

static void norm_residual_pattern(bed *b, pattern *p)
{
    ls_tensor *gamma, *beta;
    p->x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 9, 7, 5));
    ls_tensor *norm = inside(p, normed(b, p->x, &gamma, &beta)), *added = inside(p, ls_op_add(norm, p->x));
    p->out[p->out_count++] = ls_op_relu(added);
}

static ls_tensor *relu6(ls_tensor *x)
{
    return ls_op_capped_relu(x, 6);
}

static void backward_pattern(bed *b, pattern *p, ls_tensor *(*activation)(ls_tensor *))
{
    ls_tensor *gamma, *beta;
    p->x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 9, 7, 5));
    ls_tensor *k = variable(b, "k", LS_SHAPE(1, 1, 5, 5));
    ls_tensor *norm = normed(b, ls_op_conv2d(p->x, k), &gamma, &beta);
    ls_tensor *loss = sum(ls_op_square(activation(norm)));
    assert_int_equal(ls_gradients(loss, (ls_tensor *[]){ k, gamma, beta }, 3, p->out), LS_OK);
    p->out_count = 3;
}

static void norm_backward_pattern(bed *b, pattern *p)
{
    backward_pattern(b, p, ls_op_relu);
}

static void capped_backward_pattern(bed *b, pattern *p)
{
    backward_pattern(b, p, relu6);
}

static void silu_backward_pattern(bed *b, pattern *p)
{
    backward_pattern(b, p, ls_op_silu);
}

static const struct {
    const char *name;
    void (*build)(bed *b, pattern *p);
    const char *fused[2];
} patterns[] = {
    { "convolution", conv_pattern, { "conv2d+add+relu" } },
    { "dense", dense_pattern, { "matmul+add+relu" } },
    { "pool", pool_pattern, { "relu+max_pool2d" } },
    { "pool, backward", pool_backward_pattern, { "max_pool2d_grad+relu_grad" } },
    { "norm", norm_pattern, { "batch_norm+relu" } },
    { "norm with residual", norm_residual_pattern, { "batch_norm+add+relu" } },
    { "norm, backward",
      norm_backward_pattern,
      { "relu_grad+batch_norm_grad_moments", "relu_grad+batch_norm_grad_input" } },
    { "norm and a capped ReLU", capped_backward_pattern, { "batch_norm+capped_relu" } },
    { "norm and a capped ReLU, backward",
      capped_backward_pattern,
      { "capped_relu_grad+batch_norm_grad_moments", "capped_relu_grad+batch_norm_grad_input" } },
    { "norm and silu", silu_backward_pattern, { "batch_norm+silu", "batch_norm+silu_grad" } },
};

static void patterns_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(patterns); i++) {
        bed b;
        pattern p = { .inner_count = 0 };
        open_bed(&b);
        patterns[i].build(&b, &p);
        assert_int_equal(ls_graph_status(b.graph), LS_OK);
        const ls_plan *plan = plan_of(&b, p.out, (size_t)p.out_count, 5);
        for (int k = 0; k < 2 && patterns[i].fused[k]; k++)
            if (count_groups(plan, patterns[i].fused[k]) != 1)
                fail_msg("%s: no group %s", patterns[i].name, patterns[i].fused[k]);
        b.runs->settings.plan.unfused = true;
        plan = plan_of(&b, p.out, (size_t)p.out_count, 5);
        for (int g = 0; g < plan->group_count; g++)
            assert_int_equal(plan->groups[g].node_count, 1);
        close_bed(&b);
    }
}

/* An inner value that is fetched or has another user must be there: the chain ends before it. */
static void patterns_end_where_a_value_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(patterns); i++) {
        bed b;
        pattern p = { .inner_count = 0 };
        open_bed(&b);
        patterns[i].build(&b, &p);
        for (int k = 0; k < p.inner_count; k++)
            for (int used = 0; used < (p.early[k] ? 3 : 2); used++) {
                ls_tensor *fetches[PATTERN_VALUES + 1];
                memcpy(fetches, p.out, sizeof(p.out));
                fetches[p.out_count] = used == 0 ? p.inner[k] : used == 1 ? sum(ls_op_exp(p.inner[k])) : p.early[k];
                const ls_plan *plan = plan_of(&b, fetches, (size_t)p.out_count + 1, 5);
                if (count_groups(plan, patterns[i].fused[0]) != 0)
                    fail_msg("%s: fused although inner value %d is %s", patterns[i].name, k,
                             used ? "used twice" : "fetched");
                for (int g = 0; g < plan->group_count; g++)
                    for (int n = 0; n + 1 < plan->groups[g].node_count; n++)
                        assert_ptr_not_equal(plan->groups[g].nodes[n], p.inner[k]);
            }
        close_bed(&b);
    }
}

/* Largest |a - b| of all values of two runs, in units in the last place of the tensor's largest
 * value. */
static double far_apart(const float *a, const float *b, size_t n)
{
    double most = 0, far = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)b[i]));
        far = fmax(far, fabs((double)a[i] - (double)b[i]));
        if (isnan(a[i]) || isnan(b[i]))
            return INFINITY;
    }
    return most > 0 ? far / (ldexp(1, ilogb(most)) * 0x1p-23) : far > 0 ? INFINITY : 0;
}

static float *read_values(ls_tensor *tensor, size_t *n)
{
    ls_array value;
    if (ls_value(tensor, &value) != LS_OK)
        fail_msg("no value: %s", ls_last_error());
    assert_int_equal(value.dtype, LS_F32);
    *n = shape_count(value.shape);
    float *out = calloc(*n + 1, sizeof(*out));
    assert_non_null(out);
    memcpy(out, value.data, *n * sizeof(*out));
    return out;
}

/* Runs and compares with what a former run left in `before`; filled in when empty. */
static double compare(ls_tensor *const *values, size_t value_count, float **before)
{
    double far = 0;
    for (size_t i = 0; i < value_count; i++) {
        size_t n;
        float *now = read_values(values[i], &n);
        size_t zeros = 0;
        for (size_t k = 0; k < n; k++)
            zeros += now[k] == 0;
        if (n >= 8 && zeros * 10 > n * 9)
            fail_msg("%s: %zu of %zu values are zero: nothing is compared", ls_tensor_op(values[i]), zeros, n);
        if (before[i]) {
            far = fmax(far, far_apart(now, before[i], n));
            free(now);
        } else {
            before[i] = now;
        }
    }
    return far;
}

static void fused_groups_agree_with_their_chains(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(patterns); i++) {
        bed b;
        pattern p = { .inner_count = 0 };
        float *before[PATTERN_VALUES] = { NULL };
        open_bed(&b);
        patterns[i].build(&b, &p);
        ls_shape shape = ls_tensor_shape(p.x);
        shape.dims[0] = 7;
        float *data = numbers(shape_count(shape), 9);
        ls_feed feed = { p.x, ls_array_of(LS_F32, shape, data) };
        for (int unfused = 1; unfused >= 0; unfused--) {
            ls_runs_clear(b.runs);
            b.runs->settings.plan.unfused = unfused;
            if (ls_eval(b.graph, &feed, 1, p.out, (size_t)p.out_count) != LS_OK)
                fail_msg("%s: %s", patterns[i].name, ls_last_error());
            double far = compare(p.out, (size_t)p.out_count, before);
            if (!(far <= 4))
                fail_msg("%s: %g units in the last place from its chain", patterns[i].name, far);
        }
        for (int k = 0; k < p.out_count; k++)
            free(before[k]);
        free(data);
        close_bed(&b);
    }
}

/* ---- Networks ---- */

/* Loss and gradients of one batch, nothing updated: compared with those before. */
static double compare_gradients(lab *l, const ls_run_settings *settings, int64_t batch, float **before)
{
    ls_tensor *fetches[NETWORK_VARIABLES + 2];
    size_t count = 0;
    network_batch data;
    assert_int_equal(network_set(&l->n, settings), LS_OK);
    fetches[count++] = l->n.loss;
    fetches[count++] = l->n.logits;
    for (size_t i = 0; i < l->n.trained_count; i++)
        fetches[count++] = l->n.gradients[i];
    assert_int_equal(network_batch_make(&l->n, batch, 0, &data), LS_OK);
    l->n.graph->run = l->n.graph->step = 0;
    if (ls_eval(l->n.graph, data.feeds, data.feed_count, fetches, count) != LS_OK)
        fail_msg("%s: %s", network_name(l->n.kind), ls_last_error());
    network_batch_free(&data);
    return compare(fetches, count, before);
}

static void free_all(float **values)
{
    for (int i = 0; i < NETWORK_VARIABLES + 2; i++)
        free(values[i]);
}

/* Measured: no difference at all, in units in the last place of a tensor's largest value. */
static void networks_fused_and_unfused_agree(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        lab l;
        float *before[NETWORK_VARIABLES + 2] = { NULL };
        open_lab(&l, kind, &(ls_context_options){ .threads = 2 });
        compare_gradients(&l, &(ls_run_settings){ .plan = { .lanes = 4, .unfused = true } }, 33, before);
        double far = compare_gradients(&l, &(ls_run_settings){ .plan = { .lanes = 4 } }, 33, before);
        if (!(far <= 4))
            fail_msg("%s: fused and unfused are %g units in the last place apart", network_name(kind), far);
        free_all(before);
        close_lab(&l);
    }
}

/* However the batch is cut, the numbers are those of the unsplit graph, as the reference kernels
 * give them. Measured: 5.4 (cnn), 4 (mlp) and 32 (residual) units in the last place of a tensor's
 * largest value. */
static void any_lanes_and_micro_batches_agree(void **state)
{
    (void)state;
    static const int lane_counts[] = { 1, 2, 3, 5, 8, 32, 33, 64 };
    static const int64_t micros[] = { 0, 1, 2, 3, 7 };
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        lab l;
        float *before[NETWORK_VARIABLES + 2] = { NULL };
        open_lab(&l, kind, &(ls_context_options){ .threads = 1, .reference = true });
        compare_gradients(&l, &(ls_run_settings){ .plan = { .lanes = 1 } }, 33, before);
        close_lab(&l);
        open_lab(&l, kind, &(ls_context_options){ .threads = 2 });
        for (size_t v = 0; v < LENGTH(lane_counts); v += SANITIZED ? 3 : 1)
            for (size_t m = 0; m < LENGTH(micros); m++) {
                ls_run_settings settings = { .plan = { .lanes = lane_counts[v], .micro = micros[m] } };
                double far = compare_gradients(&l, &settings, 33, before);
                if (!(far <= 64))
                    fail_msg("%s: %d lanes, micro-batches of %lld: %g units in the last place from the reference",
                             network_name(kind), lane_counts[v], (long long)micros[m], far);
            }
        free_all(before);
        close_lab(&l);
    }
}

/* ---- Pass 3: levels, segments, what is kept ---- */

#define NORMS  6 /* batch norms of the residual network */
#define CONVS  6
#define DENSES 2 /* kernel and bias */

static int count_joins(const ls_plan *plan, ls_op op)
{
    int found = 0;
    for (int i = 0; i < plan->join_count; i++)
        found += plan->joins[i].group->root->op == op;
    return found;
}

static void a_norm_has_one_join_each_way(void **state)
{
    (void)state;
    lab l;
    open_lab(&l, NETWORK_RESIDUAL, &(ls_context_options){ .threads = 1 });
    const ls_plan *plan = step_plan(&l, 33);
    assert_int_equal(count_joins(plan, LS_OP_moments), NORMS);
    assert_int_equal(count_joins(plan, LS_OP_batch_norm_grad_moments), NORMS);
    assert_int_equal(count_joins(plan, LS_OP_conv2d_grad_kernel), CONVS);
    assert_int_equal(count_joins(plan, LS_OP_matmul), 1);
    assert_int_equal(count_joins(plan, LS_OP_reduce_sum), 2); /* the dense layer's bias, the loss */
    assert_int_equal(plan->join_count, NORMS + NORMS + CONVS + DENSES + 1);
    for (int i = 0; i < plan->join_count; i++) /* statistics are joined in f64 */
        if (plan->joins[i].group->root->op == LS_OP_moments)
            assert_int_equal(plan->joins[i].dtype, LS_F64);
    /* Five norms follow each other forward (the projection's is parallel to the block's first), and
     * five backward. */
    assert_int_equal(plan->levels, 2 * 5 + 2);
    for (int s = 0; s < plan->segment_count; s++) {
        assert_int_equal(plan->segments[s].index, s);
        if (s > 0)
            assert_true(plan->segments[s].level >= plan->segments[s - 1].level);
    }
    close_lab(&l);
    open_lab(&l, NETWORK_CNN, &(ls_context_options){ .threads = 1 });
    plan = step_plan(&l, 33);
    assert_int_equal(plan->segment_count, 1); /* nothing meets before the gradients do */
    assert_int_equal(plan->join_count, 6 + 1);
    close_lab(&l);
}

/* No group's input is joined later than the group runs, and nothing is read before it is
 * computed. */
static void levels_and_segments_are_in_order(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (int cut = 0; cut < 2; cut++) {
            lab l;
            open_lab(&l, kind, &(ls_context_options){ .threads = 1 });
            assert_int_equal(network_set(&l.n, &(ls_run_settings){ .plan = { .cut_everywhere = cut } }), LS_OK);
            const ls_plan *plan = step_plan(&l, 33);
            for (int g = 0; g < plan->group_count; g++)
                for (int k = 0; k < plan->groups[g].in_count; k++) {
                    int from = plan->nodes[plan->groups[g].in[k]].group;
                    if (from >= 0)
                        assert_true(plan->groups[from].level + (plan->groups[from].reduces ? 1 : 0) <=
                                    plan->groups[g].level);
                }
            int homes = 0;
            for (int s = 0; s < plan->segment_count; s++)
                for (int i = 0; i < plan->segments[s].step_count; i++) {
                    const ls_step *step = &plan->segments[s].steps[i];
                    homes += step->group->segment == s;
                    for (int k = 0; k < step->group->in_count; k++)
                        if (step->in[k].storage == LS_MICRO) {
                            int made = 0;
                            for (int j = 0; j < i; j++)
                                made += plan->segments[s].steps[j].out.storage == LS_MICRO &&
                                        plan->segments[s].steps[j].out.offset == step->in[k].offset;
                            assert_true(made > 0);
                        }
                }
            int wanted = 0;
            for (int g = 0; g < plan->group_count; g++)
                wanted += plan->groups[g].segment >= 0;
            assert_int_equal(homes, wanted); /* each computed once, in its own segment */
            if (cut)
                assert_true(plan->segment_count == wanted && wanted > 10);
            close_lab(&l);
        }
}

static void cheap_values_are_computed_again(void **state)
{
    (void)state;
    lab l;
    open_lab(&l, NETWORK_RESIDUAL, &(ls_context_options){ .threads = 1 });
    const ls_plan *plan = step_plan(&l, 33);
    size_t kept = 0, outputs = 0;
    int again = 0;
    for (int g = 0; g < plan->group_count; g++) {
        const ls_group *group = &plan->groups[g];
        if (!group->needed || !group->per_sample || group->reduces)
            continue;
        if (group->cheap && group->kept)
            fail_msg("%s is cheap, but kept", group_text(group));
        int times = 0;
        for (int s = 0; s < plan->segment_count; s++)
            for (int i = 0; i < plan->segments[s].step_count; i++)
                times += plan->segments[s].steps[i].group == group;
        if (!group->cheap && !group->alias)
            assert_int_equal(times, 1);
        again += group->cheap && times > 1 && group->nodes[0]->op == LS_OP_batch_norm;
        kept += group->kept ? ls_plan_unit(plan, group->root) : 0;
        outputs += group->nodes[0]->op == LS_OP_conv2d ? ls_plan_unit(plan, group->root) : 0;
    }
    assert_true(again >= 3); /* norm + relu before a convolution: forward, its weights' gradient, the mask */
    if (kept > 3 * outputs)
        fail_msg("%zu bytes a sample are kept, convolutions make %zu", kept, outputs);
    close_lab(&l);
    /* A fetched one is kept, of course. */
    bed b;
    open_bed(&b);
    ls_tensor *x = ls_op_input(b.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 4)), *y = ls_op_relu(ls_op_exp(x));
    plan = plan_of(&b, (ls_tensor *[]){ y, sum(y) }, 2, 8);
    for (int g = 0; g < plan->group_count; g++)
        assert_int_equal(plan->groups[g].kept, plan->groups[g].root->op == LS_OP_relu);
    close_bed(&b);
}

/* ---- Plans that are kept ---- */

static void plans_are_kept_and_used_again(void **state)
{
    (void)state;
    lab l;
    ls_executor *full = NULL, *last = NULL, *again = NULL;
    open_lab(&l, NETWORK_CNN, &(ls_context_options){ .threads = 2 });
    ls_runs *runs = NULL;
    assert_int_equal(ls_runs_of(l.n.graph, &runs), LS_OK);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(network_step(&l.n, 32, 0), LS_OK);
        assert_int_equal(network_step(&l.n, 7, 0), LS_OK); /* the short last batch */
        assert_int_equal(runs->count, 2);
        assert_int_equal(network_executor(&l.n, 32, &again), LS_OK);
        full = epoch ? full : again;
        assert_ptr_equal(again, full);
        assert_int_equal(network_executor(&l.n, 7, &again), LS_OK);
        last = epoch ? last : again;
        assert_ptr_equal(again, last);
    }
    assert_int_equal(ls_executor_plan(full)->batch, 32);
    assert_int_equal(ls_executor_plan(last)->batch, 7);
    /* Other sizes push the one out that was used longest ago. */
    for (int64_t batch = 8; batch < 8 + LS_CACHED_PLANS - 1; batch++) {
        assert_int_equal(network_executor(&l.n, 32, &again), LS_OK);
        assert_ptr_equal(again, full);
        assert_int_equal(network_step(&l.n, batch, 0), LS_OK);
    }
    assert_int_equal(runs->count, LS_CACHED_PLANS);
    ls_tensor *fetches[] = { l.n.loss, l.n.step };
    assert_true(ls_runs_has(runs, NULL, fetches, 2, 32));
    assert_false(ls_runs_has(runs, NULL, fetches, 2, 7));
    /* Other lanes are other plans. */
    assert_int_equal(ls_graph_set_lanes(l.n.graph, 3), LS_OK);
    assert_int_equal(runs->count, 0);
    assert_int_equal(network_step(&l.n, 32, 0), LS_OK);
    assert_int_equal(step_plan(&l, 32)->lanes, 3);
    close_lab(&l);
}

static void plans_end_with_their_scope(void **state)
{
    (void)state;
    bed b;
    open_bed(&b);
    ls_tensor *x = ls_op_input(b.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)), *y = sum(ls_op_exp(x));
    const float data[6] = { 0, 0, 0, 0, 0, 0 };
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(2, 3), data) };
    assert_int_equal(ls_eval(b.graph, &feed, 1, &y, 1), LS_OK);
    assert_int_equal(b.runs->count, 1);
    for (int i = 0; i < 100; i++)
        LS_SCOPE(b.graph)
        {
            double value = 0;
            ls_tensor *inside = ls_op_scale(y, i);
            assert_int_equal(ls_eval(b.graph, &feed, 1, &inside, 1), LS_OK);
            assert_int_equal(ls_read_scalar(inside, &value), LS_OK);
            assert_true(value == 6.0 * i);
            assert_int_equal(b.runs->count, 2);
        }
    assert_int_equal(b.runs->count, 1);
    assert_true(ls_runs_has(b.runs, NULL, &y, 1, 2));
    assert_int_equal(ls_eval(b.graph, &feed, 1, &y, 1), LS_OK);
    close_bed(&b);
}

static void lanes_by_default(void **state)
{
    (void)state;
    assert_int_equal(ls_plan_lanes(24.5e9, 25.6e6, 32), 8); /* ResNet-50 */
    assert_int_equal(ls_plan_lanes(24.5e9, 25.6e6, 256), 32);
    assert_int_equal(ls_plan_lanes(24.5e9, 25.6e6, 4), 4);
    assert_int_equal(ls_plan_lanes(97e6, 5.06e6, 128),
                     4); /* the wide CNN: its weights are swept as rarely as possible */
    assert_int_equal(ls_plan_lanes(0, 1e6, 1024), 32);
    for (int64_t batch = 0; batch < 4; batch++)
        assert_int_equal(ls_plan_lanes(1e6, 1e3, batch), batch ? batch : 1);
    lab l;
    assert_int_equal(ls_context_open(&(ls_context_options){ .threads = 1 }, &l.ctx), LS_OK);
    assert_int_equal(network_create_sized(l.ctx, NETWORK_CNN, 28, &l.n), LS_OK); /* the first seed's own size */
    assert_int_equal(step_plan(&l, 256)->lanes, 32);
    assert_int_equal(step_plan(&l, 10)->lanes, 4);
    assert_int_equal(step_plan(&l, 4096)->lanes, 32);
    assert_int_equal(step_plan(&l, 1)->lanes, 1);
    close_lab(&l);
}

/* Every lane has one worker, and none would be done sooner if another one had one of the slowest's
 * lanes. */
static void lanes_follow_weights(void **state)
{
    (void)state;
    static const uint32_t weights[][4] = {
        { 1, 1, 1, 1 }, { 1000, 1, 1000, 500 }, { 1, 3, 2, 7 }, { 4000000000u, 1, 1, 1 }
    };
    int first[5];
    for (size_t k = 0; k < sizeof(weights) / sizeof(*weights); k++)
        for (int lanes = 1; lanes < 70; lanes++) {
            double longest = 0, shortest = INFINITY;
            ls_share_lanes(weights[k], 4, lanes, first);
            assert_int_equal(first[0], 0);
            assert_int_equal(first[4], lanes);
            for (int w = 0; w < 4; w++) {
                int own = first[w + 1] - first[w];
                assert_true(own >= 0);
                longest = fmax(longest, own / (double)weights[k][w]);
                shortest = fmin(shortest, (own + 1) / (double)weights[k][w]);
            }
            assert_true(longest <= shortest);
        }
    ls_share_lanes((const uint32_t[]){ 3, 1 }, 2, 4, first);
    assert_int_equal(first[1], 3);
    ls_share_lanes(NULL, 3, 7, first);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 4);
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
#ifdef COUNTS_ALLOCATIONS
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (int cut = 0; cut < 2; cut++) {
            lab l;
            network_batch data;
            ls_executor *executor = NULL;
            open_lab(&l, kind, &(ls_context_options){ .threads = 2, .cpu_devices = 1 + cut });
            assert_int_equal(network_set(&l.n, &(ls_run_settings){ .plan = { .lanes = 5, .cut_everywhere = cut } }),
                             LS_OK);
            assert_int_equal(network_batch_make(&l.n, 33, 0, &data), LS_OK);
            atomic_store(&allocations, 0);
            ls_tensor *fetches[] = { l.n.loss, l.n.step };
            assert_int_equal(ls_eval(l.n.graph, data.feeds, data.feed_count, fetches, 2), LS_OK);
            assert_true(atomic_load(&allocations) > 100); /* they are counted */
            assert_int_equal(network_executor(&l.n, 33, &executor), LS_OK);
            atomic_store(&allocations, 0);
            for (uint64_t i = 1; i < 5; i++)
                assert_int_equal(ls_executor_run(executor, 11, i), LS_OK);
            if (atomic_load(&allocations) != 0)
                fail_msg("%s: %ld allocations in four runs", network_name(kind), atomic_load(&allocations));
            network_batch_free(&data);
            close_lab(&l);
        }
#else
    SKIP("sanitizers allocate by themselves");
#endif
}

/* ---- Batch norm ---- */

/* y = norm(x) with gamma 1 and beta 0, against f64. */
static void check_norm(int lanes, int64_t n, int64_t size, double mean, double deviation, double tolerance)
{
    enum { CHANNELS = 19 };
    bed b;
    open_bed(&b);
    size_t pixels = (size_t)(n * size * size), count = pixels * CHANNELS, got;
    float *data = numbers(count, 31);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(mean + deviation * sqrt(3) * data[i]); /* uniform with that deviation */
    ls_tensor *x = ls_op_input(b.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, size, size, CHANNELS));
    ls_tensor *y = ls_op_batch_norm(x, .training = true);
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(n, size, size, CHANNELS), data) };
    b.runs->settings.plan.lanes = lanes;
    if (ls_eval(b.graph, &feed, 1, &y, 1) != LS_OK)
        fail_msg("%s", ls_last_error());
    float *values = read_values(y, &got);
    assert_int_equal(got, count);
    for (size_t c = 0; c < CHANNELS; c++) {
        double total = 0, squares = 0;
        for (size_t p = 0; p < pixels; p++)
            total += data[p * CHANNELS + c];
        for (size_t p = 0; p < pixels; p++)
            squares += pow(data[p * CHANNELS + c] - total / (double)pixels, 2);
        double inverse = 1 / sqrt(squares / (double)pixels + 1e-3);
        for (size_t p = 0; p < pixels; p++) {
            double wanted = (data[p * CHANNELS + c] - total / (double)pixels) * inverse;
            if (!(fabs(values[p * CHANNELS + c] - wanted) <= tolerance))
                fail_msg("%d lanes, mean %g: %g instead of %g", lanes, mean, (double)values[p * CHANNELS + c], wanted);
        }
    }
    free(values);
    free(data);
    close_bed(&b);
}

static void batch_norm_sees_the_whole_batch(void **state)
{
    (void)state;
    static const int lane_counts[] = { 1, 2, 3, 8, 32, 40 };
    for (size_t v = 0; v < LENGTH(lane_counts); v++) {
        check_norm(lane_counts[v], 33, 5, 0, 1, 1e-6);
        check_norm(lane_counts[v], 33, 5, 1000, 1, 1e-4); /* the mean, as float32, is 3e-5 off at worst */
        check_norm(lane_counts[v], 2, 28, 1000, 1, 1e-4);
    }
}

/* Moving statistics after a step, and logits: 8 lanes and one. */
static void batch_norm_over_lanes_is_that_of_the_batch(void **state)
{
    (void)state;
    float *statistics[NETWORK_VARIABLES] = { NULL };
    for (int lanes = 1; lanes <= 8; lanes += 7) {
        lab l;
        ls_tensor *moving[NETWORK_VARIABLES];
        size_t count = 0;
        open_lab(&l, NETWORK_RESIDUAL, &(ls_context_options){ .threads = 2 });
        assert_int_equal(ls_graph_set_lanes(l.n.graph, lanes), LS_OK);
        assert_int_equal(network_step(&l.n, 33, 0), LS_OK);
        for (size_t i = 0; i < l.n.extra_count; i++)
            moving[count++] = l.n.extra[i]->attr.variable.variable->node;
        assert_int_equal(count, 2 * NORMS);
        double far = compare(moving, count, statistics);
        if (!(far <= 4))
            fail_msg("moving statistics of 8 lanes are %g units in the last place from those of one", far);
        close_lab(&l);
    }
    for (size_t i = 0; i < NETWORK_VARIABLES; i++)
        free(statistics[i]);
}

/* ---- Time: a run reads every variable as it was at the run's start ---- */

static void updates_see_variables_as_they_were(void **state)
{
    (void)state;
    bed b;
    open_bed(&b);
    const float one[4] = { 1, 2, 3, 4 }, two[4] = { 10, 20, 30, 40 };
    ls_tensor *v = ls_op_variable(b.graph, "v", LS_F32, LS_SHAPE(4), .data = one);
    ls_tensor *w = ls_op_variable(b.graph, "w", LS_F32, LS_SHAPE(4), .data = two);
    ls_tensor *u = ls_op_variable(b.graph, "u", LS_F32, LS_SHAPE(4), .data = one);
    ls_tensor *rate = ls_op_scalar(b.graph, LS_F32, 1);
    /* Each is the other's gradient: in whatever order the updates are done, both gradients are the
     * old values. */
    ls_tensor *fetches[] = { ls_op_apply(v, w, LS_APPLY_SGD, .learning_rate = rate),
                             ls_op_apply(w, v, LS_APPLY_SGD, .learning_rate = rate), ls_op_reshape(v, LS_SHAPE(2, 2)),
                             ls_op_assign(u, w), ls_op_reshape(u, LS_SHAPE(2, 2)) };
    if (ls_eval(b.graph, NULL, 0, fetches, 5) != LS_OK)
        fail_msg("%s", ls_last_error());
    float now[4], seen[4], next[4], old[4], before[4];
    assert_int_equal(ls_read(v, now, sizeof(now)), LS_OK);
    assert_int_equal(ls_read(w, next, sizeof(next)), LS_OK);
    assert_int_equal(ls_read(fetches[2], seen, sizeof(seen)), LS_OK);
    assert_int_equal(ls_read(u, old, sizeof(old)), LS_OK);
    assert_int_equal(ls_read(fetches[4], before, sizeof(before)), LS_OK);
    for (int i = 0; i < 4; i++) {
        if (now[i] != one[i] - two[i] || next[i] != two[i] - one[i])
            fail_msg("v %g, w %g: an update saw the other's new value", (double)now[i], (double)next[i]);
        if (seen[i] != one[i] || before[i] != one[i])
            fail_msg("a reshaped variable is %g and %g, but was %g when the run began", (double)seen[i],
                     (double)before[i], (double)one[i]);
        if (old[i] != two[i])
            fail_msg("an assignment saw %g, the variable was %g", (double)old[i], (double)two[i]);
    }
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_needed_nodes_are_planned),
        cmocka_unit_test(patterns_are_found),
        cmocka_unit_test(patterns_end_where_a_value_is_needed),
        cmocka_unit_test(fused_groups_agree_with_their_chains),
        cmocka_unit_test(networks_fused_and_unfused_agree),
        cmocka_unit_test(any_lanes_and_micro_batches_agree),
        cmocka_unit_test(a_norm_has_one_join_each_way),
        cmocka_unit_test(levels_and_segments_are_in_order),
        cmocka_unit_test(cheap_values_are_computed_again),
        cmocka_unit_test(plans_are_kept_and_used_again),
        cmocka_unit_test(plans_end_with_their_scope),
        cmocka_unit_test(lanes_by_default),
        cmocka_unit_test(lanes_follow_weights),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(batch_norm_sees_the_whole_batch),
        cmocka_unit_test(batch_norm_over_lanes_is_that_of_the_batch),
        cmocka_unit_test(updates_see_variables_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
