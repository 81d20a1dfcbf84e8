/* One dense layer, trained in four ways: ls_fit on a dataset, ls_fit on arrays, a learning rate
 * that depends on the batch size, and a custom loop. All are mirrored over DEVICES devices.
 *     line_fit [DEVICES] */
#include <lockstep.h>

static ls_model *make_model(ls_context *ctx)
{
    ls_model *model;
    LS_CHECK(ls_sequential(ctx, "sequential", &model, ls_input(1), ls_dense(1)));
    return model;
}

/* `count` times the point (1, 1), in batches. */
static ls_dataset *make_data(int64_t count, int64_t batch_size)
{
    const float one[] = { 1 };
    ls_array point = ls_array_of(LS_F32, LS_SHAPE(1), one);
    return ls_batch(ls_repeat(ls_from_tensors(point, point), count), batch_size, false);
}

static void fit_dataset_and_arrays(ls_context *ctx)
{
    ls_model *model = make_model(ctx);
    ls_dataset *dataset = make_data(100, 10);
    ls_results results;
    float ones[100];
    LS_CHECK(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error()));
    LS_CHECK(ls_fit(model, dataset, .epochs = 2, .strategy = ls_mirrored()));
    LS_CHECK(ls_evaluate(model, dataset, &results));
    printf("after 2 epochs of the dataset: loss %g of %lld samples\n", results.values[0], (long long)results.samples);

    for (int i = 0; i < 100; i++)
        ones[i] = 1;
    ls_array inputs = ls_array_of(LS_F32, LS_SHAPE(100, 1), ones), targets = inputs;
    LS_CHECK(ls_fit_arrays(model, inputs, targets, .epochs = 2, .batch_size = 10, .strategy = ls_mirrored()));
    LS_CHECK(ls_evaluate(model, dataset, &results));
    printf("after 2 epochs of the arrays: loss %g\n", results.values[0]);
    ls_dataset_destroy(dataset);
    ls_model_destroy(model);
}

/* The optimizer has a table of learning rates by global batch size. */
static ls_schedule learning_rates_by_batch_size(void)
{
    const int64_t batch_sizes[] = { 5, 10, 20 };
    const double rates[] = { 0.1, 0.15, 0.175 };
    return ls_rates_by_batch_size(batch_sizes, rates, 3);
}

static void fit_by_batch_size(ls_context *ctx, int64_t global_batch_size)
{
    ls_model *model = make_model(ctx);
    ls_dataset *dataset = make_data(100, global_batch_size);
    LS_CHECK(ls_compile(model, .optimizer = ls_sgd(.schedule = learning_rates_by_batch_size()),
                        .loss = ls_mean_squared_error()));
    LS_CHECK(ls_fit(model, dataset, .epochs = 2, .strategy = ls_mirrored()));
    ls_dataset_destroy(dataset);
    ls_model_destroy(model);
}

/* ---- Custom loop ---- */

typedef struct trainee {
    ls_model *model;
    int64_t global_batch_size;
    double learning_rate;
} trainee;

static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const trainee *t = user;
    ls_tensor *features = inputs[0], *labels = inputs[1];
    ls_tensor *predictions = ls_model_apply(t->model, features, true);
    ls_tensor *per_example = ls_loss_per_sample(ls_binary_crossentropy(.from_logits = true), labels, predictions);
    ls_tensor *loss = ls_average_loss(per_example, t->global_batch_size);
    ls_minimize(ls_sgd(t->learning_rate), loss, NULL);
    outputs[0] = ls_strategy_reduce(LS_REDUCE_SUM, loss, LS_NO_AXIS);
}

static double run(ls_loop_step *step, const ls_element *batch)
{
    ls_tensor *loss;
    double value;
    LS_CHECK(ls_strategy_run(step, batch, &loss));
    LS_CHECK(ls_read_scalar(loss, &value));
    return value;
}

/* One pass over the data, and ten more steps. */
static void loop_by_hand(ls_context *ctx, int64_t global_batch_size)
{
    trainee t = { .model = make_model(ctx), .global_batch_size = global_batch_size };
    ls_schedule table = learning_rates_by_batch_size();
    ls_dataset *dataset = make_data(1000, global_batch_size);
    ls_distributed *dist_dataset;
    ls_loop_step *distributed_train_step;
    const ls_element *batch;
    double loss = 0;
    LS_CHECK(ls_schedule_rate(&table, 0, global_batch_size, &t.learning_rate));
    printf("batches of %lld: learning rate %g\n", (long long)global_batch_size, t.learning_rate);
    LS_CHECK(ls_graph_set_strategy(ls_model_graph(t.model), ls_mirrored()));
    LS_CHECK(ls_distribute_dataset(dataset, &dist_dataset));
    LS_CHECK(ls_loop_step_create(ls_model_graph(t.model), train_step, &t, 1, &distributed_train_step));

    for (int step = 0;; step++) {
        LS_CHECK(ls_distributed_next(dist_dataset, &batch));
        if (!batch)
            break;
        loss = run(distributed_train_step, batch);
        if (step % 25 == 0)
            printf("step %3d: binary cross-entropy %g\n", step + 1, loss);
    }
    for (int step = 0; step < 10; step++) {
        LS_CHECK(ls_distributed_next(dist_dataset, &batch));
        loss = run(distributed_train_step, batch);
    }
    printf("at the end: %g\n", loss);
    ls_loop_step_destroy(distributed_train_step);
    ls_distributed_destroy(dist_dataset);
    ls_dataset_destroy(dataset);
    ls_model_destroy(t.model);
}

int main(int argc, char **argv)
{
    int devices = argc > 1 ? atoi(argv[1]) : 2, replicas;
    int64_t batch_size_per_replica = 5;
    ls_context *ctx;
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = devices }, &ctx));
    LS_CHECK(ls_strategy_replicas(ctx, ls_mirrored(), &replicas));
    fit_dataset_and_arrays(ctx);
    fit_by_batch_size(ctx, batch_size_per_replica * replicas);
    loop_by_hand(ctx, batch_size_per_replica * replicas);
    ls_context_close(ctx);
    return 0;
}
