/* A step that fails changes nothing, whatever failed: a label, a number that is not finite, a
 * kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "check.h"
#include "lockstep.h"
#include "sanitized.h"

/* ---- Steps that fail ---- */

/* The step fails with this status and a message that holds `named`, and nothing has changed. */
static void must_fail(network *n, const network_batch *data, ls_status wanted, const char *named)
{
    char before[65], after[65];
    assert_int_equal(network_state(n, before), LS_OK);
    ls_status status = ls_eval(n->graph, data->feeds, data->feed_count, (ls_tensor *[]){ n->loss, n->step }, 2);
    if (status != wanted || !strstr(ls_last_error(), named))
        fail_msg("%s: %s (%s) instead of %s with \"%s\"", network_name(n->kind), ls_status_name(status),
                 status ? ls_last_error() : "", ls_status_name(wanted), named);
    assert_int_equal(network_state(n, after), LS_OK);
    assert_string_equal(before, after);
}

static const ls_run_settings ways[] = {
    { .plan = { .lanes = 1 } },
    { .plan = { .lanes = 8 } },
    { .plan = { .lanes = 8, .unfused = true } },
    { .plan = { .lanes = 5, .cut_everywhere = true, .micro = 2 } },
};

static void a_bad_label_changes_nothing(void **state)
{
    (void)state;
    static const int64_t samples[] = { 0, 13, 32 };
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        char hash[65], clean[65];
        lab l;
        open_lab(&l, kind, &(ls_context_options){ .threads = 3, .cpu_devices = 2 });
        assert_int_equal(network_set(&l.n, &ways[1]), LS_OK);
        assert_int_equal(network_train(&l.n, 33, 3, clean), LS_OK);
        close_lab(&l);
        open_lab(&l, kind, &(ls_context_options){ .threads = 3, .cpu_devices = 2 });
        for (size_t w = 0; w < LENGTH(ways); w += SANITIZED ? 3 : 1)
            for (size_t s = 0; s < LENGTH(samples); s++) {
                char named[64];
                network_batch data;
                assert_int_equal(network_set(&l.n, &ways[w]), LS_OK);
                assert_int_equal(network_batch_make(&l.n, 33, 1, &data), LS_OK);
                data.labels[samples[s]] = NETWORK_CLASSES + 3;
                snprintf(named, sizeof(named), "label 13 of sample %lld ", (long long)samples[s]);
                must_fail(&l.n, &data, LS_ERR_DATA, named);
                network_batch_free(&data);
            }
        /* And training goes on as if nothing had been. */
        assert_int_equal(network_set(&l.n, &ways[1]), LS_OK);
        assert_int_equal(network_train(&l.n, 33, 3, hash), LS_OK);
        assert_string_equal(hash, clean);
        close_lab(&l);
    }
}

/* One of several bad samples is named: the first that a thread found. */
static void one_of_several_failures_is_named(void **state)
{
    (void)state;
    lab l;
    network_batch data;
    open_lab(&l, NETWORK_MLP, &(ls_context_options){ .threads = 4, .cpu_devices = 4 });
    assert_int_equal(network_set(&l.n, &ways[1]), LS_OK);
    assert_int_equal(network_batch_make(&l.n, 33, 1, &data), LS_OK);
    data.labels[9] = data.labels[20] = data.labels[31] = 99;
    for (int i = 0; i < 50; i++) {
        must_fail(&l.n, &data, LS_ERR_DATA, "label 99 of sample ");
        int sample = atoi(strstr(ls_last_error(), "sample ") + strlen("sample "));
        assert_true(sample == 9 || sample == 20 || sample == 31);
    }
    network_batch_free(&data);
    close_lab(&l);
}

/* A network of float32 inputs: convolution, norm with moving statistics, dense layer. Two of its
 * variables have names. / */
typedef struct float_net {
    ls_tensor *x, *loss, *step, *updated;
} float_net;

static float_net make_float_net(bed *b)
{
    float_net f;
    ls_tensor *updates[2], *g[5], *parts[8], *rate = ls_op_scalar(b->graph, LS_F32, 0.1);
    f.x = ls_op_input(b->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 6, 6, 3));
    ls_tensor *kernel = variable(b, "stem/kernel", LS_SHAPE(3, 3, 3, 8)),
              *w = variable(b, "top/kernel", LS_SHAPE(8, 4));
    ls_tensor *gamma = variable(b, "gamma", LS_SHAPE(8)), *beta = variable(b, "beta", LS_SHAPE(8));
    ls_tensor *bias = variable(b, "top/bias", LS_SHAPE(4));
    ls_tensor *mean = ls_op_variable(b->graph, "mean", LS_F32, LS_SHAPE(8), .frozen = true);
    ls_tensor *variance = ls_op_variable(b->graph, "variance", LS_F32, LS_SHAPE(8), .frozen = true);
    ls_tensor *y =
        ls_op_batch_norm(ls_op_conv2d(f.x, kernel), gamma, beta, mean, variance, .training = true, .updates = updates);
    y = ls_op_add(ls_op_matmul(ls_op_global_average_pool2d(ls_op_relu(y)), w), bias);
    f.loss = ls_op_reduce_mean(ls_op_square(y), LS_ALL_AXES, false);
    ls_tensor *all[] = { kernel, gamma, beta, w, bias };
    assert_int_equal(ls_gradients(f.loss, all, 5, g), LS_OK);
    for (int i = 0; i < 5; i++) {
        ls_tensor *slot = ls_op_variable(b->graph, NULL, LS_F32, ls_tensor_shape(all[i]), .frozen = true);
        parts[i] =
            ls_op_apply(all[i], g[i], LS_APPLY_MOMENTUM, .learning_rate = rate, .slots = { slot }, .momentum = 0.9);
    }
    parts[5] = updates[0];
    parts[6] = updates[1];
    f.step = ls_op_group(parts, 7);
    f.updated = sum(parts[3]); /* a new weight is read: that update is not done in place */
    assert_int_equal(ls_graph_status(b->graph), LS_OK);
    return f;
}

static void state_of(const bed *b, char hex[65])
{
    network n = { .graph = b->graph };
    assert_int_equal(network_state(&n, hex), LS_OK);
}

static void what_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    enum { N = 21, EACH = 6 * 6 * 3 };
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    bed b;
    open_bed_with(&b, &(ls_context_options){ .threads = 3, .cpu_devices = 2 });
    float_net f = make_float_net(&b);
    float *data = numbers(N * EACH, 77);
    ls_feed feed = { f.x, ls_array_of(LS_F32, LS_SHAPE(N, 6, 6, 3), data) };
    for (size_t w = 0; w < LENGTH(ways); w += SANITIZED ? 3 : 1)
        for (size_t i = 0; i < LENGTH(bad); i++)
            for (int looked = 0; looked < 2; looked++) {
                char before[65], after[65];
                ls_tensor *fetches[] = { f.loss, f.step, f.updated };
                size_t at = (size_t)(11 * EACH + 40);
                float good = data[at];
                ls_runs_clear(b.runs);
                b.runs->settings = ways[w];
                if (ls_eval(b.graph, &feed, 1, fetches, 2) != LS_OK)
                    fail_msg("%s", ls_last_error());
                data[at] = bad[i];
                state_of(&b, before);
                ls_status status = ls_eval(b.graph, &feed, 1, fetches, looked ? 3 : 2);
                if (status != LS_ERR_NOT_FINITE)
                    fail_msg("an input of %g: %s", (double)bad[i], ls_status_name(status));
                if (!strstr(ls_last_error(), "stem/kernel") && !looked)
                    fail_msg("no variable is named: %s", ls_last_error());
                state_of(&b, after);
                assert_string_equal(before, after);
                data[at] = good;
            }
    free(data);
    close_bed(&b);
}

/* The kernel is zero, so that the loss does not see the number by which its gradient overflows. The
 * next step is made, with the bits of a model that never saw the bad one. */
static void a_step_after_one_with_an_infinite_gradient_is_made(void **state)
{
    (void)state;
    enum { N = 8, EACH = 3 };
    float good[N * EACH], bad[N * EACH];
    int32_t labels[N];
    char hash[2][65];
    for (int i = 0; i < N * EACH; i++)
        good[i] = bad[i] = (float)(i % 7) / 7;
    for (int i = 0; i < N; i++)
        labels[i] = i % 2;
    bad[0] = 3e38f;
    ls_array y = ls_array_of(LS_I32, LS_SHAPE(N), labels), x = ls_array_of(LS_F32, LS_SHAPE(N, EACH), good);
    for (int both = 0; both < 2; both++) {
        ls_context *ctx;
        ls_model *model;
        ls_output output = { .loss = ls_sparse_categorical_crossentropy(), .weight = 1e10 };
        assert_int_equal(ls_context_open(&(ls_context_options){ .threads = 2, .cpu_devices = 2 }, &ctx), LS_OK);
        assert_int_equal(ls_sequential(ctx, "net", &model, ls_input(EACH),
                                       ls_dense(4, .kernel_initializer = { .kind = LS_INIT_ZEROS }),
                                       ls_dense(2, .activation = LS_SOFTMAX)),
                         LS_OK);
        assert_int_equal(ls_compile(model, .optimizer = ls_adam(), .outputs = &output, .output_count = 1), LS_OK);
        if (both) {
            ls_array broken = ls_array_of(LS_F32, LS_SHAPE(N, EACH), bad);
            assert_int_equal(ls_train_on_batch(model, broken, y, .lanes = 3), LS_ERR_NOT_FINITE);
            assert_non_null(strstr(ls_last_error(), "gradient of dense/kernel"));
        }
        assert_int_equal(ls_train_on_batch(model, x, y, .lanes = 3), LS_OK);
        assert_int_equal(ls_model_state_sha256(model, hash[both]), LS_OK);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
    assert_string_equal(hash[0], hash[1]);
}

/* Not one update is done when one alone, and not in place, is bad. */
static void an_update_that_is_looked_at_is_checked_too(void **state)
{
    (void)state;
    bed b;
    char before[65], after[65];
    open_bed(&b);
    ls_tensor *x = ls_op_input(b.graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 4));
    ls_tensor *w = variable(&b, "w", LS_SHAPE(4)), *v = variable(&b, "v", LS_SHAPE(4));
    ls_tensor *rate = ls_op_scalar(b.graph, LS_F32, 0.1);
    ls_tensor *apply = ls_op_apply(w, ls_op_reduce_sum(x, LS_AXES(0), false), LS_APPLY_SGD, .learning_rate = rate);
    ls_tensor *fine = ls_op_apply(v, ls_op_scale(v, 1), LS_APPLY_SGD, .learning_rate = rate);
    ls_tensor *fetches[] = { sum(apply), fine };
    const float data[8] = { 1, 2, 3, 4, 5, NAN, 7, 8 };
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(2, 4), data) };
    state_of(&b, before);
    ls_status status = ls_eval(b.graph, &feed, 1, fetches, 2);
    state_of(&b, after);
    if (status != LS_ERR_NOT_FINITE)
        fail_msg("a NaN gradient of an update whose value is fetched: %s", ls_status_name(status));
    assert_string_equal(before, after);
    close_bed(&b);
}

/* ---- Injected errors ---- */

static int64_t fail_from; /* the sample from which kernels fail */

static ls_status fail_run(ls_kernel *kernel, const ls_kernel_call *call)
{
    (void)kernel;
    if (kernel->group->per_sample && call->first + call->samples <= fail_from)
        return LS_OK; /* without a value, since it is not read */
    return ls_fail(LS_ERR_DEVICE, "injected");
}

static ls_status fail_finish(ls_kernel *kernel, const void *joined, void *out, int worker, void *scratch)
{
    (void)kernel, (void)joined, (void)out, (void)worker, (void)scratch;
    return ls_fail(LS_ERR_DEVICE, "injected");
}

static ls_status fail_prepare(ls_kernel *kernel, const void *from, void *to, int worker, void *scratch)
{
    return fail_finish(kernel, from, to, worker, scratch);
}

static void an_injected_error_changes_nothing(void **state)
{
    (void)state;
    int injected = 0;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (size_t w = 0; w < LENGTH(ways); w += SANITIZED ? 3 : 1) {
            lab l;
            network_batch data;
            open_lab(&l, kind, &(ls_context_options){ .threads = 3, .cpu_devices = 3 });
            assert_int_equal(network_set(&l.n, &ways[w]), LS_OK);
            assert_int_equal(network_step(&l.n, 33, 0), LS_OK);
            assert_int_equal(network_batch_make(&l.n, 33, 1, &data), LS_OK);
            const ls_plan *plan = step_plan(&l, 33);
            for (int g = 0; g < plan->group_count; g++) {
                ls_kernel *kernel = plan->groups[g].kernel;
                if (!kernel || plan->groups[g].in_place) /* an update cannot fail: all that could was done before */
                    continue;
                ls_kernel good = *kernel;
                char named[LS_NODE_TEXT];
                ls_node_label(plan->groups[g].root, named);
                fail_from = g * 7 % 33;
                kernel->run = fail_run;
                must_fail(&l.n, &data, LS_ERR_DEVICE, named);
                kernel->run = good.run;
                injected++;
                if (good.finish) {
                    kernel->finish = fail_finish;
                    must_fail(&l.n, &data, LS_ERR_DEVICE, "injected");
                    kernel->finish = good.finish;
                }
                if (good.prepare.bytes && plan->prepared[plan->groups[g].prepared].group == &plan->groups[g]) {
                    kernel->prepare.run = fail_prepare;
                    must_fail(&l.n, &data, LS_ERR_DEVICE, "injected");
                    kernel->prepare.run = good.prepare.run;
                }
            }
            assert_int_equal(network_step(&l.n, 33, 1), LS_OK);
            network_batch_free(&data);
            close_lab(&l);
        }
    assert_true(injected > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_label_changes_nothing),
        cmocka_unit_test(one_of_several_failures_is_named),
        cmocka_unit_test(what_is_not_finite_changes_nothing),
        cmocka_unit_test(a_step_after_one_with_an_infinite_gradient_is_made),
        cmocka_unit_test(an_update_that_is_looked_at_is_checked_too),
        cmocka_unit_test(an_injected_error_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
