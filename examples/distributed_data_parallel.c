/* Replaces torch.multiprocessing.spawn, init_process_group, DistributedSampler and
 * DistributedDataParallel: ls_spawn starts the workers on this machine, and each trains as if it
 * were alone. A worker computes its part of every batch; the order of the samples and the weights
 * are the same as in one process.
 *     distributed_data_parallel [EPOCHS [SAMPLES [WORKERS]]] */
#include <lockstep.h>

typedef struct settings {
    int64_t epochs, samples;
} settings;

static ls_status main_worker(int rank, int workers, void *user)
{
    const settings *s = user;
    int64_t batch_size = 512; /* over all workers, whatever their number */
    ls_context *ctx;
    ls_dataset *train;
    ls_model *model;
    char hash[65];

    LS_CHECK(ls_context_open(NULL, &ctx)); /* the workers connect here */
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, NULL));
    train = ls_take(train, s->samples);
    LS_CHECK(ls_sequential(ctx, "cnn", &model, ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU),
                           ls_max_pool2d(), ls_conv2d(32, 3, .activation = LS_RELU), ls_max_pool2d(), ls_flatten(),
                           ls_dense(10, .activation = LS_SOFTMAX)));
    LS_CHECK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                        .metrics = ls_metrics(ls_accuracy())));
    LS_CHECK(ls_fit(model, train, .epochs = s->epochs, .batch_size = batch_size)); /* only worker 0 prints */

    LS_CHECK(ls_model_weights_sha256(model, hash));
    printf("worker %d of %d: weights %s\n", rank, workers, hash);
    ls_model_destroy(model);
    ls_dataset_destroy(train);
    ls_context_close(ctx);
    return LS_OK;
}

int main(int argc, char **argv)
{
    settings s = { .epochs = argc > 1 ? atoll(argv[1]) : 5, .samples = argc > 2 ? atoll(argv[2]) : -1 };
    LS_CHECK(ls_spawn(argc > 3 ? atoi(argv[3]) : 2, main_worker, &s));
    return 0;
}
