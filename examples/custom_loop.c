/* A model that is a C function, and a training loop by hand: gradients, their application, metrics that are updated,
 * read and reset. The steps are written for the whole batch; that several devices share it shows nowhere.
 *     custom_loop [EPOCHS [SAMPLES [BATCH_SIZE]]] */
#include <lockstep.h>

#define MOST_VARIABLES 16

/* The model: layers are made when they are first called, and found again by their names. */
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

/* ---- Metrics: sums over samples, kept in a variable of the graph ---- */

typedef struct meter {
    ls_metric metric;
    ls_tensor *sums;
    ls_tensor *update_state; /* to be fetched with a step */
} meter;

static meter make_meter(ls_metric metric, ls_tensor *labels, ls_tensor *values)
{
    ls_tensor *more = ls_metric_sums(metric, labels, values, NULL);
    int64_t count = (int64_t)ls_metric_sums_count(&metric);
    ls_tensor *sums = ls_op_variable(ls_tensor_graph(values), NULL, LS_F64, LS_SHAPE(count), .trainable = LS_OFF);
    return (meter){ metric, sums, ls_op_assign_add(sums, more) };
}

static double result(const meter *m)
{
    double sums[512];
    LS_CHECK(ls_read(m->sums, sums, ls_metric_sums_count(&m->metric) * sizeof(double)));
    return ls_metric_result(&m->metric, sums);
}

static void reset_states(const meter *m)
{
    const double zeros[512] = { 0 };
    LS_CHECK(ls_variable_set(m->sums, zeros, ls_metric_sums_count(&m->metric) * sizeof(double)));
}

/* ---- Steps ---- */

/* A step is nodes: inputs to feed, and what to fetch. */
typedef struct step {
    ls_tensor *images, *labels;
    ls_tensor *loss;
    ls_tensor *fetches[3];
    size_t fetch_count;
} step;

static ls_tensor *predictions_of(ls_model *cnn, step *s, bool training)
{
    ls_graph *graph = ls_model_graph(cnn);
    ls_tensor *predictions;
    s->images = ls_op_input(graph, NULL, LS_U8, LS_SHAPE(LS_BATCH, 28, 28, 1));
    s->labels = ls_op_input(graph, NULL, LS_U8, LS_SHAPE(LS_BATCH));
    ls_tensor *x = ls_op_scale(ls_op_cast(s->images, LS_F32), 1 / 255.0);
    ls_trace trace = { .updates = NULL }; /* this model has no moving statistics, and no regularisers */
    LS_CHECK(ls_model_trace(cnn, &x, training, &predictions, &trace));
    free(trace.updates);
    return predictions;
}

static ls_tensor *per_example_loss(const step *s, ls_tensor *predictions)
{
    return ls_loss_per_sample(ls_sparse_categorical_crossentropy(), s->labels, predictions);
}

static step make_train_step(ls_model *cnn, ls_optimizer optimizer, meter *accuracy)
{
    step s;
    ls_tensor *variables[MOST_VARIABLES], *gradients[MOST_VARIABLES], *predictions = predictions_of(cnn, &s, true);
    size_t count = ls_model_variable_count(cnn); /* all of them trainable, here */
    s.loss = ls_op_reduce_mean(per_example_loss(&s, predictions), LS_ALL_AXES, false);
    for (size_t i = 0; i < count; i++)
        variables[i] = ls_model_variable(cnn, i);
    LS_CHECK(ls_gradients(s.loss, variables, count, gradients));
    *accuracy = make_meter(ls_metric_of(LS_METRIC_SPARSE_CATEGORICAL_ACCURACY), s.labels, predictions);
    s.fetches[0] = s.loss;
    s.fetches[1] = ls_apply_gradients(optimizer, gradients, variables, count, NULL);
    s.fetches[2] = accuracy->update_state;
    s.fetch_count = 3;
    return s;
}

static step make_test_step(ls_model *cnn, meter *loss, meter *accuracy)
{
    step s;
    ls_tensor *predictions = predictions_of(cnn, &s, false);
    *loss = make_meter(ls_metric_of(LS_METRIC_MEAN), NULL, per_example_loss(&s, predictions));
    *accuracy = make_meter(ls_metric_of(LS_METRIC_SPARSE_CATEGORICAL_ACCURACY), s.labels, predictions);
    s.loss = NULL;
    s.fetches[0] = loss->update_state;
    s.fetches[1] = accuracy->update_state;
    s.fetch_count = 2;
    return s;
}

/* Runs the step on every batch of one pass; returns the mean of the losses, where the step has one. */
static double run_pass(ls_graph *graph, const step *s, ls_dataset *data, uint64_t epoch)
{
    ls_iterator *batches;
    const ls_element *batch;
    double total_loss = 0, loss = 0;
    int num_batches = 0;
    LS_CHECK(ls_iterator_create(data, epoch, &batches));
    for (;;) {
        LS_CHECK(ls_iterator_next(batches, &batch));
        if (!batch)
            break;
        ls_feed feeds[] = { { s->images, batch->component[0] }, { s->labels, batch->component[1] } };
        LS_CHECK(ls_eval(graph, feeds, 2, s->fetches, s->fetch_count));
        if (s->loss)
            LS_CHECK(ls_read_scalar(s->loss, &loss));
        total_loss += loss;
        num_batches++;
    }
    ls_iterator_destroy(batches);
    return total_loss / num_batches;
}

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 10, samples = argc > 2 ? atoll(argv[2]) : -1;
    int64_t batch_size = argc > 3 ? atoll(argv[3]) : 2 * 4096;
    ls_context *ctx;
    ls_dataset *train, *test;
    ls_model *cnn;
    meter train_accuracy, test_loss, test_accuracy;

    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, &test));
    train = ls_batch(ls_shuffle(ls_take(train, samples), 60000, 1), batch_size, false);
    test = ls_batch(test, batch_size, false);

    LS_CHECK(ls_custom(ctx, "cnn", (ls_layer[]){ ls_input(28, 28, 1) }, 1, 1, call, NULL, &cnn));
    step train_step = make_train_step(cnn, ls_adam(), &train_accuracy);
    step test_step = make_test_step(cnn, &test_loss, &test_accuracy);
    LS_CHECK(ls_graph_status(ls_model_graph(cnn)));
    printf("Network built!\n");

    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        double train_loss = run_pass(ls_model_graph(cnn), &train_step, train, (uint64_t)epoch);
        run_pass(ls_model_graph(cnn), &test_step, test, 0);
        printf("에포크 %lld, 손실: %g, 정확도: %g, 테스트 손실: %g, 테스트 정확도: %g\n", (long long)epoch + 1,
               train_loss, result(&train_accuracy) * 100, result(&test_loss), result(&test_accuracy) * 100);
        reset_states(&test_loss);
        reset_states(&train_accuracy);
        reset_states(&test_accuracy);
    }

    ls_model_destroy(cnn);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_context_close(ctx);
    return 0;
}
