/* Measures how fast graphs are built, differentiated and run: the time must be small compared with
 * a step. Goal: builds and differentiates 10,000 small nodes in 50 ms, in linear time. */
#include <lockstep.h>

#include <malloc.h>

#include "base/clock.h"

#define GOAL_MS 50.0
#define TRIES   7

static double now_ms(void)
{
    return ls_clock_now() * 1e3;
}

typedef struct model {
    ls_tensor *loss;
    ls_tensor **variables;
    size_t variable_count;
} model;

/* The deepest graph: a chain of `nodes` ops. */
static model deep(ls_graph *graph, size_t nodes, ls_tensor **variables)
{
    float one = 1;
    variables[0] = ls_op_variable(graph, "v", LS_F32, LS_SCALAR, .data = &one);
    ls_tensor *x = variables[0];
    for (size_t i = 0; i + 1 < nodes; i++)
        x = i % 2 ? ls_op_tanh(x) : ls_op_add(x, variables[0]);
    return (model){ x, variables, 1 };
}

/* The widest graph: variables with an op each, added in a balanced tree. */
static model wide(ls_graph *graph, size_t nodes, ls_tensor **variables)
{
    size_t count = nodes / 3;
    ls_tensor **level = malloc(count * sizeof(*level));
    if (!level)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        variables[i] = ls_op_variable(graph, NULL, LS_F32, LS_SHAPE(4));
        level[i] = ls_op_square(variables[i]);
    }
    for (size_t left = count; left > 1; left = (left + 1) / 2)
        for (size_t i = 0; i < left; i += 2)
            level[i / 2] = i + 1 < left ? ls_op_add(level[i], level[i + 1]) : level[i];
    model m = { level[0], variables, count };
    free(level);
    return m;
}

typedef struct times {
    double first; /* building and differentiating, with new memory of the system */
    double build, gradients, eval, step;
    size_t built, all;
} times;

/* Returns the best of several tries; each builds a new graph. */
static times measure(ls_context *ctx, model (*build)(ls_graph *, size_t, ls_tensor **), size_t nodes)
{
    times best = { .build = 1e9, .gradients = 1e9, .eval = 1e9, .step = 1e9 };
    ls_tensor **variables = malloc(nodes * sizeof(*variables)), **out = malloc(nodes * sizeof(*out));
    if (!variables || !out)
        exit(1);
    for (int i = 0; i < TRIES; i++) {
        ls_graph *graph;
        LS_CHECK(ls_graph_create(ctx, &graph));
        double start = now_ms();
        model m = build(graph, nodes, variables);
        double built = now_ms();
        best.built = ls_graph_node_count(graph);
        LS_CHECK(ls_gradients(m.loss, m.variables, m.variable_count, out));
        double differentiated = now_ms();
        best.all = ls_graph_node_count(graph);
        best.first = i == 0 ? differentiated - start : best.first;
        LS_CHECK(ls_graph_status(graph));
        ls_tensor *rate = ls_op_scalar(graph, LS_F32, 1e-3);
        for (size_t k = 0; k < m.variable_count; k++)
            out[k] = ls_op_apply(variables[k], out[k], .rule = LS_APPLY_SGD, .learning_rate = rate);
        double before = now_ms();
        LS_CHECK(ls_eval(graph, NULL, 0, &m.loss, 1));
        double evaluated = now_ms();
        LS_CHECK(ls_eval(graph, NULL, 0, out, m.variable_count));
        double stepped = now_ms();
        best.build = built - start < best.build ? built - start : best.build;
        best.gradients = differentiated - built < best.gradients ? differentiated - built : best.gradients;
        best.eval = evaluated - before < best.eval ? evaluated - before : best.eval;
        best.step = stepped - evaluated < best.step ? stepped - evaluated : best.step;
        ls_graph_destroy(graph);
    }
    free(variables);
    free(out);
    return best;
}

static double row(ls_context *ctx, const char *name, model (*build)(ls_graph *, size_t, ls_tensor **), size_t nodes)
{
    times t = measure(ctx, build, nodes);
    double total = t.build + t.gradients, goal = GOAL_MS * (double)nodes / 10000;
    printf("%-6s %8zu %8zu %9.2f %9.2f %9.2f  %-6s of %3.0f ms %9.2f %8.0f %8.0f\n", name, t.built, t.all, t.build,
           t.gradients, total, total <= goal ? "within" : "over", goal, t.first, t.eval * 1e6 / (double)t.built,
           t.step * 1e6 / (double)t.all);
    return total;
}

/* Eager: makes a node and reads it, inside scopes so that memory does not grow. */
static void eager(ls_context *ctx)
{
    enum { STEPS = 100000 };
    ls_graph *graph;
    float one = 1;
    double value, start = now_ms();
    LS_CHECK(ls_graph_create(ctx, &graph));
    ls_tensor *v = ls_op_variable(graph, "v", LS_F32, LS_SCALAR, .data = &one);
    for (int i = 0; i < STEPS; i++) {
        LS_SCOPE(graph)
        {
            ls_tensor *x = ls_op_tanh(v);
            LS_CHECK(ls_read_scalar(x, &value));
            x = ls_op_square(x);
            LS_CHECK(ls_read_scalar(x, &value));
        }
    }
    double ms = now_ms() - start;
    printf("\neager: %.2f million ops per second (%.0f ns each: made, run, read)\n", 2.0 * STEPS / ms / 1e3,
           ms * 1e6 / (2.0 * STEPS));
    ls_graph_destroy(graph);
}

int main(void)
{
    ls_context *ctx;
    LS_CHECK(ls_context_open(NULL, &ctx));
    /* Keep freed memory, or the tries would measure how fast the system allocates pages. */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    printf("         nodes    nodes        ms        ms        ms                       ms      ns a node\n");
    printf("graph  forward      all     build gradients     total           goal     first     eval     step\n");
    double small[2], large[2];
    small[0] = row(ctx, "deep", deep, 10000);
    large[0] = row(ctx, "deep", deep, 20000);
    small[1] = row(ctx, "wide", wide, 10000);
    large[1] = row(ctx, "wide", wide, 20000);
    printf("\ntwice the nodes: deep %.1f times the time, wide %.1f times (2: linear)\n", large[0] / small[0],
           large[1] / small[1]);
    eager(ctx);
    ls_context_close(ctx);
    return 0;
}
