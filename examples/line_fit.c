/* One dense layer in four ways: fit on a dataset, fit on arrays, a learning rate that follows from the batch size, and
 * a loop by hand. All on devices that share the cores, as many as the argument says.
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
    LS_CHECK(ls_fit(model, dataset, .epochs = 2));
    LS_CHECK(ls_evaluate(model, dataset, &results));
    printf("after 2 epochs of the dataset: loss %g of %lld samples\n", results.values[0], (long long)results.samples);

    for (int i = 0; i < 100; i++)
        ones[i] = 1;
    ls_array inputs = ls_array_of(LS_F32, LS_SHAPE(100, 1), ones), targets = inputs;
    LS_CHECK(ls_fit_arrays(model, inputs, targets, .epochs = 2, .batch_size = 10));
    LS_CHECK(ls_evaluate(model, dataset, &results));
    printf("after 2 epochs of the arrays: loss %g\n", results.values[0]);
    ls_dataset_destroy(dataset);
    ls_model_destroy(model);
}

static void fit_by_batch_size(ls_context *ctx, int64_t global_batch_size)
{
    const int64_t batch_sizes[] = { 5, 10, 20 };
    const double rates[] = { 0.1, 0.15, 0.175 };
    ls_schedule schedule = ls_rates_by_batch_size(batch_sizes, rates, 3);
    ls_model *model = make_model(ctx);
    ls_dataset *dataset = make_data(100, global_batch_size);
    double rate;
    LS_CHECK(ls_schedule_rate(&schedule, 0, global_batch_size, &rate));
    printf("batches of %lld: learning rate %g\n", (long long)global_batch_size, rate);
    LS_CHECK(ls_compile(model, .optimizer = ls_sgd(.schedule = schedule), .loss = ls_mean_squared_error()));
    LS_CHECK(ls_fit(model, dataset, .epochs = 2));
    ls_dataset_destroy(dataset);
    ls_model_destroy(model);
}

/* A training step as nodes, run on every batch. */
static void loop_by_hand(ls_context *ctx, int64_t global_batch_size)
{
    ls_model *model = make_model(ctx);
    ls_dataset *dataset = make_data(1000, global_batch_size);
    ls_graph *graph = ls_model_graph(model);
    ls_tensor *features = ls_op_input(graph, "features", LS_F32, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *labels = ls_op_input(graph, "labels", LS_F32, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *predictions;
    ls_trace trace;
    LS_CHECK(ls_model_trace(model, &features, true, &predictions, &trace));
    ls_tensor *per_example = ls_loss_per_sample(ls_binary_crossentropy(.from_logits = true), labels, predictions);
    ls_tensor *loss = ls_op_reduce_mean(per_example, LS_ALL_AXES, false);
    ls_tensor *fetches[] = { loss, ls_minimize(ls_sgd(), loss, "train_step") };

    ls_iterator *iterator;
    const ls_element *batch;
    double value = 0;
    LS_CHECK(ls_iterator_create(dataset, 0, &iterator));
    for (int step = 0;; step++) {
        LS_CHECK(ls_iterator_next(iterator, &batch));
        if (!batch)
            break;
        ls_feed feeds[] = { { features, batch->component[0] }, { labels, batch->component[1] } };
        LS_CHECK(ls_eval(graph, feeds, 2, fetches, 2));
        LS_CHECK(ls_read_scalar(loss, &value));
        if (step % 25 == 0)
            printf("step %3d: binary cross-entropy %g\n", step + 1, value);
    }
    printf("at the end: %g\n", value);
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(dataset);
    ls_model_destroy(model);
}

int main(int argc, char **argv)
{
    int devices = argc > 1 ? atoi(argv[1]) : 2;
    int64_t batch_size_per_replica = 5;
    ls_context *ctx;
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = devices }, &ctx));
    fit_dataset_and_arrays(ctx);
    fit_by_batch_size(ctx, batch_size_per_replica * devices);
    loop_by_hand(ctx, batch_size_per_replica * devices);
    ls_context_close(ctx);
    return 0;
}
