/* Fits a line with one dense layer, mean squared error and SGD, built from ops to show every part
 * of a training step. */
#include <lockstep.h>

/* The nodes of a model. The graph owns them. */
typedef struct line {
    ls_graph *graph;
    ls_tensor *x, *y; /* inputs: [batch, 1] */
    ls_tensor *rate;  /* an input, so that it can change between steps */
    ls_tensor *slope, *shift;
    ls_tensor *loss;
    ls_tensor *steps[2]; /* the updates of slope and shift */
    size_t forward;      /* nodes up to the loss */
} line;

/* y = slope x + shift. Nothing is computed here: each call adds a node to the graph. */
static void build(ls_context *ctx, line *m)
{
    LS_CHECK(ls_graph_create(ctx, &m->graph));
    m->x = ls_op_input(m->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 1));
    m->y = ls_op_input(m->graph, "y", LS_F32, LS_SHAPE(LS_BATCH, 1));
    m->rate = ls_op_input(m->graph, "rate", LS_F32, LS_SCALAR);
    m->slope = ls_op_variable(m->graph, "slope", LS_F32, LS_SHAPE(1, 1));
    m->shift = ls_op_variable(m->graph, "shift", LS_F32, LS_SHAPE(1));

    ls_tensor *found = ls_named(ls_op_add(ls_op_matmul(m->x, m->slope), m->shift), "found");
    ls_tensor *each = ls_op_mean_squared_error(m->y, found); /* a loss for every sample */
    m->loss = ls_named(ls_op_reduce_mean(each, LS_ALL_AXES, false), "loss");
    m->forward = ls_graph_node_count(m->graph);

    /* The gradients are nodes like any other, and so are the updates. */
    ls_tensor *variables[] = { m->slope, m->shift }, *gradients[2];
    LS_CHECK(ls_gradients(m->loss, variables, 2, gradients));
    for (int i = 0; i < 2; i++)
        m->steps[i] = ls_op_apply(variables[i], gradients[i], .rule = LS_APPLY_SGD, .learning_rate = m->rate);
    LS_CHECK(ls_graph_status(m->graph)); /* reports the first error of the calls above, such as a wrong shape */
}

/* Runs one step; returns the loss before it. A run reads variables as they were at its start. */
static double train_step(const line *m, const float *x, const float *y, int64_t count, float rate)
{
    ls_feed feeds[] = { { m->x, ls_array_of(LS_F32, LS_SHAPE(count, 1), x) },
                        { m->y, ls_array_of(LS_F32, LS_SHAPE(count, 1), y) },
                        { m->rate, ls_array_of(LS_F32, LS_SCALAR, &rate) } };
    double loss;
    LS_CHECK(ls_eval(m->graph, feeds, 3, (ls_tensor *[]){ m->loss, m->steps[0], m->steps[1] }, 3));
    LS_CHECK(ls_read_scalar(m->loss, &loss));
    return loss;
}

/* Trains `epochs` epochs in batches; prints the first, the last, and every `tell`th epoch. */
static void fit(const line *m, const float *x, const float *y, int count, int batch, int epochs, float rate, int tell)
{
    for (int epoch = 1; epoch <= epochs; epoch++) {
        double sum = 0;
        for (int at = 0; at < count; at += batch) {
            int size = count - at < batch ? count - at : batch;
            sum += train_step(m, x + at, y + at, size, rate) * size;
        }
        if (epoch == 1 || epoch == epochs || epoch % tell == 0)
            printf("  epoch %3d  loss %.6f\n", epoch, sum / count);
    }
    double slope, shift;
    LS_CHECK(ls_read_scalar(m->slope, &slope));
    LS_CHECK(ls_read_scalar(m->shift, &shift));
    printf("  found    y = %.3f x + %.3f\n", slope, shift);
}

int main(void)
{
    ls_context *ctx;
    line m;
    LS_CHECK(ls_context_open(NULL, &ctx));

    printf("One point, (1, 1), a hundred times; batches of 10, 2 epochs, rate 0.01\n");
    float ones[100];
    for (int i = 0; i < 100; i++)
        ones[i] = 1;
    build(ctx, &m);
    printf("  graph    found = x slope + shift;  loss = mean of (found - y)^2\n");
    printf("           %zu nodes forward, %zu with gradients and updates\n", m.forward, ls_graph_node_count(m.graph));
    fit(&m, ones, ones, 100, 10, 2, 0.01F, 1);
    printf("  Both numbers took the same steps: one point cannot tell a slope from a shift.\n");
    ls_graph_destroy(m.graph);

    printf("\nEight points of y = 2 x + 1, nothing else known; batches of 4, 80 epochs, rate 0.1\n");
    float x[8], y[8];
    for (int i = 0; i < 8; i++) {
        x[i] = (float)(i * 3 % 8) / 4 - 1; /* in mixed order, from -1 to 0.75 */
        y[i] = 2 * x[i] + 1;
    }
    build(ctx, &m);
    fit(&m, x, y, 8, 4, 80, 0.1F, 20);
    ls_graph_destroy(m.graph);
    ls_context_close(ctx);
    return 0;
}
