/* `make demo`: trains a small convolutional network on images of clothes with all cores, then shows
 * that the same training on one device and on two gives the same weights, bit for bit.
 *     demo [EPOCHS [SAMPLES]] */
#include <lockstep.h>

#include <string.h>

#define BATCH_SIZE 256
#define SHORT_RUN  40 /* steps */

static ls_model *make_cnn(ls_context *ctx)
{
    ls_model *cnn;
    LS_CHECK(ls_sequential(ctx, "cnn", &cnn, ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU),
                           ls_max_pool2d(), ls_conv2d(32, 3, .activation = LS_RELU), ls_max_pool2d(), ls_flatten(),
                           ls_dense(10, .activation = LS_SOFTMAX)));
    LS_CHECK(ls_compile(cnn, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                        .metrics = ls_metrics(ls_accuracy())));
    return cnn;
}

static void train_on_all_cores(ls_dataset *train, ls_dataset *test, int64_t epochs)
{
    ls_context *ctx;
    char *summary;
    ls_results results;
    LS_CHECK(ls_context_open(NULL, &ctx));
    ls_model *cnn = make_cnn(ctx);
    LS_CHECK(ls_model_summary(cnn, &summary));
    printf("%s\n", summary);
    LS_CHECK(ls_fit(cnn, train, .epochs = epochs, .batch_size = BATCH_SIZE));
    LS_CHECK(ls_evaluate(cnn, test, &results, .batch_size = 1000));
    printf("Test accuracy: %.2f %% of %lld images that were not in the training data\n", 100 * results.values[1],
           (long long)results.samples);
    free(summary);
    ls_model_destroy(cnn);
    ls_context_close(ctx);
}

/* Returns the hash of the weights after a short run on this many devices, which share the cores. */
static void train_on_devices(ls_dataset *train, int devices, char hash[65])
{
    ls_context *ctx;
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = devices }, &ctx));
    ls_model *cnn = make_cnn(ctx);
    LS_CHECK(ls_fit(cnn, train, .strategy = ls_mirrored(), .batch_size = BATCH_SIZE, .max_steps = SHORT_RUN,
                    .verbose = LS_VERBOSE_SILENT));
    LS_CHECK(ls_model_weights_sha256(cnn, hash));
    ls_model_destroy(cnn);
    ls_context_close(ctx);
}

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 5, samples = argc > 2 ? atoll(argv[2]) : -1;
    ls_dataset *train, *test;
    char one[65], two[65];
    LS_CHECK(ls_load_data(NULL, "fashion-mnist", &train, &test));
    train = ls_take(train, samples);
    train_on_all_cores(train, test, epochs);

    printf("\nThe same %d steps on one device and on two; SHA-256 of the weights:\n", SHORT_RUN);
    train_on_devices(train, 1, one);
    printf("  1 device   %s\n", one);
    train_on_devices(train, 2, two);
    printf("  2 devices  %s\n", two);
    bool same = strcmp(one, two) == 0;
    printf(same ? "The same bits.\n" : "Different bits: this is a bug.\n");

    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    return same ? 0 : 1;
}
