/* A GAN: two models, each with its optimizer and its file of weights, in one graph. One step makes
 * images from noise and trains both models; the number of devices changes neither the code nor the
 * bits.
 *     gan [EPOCHS [SAMPLES [DEVICES [FILE_OF_THE_GENERATOR]]]] */
#include <lockstep.h>

#define NOISE      32
#define BATCH_SIZE 200

typedef struct gan {
    ls_model *generator, *discriminator;
} gan;

/* The mean loss if the discriminator should say `answer` (0: made, 1: real) of these images. */
static ls_tensor *loss(ls_tensor *said, double answer)
{
    ls_tensor *targets = ls_op_fill(ls_tensor_graph(said), LS_F32, LS_SHAPE(LS_BATCH, 1), answer);
    return ls_loss_value(ls_binary_crossentropy(.from_logits = true), targets, said, NULL);
}

/* The gradients of each loss reach one model alone; those of the generator flow through the
 * discriminator. Both use the weights from before the step. */
static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const gan *t = user;
    ls_tensor *real = ls_op_shift(ls_op_scale(ls_op_cast(inputs[0], LS_F32), 1 / 127.5), -1);
    ls_tensor *noise = ls_op_random_normal(ls_tensor_graph(real), LS_F32, LS_SHAPE(LS_BATCH, NOISE), 0, 1);
    ls_tensor *made = ls_model_apply(t->generator, noise, true);
    ls_tensor *of_real = ls_model_apply(t->discriminator, real, true);
    ls_tensor *of_made = ls_model_apply(t->discriminator, made, true);

    outputs[0] = ls_op_add(loss(of_real, 1), loss(of_made, 0));
    outputs[1] = loss(of_made, 1);
    ls_model_minimize(t->discriminator, ls_adam(.learning_rate = 1e-3, .beta_1 = 0.5), outputs[0]);
    ls_model_minimize(t->generator, ls_adam(.learning_rate = 1e-3, .beta_1 = 0.5), outputs[1]);
}

static void make_models(ls_context *ctx, gan *t)
{
    LS_CHECK(ls_sequential(ctx, "generator", &t->generator, ls_input(NOISE), ls_dense(128, .activation = LS_RELU),
                           ls_batch_normalization(), ls_dense(28 * 28, .activation = LS_TANH), ls_reshape(28, 28, 1)));
    LS_CHECK(ls_sequential(ctx, "discriminator", &t->discriminator, ls_input(28, 28, 1), ls_flatten(), ls_dense(128),
                           ls_leaky_relu(0.2), ls_dropout(0.3), ls_dense(1)));
    LS_CHECK(ls_model_join(t->discriminator, t->generator));
}

int main(int argc, char **argv)
{
    int64_t epochs = argc > 1 ? atoll(argv[1]) : 20, samples = argc > 2 ? atoll(argv[2]) : -1;
    ls_context *ctx;
    ls_dataset *data;
    ls_distributed *passes;
    ls_loop_step *step;
    ls_tensor *losses[2];
    gan t;
    char hash[65];

    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = argc > 3 ? atoi(argv[3]) : 2 }, &ctx));
    LS_CHECK(ls_load_data(ctx, "fashion-mnist", &data, NULL));
    data = ls_batch(ls_shuffle(ls_take(data, samples), 60000, 1), BATCH_SIZE, true);
    LS_CHECK(ls_distribute_dataset(data, &passes));
    make_models(ctx, &t);
    LS_CHECK(ls_graph_set_strategy(ls_model_graph(t.generator), ls_mirrored()));
    LS_CHECK(ls_loop_step_create(ls_model_graph(t.generator), train_step, &t, 2, &step));

    for (int64_t epoch = 1; epoch <= epochs; epoch++) {
        double sums[2] = { 0, 0 }, value;
        int count = 0;
        for (const ls_element *batch;; count++) {
            LS_CHECK(ls_distributed_next(passes, &batch));
            if (!batch)
                break;
            LS_CHECK(ls_strategy_run(step, batch, losses));
            for (int i = 0; i < 2; i++) {
                LS_CHECK(ls_read_scalar(losses[i], &value));
                sums[i] += value;
            }
        }
        printf("epoch %lld: discriminator %.4f, generator %.4f\n", (long long)epoch, sums[0] / count, sums[1] / count);
    }
    LS_CHECK(ls_model_weights_sha256(t.generator, hash));
    printf("generator     %s\n", hash);
    LS_CHECK(ls_model_weights_sha256(t.discriminator, hash));
    printf("discriminator %s\n", hash);
    if (argc > 4) /* a file of its own, for any model with these layers */
        LS_CHECK(ls_model_save_weights(t.generator, argv[4]));

    ls_loop_step_destroy(step);
    ls_distributed_destroy(passes);
    ls_model_destroy(t.discriminator);
    ls_model_destroy(t.generator);
    ls_dataset_destroy(data);
    ls_context_close(ctx);
    return 0;
}
