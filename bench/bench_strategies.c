/* Compares strategies on two devices of one core each: bench_strategies [ROW [ROUNDS]]. In each
 * round every strategy trains a few steps of the same network; the best round of each counts. The
 * table has the speedup over one device. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "models.h"

typedef struct row {
    const char *name, *model;
    int64_t batch;
    int steps;
} row;

static const row rows[] = {
    { "cnn-4096", "cnn", 4096, 4 },
    { "resnet50", "resnet50", 32, 1 },
    { "resnet50-by-lane", "resnet50-by-lane", 32, 1 },
};

static const struct {
    const char *name;
    ls_strategy strategy;
} strategies[] = {
    { "one-device", { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:0" } },
    { "mirrored, sharded", { .kind = LS_STRATEGY_MIRRORED } },
    { "mirrored, hierarchical copy", { .kind = LS_STRATEGY_MIRRORED, .all_reduce = LS_ALL_REDUCE_HIERARCHICAL_COPY } },
    { "mirrored, to one", { .kind = LS_STRATEGY_MIRRORED, .all_reduce = LS_ALL_REDUCE_TO_ONE } },
    { "data-parallel", { .kind = LS_STRATEGY_DATA_PARALLEL } },
    { "model-parallel", { .kind = LS_STRATEGY_MODEL_PARALLEL } },
    { "pipeline", { .kind = LS_STRATEGY_PIPELINE } },
    { "pipeline, fill-drain", { .kind = LS_STRATEGY_PIPELINE, .order = LS_FILL_DRAIN } },
};
#define COUNT (sizeof(strategies) / sizeof(strategies[0]))

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *noise(size_t bytes, unsigned modulus)
{
    uint8_t *data = malloc(bytes);
    for (size_t i = 0; data && i < bytes; i++)
        data[i] = (uint8_t)((i * 2654435761u >> 13) % modulus);
    return data;
}

static double time_steps(const ls_bench_model *m, const row *r, const void *images, const void *labels, int steps)
{
    const ls_feed feeds[] = {
        { m->images, ls_array_of(LS_U8, LS_SHAPE(r->batch, m->height, m->width, m->channels), images) },
        { m->labels, ls_array_of(LS_U8, LS_SHAPE(r->batch), labels) },
    };
    double start = now();
    for (int i = 0; i < steps; i++)
        LS_CHECK(ls_eval(m->graph, feeds, 2, (ls_tensor *[]){ m->step, m->loss }, 2));
    return (now() - start) / steps;
}

static void measure(ls_context *ctx, const row *r, int rounds)
{
    ls_bench_model m;
    double best[COUNT];
    LS_CHECK(ls_bench_model_create(ctx, r->model, &m));
    void *images = noise((size_t)(r->batch * m.height * m.width * m.channels), 256),
         *labels = noise((size_t)r->batch, 10);
    for (int round = -1; round < rounds; round++) /* the first makes the plans */
        for (size_t i = 0; i < COUNT; i++) {
            LS_CHECK(ls_graph_set_strategy(m.graph, strategies[i].strategy));
            double seconds = time_steps(&m, r, images, labels, round < 0 ? 1 : r->steps);
            best[i] = round <= 0 || seconds < best[i] ? seconds : best[i];
        }
    printf("%s, batch %lld:\n", r->name, (long long)r->batch);
    for (size_t i = 0; i < COUNT; i++)
        printf("  %-30s %9.2f ms a step  %5.2f\n", strategies[i].name, best[i] * 1e3, best[0] / best[i]);
    free(images);
    free(labels);
    ls_bench_model_destroy(&m);
}

int main(int argc, char **argv)
{
    ls_context *ctx;
    int rounds = argc > 2 ? atoi(argv[2]) : 3;
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = 2, .threads = 2 }, &ctx));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (argc < 2 || strcmp(argv[1], "all") == 0 || strcmp(argv[1], rows[i].name) == 0)
            measure(ctx, &rows[i], rounds);
    ls_context_close(ctx);
    return 0;
}
