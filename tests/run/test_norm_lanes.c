/* Batch norm by lane: each lane is normalised as if it were the whole batch, bit for bit, forward
 * and back; the moving averages are those of the whole batch; and lanes do not wait for each
 * other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "lockstep.h"
#include "machine.h"

#define MOST 40
#define SIDE 5
#define WIDE 3
#define UNIT (SIDE * SIDE * WIDE)

static float x_data[MOST * UNIT], t_data[MOST * UNIT];

static int make_data(void **state)
{
    (void)state;
    for (int i = 0; i < MOST * UNIT; i++) {
        x_data[i] = (float)(int32_t)(i * 2654435761u) * 0x1p-30F + (float)(i % 7);
        t_data[i] = (float)(int32_t)(i * 2246822519u) * 0x1p-31F;
    }
    return 0;
}

/* ---- A norm, its gradients and its moving averages ---- */

typedef struct norm {
    ls_graph *graph;
    ls_tensor *x, *t, *mean, *variance;
    ls_tensor *z, *s;      /* the fed values as others that can be held */
    ls_tensor *fetches[5]; /* y, the gradients of x, gamma and beta, and the updates */
} norm;

static norm make_norm(ls_context *ctx, ls_norm_statistics statistics, int lanes)
{
    norm n;
    ls_tensor *updates[2], *gradients[3];
    const ls_shape channels = LS_SHAPE(WIDE), image = LS_SHAPE(LS_BATCH, SIDE, SIDE, WIDE);
    OK(ls_graph_create(ctx, &n.graph, .seed = 1));
    OK(ls_graph_set_lanes(n.graph, lanes));
    n.x = ls_op_input(n.graph, "x", LS_F32, image);
    n.t = ls_op_input(n.graph, "t", LS_F32, image);
    ls_tensor *gamma = ls_op_variable(n.graph, "gamma", LS_F32, channels);
    ls_tensor *beta = ls_op_variable(n.graph, "beta", LS_F32, channels);
    n.mean = ls_op_variable(n.graph, "mean", LS_F32, channels);
    n.variance = ls_op_variable(n.graph, "variance", LS_F32, channels);
    OK(ls_variable_set(gamma, (float[]){ 0.5F, 1.5F, -2 }, WIDE * sizeof(float)));
    n.z = ls_op_scale(n.x, 1);
    n.s = ls_op_scale(n.t, 1);
    ls_tensor *y = ls_op_relu(ls_op_batch_norm(n.z, .gamma = gamma, .beta = beta, .moving_mean = n.mean,
                                               .moving_variance = n.variance, .training = true,
                                               .statistics = statistics, .updates = updates));
    ls_tensor *loss = ls_op_reduce_sum(ls_op_mul(ls_op_square(y), n.s), LS_ALL_AXES, false);
    OK(ls_gradients(loss, (ls_tensor *[]){ n.z, gamma, beta }, 3, gradients));
    ls_tensor *fetches[] = { y, gradients[0], gradients[1], gradients[2], ls_op_group(updates, 2) };
    memcpy(n.fetches, fetches, sizeof(fetches));
    OK(ls_graph_status(n.graph));
    return n;
}

static void run_norm(const norm *n, int64_t first, int64_t samples)
{
    const ls_shape image = LS_SHAPE(samples, SIDE, SIDE, WIDE);
    const ls_feed feeds[] = { { n->x, ls_array_of(LS_F32, image, x_data + first * UNIT) },
                              { n->t, ls_array_of(LS_F32, image, t_data + first * UNIT) } };
    OK(ls_eval(n->graph, feeds, 2, n->fetches, 5));
}

static const float *values(ls_tensor *tensor)
{
    ls_array value;
    OK(ls_value(tensor, &value));
    return value.data;
}

static int64_t lane_first(int64_t batch, int lanes, int lane)
{
    return lane * batch / lanes;
}

static void lanes_are_as_if_alone(ls_context *ctx, int64_t batch, int lanes)
{
    norm all = make_norm(ctx, LS_PER_LANE, lanes), one = make_norm(ctx, LS_PER_BATCH, 1);
    run_norm(&all, 0, batch);
    for (int lane = 0; lane < lanes; lane++) {
        int64_t first = lane_first(batch, lanes, lane), samples = lane_first(batch, lanes, lane + 1) - first;
        if (samples == 0)
            continue;
        run_norm(&one, first, samples);
        for (int i = 0; i < 2; i++)
            if (memcmp(values(all.fetches[i]) + first * UNIT, values(one.fetches[i]),
                       (size_t)samples * UNIT * sizeof(float)) != 0)
                fail_msg("batch %lld, lane %d of %d: %s differs", (long long)batch, lane, lanes,
                         i ? "the gradient" : "the output");
    }
    ls_graph_destroy(all.graph);
    ls_graph_destroy(one.graph);
}

static void each_lane_is_normalised_as_if_alone(void **state)
{
    (void)state;
    for (int gpus = 0; gpus < 3; gpus++) {
        machine m;
        machine_create(&m, (machine_settings){ .gpu = { .devices = gpus, .copies = gpus == 2, .memory = LS_MIB(4) },
                                               .options = { .cpu_devices = 2, .threads = 2 } });
        static const int lanes[] = { 1, 2, 3, 7, 16 };
        for (size_t i = 0; i < LENGTH(lanes); i++) {
            lanes_are_as_if_alone(m.ctx, MOST, lanes[i]);
            lanes_are_as_if_alone(m.ctx, 7, lanes[i]);
        }
        machine_close(&m);
    }
}

/* Sums over lanes do not know who normalises by what. */
static void moving_averages_are_the_batches(void **state)
{
    (void)state;
    machine m;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 2, .threads = 2 } });
    norm by_lane = make_norm(m.ctx, LS_PER_LANE, 5), by_batch = make_norm(m.ctx, LS_PER_BATCH, 5);
    run_norm(&by_lane, 0, 33);
    run_norm(&by_batch, 0, 33);
    assert_memory_equal(values(by_lane.mean), values(by_batch.mean), WIDE * sizeof(float));
    assert_memory_equal(values(by_lane.variance), values(by_batch.variance), WIDE * sizeof(float));
    assert_true(values(by_lane.mean)[0] != 0);
    assert_memory_not_equal(values(by_lane.fetches[0]), values(by_batch.fetches[0]), UNIT * sizeof(float));
    ls_graph_destroy(by_lane.graph);
    ls_graph_destroy(by_batch.graph);
    machine_close(&m);
}

/* The sums that are kept are the batch's; a value that is read by itself still uses the lanes'
 * own. */
static void eager_values_are_the_lanes_own(void **state)
{
    (void)state;
    machine m;
    float expected[2][12 * UNIT], found[12 * UNIT];
    machine_create(&m, (machine_settings){ .options = { .threads = 1 } });
    norm n = make_norm(m.ctx, LS_PER_LANE, 4), whole = make_norm(m.ctx, LS_PER_LANE, 4);
    run_norm(&whole, 0, 12);
    for (int i = 0; i < 2; i++)
        OK(ls_read(whole.fetches[i], expected[i], sizeof(found)));
    const ls_shape image = LS_SHAPE(12, SIDE, SIDE, WIDE);
    const ls_feed feeds[] = { { n.x, ls_array_of(LS_F32, image, x_data) },
                              { n.t, ls_array_of(LS_F32, image, t_data) } };
    OK(ls_eval(n.graph, feeds, 2, (ls_tensor *[]){ n.z, n.s }, 2));
    for (int i = 0; i < 2; i++) {
        OK(ls_read(n.fetches[i], found, sizeof(found)));
        assert_memory_equal(found, expected[i], sizeof(found));
    }
    ls_graph_destroy(n.graph);
    ls_graph_destroy(whole.graph);
    machine_close(&m);
}

/* ---- Training ---- */

static void layers_take_it(void **state)
{
    (void)state;
    machine m;
    ls_model *model = NULL;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 2, .threads = 2 } });
    OK(ls_sequential(m.ctx, "net", &model, ls_input(SIDE, SIDE, WIDE), ls_conv2d(4, 3),
                     ls_batch_normalization(.statistics = LS_PER_LANE), ls_flatten(), ls_dense(2)));
    ls_model_destroy(model);
    FAILS(ls_sequential(m.ctx, "net", &model, ls_input(4), ls_layer_normalization(.statistics = LS_PER_LANE)),
          LS_ERR_INVALID, "statistics");
    FAILS(ls_sequential(m.ctx, "net", &model, ls_input(4), ls_batch_normalization(.statistics = (ls_norm_statistics)3)),
          LS_ERR_INVALID, "statistics 3");
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lane_is_normalised_as_if_alone),
        cmocka_unit_test(moving_averages_are_the_batches),
        cmocka_unit_test(eager_values_are_the_lanes_own),
        cmocka_unit_test(layers_take_it),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
