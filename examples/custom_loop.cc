// A model that is a function, and a training loop by hand, in C++20: what custom_loop.c has in C.
//     custom_loop [EPOCHS [SAMPLES [BATCH_SIZE]]]
#include <lockstep.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

// The model: layers are made when they are first called, and found again by their names.
static void call(ls_call *c, ls_tensor *const *inputs, ls_tensor **outputs, void *)
{
    ls_tensor *x = ls_layer_call(c, ls_conv2d(16, 3, { .name = "conv1", .activation = LS_RELU }), inputs[0]);
    x = ls_layer_call(c, ls_max_pool2d({ .name = "pool1" }), x);
    x = ls_layer_call(c, ls_conv2d(32, 3, { .name = "conv2", .activation = LS_RELU }), x);
    x = ls_layer_call(c, ls_max_pool2d({ .name = "pool2" }), x);
    x = ls_layer_call(c, ls_flatten({ .name = "flatten" }), x);
    outputs[0] = ls_layer_call(c, ls_dense(10, { .name = "dense", .activation = LS_SOFTMAX }), x);
}

// A step is nodes: inputs to feed, and what to fetch.
struct step {
    ls_tensor *images, *labels, *predictions, *loss;
    ls_metric_state accuracy;
    std::vector<ls_tensor *> fetches;
};

static step make_step(ls_model *cnn, bool training)
{
    step s;
    ls_graph *graph = ls_model_graph(cnn);
    ls_trace trace = {}; // this model has no moving statistics, and no regularisers
    s.images = ls_op_input(graph, nullptr, LS_U8, LS_SHAPE(LS_BATCH, 28, 28, 1));
    s.labels = ls_op_input(graph, nullptr, LS_U8, LS_SHAPE(LS_BATCH));
    ls_tensor *x = ls_op_scale(ls_op_cast(s.images, LS_F32), 1 / 255.0);
    LS_CHECK(ls_model_trace(cnn, &x, training, &s.predictions, &trace));
    std::free(trace.updates);
    ls_tensor *each = ls_loss_per_sample(ls_sparse_categorical_crossentropy(), s.labels, s.predictions);
    s.loss = ls_op_reduce_mean(each, LS_ALL_AXES, false);
    s.accuracy =
        ls_metric_state_of(ls_metric_of(LS_METRIC_SPARSE_CATEGORICAL_ACCURACY), s.labels, s.predictions, nullptr);
    s.fetches = { s.loss, s.accuracy.update };
    return s;
}

static step make_train_step(ls_model *cnn, ls_optimizer optimizer)
{
    step s = make_step(cnn, true);
    std::vector<ls_tensor *> variables, gradients(ls_model_variable_count(cnn)); // all of them trainable, here
    for (size_t i = 0; i < gradients.size(); i++)
        variables.push_back(ls_model_variable(cnn, i));
    LS_CHECK(ls_gradients(s.loss, variables.data(), variables.size(), gradients.data()));
    s.fetches.push_back(ls_apply_gradients(optimizer, gradients.data(), variables.data(), variables.size(), nullptr));
    return s;
}

// Runs the step on every batch of one pass; returns the mean of the losses.
static double run_pass(ls_graph *graph, const step &s, ls_dataset *data, uint64_t epoch)
{
    ls_iterator *batches;
    const ls_element *batch;
    double total = 0, loss;
    int count = 0;
    LS_CHECK(ls_metric_state_reset(&s.accuracy));
    LS_CHECK(ls_iterator_create(data, epoch, &batches));
    for (;;) {
        LS_CHECK(ls_iterator_next(batches, &batch));
        if (!batch)
            break;
        const ls_feed feeds[] = { { s.images, batch->component[0] }, { s.labels, batch->component[1] } };
        LS_CHECK(ls_eval(graph, feeds, 2, s.fetches.data(), s.fetches.size()));
        LS_CHECK(ls_read_scalar(s.loss, &loss));
        total += loss;
        count++;
    }
    ls_iterator_destroy(batches);
    return total / count;
}

static double accuracy(const step &s)
{
    double result;
    LS_CHECK(ls_metric_state_result(&s.accuracy, &result));
    return result * 100;
}

int main(int argc, char **argv)
{
    const int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 10, samples = argc > 2 ? std::atoll(argv[2]) : -1;
    const int64_t batch_size = argc > 3 ? std::atoll(argv[3]) : 2 * 4096;
    ls_context *ctx;
    ls_dataset *train, *test;
    ls_model *cnn;

    LS_CHECK(ls_context_open({ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, &test));
    train = ls_batch(ls_shuffle(ls_take(train, samples), 60000, 1), batch_size, false);
    test = ls_batch(test, batch_size, false);

    const ls_layer input = ls_input(28, 28, 1);
    LS_CHECK(ls_custom(ctx, "cnn", &input, 1, 1, call, nullptr, &cnn));
    ls_graph *graph = ls_model_graph(cnn);
    const step train_step = make_train_step(cnn, ls_adam({ .learning_rate = 1e-3 })), test_step = make_step(cnn, false);
    LS_CHECK(ls_graph_status(graph));

    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        const double loss = run_pass(graph, train_step, train, static_cast<uint64_t>(epoch));
        const double test_loss = run_pass(graph, test_step, test, 0);
        std::printf("epoch %lld: loss %g, accuracy %g %%, test loss %g, test accuracy %g %%\n",
                    static_cast<long long>(epoch) + 1, loss, accuracy(train_step), test_loss, accuracy(test_step));
    }

    ls_model_destroy(cnn);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_context_close(ctx);
    return 0;
}
