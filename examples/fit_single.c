/* Classifies images of clothes with a small convolutional network: a Sequential model, compile,
 * fit.
 *     fit_single [EPOCHS [SAMPLES]] */
#include <lockstep.h>

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 10, samples = argc > 2 ? atoll(argv[2]) : -1;
    ls_context *ctx;
    ls_dataset *train, *test;
    ls_model *cnn;

    LS_CHECK(ls_context_open(NULL, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, &test));
    train = ls_take(train, samples); /* -1: all of them */

    LS_CHECK(ls_sequential(
        ctx, "cnn", &cnn, ls_input(28, 28, 1), /* pixels from 0 to 1: fit divides images of bytes by 255 */
        ls_conv2d(16, 3, .activation = LS_RELU), ls_max_pool2d(), ls_conv2d(32, 3, .activation = LS_RELU),
        ls_max_pool2d(), ls_flatten(), ls_dense(10, .activation = LS_SOFTMAX)));
    LS_CHECK(ls_compile(cnn, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                        .metrics = ls_metrics(ls_accuracy())));
    printf("Network built!\n");

    LS_CHECK(ls_fit(cnn, train, .epochs = epochs, .batch_size = 4096, .validation = test));

    ls_model_destroy(cnn);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_context_close(ctx);
    return 0;
}
