/* A strategy on chosen devices, data that they share, and a train step whose loss is reduced over
 * them. Also prints the loss of the first step on each device.
 *     fashion_loop [EPOCHS [SAMPLES]] */
#include <lockstep.h>

#define BUFFER_SIZE 60000
#define BATCH_SIZE  512 /* over all devices */

/* 2. Data: batches of the global size, which the devices share. */
static ls_distributed *input_fn(ls_context *ctx, int64_t samples)
{
    ls_dataset *train;
    ls_distributed *passes;
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &train, NULL));
    train = ls_batch(ls_shuffle(ls_take(train, samples), BUFFER_SIZE, 1), BATCH_SIZE, false);
    LS_CHECK(ls_distribute_dataset(train, &passes));
    ls_dataset_destroy(train);
    return passes;
}

/* 3. The step: computes the loss of every image divided by the batch size, and applies gradients.
 * Returns the losses of the images, and their sum over all devices. */
static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    ls_model *model = user;
    ls_tensor *images = ls_op_scale(ls_op_cast(inputs[0], LS_F32), 1 / 255.0), *labels = inputs[1];
    ls_tensor *predictions = ls_model_apply(model, images, true);
    ls_tensor *losses =
        ls_loss_per_sample(ls_sparse_categorical_crossentropy(.from_logits = true), labels, predictions);
    ls_tensor *per_example_losses = ls_op_scale(losses, 1.0 / BATCH_SIZE);
    ls_minimize(ls_adam(), ls_op_reduce_sum(per_example_losses, LS_ALL_AXES, false), "train_step");
    outputs[0] = per_example_losses;
    outputs[1] = ls_strategy_reduce(LS_REDUCE_SUM, per_example_losses, 0);
}

static void show_replicas(ls_loop_step *step)
{
    char *text;
    LS_CHECK(ls_format_replicas(step, 0, &text));
    printf("losses of the first step: %s\n", text);
    free(text);
}

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 3, samples = argc > 2 ? atoll(argv[2]) : -1;
    ls_context *ctx;
    ls_model *model;
    ls_loop_step *step;
    bool shown = false;
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = 2 }, &ctx));
    LS_CHECK(ls_sequential(ctx, "fashion", &model, ls_input(28, 28, 1), ls_conv2d(32, 3, .activation = LS_RELU),
                           ls_max_pool2d(), ls_conv2d(64, 3, .activation = LS_RELU), ls_max_pool2d(), ls_flatten(),
                           ls_dense(64, .activation = LS_RELU), ls_dense(10)));

    /* 1. The devices, by name (default: all). */
    LS_CHECK(ls_graph_set_strategy(ls_model_graph(model), ls_mirrored(.devices = "/cpu:0,/cpu:1")));
    ls_distributed *data = input_fn(ctx, samples);
    LS_CHECK(ls_loop_step_create(ls_model_graph(model), train_step, model, 2, &step));

    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        const ls_element *batch;
        double sum_loss, total = 0;
        int64_t batches = 0, seen = 0;
        for (;; batches++) {
            ls_tensor *outputs[2];
            LS_CHECK(ls_distributed_next(data, &batch));
            if (!batch)
                break;
            LS_CHECK(ls_strategy_run(step, batch, outputs));
            LS_CHECK(ls_read_scalar(outputs[1], &sum_loss));
            if (!shown)
                show_replicas(step);
            shown = true;
            total += sum_loss;
            seen += batch->component[0].shape.dims[0];
        }
        printf("epoch %lld: loss %.4f over %lld samples\n", (long long)epoch + 1, total / (double)batches,
               (long long)seen);
    }

    ls_loop_step_destroy(step);
    ls_distributed_destroy(data);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return 0;
}
