/* The networks of the benchmarks, built from ops. */
#ifndef LS_BENCH_MODELS_H
#define LS_BENCH_MODELS_H

#include <lockstep.h>

/* A network's training step. Feed images (uint8) and labels (uint8), fetch `step`. */
typedef struct ls_bench_model {
    ls_graph *graph;
    ls_tensor *images, *labels;
    ls_tensor *loss, *step; /* step: all updates */
    int64_t height, width, channels;
    ls_tensor *variables[256];
    size_t variable_count;
    ls_tensor *extra[256]; /* updates of moving statistics */
    size_t extra_count;
    ls_norm_statistics statistics; /* of its batch norms */
} ls_bench_model;

/* name: "cnn" (mnist-cnn, Adam), "wide" (mnist-cnn-wide, RMSProp), "resnet50" (SGD with momentum)
 * or "resnet50-by-lane" (the same with batch norm per lane). */
ls_status ls_bench_model_create(ls_context *ctx, const char *name, ls_bench_model *out);
void ls_bench_model_destroy(ls_bench_model *model);

#endif
