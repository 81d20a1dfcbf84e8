/* Latency of one sample by a predictor (ls_model_share), beside peers_predict.py (predict.sh runs
 * both in turns):
 *     bench_predict ROW [RUNS [MODEL.json]]
 * Rows: mnist-cnn and resnet50 (built in), mobilenetv2 (224x224, as Keras's JSON). One thread, the
 * caller's. Prints the best, the median and the 99th percentile in microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lockstep.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* A float array of batch 1 with numbers from 0 to 1. */
static ls_array one(ls_shape shape)
{
    int64_t count = 1;
    shape.dims[0] = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dims[i];
    float *data = malloc((size_t)count * sizeof(*data));
    if (!data)
        exit(1);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(i * 7919 % 1000) / 1000;
    return ls_array_of(LS_F32, shape, data);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_predict mnist-cnn|resnet50|mobilenetv2 [RUNS [MODEL.json]]\n");
        return 2;
    }
    int runs = argc > 2 ? atoi(argv[2]) : 100;
    double *seconds = runs > 0 ? calloc((size_t)runs, sizeof(*seconds)) : NULL;
    ls_context *ctx;
    ls_model *model;
    ls_predictor *predictor;
    if (!seconds)
        return 1;
    LS_CHECK(ls_context_open(NULL, &ctx));
    if (argc > 3)
        LS_CHECK(ls_model_from_keras_json(ctx, argv[3], &model));
    else
        LS_CHECK(ls_model_builtin(ctx, argv[1], &model));
    LS_CHECK(ls_model_share(model, &predictor));
    ls_array x = one(ls_model_input_shape(model, 0)), y = one(ls_model_output_shape(model, 0));
    for (int i = -3; i < runs; i++) { /* three to warm up */
        double start = ls_clock_now();
        LS_CHECK(ls_predictor_run(predictor, &x, 1, &y, 1));
        if (i >= 0)
            seconds[i] = ls_clock_now() - start;
    }
    qsort(seconds, (size_t)runs, sizeof(*seconds), by_size);
    printf("lockstep %s: best %.0f us, median %.0f us, 99 %% %.0f us\n", argv[1], 1e6 * seconds[0],
           1e6 * seconds[runs / 2], 1e6 * seconds[runs * 99 / 100]);
    ls_predictor_destroy(predictor);
    ls_model_destroy(model);
    ls_context_close(ctx);
    free(x.data);
    free(y.data);
    free(seconds);
    return 0;
}
