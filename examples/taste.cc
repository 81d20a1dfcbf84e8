// The example of README.md in C++20: options are in braces, in the order of their struct.
//     taste [EPOCHS [SAMPLES]]
#include <lockstep.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv)
{
    const int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 5, samples = argc > 2 ? std::atoll(argv[2]) : -1;
    ls_context *ctx;
    ls_dataset *train, *test;
    ls_model *cnn;
    LS_CHECK(ls_context_open(nullptr, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, &test));
    train = ls_take(train, samples);
    LS_CHECK(ls_sequential(ctx, "cnn", &cnn, ls_input(28, 28, 1), ls_conv2d(16, 3, { .activation = LS_RELU }),
                           ls_max_pool2d(2), ls_conv2d(32, 3, { .activation = LS_RELU }), ls_max_pool2d(2),
                           ls_flatten(), ls_dense(10, { .activation = LS_SOFTMAX })));
    LS_CHECK(ls_compile(cnn, { .optimizer = ls_adam(),
                               .loss = ls_sparse_categorical_crossentropy(),
                               .metrics = ls_metrics(ls_accuracy()) }));
    LS_CHECK(ls_fit(cnn, train, { .epochs = epochs, .batch_size = 256, .validation = test }));
    char hex[65];
    LS_CHECK(ls_model_weights_sha256(cnn, hex));
    std::printf("weights %s\n", hex);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_model_destroy(cnn);
    ls_context_close(ctx);
    return 0;
}
