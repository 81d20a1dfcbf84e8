/* Vectorised kernels that have the reference kernels' bits: pooling, random numbers, updates; from
 * every table, with odd sizes and guard zones around every output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/ref/ref.h"
#include "simd_arrays.h"

/* ---- Pooling ---- */

static void reference(ls_op op, ls_attrs attr, ls_ref_array out, const ls_ref_array *in, int count)
{
    ls_tensor first = { .per_sample = true };
    ls_tensor *inputs[3] = { &first, &first, &first };
    ls_tensor node = { .op = op, .attr = attr, .per_sample = true, .input_count = count, .in = inputs };
    ls_ref_call call = { .node = &node, .out = out, .in = in, .batch = 4 };
    assert_int_equal(ls_ref_run(&call), LS_OK);
}

static ls_ref_array image_array(const float *data, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return (ls_ref_array){ .data = (void *)(uintptr_t)data, .dtype = LS_F32, .shape = LS_SHAPE(n, h, w, c) };
}

static const ls_simd_pool pools[] = {
    { .h = 6, .w = 8, .oh = 3, .ow = 4, .kh = 2, .kw = 2, .sh = 2, .sw = 2 },
    { .h = 7, .w = 5, .oh = 3, .ow = 2, .kh = 2, .kw = 2, .sh = 2, .sw = 2 }, /* a row and a column left over */
    { .h = 9, .w = 8, .oh = 5, .ow = 4, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .pad_top = 1, .pad_left = 1 }, /* ResNet */
    { .h = 5, .w = 5, .oh = 3, .ow = 3, .kh = 2, .kw = 2, .sh = 2, .sw = 2, .pad_top = 1, .pad_left = 1 },
    { .h = 5, .w = 6, .oh = 3, .ow = 4, .kh = 3, .kw = 3, .sh = 1, .sw = 1 },
    { .h = 7, .w = 7, .oh = 1, .ow = 1, .kh = 7, .kw = 7, .sh = 7, .sw = 7 },
    { .h = 5, .w = 5, .oh = 3, .ow = 3, .kh = 1, .kw = 1, .sh = 2, .sw = 2 }, /* pixels no window sees */
    { .h = 6, .w = 6, .oh = 3, .ow = 3, .kh = 3, .kw = 2, .sh = 2, .sw = 2, .pad_left = 1, .count_padding = true },
};

/* Few different values, so that there are ties; some NaN and infinities. */
static float *pool_floats(size_t n)
{
    float *x = floats(n);
    for (size_t i = 0; i < n; i++)
        x[i] = word() % 40 == 0 ? NAN : word() % 40 == 0 ? -INFINITY : (float)((int)(word() % 9) - 4);
    return x;
}

static void try_max_pool(const ls_simd_pool *v, ls_attrs attr, bool relu)
{
    size_t n_in = (size_t)(v->n * v->h * v->w * v->c), n_out = (size_t)(v->n * v->oh * v->ow * v->c);
    float *x = pool_floats(n_in), *dy = random_floats(n_out, -1, 1), *y = floats(n_out), *dx = floats(n_in);
    ls_ref_array in[2] = { image_array(x, v->n, v->h, v->w, v->c), image_array(dy, v->n, v->oh, v->ow, v->c) };
    float *activated = floats(n_in);
    tables[0]->relu(activated, x, n_in);
    if (relu)
        in[0].data = activated;
    reference(LS_OP_max_pool2d, attr, image_array(y, v->n, v->oh, v->ow, v->c), in, 1);
    reference(LS_OP_max_pool2d_grad, attr, image_array(dx, v->n, v->h, v->w, v->c), in, 2);
    if (relu)
        tables[0]->relu_grad(dx, dx, x, 0, n_in);
    output outs[3], grads[3];
    for (int t = 0; t < table_count; t++) {
        outs[t] = output_of(n_out * sizeof(float));
        grads[t] = output_of(n_in * sizeof(float));
        tables[t]->max_pool2d(outs[t].f32, x, v, relu);
        tables[t]->max_pool2d_grad(grads[t].f32, x, dy, v, relu);
        expect_same(outs[t].f32, y, n_out, "max_pool2d", tables[t]->name);
        expect_same(grads[t].f32, dx, n_in, "max_pool2d_grad", tables[t]->name);
    }
    outputs_done(outs, "max_pool2d", false);
    outputs_done(grads, "max_pool2d_grad", false);
    free(x);
    free(dy);
    free(y);
    free(dx);
    free(activated);
}

static void try_average_pool(const ls_simd_pool *v, ls_attrs attr)
{
    size_t n_in = (size_t)(v->n * v->h * v->w * v->c), n_out = (size_t)(v->n * v->oh * v->ow * v->c);
    float *x = wild_floats(n_in, -9, 9), *dy = random_floats(n_out, -1, 1), *y = floats(n_out), *dx = floats(n_in);
    ls_ref_array in = image_array(x, v->n, v->h, v->w, v->c), gradient = image_array(dy, v->n, v->oh, v->ow, v->c);
    reference(LS_OP_average_pool2d, attr, image_array(y, v->n, v->oh, v->ow, v->c), &in, 1);
    reference(LS_OP_average_pool2d_grad, attr, image_array(dx, v->n, v->h, v->w, v->c), &gradient, 1);
    output outs[3], grads[3];
    for (int t = 0; t < table_count; t++) {
        outs[t] = output_of(n_out * sizeof(float));
        grads[t] = output_of(n_in * sizeof(float));
        tables[t]->average_pool2d(outs[t].f32, x, v);
        tables[t]->average_pool2d_grad(grads[t].f32, dy, v);
        expect_same(outs[t].f32, y, n_out, "average_pool2d", tables[t]->name);
        expect_same(grads[t].f32, dx, n_in, "average_pool2d_grad", tables[t]->name);
    }
    outputs_done(outs, "average_pool2d", false);
    outputs_done(grads, "average_pool2d_grad", false);
    free(x);
    free(dy);
    free(y);
    free(dx);
}

static void pooling_has_the_reference_bits(void **state)
{
    (void)state;
    for (size_t p = 0; p < LENGTH(pools); p++) {
        for (size_t s = 0; s < LENGTH(channel_counts); s++) {
            ls_simd_pool v = pools[p];
            v.n = 2;
            v.c = (int64_t)channel_counts[s];
            ls_attrs attr = { .window = { .window = { v.kh, v.kw },
                                          .stride = { v.sh, v.sw },
                                          .pad = { v.pad_top, 0, v.pad_left, 0 },
                                          .count_padding = v.count_padding } };
            try_max_pool(&v, attr, false);
            try_max_pool(&v, attr, true);
            try_average_pool(&v, attr);
        }
    }
}

/* ---- Random numbers ---- */

static void dropout_has_the_reference_bits(void **state)
{
    (void)state;
    const uint64_t seed = 7, run = (UINT64_C(5) << 32) + 9;
    const int64_t samples = 3, first = 1000;
    ls_philox_key key = ls_random_key(seed, LS_RANDOM_DROPOUT, 11, 2);
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        int64_t each = (int64_t)sizes[s];
        size_t n = (size_t)(samples * each);
        float *x = wild_floats(n, -9, 9), *want = floats(n), rate = 0.3f;
        ls_ref_array in[2] = { { x, LS_F32, LS_SHAPE(samples, each) }, { &rate, LS_F32, LS_SCALAR } };
        ls_tensor node = { .op = LS_OP_dropout, .per_sample = true, .input_count = 2 };
        node.attr.random.layer = 11;
        node.attr.random.call = 2;
        ls_ref_call call = { .node = &node,
                             .out = { want, LS_F32, LS_SHAPE(samples, each) },
                             .in = in,
                             .batch = 5000,
                             .first = first,
                             .seed = seed,
                             .run = run };
        assert_int_equal(ls_ref_run(&call), LS_OK);
        output outs[3];
        for (int t = 0; t < table_count; t++) {
            outs[t] = output_of(n * sizeof(float));
            tables[t]->dropout(outs[t].f32, x, key, run, (uint32_t)first, (size_t)samples, (size_t)each, rate);
            expect_same(outs[t].f32, want, n, "dropout", tables[t]->name);
        }
        outputs_done(outs, "dropout", false);
        free(x);
        free(want);
    }
}

/* ---- Updates ---- */

typedef struct update_case {
    ls_apply_rule rule;
    double momentum, decay;
    float rate, step;
    size_t n;
    float *w, *g, *slot[2];
} update_case;

#define BETA1   0.9
#define BETA2   0.999
#define RHO     0.95
#define EPSILON 1e-7

static ls_tensor update_node(const update_case *v)
{
    ls_tensor node = { .op = LS_OP_apply };
    node.attr.apply.rule = v->rule;
    node.attr.apply.momentum = v->momentum;
    node.attr.apply.beta_1 = BETA1;
    node.attr.apply.beta_2 = BETA2;
    node.attr.apply.rho = RHO;
    node.attr.apply.epsilon = EPSILON;
    node.attr.apply.weight_decay = v->decay;
    node.attr.apply.l1 = 0.3;
    node.attr.apply.l2 = 0.1;
    node.attr.apply.shrinkage = 0.2;
    node.attr.apply.beta = 0.4;
    node.input_count = ls_apply_step(&node) >= 0 ? 3 : 2;
    return node;
}

/* New w and slots by the reference kernel. */
static void update_reference(const update_case *v, float *out[3])
{
    float rate = v->rate, step = v->step;
    ls_variable w = { .data = v->w }, slots[2] = { { .data = v->slot[0] }, { .data = v->slot[1] } };
    ls_shape shape = LS_SHAPE((int64_t)v->n);
    ls_ref_array in[3] = { { v->g, LS_F32, shape }, { &rate, LS_F32, LS_SCALAR }, { &step, LS_F32, LS_SCALAR } };
    ls_tensor node = update_node(v);
    node.attr.apply.variable = &w;
    node.attr.apply.slot[0] = &slots[0];
    node.attr.apply.slot[1] = &slots[1];
    ls_ref_call call = { .node = &node,
                         .out = { out[0], LS_F32, shape },
                         .in = in,
                         .state = { v->w, v->slot[0], v->slot[1] },
                         .slots = { out[1], out[2] } };
    memcpy(out[1], v->slot[0], v->n * sizeof(float)); /* a slot that the rule has not stays */
    memcpy(out[2], v->slot[1], v->n * sizeof(float));
    assert_int_equal(ls_ref_run(&call), LS_OK);
}

static void try_update(const update_case *v)
{
    size_t bytes = v->n * sizeof(float), from = v->n / 5, to = v->n - v->n / 7;
    float *want[3] = { floats(v->n), floats(v->n), floats(v->n) };
    update_reference(v, want);
    ls_tensor node = update_node(v);
    ls_ref_update_f32 params = ls_ref_update_scalars_f32(&node, v->rate, v->step);
    const float *old[3] = { v->w, v->slot[0], v->slot[1] };
    output outs[3][3]; /* array, table */
    for (int t = 0; t < table_count; t++) {
        for (int a = 0; a < 3; a++) {
            outs[a][t] = output_of(bytes);
            memcpy(outs[a][t].f32, old[a], bytes);
        }
        assert_true(
            tables[t]->update(v->rule, outs[0][t].f32, v->g, outs[1][t].f32, outs[2][t].f32, from, to, &params));
        for (int a = 0; a < 3; a++)
            for (size_t i = 0; i < v->n; i++)
                if (!same_f32(outs[a][t].f32[i], i >= from && i < to ? want[a][i] : old[a][i]))
                    fail_msg("rule %d of %s, array %d: element %zu", (int)v->rule, tables[t]->name, a, i);
    }
    for (int a = 0; a < 3; a++) {
        outputs_done(outs[a], "update", false);
        free(want[a]);
    }
}

/* Array `a` (w, g, slots) has a number that is not safe at `at`: seen within from .. to-1 where the
 * rule reads it. epsilon is 0, so that what fills a vector up would be 0/0. */
static void try_broken_update(ls_apply_rule rule, int a, size_t at, float value, bool read)
{
    enum { N = 37, FROM = 3, TO = 36 };
    ls_tensor node = update_node(&(update_case){ .rule = rule, .momentum = 0.5 });
    node.attr.apply.epsilon = 0;
    ls_ref_update_f32 params = ls_ref_update_scalars_f32(&node, 0.1f, 1);
    for (int t = 0; t < table_count; t++) {
        float array[4][N];
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < N; k++)
                array[i][k] = 0.25f + (float)k;
        array[a][at] = value;
        bool good = tables[t]->update(rule, array[0], array[1], array[2], array[3], FROM, TO, &params);
        bool hidden = !read || at < FROM || at >= TO;
        if (good != hidden)
            fail_msg("rule %d of %s: %g in element %zu of array %d is%s reported", (int)rule, tables[t]->name,
                     (double)value, at, a, good ? " not" : "");
    }
}

static void updates_report_what_is_not_safe(void **state)
{
    (void)state;
    static const size_t places[] = { 2, 3, 20, 34, 35, 36 };
    static const float values[] = { NAN, INFINITY, -INFINITY, 1e35f, -1e35f };
    for (int rule = LS_APPLY_SGD; ls_apply_slots((ls_apply_rule)rule, true) >= 0; rule++)
        for (int a = 0; a < 4; a++)
            for (size_t p = 0; p < LENGTH(places); p++)
                for (size_t i = 0; i < LENGTH(values); i++)
                    try_broken_update((ls_apply_rule)rule, a, places[p], values[i],
                                      a < 2 + ls_apply_slots((ls_apply_rule)rule, true) &&
                                          /* the gradient replaces a smaller norm */
                                          !(rule == LS_APPLY_ADAMAX && a == 3 && values[i] < 0));
}

static void updates_have_the_reference_bits(void **state)
{
    (void)state;
    for (int rule = LS_APPLY_SGD; ls_apply_slots((ls_apply_rule)rule, false) >= 0; rule++) {
        for (int variant = 0; variant < 4; variant++) {
            for (size_t s = 0; s < LENGTH(sizes); s++) {
                size_t n = sizes[s];
                update_case v = { .rule = (ls_apply_rule)rule,
                                  .momentum = variant & 1 ? 0.9 : 0,
                                  .decay = variant & 2 ? 0.01 : 0,
                                  .rate = 0.003f,
                                  .step = (float)(1 + s),
                                  .n = n,
                                  .w = random_floats(n, -1, 1),
                                  .g = random_floats(n, -1, 1),
                                  .slot = { random_floats(n, 0, 1), random_floats(n, 0, 1) } };
                try_update(&v);
                free(v.w);
                free(v.g);
                free(v.slot[0]);
                free(v.slot[1]);
            }
        }
    }
}

int main(void)
{
    find_tables();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling_has_the_reference_bits),
        cmocka_unit_test(dropout_has_the_reference_bits),
        cmocka_unit_test(updates_have_the_reference_bits),
        cmocka_unit_test(updates_report_what_is_not_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
