// custom_loop.c in C++20: a model that is a function, and a custom training loop on two devices.
//     custom_loop [EPOCHS [SAMPLES [BATCH_SIZE]]]
#include <lockstep.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

// The first call creates the layers; later calls find them by their names.
static void call(ls_call *c, ls_tensor *const *inputs, ls_tensor **outputs, void *)
{
    ls_tensor *x = ls_layer_call(c, ls_conv2d(16, 3, { .name = "conv1", .activation = LS_RELU }), inputs[0]);
    x = ls_layer_call(c, ls_max_pool2d({ .name = "pool1" }), x);
    x = ls_layer_call(c, ls_conv2d(32, 3, { .name = "conv2", .activation = LS_RELU }), x);
    x = ls_layer_call(c, ls_max_pool2d({ .name = "pool2" }), x);
    x = ls_layer_call(c, ls_flatten({ .name = "flatten" }), x);
    outputs[0] = ls_layer_call(c, ls_dense(10, { .name = "dense", .activation = LS_SOFTMAX }), x);
}

// ---- Steps: functions that are traced once; the trace runs on every batch ----

struct trainee {
    ls_model *cnn;
    ls_metric_state train_accuracy, test_accuracy;
};

static ls_tensor *predict(const trainee &t, ls_tensor *images, bool training)
{
    return ls_model_apply(t.cnn, ls_op_scale(ls_op_cast(images, LS_F32), 1 / 255.0), training);
}

static ls_tensor *mean_loss(ls_tensor *labels, ls_tensor *predictions)
{
    return ls_loss_value(ls_sparse_categorical_crossentropy(), labels, predictions, nullptr);
}

static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const trainee &t = *static_cast<trainee *>(user);
    ls_tensor *labels = inputs[1], *predictions = predict(t, inputs[0], true);
    outputs[0] = mean_loss(labels, predictions);

    size_t count;
    ls_tensor *const *variables = ls_model_trainable_variables(t.cnn, &count);
    std::vector<ls_tensor *> gradients(count);
    LS_CHECK(ls_gradients(outputs[0], variables, count, gradients.data()));
    ls_apply_gradients(ls_adam({ .learning_rate = 1e-3 }), gradients.data(), variables, count, nullptr);
    ls_metric_state_update(&t.train_accuracy, labels, predictions, nullptr);
}

static void test_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const trainee &t = *static_cast<trainee *>(user);
    ls_tensor *labels = inputs[1], *predictions = predict(t, inputs[0], false);
    outputs[0] = mean_loss(labels, predictions);
    ls_metric_state_update(&t.test_accuracy, labels, predictions, nullptr);
}

// Runs the step on every batch of one pass; returns the mean loss.
static double run_pass(ls_loop_step *step, ls_distributed *data)
{
    const ls_element *batch;
    ls_tensor *loss;
    double total = 0, value;
    int count = 0;
    for (;; count++) {
        LS_CHECK(ls_distributed_next(data, &batch));
        if (!batch)
            return total / count;
        LS_CHECK(ls_strategy_run(step, batch, &loss));
        LS_CHECK(ls_read_scalar(loss, &value));
        total += value;
    }
}

static double result(const ls_metric_state &metric)
{
    double value;
    LS_CHECK(ls_metric_state_result(&metric, &value));
    LS_CHECK(ls_metric_state_reset(&metric)); // for the next epoch
    return value * 100;
}

static ls_distributed *passes_of(ls_dataset *data)
{
    ls_distributed *passes;
    LS_CHECK(ls_distribute_dataset(data, &passes));
    ls_dataset_destroy(data);
    return passes;
}

int main(int argc, char **argv)
{
    const int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 10, samples = argc > 2 ? std::atoll(argv[2]) : -1;
    const int64_t batch_size = argc > 3 ? std::atoll(argv[3]) : 2 * 4096; // over both devices
    ls_context *ctx;
    ls_dataset *train, *test;
    ls_loop_step *training, *testing;
    trainee t;

    LS_CHECK(ls_context_open({ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, &test));
    ls_distributed *train_data = passes_of(ls_batch(ls_shuffle(ls_take(train, samples), 60000, 1), batch_size, false));
    ls_distributed *test_data = passes_of(ls_batch(test, batch_size, false));

    const ls_layer input = ls_input(28, 28, 1);
    LS_CHECK(ls_custom(ctx, "cnn", &input, 1, 1, call, nullptr, &t.cnn));
    ls_graph *graph = ls_model_graph(t.cnn);
    LS_CHECK(ls_graph_set_strategy(graph, ls_mirrored()));
    t.train_accuracy = ls_metric_state_make(graph, ls_accuracy());
    t.test_accuracy = ls_metric_state_make(graph, ls_accuracy());
    LS_CHECK(ls_loop_step_create(graph, train_step, &t, 1, &training));
    LS_CHECK(ls_loop_step_create(graph, test_step, &t, 1, &testing));

    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        const double loss = run_pass(training, train_data), test_loss = run_pass(testing, test_data);
        std::printf("epoch %lld: loss %g, accuracy %g %%, test loss %g, test accuracy %g %%\n",
                    static_cast<long long>(epoch) + 1, loss, result(t.train_accuracy), test_loss,
                    result(t.test_accuracy));
    }

    ls_loop_step_destroy(training);
    ls_loop_step_destroy(testing);
    ls_distributed_destroy(train_data);
    ls_distributed_destroy(test_data);
    ls_model_destroy(t.cnn);
    ls_context_close(ctx);
    return 0;
}
