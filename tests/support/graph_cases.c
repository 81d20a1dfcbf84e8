/* Help for tests of graphs: see graph_cases.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "graph/rules.h"
#include "graph_cases.h"

/* ---- Data ---- */

void test_random(double *out, size_t n, uint32_t stream, double low, double high)
{
    ls_philox_key key = ls_random_key(1, LS_RANDOM_TEST, stream, 0);
    for (size_t i = 0; i < n; i++) {
        ls_philox_block block = ls_random_block(key, 0, 0, (uint32_t)i);
        out[i] = low + (high - low) * ls_random_unit_f64(block.word[0], block.word[1]);
    }
}

/* Cell i of n equal cells between -2 and 2, somewhere in its middle half, but never about 0; then
 * shuffled. */
void test_random_apart(double *out, size_t n, uint32_t stream)
{
    test_random(out, n, stream, 0, 1);
    for (size_t i = 0; i < n; i++) {
        double jitter = out[i], cell = 4.0 / (double)n;
        out[i] = -2 + cell * ((double)i + 0.25 + 0.5 * jitter);
        if (fabs(out[i]) < cell / 8)
            out[i] = cell / 8;
    }
    for (size_t i = n; i-- > 1;) {
        double pick;
        test_random(&pick, 1, stream * 65536 + (uint32_t)i, 0, (double)i + 1);
        size_t k = (size_t)pick;
        double other = out[k];
        out[k] = out[i];
        out[i] = other;
    }
}

bool test_is_near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(1, fabs(b)); /* false when either is NaN */
}

void test_assert_near(const char *what, const double *a, const double *b, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!test_is_near(a[i], b[i], tolerance))
            fail_msg("%s: element %zu of %zu is %.17g, expected %.17g", what, i, n, a[i], b[i]);
}

/* ---- Specs ---- */

bool test_spec_is_real(const char *spec)
{
    return !strchr(spec, ':');
}

bool test_spec_has_batch(const char *spec)
{
    const char *sizes = strchr(spec, ':');
    sizes = sizes ? sizes + 1 : spec + strspn(spec, "+~#");
    return *sizes == 'N';
}

static ls_shape parse_sizes(const char *sizes, int64_t batch)
{
    ls_shape shape = { .rank = 0 };
    while (*sizes) {
        char *end = (char *)sizes + 1;
        bool letter = *sizes == 'N' || *sizes == 'n';
        shape.dims[shape.rank++] = letter ? batch : strtoll(sizes, &end, 10);
        assert_true(end > sizes && (*end == ',' || *end == 0));
        sizes = *end ? end + 1 : end;
    }
    return shape;
}

static void make_doubles(char domain, double *out, size_t n, uint32_t stream)
{
    if (domain == '+')
        test_random(out, n, stream, 0.5, 2.5);
    else if (domain == '~')
        test_random(out, n, stream, 0.05, 0.95);
    else
        test_random_apart(out, n, stream);
    for (size_t i = 0; domain == '#' && i < n; i++)
        out[i] = floor(out[i] * 64) / 64;
}

/* Reals of the leaf's type: those of float32 are those of float64, rounded. */
static void make_reals(test_leaf *leaf, char domain, uint32_t stream)
{
    if (leaf->dtype == LS_F64) {
        make_doubles(domain, leaf->data, leaf->count, stream);
        return;
    }
    double *numbers = calloc(leaf->count + 1, sizeof *numbers);
    assert_non_null(numbers);
    make_doubles(domain, numbers, leaf->count, stream);
    for (size_t i = 0; i < leaf->count; i++)
        ((float *)leaf->data)[i] = (float)numbers[i];
    free(numbers);
}

/* Integers below `bound`, of the leaf's type. */
static void make_integers(test_leaf *leaf, uint32_t stream, double bound)
{
    for (size_t i = 0; i < leaf->count; i++) {
        double number;
        test_random(&number, 1, stream * 65536 + (uint32_t)i, 0, bound);
        if (leaf->dtype == LS_I64)
            ((int64_t *)leaf->data)[i] = (int64_t)number;
        else if (leaf->dtype == LS_I32)
            ((int32_t *)leaf->data)[i] = (int32_t)number;
        else
            ((uint8_t *)leaf->data)[i] = (uint8_t)number;
    }
}

static test_leaf *new_leaf(test_graph *t, ls_dtype dtype, ls_shape shape)
{
    assert_true(t->count < TEST_LEAVES);
    int64_t count;
    assert_true(ls_shape_count(&shape, t->batch, &count));
    test_leaf *leaf = &t->leaf[t->count++];
    *leaf = (test_leaf){ .dtype = dtype, .shape = shape, .count = (size_t)count };
    leaf->data = calloc(leaf->count + 1, ls_dtype_bytes(dtype));
    assert_non_null(leaf->data);
    return leaf;
}

/* ---- Graphs ---- */

void test_graph_open_in(test_graph *t, ls_context *ctx, int64_t batch, ls_dtype real)
{
    *t = (test_graph){ .ctx = ctx, .shared = true, .batch = batch, .real = real };
    assert_int_equal(ls_graph_create(t->ctx, &t->graph, .seed = 1), LS_OK);
}

void test_graph_open(test_graph *t, int64_t batch)
{
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    test_graph_open_in(t, ctx, batch, LS_F64);
    t->shared = false;
}

void test_graph_close(test_graph *t)
{
    for (int i = 0; i < t->count; i++)
        free(t->leaf[i].data);
    ls_graph_destroy(t->graph);
    if (!t->shared)
        ls_context_close(t->ctx);
    *t = (test_graph){ 0 };
}

static void make_tensor(test_graph *t, test_leaf *leaf, test_kind kind, bool per_sample)
{
    leaf->kind = kind == TEST_GATHERED && !per_sample ? TEST_FED : kind;
    ls_shape shape = leaf->shape;
    if (per_sample)
        shape.dims[0] = LS_BATCH;
    if (kind == TEST_CONSTANT)
        leaf->source = ls_op_constant(t->graph, leaf->dtype, leaf->shape, leaf->data);
    else if (kind == TEST_VARIABLE)
        leaf->source = ls_op_variable(t->graph, NULL, leaf->dtype, leaf->shape, .data = leaf->data);
    else
        leaf->source = ls_op_input(t->graph, NULL, leaf->dtype, shape);
    leaf->tensor = leaf->kind == TEST_GATHERED ? ls_op_gather_batch(leaf->source) : leaf->source;
    assert_false(ls_tensor_is_error(leaf->tensor));
}

test_leaf *test_add(test_graph *t, const char *spec, test_kind kind)
{
    uint32_t stream = (uint32_t)t->count + 1;
    const char *colon = strchr(spec, ':'), *sizes = colon ? colon + 1 : spec + strspn(spec, "+~#");
    static const struct {
        char letter;
        ls_dtype dtype;
    } integers[] = { { 'i', LS_I64 }, { 'j', LS_I32 }, { 'u', LS_U8 }, { 'b', LS_BOOL } };
    ls_dtype dtype = t->real;
    for (size_t i = 0; colon && i < sizeof integers / sizeof *integers; i++)
        if (*spec == integers[i].letter)
            dtype = integers[i].dtype;
    test_leaf *leaf = new_leaf(t, dtype, parse_sizes(sizes, t->batch));
    if (dtype == t->real && !t->blank)
        make_reals(leaf, *spec, stream);
    else if (!t->blank)
        make_integers(leaf, stream, dtype == LS_BOOL ? 2 : strtod(spec + 1, NULL));
    make_tensor(t, leaf, kind, test_spec_has_batch(spec) && (kind == TEST_FED || kind == TEST_GATHERED));
    return leaf;
}

test_leaf *test_add_like(test_graph *t, const ls_tensor *y)
{
    uint32_t stream = (uint32_t)t->count + 1;
    assert_int_equal(y->dtype, t->real);
    test_leaf *leaf = new_leaf(t, t->real, ls_shape_at(&y->shape, t->batch));
    if (!t->blank)
        make_reals(leaf, 0, stream);
    make_tensor(t, leaf, y->per_sample ? TEST_FED : TEST_VARIABLE, y->per_sample);
    return leaf;
}

double test_number(const void *data, ls_dtype dtype, size_t i)
{
    switch (dtype) {
    case LS_F32:
        return ((const float *)data)[i];
    case LS_F64:
        return ((const double *)data)[i];
    case LS_I32:
        return ((const int32_t *)data)[i];
    case LS_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

void test_put_number(void *data, ls_dtype dtype, size_t i, double value)
{
    switch (dtype) {
    case LS_F32:
        ((float *)data)[i] = (float)value;
        break;
    case LS_F64:
        ((double *)data)[i] = value;
        break;
    case LS_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case LS_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    }
}

ls_dtype test_dtype(const char *name)
{
    for (int i = 0; i < LS_DTYPE_COUNT; i++)
        if (strcmp(ls_dtype_name((ls_dtype)i), name) == 0)
            return (ls_dtype)i;
    fail_msg("no type is called %s", name);
    return LS_F32;
}

void test_refused(const ls_tensor *result, const char *words)
{
    assert_true(ls_tensor_is_error(result));
    if (!strstr(result->message, words))
        fail_msg("\"%s\" does not say \"%s\"", result->message, words);
}

ls_status test_run(test_graph *t, ls_tensor *const *fetches, size_t count)
{
    ls_feed feeds[TEST_LEAVES];
    size_t fed = 0;
    for (int i = 0; i < t->count; i++) {
        test_leaf *leaf = &t->leaf[i];
        if (leaf->kind == TEST_VARIABLE)
            LS_TRY(ls_variable_set(leaf->source, leaf->data, leaf->count * ls_dtype_bytes(leaf->dtype)));
        else if (leaf->kind != TEST_CONSTANT)
            feeds[fed++] = (ls_feed){ leaf->source, ls_array_of(leaf->dtype, leaf->shape, leaf->data) };
    }
    t->graph->run = t->graph->step = 0;
    return ls_eval(t->graph, feeds, fed, fetches, count);
}

double *test_values(ls_tensor *tensor, size_t *count)
{
    ls_array value;
    int64_t n;
    if (ls_value(tensor, &value) != LS_OK)
        fail_msg("no value: %s", ls_last_error());
    assert_true(ls_shape_count(&value.shape, 0, &n));
    double *out = calloc((size_t)n + 1, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < (size_t)n; i++)
        out[i] = test_number(value.data, value.dtype, i);
    *count = (size_t)n;
    return out;
}

double test_scalar(ls_tensor *tensor)
{
    double value = NAN;
    if (ls_read_scalar(tensor, &value) != LS_OK)
        fail_msg("no scalar: %s", ls_last_error());
    return value;
}

void *test_copy_value(ls_tensor *tensor, size_t *bytes)
{
    ls_array value;
    int64_t count = 0;
    assert_int_equal(ls_value(tensor, &value), LS_OK);
    ls_shape_count(&value.shape, 0, &count);
    *bytes = (size_t)count * ls_dtype_bytes(value.dtype);
    void *copy = malloc(*bytes + 1);
    assert_non_null(copy);
    if (*bytes)
        memcpy(copy, value.data, *bytes);
    return copy;
}

bool test_has_op(const ls_graph *graph, const char *op)
{
    for (size_t i = 0; i < graph->node_count; i++)
        if (strcmp(ls_tensor_op(graph->nodes[i]), op) == 0)
            return true;
    return false;
}

/* ---- Builders ---- */

ls_tensor *test_build(const test_case *c, ls_tensor *const *x)
{
    return c->build ? c->build(c, x) : c->one ? c->one(x[0]) : c->two(x[0], x[1]);
}

ls_tensor *test_pull_back(ls_tensor *y, ls_tensor *x, ls_tensor *dy)
{
    ls_tensor *dx = NULL;
    if (ls_gradients_with(y, &x, 1, (ls_gradients_options){ .cotangent = dy }, &dx) != LS_OK)
        return NULL;
    return dx;
}

ls_tensor *test_matmul(const test_case *c, ls_tensor *const *x)
{
    return ls_op_matmul(x[0], x[1], .transpose_a = c->number & 1, .transpose_b = c->number & 2);
}

ls_tensor *test_conv2d(const test_case *c, ls_tensor *const *x)
{
    ls_conv2d_op options = c->options ? *(const ls_conv2d_op *)c->options : (ls_conv2d_op){ 0 };
    options.kernel = x[1];
    return ls_op_conv2d_with(x[0], options);
}

ls_tensor *test_max_pool(const test_case *c, ls_tensor *const *x)
{
    return ls_op_max_pool2d_with(x[0], *(const ls_pool2d_op *)c->options);
}

ls_tensor *test_average_pool(const test_case *c, ls_tensor *const *x)
{
    return ls_op_average_pool2d_with(x[0], *(const ls_pool2d_op *)c->options);
}

ls_tensor *test_warp(const test_case *c, ls_tensor *const *x)
{
    ls_warp_op options = *(const ls_warp_op *)c->options;
    options.matrix = x[1];
    return ls_op_warp_with(x[0], options);
}

ls_tensor *test_transpose(const test_case *c, ls_tensor *const *x)
{
    return ls_op_transpose(x[0], *(const ls_axes *)c->options);
}

ls_tensor *test_concat(const test_case *c, ls_tensor *const *x)
{
    size_t count = 0;
    while (count < TEST_INPUTS && c->in[count])
        count++;
    return ls_op_concat(x, count, c->number);
}

ls_tensor *test_softmax(const test_case *c, ls_tensor *const *x)
{
    return ls_op_softmax(x[0], c->number);
}

ls_tensor *test_log_softmax(const test_case *c, ls_tensor *const *x)
{
    return ls_op_log_softmax(x[0], c->number);
}

ls_tensor *test_top_k(const test_case *c, ls_tensor *const *x)
{
    return ls_op_top_k(x[0], c->number);
}

ls_tensor *test_gather(const test_case *c, ls_tensor *const *x)
{
    return ls_op_gather(x[0], x[1], c->number);
}

ls_tensor *test_clip(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_clip(x[0], -0.7, 0.9);
}

ls_tensor *test_leaky_relu(const test_case *c, ls_tensor *const *x)
{
    return ls_op_leaky_relu(x[0], c->real);
}

ls_tensor *test_elu(const test_case *c, ls_tensor *const *x)
{
    return ls_op_elu(x[0], c->real);
}

static ls_tensor *test_capped_relu(const test_case *c, ls_tensor *const *x)
{
    return ls_op_capped_relu(x[0], c->real);
}

ls_tensor *test_gelu(const test_case *c, ls_tensor *const *x)
{
    return ls_op_gelu(x[0], c->number);
}

ls_tensor *test_select(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_select(x[0], x[1], x[2]);
}

ls_tensor *test_cast(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_cast(ls_op_cast(x[0], x[0]->dtype == LS_F64 ? LS_F32 : LS_F64), x[0]->dtype);
}

ls_tensor *test_huber(const test_case *c, ls_tensor *const *x)
{
    return ls_op_huber(x[1], x[0], c->real);
}

ls_tensor *test_layer_norm(const test_case *c, ls_tensor *const *x)
{
    return ls_op_layer_norm(x[0], .gamma = x[1], .beta = x[2], .axes = c->number);
}

ls_tensor *test_batch_norm_training(const test_case *c, ls_tensor *const *x)
{
    return ls_op_batch_norm(x[0], .gamma = x[1], .beta = x[2], .training = true, .epsilon = c->real);
}

ls_tensor *test_batch_norm_inference(const test_case *c, ls_tensor *const *x)
{
    return ls_op_batch_norm(x[0], .gamma = x[1], .beta = x[2], .moving_mean = x[3], .moving_variance = x[4],
                            .epsilon = c->real);
}

ls_tensor *test_sparse_cross_entropy(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *scores = c->number == 2 ? ls_op_softmax(x[0], -1) : x[0];
    return ls_op_sparse_cross_entropy(x[1], scores, c->number ? LS_PROBABILITIES : LS_LOGITS);
}

ls_tensor *test_ctc(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_ctc(x[1], x[0]);
}

ls_tensor *test_ctc_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_ctc(c, x), x[0], x[2]);
}

ls_tensor *test_cross_entropy(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *scores = c->number == 2 ? ls_op_softmax(x[0], -1) : x[0];
    return ls_op_cross_entropy(x[1], scores, c->number ? LS_PROBABILITIES : LS_LOGITS);
}

ls_tensor *test_binary_cross_entropy(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *scores = c->number == 2 ? ls_op_sigmoid(x[0]) : x[0];
    return ls_op_binary_cross_entropy(x[1], scores, c->number ? LS_PROBABILITIES : LS_LOGITS);
}

ls_tensor *test_slice(const test_case *c, ls_tensor *const *x)
{
    const test_cut *o = c->options;
    return o->step.count ? ls_op_strided_slice(x[0], o->begin, o->end, o->step) : ls_op_slice(x[0], o->begin, o->end);
}

ls_tensor *test_slice_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_slice(c, x), x[0], x[1]);
}

ls_tensor *test_pad(const test_case *c, ls_tensor *const *x)
{
    const test_cut *o = c->options;
    return ls_op_pad(x[0], o->begin, o->end, c->real);
}

ls_tensor *test_gather_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_gather(c, x), x[0], x[2]);
}

ls_tensor *test_conv2d_grad_input(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_conv2d(c, x), x[0], x[2]);
}

ls_tensor *test_conv2d_grad_kernel(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_conv2d(c, x), x[1], x[2]);
}

ls_tensor *test_average_pool_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_average_pool(c, x), x[0], x[1]);
}

ls_tensor *test_warp_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_warp(c, x), x[0], x[2]);
}

ls_tensor *test_recurrent(const test_case *c, ls_tensor *const *x)
{
    ls_recurrent options = *(const ls_recurrent *)c->options;
    int next = 2;
    options.kernel = x[1];
    if (c->number & 1)
        options.bias = x[next++];
    if (c->number & 2)
        options.mask = x[next];
    return ls_op_recurrent(x[0], &options);
}

ls_tensor *test_recurrent_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_recurrent(c, x), x[0], x[2 + (c->number & 1) + (c->number >> 1)]);
}

ls_tensor *test_attention(const test_case *c, ls_tensor *const *x)
{
    ls_attention_op options = *(const ls_attention_op *)c->options;
    ls_tensor *part[3] = { x[0], x[1], x[2] };
    int next = 3;
    if (c->number & 1) {
        int64_t kv_heads = options.kv_heads ? options.kv_heads : options.heads;
        int64_t width = ls_tensor_shape(x[0]).dims[2] / (options.heads + 2 * kv_heads);
        ls_op_split(x[0], 2, LS_AXES(options.heads * width, kv_heads * width, kv_heads * width), part);
        next = 1;
    }
    options.k = part[1], options.v = part[2];
    if (c->number & 2)
        options.mask = x[next];
    if (c->number & 4)
        options.dropout_rate = ls_op_scalar(x[0]->graph, x[0]->dtype, 0.25);
    return ls_op_attention_with(part[0], options);
}

/* The output's gradient is the last input. */
ls_tensor *test_attention_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_attention(c, x), x[0], x[(c->number & 1 ? 1 : 3) + (c->number >> 1 & 1)]);
}

static int64_t elements(const ls_shape *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

static ls_status product(const ls_custom_sample *s, void *out, void *user)
{
    (void)user;
    size_t count = (size_t)elements(&s->shapes[0]), period = (size_t)elements(&s->shapes[1]);
    for (size_t i = 0; i < count; i++)
        test_put_number(out, s->dtypes[0], i,
                        test_number(s->inputs[0], s->dtypes[0], i) *
                            test_number(s->inputs[1], s->dtypes[1], i % period));
    return LS_OK;
}

static ls_status product_gradient(const ls_custom_sample *s, const void *dy, int input, void *dx, void *user)
{
    (void)user;
    ls_dtype type = s->dtypes[0];
    size_t count = (size_t)elements(&s->shapes[0]), period = (size_t)elements(&s->shapes[1]);
    for (size_t i = 0; i < count; i++) {
        size_t to = input == 0 ? i : i % period, other = input == 0 ? i % period : i;
        test_put_number(dx, type, to,
                        test_number(dx, type, to) +
                            test_number(dy, type, i) * test_number(s->inputs[1 - input], type, other));
    }
    return LS_OK;
}

ls_tensor *test_custom(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_custom("custom", .inputs = { x[0], x[1] }, .forward = product, .gradient = product_gradient);
}

ls_tensor *test_custom_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_custom(c, x), x[0], x[2]);
}

ls_tensor *test_max_pool_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_max_pool(c, x), x[0], x[1]);
}

ls_tensor *test_sparse_cross_entropy_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_sparse_cross_entropy(c, x), x[0], x[2]);
}

ls_tensor *test_batch_norm_grad(const test_case *c, ls_tensor *const *x)
{
    return test_pull_back(test_batch_norm_training(c, x), x[c->number], x[3]);
}

ls_tensor *test_dropout(const test_case *c, ls_tensor *const *x)
{
    return ls_op_dropout(x[0], x[1] ? x[1] : ls_op_scalar(x[0]->graph, x[0]->dtype, c->real));
}

ls_tensor *test_one_hot(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_one_hot(ls_op_cast(x[0], LS_I64), x[0]->dtype == LS_F32 ? LS_F32 : LS_F64, 3);
}

ls_tensor *test_capped_relu_grad(const test_case *c, ls_tensor *const *x)
{
    return ls_op_capped_relu_grad(x[0], x[1], c->real);
}

ls_tensor *test_silu_grad(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_silu_grad(x[0], x[1]);
}

ls_tensor *test_relu_grad(const test_case *c, ls_tensor *const *x)
{
    return ls_op_relu_grad(x[0], x[1], c->real);
}

ls_tensor *test_reduce(const test_case *c, ls_tensor *const *x)
{
    const test_reduction *r = c->options;
    return r->make(ls_op_square(x[0]), ls_axes_of_mask(c->number & 63), c->number & 64);
}

/* ---- Families ---- */

const test_case test_unary[] = {
    { "neg", .one = ls_op_neg },
    { "abs", .one = ls_op_abs },
    { "square", .one = ls_op_square },
    { "exp", .one = ls_op_exp },
    { "log", .in = { "+" }, .one = ls_op_log },
    { "sqrt", .in = { "+" }, .one = ls_op_sqrt },
    { "rsqrt", .in = { "+" }, .one = ls_op_rsqrt },
    { "erf", .one = ls_op_erf },
    { "clip", .build = test_clip },
    { "relu", .one = ls_op_relu },
    { "leaky_relu", .build = test_leaky_relu, .real = 0.1 },
    { "sigmoid", .one = ls_op_sigmoid },
    { "tanh", .one = ls_op_tanh },
    { "softplus", .one = ls_op_softplus },
    { "gelu", .build = test_gelu, .number = 0 },
    { "gelu", .build = test_gelu, .number = 1 },
    { "silu", .one = ls_op_silu },
    { "elu", .build = test_elu, .real = 1.3 },
    { "capped_relu", .build = test_capped_relu, .real = 0.9 },
};
const size_t test_unary_count = sizeof test_unary / sizeof *test_unary;

const test_case test_binary[] = {
    { "add", .two = ls_op_add },
    { "sub", .two = ls_op_sub },
    { "mul", .two = ls_op_mul },
    { "div", .in = { "", "+" }, .two = ls_op_div },
    { "pow", .in = { "+", "" }, .two = ls_op_pow },
    { "maximum", .in = { "", "" }, .two = ls_op_maximum, .mostly_zero = true },
    { "minimum", .in = { "", "" }, .two = ls_op_minimum, .mostly_zero = true },
};
const size_t test_binary_count = sizeof test_binary / sizeof *test_binary;

const test_reduction test_reductions[] = { { "reduce_sum", "sum", ls_op_reduce_sum },
                                           { "reduce_sum", "mean", ls_op_reduce_mean },
                                           { "reduce_max", "max", ls_op_reduce_max },
                                           { "reduce_min", "min", ls_op_reduce_min } };
const size_t test_reduction_count = sizeof test_reductions / sizeof *test_reductions;

/* ---- Suites ---- */

#define MOST_CASES 2048
test_case test_cases[MOST_CASES];
size_t test_case_count;
static struct CMUnitTest suite[MOST_CASES + 64];
static size_t suite_count;

char *test_text(const char *format, ...)
{
    char *out = NULL;
    va_list list;
    va_start(list, format);
    if (vasprintf(&out, format, list) < 0)
        abort();
    va_end(list);
    return out;
}

void test_cases_add(const test_case *rows, size_t count)
{
    if (count > MOST_CASES - test_case_count)
        abort();
    for (size_t i = 0; i < count; i++)
        test_cases[test_case_count++] = rows[i];
}

bool test_cases_have(const test_case *rows, size_t count, const char *op)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].op, op) == 0)
            return true;
    return false;
}

void test_suite_add(const char *name, void (*run)(void **state))
{
    if (suite_count == sizeof suite / sizeof *suite)
        abort();
    suite[suite_count++] = (struct CMUnitTest){ .name = name, .test_func = run };
}

void test_suite_add_cases(void (*run)(void **state))
{
    for (size_t i = 0; i < test_case_count; i++) {
        test_suite_add(test_text("%s: %s", test_cases[i].op, test_cases[i].variant), run);
        suite[suite_count - 1].initial_state = &test_cases[i];
    }
}

int test_suite_run(const char *name)
{
    return _cmocka_run_group_tests(name, suite, suite_count, NULL, NULL);
}
