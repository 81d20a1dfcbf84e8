/* Replaces tf.distribute.MultiWorkerMirroredStrategy: several processes, listed in TF_CONFIG, train
 * one model together. With INDEX, the example is one of three workers on this machine and sets
 * TF_CONFIG itself:
 *     multi_worker [INDEX [PORT]] */
#include <lockstep.h>

static void set_tf_config(int index, int port)
{
    char text[256];
    snprintf(text, sizeof text,
             "{ \"cluster\": { \"worker\": [\"localhost:%d\", \"localhost:%d\", \"localhost:%d\"] },"
             "  \"task\": { \"type\": \"worker\", \"index\": %d } }",
             port, port + 1, port + 2, index);
    setenv("TF_CONFIG", text, 1);
}

int main(int argc, char **argv)
{
    const float one[] = { 1 };
    ls_array point = ls_array_of(LS_F32, LS_SHAPE(1), one);
    ls_context *ctx;
    ls_model *model;
    ls_results results;
    char hash[65];
    if (argc > 1)
        set_tf_config(atoi(argv[1]), argc > 2 ? atoi(argv[2]) : 12345);

    LS_CHECK(ls_context_create(NULL, &ctx));
    LS_CHECK(ls_cluster_join(ctx, NULL)); /* as TF_CONFIG says; without it, alone */
    LS_CHECK(ls_sequential(ctx, "sequential", &model, ls_input(1), ls_dense(1)));
    LS_CHECK(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error()));

    ls_dataset *dataset = ls_batch(ls_repeat(ls_from_tensors(point, point), 100), 10, false);
    LS_CHECK(ls_fit(model, dataset, .epochs = 2, .strategy = ls_multi_worker()));
    LS_CHECK(ls_evaluate(model, dataset, &results));
    LS_CHECK(ls_model_weights_sha256(model, hash));
    printf("worker %d of %d: loss %g, weights %s\n", ls_cluster_rank(ctx), ls_cluster_size(ctx), results.values[0],
           hash);

    ls_dataset_destroy(dataset);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return 0;
}
