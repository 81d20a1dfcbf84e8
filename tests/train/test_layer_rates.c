/* Rates of layers, against PyTorch's parameter groups (tests/reference/make_rates.py): weights
 * after some steps with every optimizer, copies, checkpoints, and what refuses them.
 * test_verify.sh compares their bits on other devices. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "fixed.h"
#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/optimizer.h"

enum { STEPS = 4, SAMPLES = 8 };

static ls_context *ctx;

static int set_up(void **state)
{
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    ls_context_close(ctx);
    return remove_folder(state);
}

static ls_model *network(ls_context *context)
{
    ls_model *model;
    OK(ls_sequential(context, "rates", &model, ls_input(3), ls_dense(4, .activation = LS_TANH, .name = "a"),
                     ls_dense(3, .activation = LS_TANH, .name = "b"), ls_dense(2, .name = "c")));
    for (size_t v = 0; v < ls_model_variable_count(model); v++) {
        float values[16];
        ls_shape shape = ls_tensor_shape(ls_model_variable(model, v));
        size_t count = (size_t)shape.dims[0] * (size_t)(shape.rank > 1 ? shape.dims[1] : 1);
        for (size_t i = 0; i < count; i++)
            values[i] = (float)fixed(ls_model_variable_name(model, v), i);
        OK(ls_variable_set(ls_model_variable(model, v), values, count * sizeof *values));
    }
    return model;
}

static ls_dataset *samples(void)
{
    static float inputs[SAMPLES * 3], labels[SAMPLES * 2];
    for (size_t i = 0; i < LENGTH(inputs); i++)
        inputs[i] = (float)fixed("x", i);
    for (size_t i = 0; i < LENGTH(labels); i++)
        labels[i] = (float)fixed("y", i);
    ls_array x = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 3), inputs),
             y = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 2), labels);
    return ls_from_tensor_slices(.inputs = &x, .input_count = 1, .targets = &y, .target_count = 1);
}

static void train(ls_model *model, ls_optimizer optimizer)
{
    ls_dataset *data = samples();
    OK(ls_compile(model, .optimizer = optimizer, .loss = ls_mean_squared_error()));
    OK(ls_fit(model, data, .epochs = STEPS, .batch_size = SAMPLES, .keep_order = true, .verbose = LS_VERBOSE_SILENT));
    ls_dataset_destroy(data);
}

static void set_rates(ls_model *model)
{
    OK(ls_model_set_rate(model, "*", 0.1));
    OK(ls_model_set_rate(model, "b", 1)); /* the last call counts */
    OK(ls_model_set_rate(model, "[cd]", 2.5));
}

static void check_weights(const char *name, ls_model *model, const json_t *expected)
{
    for (size_t v = 0; v < ls_model_variable_count(model); v++) {
        const json_t *values = json_object_get(expected, ls_model_variable_name(model, v));
        float have[16];
        OK(ls_read(ls_model_variable(model, v), have, json_array_size(values) * sizeof *have));
        for (size_t i = 0; i < json_array_size(values); i++) {
            double want = json_number_value(json_array_get(values, i));
            if (!(fabs(have[i] - want) <= 1e-5 * (fabs(want) + 1)))
                fail_msg("%s: element %zu of %s is %.9g; PyTorch has %.9g", name, i, ls_model_variable_name(model, v),
                         (double)have[i], want);
        }
    }
}

static void rates_are_pytorchs_parameter_groups(void **state)
{
    (void)state;
    json_t *expected = NULL;
    const struct {
        const char *name;
        ls_optimizer optimizer;
    } rows[] = { { "sgd", ls_sgd(0.1, .momentum = 0.9) },
                 { "adamw", ls_adamw(0.05, .weight_decay = 0.1, .epsilon = 1e-12) },
                 { "adagrad", ls_adagrad(0.1, .epsilon = 1e-12) } };
    OK(ls_json_read_file("tests/reference/layer_rates.json", &expected));
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_model *model = network(ctx);
        set_rates(model);
        train(model, rows[i].optimizer);
        check_weights(rows[i].name, model, json_object_get(expected, rows[i].name));
        ls_model_destroy(model);
    }
    json_decref(expected);
}

typedef struct hash {
    char hex[65];
} hash;

static hash hash_after(ls_context *context, ls_optimizer optimizer, double factor)
{
    hash h;
    ls_model *model = network(context);
    if (factor > 0)
        OK(ls_model_set_rate(model, "*", factor));
    train(model, optimizer);
    OK(ls_model_weights_sha256(model, h.hex));
    ls_model_destroy(model);
    return h;
}

/* A factor of a power of two for all layers has the bits of the multiplied rate, with any optimizer
 * and with a schedule, and 1 those of no factor. */
static void a_factor_for_all_layers_is_another_rate(void **state)
{
    (void)state;
    const ls_optimizer pairs[][2] = {
        { ls_sgd(0.1), ls_sgd(0.025) },
        { ls_adam(0.1), ls_adam(0.025) },
        { ls_adamw(0.1, .weight_decay = 0.5), ls_adamw(0.025, .weight_decay = 0.5) },
        { ls_rmsprop(0.1, .momentum = 0.5), ls_rmsprop(0.025, .momentum = 0.5) },
        { ls_adagrad(0.1), ls_adagrad(0.025) },
        { ls_adadelta(0.1), ls_adadelta(0.025) },
        { ls_adamax(0.1), ls_adamax(0.025) },
        { ls_nadam(0.1), ls_nadam(0.025) },
        { ls_ftrl(0.1), ls_ftrl(0.025) },
        { ls_lion(0.1), ls_lion(0.025) },
        { ls_lamb(0.1, .weight_decay = 0.5), ls_lamb(0.025, .weight_decay = 0.5) },
        { ls_muon(0.1), ls_muon(0.025) },
        { ls_sgd(.schedule = ls_exponential_decay(0.1, 2, 0.5, false)),
          ls_sgd(.schedule = ls_exponential_decay(0.025, 2, 0.5, false)) },
    };
    for (size_t i = 0; i < LENGTH(pairs); i++) {
        hash multiplied = hash_after(ctx, pairs[i][0], 0.25), other = hash_after(ctx, pairs[i][1], 0);
        if (strcmp(multiplied.hex, other.hex) != 0)
            fail_msg("optimizer %zu: a factor of 0.25 is not a quarter of the rate", i);
        assert_string_equal(hash_after(ctx, pairs[i][0], 1).hex, hash_after(ctx, pairs[i][0], 0).hex);
        assert_string_not_equal(multiplied.hex, hash_after(ctx, pairs[i][0], 0).hex);
    }
}

/* ---- Copies and checkpoints ---- */

static void copied_layers_have_their_rates(void **state)
{
    (void)state;
    ls_model *model = network(ctx), *copy = NULL;
    set_rates(model);
    OK(ls_model_replace_head(model, 2, &copy));
    assert_true(ls_model_variable(copy, 0)->attr.variable.variable->rate == 0.1);
    size_t last = ls_model_variable_count(copy) - 1;
    assert_true(ls_model_variable(copy, last)->attr.variable.variable->rate == 0); /* it is new */
    ls_model_destroy(copy);
    ls_model_destroy(model);
}

static void a_checkpoint_has_its_rates(void **state)
{
    (void)state;
    ls_model *model = network(ctx), *same = network(ctx), *other = network(ctx), *none = network(ctx);
    set_rates(model);
    set_rates(same);
    OK(ls_model_set_rate(other, "a", 0.2));
    train(model, ls_sgd(0.1));
    OK(ls_checkpoint_save(model, in_folder("saved")));
    OK(ls_compile(same, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error()));
    OK(ls_compile(other, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error()));
    OK(ls_compile(none, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error()));
    OK(ls_checkpoint_restore(same, in_folder("saved")));
    FAILS(ls_checkpoint_restore(other, in_folder("saved")), LS_ERR_INVALID,
          "layer_rates/a/kernel is 0.2 here, but 0.1");
    FAILS(ls_checkpoint_restore(none, in_folder("saved")), LS_ERR_INVALID, "layer_rates");
    ls_model_destroy(model);
    ls_model_destroy(same);
    ls_model_destroy(other);
    ls_model_destroy(none);
}

/* ---- Refusals ---- */

static void wrong_rates_are_refused(void **state)
{
    (void)state;
    static const double wrong[] = { 0, -1, INFINITY, NAN };
    ls_model *model = network(ctx);
    for (size_t i = 0; i < LENGTH(wrong); i++)
        FAILS(ls_model_set_rate(model, "a", wrong[i]), LS_ERR_INVALID, "the factor of \"a\" is",
              "ls_model_set_trainable");
    FAILS(ls_model_set_rate(model, "x*", 0.5), LS_ERR_NOT_FOUND, "no layer matches \"x*\"");
    FAILS(ls_model_set_rate(model, "bb", 0.5), LS_ERR_NOT_FOUND, "bb");
    OK(ls_model_set_rate(model, "a", 0.5));
    const ls_optimizer sgd = ls_sgd(0.1);
    ls_tensor *variables[] = { ls_model_variable(model, 2), ls_model_variable(model, 0) };
    OK(ls_optimizer_check_elementwise(&sgd, variables, 1));
    FAILS(ls_optimizer_check_elementwise(&sgd, variables, 2), LS_ERR_UNSUPPORTED, "rates of layers");
    OK(ls_compile(model, .optimizer = sgd, .loss = ls_mean_squared_error()));
    FAILS(ls_model_set_rate(model, "a", 0.5), LS_ERR_STATE, "ls_model_set_rate", "compiled");
    ls_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_pytorchs_parameter_groups),
        cmocka_unit_test(a_factor_for_all_layers_is_another_rate),
        cmocka_unit_test(copied_layers_have_their_rates),
        cmocka_unit_test(a_checkpoint_has_its_rates),
        cmocka_unit_test(wrong_rates_are_refused),
    };
    return cmocka_run_group_tests_name("layer_rates", tests, set_up, tear_down);
}
