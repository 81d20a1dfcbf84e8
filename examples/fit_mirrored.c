/* fit_single on several devices. Three things differ: the context creates the devices, the batch is
 * larger by their number, and ls_fit gets a strategy; the model is the same. Here the devices are
 * shares of the CPU's cores.
 *     fit_mirrored [EPOCHS [SAMPLES [DEVICES]]] */
#include <lockstep.h>

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 10, samples = argc > 2 ? atoll(argv[2]) : -1;
    int devices = argc > 3 ? atoi(argv[3]) : 2;
    int64_t batch_size_each_device = 4096;
    ls_context *ctx;
    ls_dataset *train, *test;
    ls_model *cnn;
    char hash[65];

    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = devices }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, &test));
    train = ls_take(train, samples);

    LS_CHECK(ls_sequential(ctx, "cnn", &cnn, ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU),
                           ls_max_pool2d(), ls_conv2d(32, 3, .activation = LS_RELU), ls_max_pool2d(), ls_flatten(),
                           ls_dense(10, .activation = LS_SOFTMAX)));
    LS_CHECK(ls_compile(cnn, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                        .metrics = ls_metrics(ls_accuracy())));
    printf("Network built!\n");

    LS_CHECK(ls_fit(cnn, train, .strategy = ls_mirrored(), .epochs = epochs,
                    .batch_size = batch_size_each_device * devices, .validation = test));
    LS_CHECK(ls_model_weights_sha256(cnn, hash));
    printf("weights %s\n", hash); /* for a given batch size, the same on any number of devices */

    ls_model_destroy(cnn);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_context_close(ctx);
    return 0;
}
