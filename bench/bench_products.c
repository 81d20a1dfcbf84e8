/* Matrix products of rank 3 and 4 and their gradients, compared with the 1x1 convolution that
 * computes the same as a dense layer. Times are CPU times of all threads, the best of several
 * runs. */
#include <lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define TRIES 9
#define BATCH 32

static double cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-3;
}

/* A product of two operands. `bias` adds one row to the result and applies ReLU, as a layer
 * does. */
typedef struct row {
    const char *name;
    ls_shape a, b; /* a first size of LS_BATCH: fed, one for each sample */
    ls_matmul_op options;
    bool convolution, bias;
    double mflop; /* forward, for the whole batch */
} row;

static ls_tensor *leaf(ls_graph *graph, ls_shape shape, ls_feed *feeds, size_t *feed_count)
{
    if (shape.rank == 0 || shape.dims[0] != LS_BATCH)
        return ls_op_variable(graph, NULL, LS_F32, shape, .initializer = { .kind = LS_INIT_NORMAL });
    ls_tensor *x = ls_op_input(graph, NULL, LS_F32, shape);
    size_t count = 1;
    shape.dims[0] = BATCH;
    for (int i = 0; i < shape.rank; i++)
        count *= (size_t)shape.dims[i];
    float *data = malloc(count * sizeof(*data));
    if (!data)
        exit(1);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(i * 2654435761U % 2048) / 1024 - 1;
    feeds[(*feed_count)++] = (ls_feed){ x, ls_array_of(LS_F32, shape, data) };
    return x;
}

static double best_of(ls_graph *graph, const ls_feed *feeds, size_t feed_count, ls_tensor **fetches, size_t count)
{
    double best = 1e9;
    for (int i = 0; i < TRIES; i++) {
        double start = cpu_ms();
        LS_CHECK(ls_eval(graph, feeds, feed_count, fetches, count));
        double ms = cpu_ms() - start;
        best = ms < best ? ms : best;
    }
    return best;
}

static void measure(ls_context *ctx, const row *r)
{
    ls_graph *graph;
    ls_feed feeds[3];
    size_t feed_count = 0, count = 2;
    LS_CHECK(ls_graph_create(ctx, &graph));
    ls_tensor *in[3] = { leaf(graph, r->a, feeds, &feed_count), leaf(graph, r->b, feeds, &feed_count) }, *out[3];
    ls_matmul_op options = r->options;
    options.b = in[1];
    ls_tensor *y = r->convolution ? ls_op_conv2d(in[0], in[1]) : ls_op_matmul_with(in[0], options);
    if (r->bias) {
        in[count++] = leaf(graph, LS_SHAPE(r->b.dims[r->b.rank - 1]), feeds, &feed_count);
        y = ls_op_relu(ls_op_add(y, in[2]));
    }
    ls_tensor *cotangent = leaf(graph, ls_tensor_shape(y), feeds, &feed_count);
    LS_CHECK(ls_gradients_with(y, in, count, (ls_gradients_options){ .cotangent = cotangent }, out));
    double forward = best_of(graph, feeds, feed_count, &y, 1), all = best_of(graph, feeds, feed_count, out, count);
    double products = r->bias ? 3 : 2; /* ReLU's gradient needs the forward product, too */
    printf("%-34s %10.2f %8.1f %14.2f %8.1f\n", r->name, forward, r->mflop / forward, all, products * r->mflop / all);
    for (size_t i = 0; i < feed_count; i++)
        free(feeds[i].value.data);
    ls_graph_destroy(graph);
}

int main(void)
{
    const row rows[] = {
        { "dense 128 to 512 on (32,64,128)", LS_SHAPE(LS_BATCH, 64, 128), LS_SHAPE(128, 512), .bias = true,
          .mflop = 268 },
        { "  as a 1x1 convolution", LS_SHAPE(LS_BATCH, 64, 1, 128), LS_SHAPE(1, 1, 128, 512), .bias = true,
          .convolution = true, .mflop = 268 },
        { "dense 768 to 768 on (32,64,768)", LS_SHAPE(LS_BATCH, 64, 768), LS_SHAPE(768, 768), .bias = true,
          .mflop = 2416 },
        { "  as a 1x1 convolution", LS_SHAPE(LS_BATCH, 64, 1, 768), LS_SHAPE(1, 1, 768, 768), .bias = true,
          .convolution = true, .mflop = 2416 },
        { "scores (32,6,128,64) a b^T",
          LS_SHAPE(LS_BATCH, 6, 128, 64),
          LS_SHAPE(LS_BATCH, 6, 128, 64),
          { .transpose_b = true },
          .mflop = 403 },
        { "values (32,6,128,128) a b", LS_SHAPE(LS_BATCH, 6, 128, 128), LS_SHAPE(LS_BATCH, 6, 128, 64), .mflop = 403 },
        { "one b for 6 heads (32,6,128,64)", LS_SHAPE(LS_BATCH, 6, 128, 64), LS_SHAPE(6, 64, 64), .mflop = 201 },
        { "one a for all (128,128)", LS_SHAPE(128, 128), LS_SHAPE(LS_BATCH, 128, 64), .mflop = 67 },
        { "whole (32,64,128) (128,512)", LS_SHAPE(32, 64, 128), LS_SHAPE(128, 512), .mflop = 268 },
        { "whole (32,64,64) a^T b", LS_SHAPE(32, 64, 64), LS_SHAPE(32, 64, 64), { .transpose_a = true }, .mflop = 17 },
    };
    ls_context *ctx;
    LS_CHECK(ls_context_open(NULL, &ctx));
    printf("%-34s %10s %8s %14s %8s\n", "", "forward ms", "GFLOPS", "gradients ms", "GFLOPS");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        measure(ctx, &rows[i]);
    ls_context_close(ctx);
    return 0;
}
