/* A model that is a C function, and a custom training loop on several devices: a train step that
 * computes and applies gradients, a test step, and metrics that the steps update and each epoch
 * resets. The steps are written for the whole batch; the number of devices that share it changes
 * neither the code nor the bits.
 *     custom_loop [EPOCHS [SAMPLES [BATCH_SIZE_EACH_DEVICE [DEVICES]]]] */
#include <lockstep.h>

#define MOST_VARIABLES 16

/* The first call creates the layers; later calls find them by their names. */
static void call(ls_call *c, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    ls_tensor *x = ls_layer_call(c, ls_conv2d(16, 3, .activation = LS_RELU, .name = "conv1"), inputs[0]);
    x = ls_layer_call(c, ls_max_pool2d(.name = "pool1"), x);
    x = ls_layer_call(c, ls_conv2d(32, 3, .activation = LS_RELU, .name = "conv2"), x);
    x = ls_layer_call(c, ls_max_pool2d(.name = "pool2"), x);
    x = ls_layer_call(c, ls_flatten(.name = "flatten"), x);
    outputs[0] = ls_layer_call(c, ls_dense(10, .activation = LS_SOFTMAX, .name = "dense"), x);
}

/* ---- Steps: functions that are traced once; the trace runs on every batch ---- */

typedef struct trainee {
    ls_model *cnn;
    int64_t batch_size; /* over all devices */
    ls_metric_state train_accuracy, test_loss, test_accuracy;
} trainee;

static ls_tensor *predict(const trainee *t, ls_tensor *images, bool training)
{
    return ls_model_apply(t->cnn, ls_op_scale(ls_op_cast(images, LS_F32), 1 / 255.0), training);
}

static ls_tensor *per_example_loss(ls_tensor *labels, ls_tensor *predictions)
{
    return ls_loss_per_sample(ls_sparse_categorical_crossentropy(), labels, predictions);
}

static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const trainee *t = user;
    ls_tensor *labels = inputs[1], *predictions = predict(t, inputs[0], true);
    ls_tensor *loss = ls_average_loss(per_example_loss(labels, predictions), t->batch_size);

    size_t count;
    ls_tensor *gradients[MOST_VARIABLES], *const *variables = ls_model_trainable_variables(t->cnn, &count);
    LS_CHECK(ls_gradients(loss, variables, count, gradients));
    ls_apply_gradients(ls_adam(), gradients, variables, count, NULL);

    ls_metric_state_update(&t->train_accuracy, labels, predictions, NULL);
    outputs[0] = ls_strategy_reduce(LS_REDUCE_SUM, loss, LS_NO_AXIS);
}

static void test_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const trainee *t = user;
    ls_tensor *labels = inputs[1], *predictions = predict(t, inputs[0], false);
    ls_metric_state_update(&t->test_loss, NULL, per_example_loss(labels, predictions), NULL);
    ls_metric_state_update(&t->test_accuracy, labels, predictions, NULL);
    (void)outputs; /* the test step has none */
}

/* Runs the step on every batch of one pass; returns the mean loss, if the step has one. */
static double run_pass(ls_loop_step *step, ls_distributed *data, bool has_loss)
{
    const ls_element *batch;
    ls_tensor *loss;
    double total_loss = 0, value = 0;
    int num_batches = 0;
    for (;; num_batches++) {
        LS_CHECK(ls_distributed_next(data, &batch));
        if (!batch)
            break;
        LS_CHECK(ls_strategy_run(step, batch, has_loss ? &loss : NULL));
        if (has_loss)
            LS_CHECK(ls_read_scalar(loss, &value));
        total_loss += value;
    }
    return total_loss / num_batches;
}

static double result(const ls_metric_state *metric)
{
    double value;
    LS_CHECK(ls_metric_state_result(metric, &value));
    LS_CHECK(ls_metric_state_reset(metric)); /* for the next epoch */
    return value;
}

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 10, samples = argc > 2 ? atoll(argv[2]) : -1;
    int64_t batch_size_each_device = argc > 3 ? atoll(argv[3]) : 4096;
    int devices = argc > 4 ? atoi(argv[4]) : 2, replicas;
    ls_strategy strategy = ls_mirrored();
    ls_context *ctx;
    ls_dataset *train, *test;
    ls_distributed *train_passes, *test_passes;
    ls_loop_step *distributed_train_step, *distributed_test_step;
    trainee t;

    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = devices }, &ctx));
    LS_CHECK(ls_strategy_replicas(ctx, strategy, &replicas));
    t.batch_size = batch_size_each_device * replicas;

    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, &test));
    train = ls_batch(ls_shuffle(ls_take(train, samples), 60000, 1), t.batch_size, false);
    test = ls_batch(test, t.batch_size, false);
    LS_CHECK(ls_distribute_dataset(train, &train_passes));
    LS_CHECK(ls_distribute_dataset(test, &test_passes));

    LS_CHECK(ls_custom(ctx, "cnn", (ls_layer[]){ ls_input(28, 28, 1) }, 1, 1, call, NULL, &t.cnn));
    ls_graph *graph = ls_model_graph(t.cnn);
    LS_CHECK(ls_graph_set_strategy(graph, strategy));
    t.test_loss = ls_metric_state_make(graph, ls_metric_of(LS_METRIC_MEAN));
    t.train_accuracy = ls_metric_state_make(graph, ls_metric_of(LS_METRIC_SPARSE_CATEGORICAL_ACCURACY));
    t.test_accuracy = ls_metric_state_make(graph, ls_metric_of(LS_METRIC_SPARSE_CATEGORICAL_ACCURACY));
    LS_CHECK(ls_loop_step_create(graph, train_step, &t, 1, &distributed_train_step));
    LS_CHECK(ls_loop_step_create(graph, test_step, &t, 0, &distributed_test_step));
    printf("Network built!\n");

    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        double train_loss = run_pass(distributed_train_step, train_passes, true);
        run_pass(distributed_test_step, test_passes, false);
        printf("에포크 %lld, 손실: %g, 정확도: %g, 테스트 손실: %g, 테스트 정확도: %g\n", (long long)epoch + 1,
               train_loss, result(&t.train_accuracy) * 100, result(&t.test_loss), result(&t.test_accuracy) * 100);
    }
    LS_CHECK(ls_strategy_check(graph, NULL)); /* all devices have equal copies of the variables */

    ls_loop_step_destroy(distributed_train_step);
    ls_loop_step_destroy(distributed_test_step);
    ls_distributed_destroy(train_passes);
    ls_distributed_destroy(test_passes);
    ls_model_destroy(t.cnn);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_context_close(ctx);
    return 0;
}
