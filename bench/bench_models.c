/* Trains two models at the same time on two devices of one core each, and one of them alone:
 *     bench_models [ROUNDS [STEPS]]
 * The model is mnist-cnn-wide at batch 128, on synthetic images. Alone and together alternate; the
 * best of each counts. Together should take at most 1.1 times as long as alone. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "lockstep.h"

#define BATCH   128
#define MODELS  2
#define AT_MOST 1.1

static uint8_t pixels[BATCH * 28 * 28], labels[BATCH];

typedef struct trainee {
    ls_model *model;
    ls_loop_step *step;
    int steps;
} trainee;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    trainee *t = user;
    ls_tensor *x = ls_op_scale(ls_op_cast(inputs[0], LS_F32), 1 / 255.0);
    outputs[0] =
        ls_loss_value(ls_sparse_categorical_crossentropy(), inputs[1], ls_model_apply(t->model, x, true), NULL);
    ls_minimize(ls_rmsprop_tf1(0.001), outputs[0], NULL);
}

static void *train(void *user)
{
    const ls_element batch = { .count = 2,
                               .component = { ls_array_of(LS_U8, LS_SHAPE(BATCH, 28, 28, 1), pixels),
                                              ls_array_of(LS_U8, LS_SHAPE(BATCH), labels) } };
    const trainee *t = user;
    for (int i = 0; i < t->steps; i++)
        LS_CHECK(ls_strategy_run(t->step, &batch, NULL));
    return NULL;
}

static double time_of(trainee *first, int count)
{
    pthread_t threads[MODELS];
    double start = now();
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, train, &first[i]) != 0)
            exit(1);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return now() - start;
}

int main(int argc, char **argv)
{
    static const char *const devices[MODELS] = { "cpu:0", "cpu:1" };
    int rounds = argc > 1 ? atoi(argv[1]) : 5, steps = argc > 2 ? atoi(argv[2]) : 10;
    double alone[MODELS] = { 1e30, 1e30 }, together = 1e30;
    ls_context *ctx;
    ls_cpu_info cpu;
    trainee t[MODELS];
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (uint8_t)(i % 10);
    LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = MODELS, .threads = MODELS }, &ctx));
    LS_CHECK(ls_get_cpu_info(ctx, &cpu));
    for (int i = 0; i < MODELS; i++) {
        t[i].steps = 1;
        LS_CHECK(ls_model_builtin(ctx, "mnist-cnn-wide", &t[i].model));
        LS_CHECK(ls_graph_set_strategy(ls_model_graph(t[i].model), ls_one_device(.devices = devices[i])));
        LS_CHECK(ls_loop_step_create(ls_model_graph(t[i].model), train_step, &t[i], 1, &t[i].step));
        train(&t[i]); /* traces and plans */
        t[i].steps = steps;
    }
    for (int round = 0; round < rounds; round++) {
        double seconds;
        for (int i = 0; i < MODELS; i++)
            if ((seconds = time_of(&t[i], 1)) < alone[i])
                alone[i] = seconds;
        if ((seconds = time_of(t, MODELS)) < together)
            together = seconds;
    }
    double longest = alone[0] > alone[1] ? alone[0] : alone[1];
    printf("one model alone        %7.1f and %.1f ms per step, on %s and %s (%s)\n", 1e3 * alone[0] / steps,
           1e3 * alone[1] / steps, devices[0], devices[1], cpu.reason);
    printf("two at the same time   %7.1f ms per step: %.2f times one alone; at most %.1f: %s\n", 1e3 * together / steps,
           together / longest, AT_MOST, together <= AT_MOST * longest ? "yes" : "no");
    for (int i = 0; i < MODELS; i++) {
        ls_loop_step_destroy(t[i].step);
        ls_model_destroy(t[i].model);
    }
    ls_context_close(ctx);
    return 0;
}
