/* Layers against Keras: random configurations of each class, read from Keras's JSON, with outputs
 * and gradients computed by Keras in float64. Ours must be as close as Keras's own float32. Every
 * .npz of tests/reference/layers is read, or of the folder LS_LAYER_CASES;
 * tests/reference/layer_cases.py makes and describes them. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "check.h"
#include "folder.h"
#include "graph_cases.h"
#include "lockstep.h"

#ifndef LS_TEST_DATA
#define LS_TEST_DATA "tests/reference"
#endif

/* Differences that are allowed: this many times that of Keras's float32, and units in the last
 * place of the largest element, since Keras's may be 0 by chance. */
#define TIMES 2.0
#define UNITS 8.0

#define MOST 16 /* tensors of one role in a case */

static ls_context *ctx;
static int failures, cases_seen;

#define COMPLAIN(...)                                                                                                  \
    do {                                                                                                               \
        if (++failures <= 20) {                                                                                        \
            print_error(__VA_ARGS__);                                                                                  \
            print_error("\n");                                                                                         \
        }                                                                                                              \
    } while (0)

/* ---- A case ---- */

typedef struct tensor_record {
    const char *role, *name;
    ls_dtype dtype;
    ls_shape shape;
    size_t count;
    double error;
    const float *drawn;
    const double *exact;
} tensor_record;

typedef struct layer_case {
    char what[512];
    const json_t *model;
    bool training;
    size_t count;
    tensor_record tensor[4 * MOST];
} layer_case;

/* Takes the numbers of the tensor from the front of *drawn or *exact. */
static void read_tensor(const json_t *record, const float **drawn, const double **exact, tensor_record *t)
{
    const json_t *size, *dtype = json_object_get(record, "dtype"), *error = json_object_get(record, "error");
    size_t axis;
    *t = (tensor_record){ .role = json_string_value(json_object_get(record, "role")),
                          .name = json_string_value(json_object_get(record, "name")),
                          .dtype = dtype ? test_dtype(json_string_value(dtype)) : LS_F32,
                          .count = 1 };
    json_array_foreach(json_object_get(record, "shape"), axis, size)
    {
        t->shape.dims[t->shape.rank++] = json_integer_value(size);
        t->count *= (size_t)json_integer_value(size);
    }
    if (error) {
        t->error = json_number_value(error);
        t->exact = *exact;
        *exact += t->count;
    } else {
        t->drawn = *drawn;
        *drawn += t->count;
    }
}

static size_t with_role(const layer_case *c, const char *role, const tensor_record *out[MOST])
{
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->tensor[i].role, role) == 0) {
            assert_true(count < MOST);
            out[count++] = &c->tensor[i];
        }
    return count;
}

/* ---- Comparing ---- */

static void compare(const layer_case *c, const tensor_record *expected, ls_tensor *found)
{
    ls_array value;
    if (!found) {
        COMPLAIN("%s: there is no %s of %s", c->what, expected->role, expected->name);
        return;
    }
    OK(ls_value(found, &value));
    if (!ls_shape_equal(&value.shape, &expected->shape)) {
        char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
        COMPLAIN("%s: %s of %s is %s, Keras's %s", c->what, expected->role, expected->name,
                 ls_shape_format(&value.shape, a), ls_shape_format(&expected->shape, b));
        return;
    }
    double worst = 0, largest = 0, allowed;
    for (size_t i = 0; i < expected->count; i++) {
        double difference = fabs(test_number(value.data, value.dtype, i) - expected->exact[i]);
        worst = difference <= worst ? worst : difference; /* NaN stays */
        largest = fmax(largest, fabs(expected->exact[i]));
    }
    allowed = TIMES * expected->error + UNITS * 0x1p-24 * largest;
    if (!(worst <= allowed))
        COMPLAIN("%s: %s of %s differs by %g, allowed is %g", c->what, expected->role, expected->name, worst, allowed);
}

/* ---- Running ---- */

static ls_model *make_model(const layer_case *c)
{
    ls_model *model = NULL;
    assert_int_equal(json_dump_file(c->model, in_folder("case.json"), 0), 0);
    if (ls_model_from_keras_json(ctx, in_folder("case.json"), &model) != LS_OK)
        COMPLAIN("%s: %s", c->what, ls_last_error());
    return model;
}

static size_t variable_index(const ls_model *model, const char *name)
{
    size_t i = 0;
    while (i < ls_model_variable_count(model) && strcmp(ls_model_variable_name(model, i), name) != 0)
        i++;
    return i;
}

/* Values of a drawn tensor in a type; free() them. */
static void *typed(const tensor_record *t, ls_dtype dtype)
{
    void *data = calloc(t->count + 1, ls_dtype_bytes(dtype));
    assert_non_null(data);
    for (size_t i = 0; i < t->count; i++)
        test_put_number(data, dtype, i, t->drawn[i]);
    return data;
}

static bool set_variable(ls_tensor *variable, const tensor_record *t)
{
    ls_dtype dtype = ls_tensor_dtype(variable);
    void *data = typed(t, dtype);
    ls_status status = ls_variable_set(variable, data, t->count * ls_dtype_bytes(dtype));
    free(data);
    return status == LS_OK;
}

static bool set_weights(const layer_case *c, const ls_model *model)
{
    const tensor_record *weights[MOST];
    size_t count = with_role(c, "weight", weights);
    bool fits = count == ls_model_variable_count(model);
    for (size_t i = 0; i < count && fits; i++) {
        size_t at = variable_index(model, weights[i]->name);
        fits = at < count && set_variable(ls_model_variable(model, at), weights[i]);
    }
    if (!fits)
        COMPLAIN("%s: the variables are not those of Keras: %zu of %zu, or other names or shapes", c->what,
                 ls_model_variable_count(model), count);
    return fits;
}

typedef struct run {
    ls_tensor *inputs[MOST], *outputs[MOST], *regularization;
    ls_feed feeds[2 * MOST];
    size_t input_count, output_count, feed_count;
} run;

static ls_tensor *add_feed(run *r, ls_graph *graph, const tensor_record *t)
{
    ls_shape shape = t->shape;
    shape.dims[0] = LS_BATCH;
    ls_tensor *input = ls_op_input(graph, NULL, t->dtype, shape);
    r->feeds[r->feed_count++] = (ls_feed){ input, ls_array_of(t->dtype, t->shape, typed(t, t->dtype)) };
    return input;
}

static bool trace(const layer_case *c, ls_model *model, run *r)
{
    const tensor_record *inputs[MOST];
    ls_trace extra;
    *r = (run){ .input_count = with_role(c, "input", inputs), .output_count = ls_model_output_count(model) };
    for (size_t i = 0; i < r->input_count; i++)
        r->inputs[i] = add_feed(r, ls_model_graph(model), inputs[i]);
    if (ls_model_trace(model, r->inputs, c->training, r->outputs, &extra) != LS_OK) {
        COMPLAIN("%s: %s", c->what, ls_last_error());
        return false;
    }
    r->regularization = extra.regularization;
    free(extra.updates);
    return true;
}

static void end_run(run *r)
{
    for (size_t i = 0; i < r->feed_count; i++)
        free(r->feeds[i].value.data);
}

/* Sum over all outputs of the output times its cotangent. */
static ls_tensor *total(const layer_case *c, ls_model *model, run *r)
{
    const tensor_record *cotangents[MOST];
    ls_tensor *sum = NULL;
    assert_int_equal(with_role(c, "cotangent", cotangents), r->output_count);
    for (size_t i = 0; i < r->output_count; i++) {
        ls_tensor *cotangent = add_feed(r, ls_model_graph(model), cotangents[i]);
        ls_tensor *part = ls_op_reduce_sum(ls_op_mul(r->outputs[i], cotangent), LS_ALL_AXES, false);
        sum = sum ? ls_op_add(sum, part) : part;
    }
    return sum;
}

static ls_tensor *moved(const ls_model *model, const run *r, const char *name)
{
    size_t at = variable_index(model, name);
    if (at < ls_model_variable_count(model))
        return ls_model_variable(model, at);
    for (size_t i = 0; i < r->input_count; i++)
        if (strcmp(ls_model_input_name(model, i), name) == 0)
            return r->inputs[i];
    return NULL;
}

/* Outputs, gradients and regularization. */
static void compare_run(const layer_case *c, ls_model *model)
{
    const tensor_record *outputs[MOST], *gradients[MOST], *losses[MOST];
    size_t gradient_count = with_role(c, "gradient", gradients), loss_count = with_role(c, "loss", losses);
    ls_tensor *of[MOST], *fetches[3 * MOST];
    size_t count = 0;
    run r;
    if (!trace(c, model, &r)) {
        end_run(&r);
        return;
    }
    assert_int_equal(with_role(c, "output", outputs), r.output_count);
    assert_int_equal(loss_count, r.regularization != NULL);
    for (size_t i = 0; i < gradient_count; i++) {
        of[i] = moved(model, &r, gradients[i]->name);
        assert_non_null(of[i]);
    }
    for (size_t i = 0; i < r.output_count; i++)
        fetches[count++] = r.outputs[i];
    if (gradient_count > 0)
        OK(ls_gradients_with(total(c, model, &r), of, gradient_count, (ls_gradients_options){ .zeros = true },
                             fetches + count));
    count += gradient_count;
    if (loss_count)
        fetches[count++] = r.regularization;
    OK(ls_eval(ls_model_graph(model), r.feeds, r.feed_count, fetches, count));
    for (size_t i = 0; i < count; i++)
        compare(c,
                i < r.output_count                    ? outputs[i]
                : i < r.output_count + gradient_count ? gradients[i - r.output_count]
                                                      : losses[0],
                fetches[i]);
    end_run(&r);
}

/* ---- Files ---- */

static void fetch_first_output(const layer_case *c, ls_model *model, void **value, size_t *bytes)
{
    run r;
    *bytes = 0;
    if (trace(c, model, &r)) {
        OK(ls_eval(ls_model_graph(model), r.feeds, r.feed_count, r.outputs, 1));
        *value = test_copy_value(r.outputs[0], bytes);
    }
    end_run(&r);
}

static void compare_models(const layer_case *c, ls_model *model, ls_model *other, const char *how)
{
    void *a = NULL, *b = NULL;
    size_t bytes = 0, others = 0;
    fetch_first_output(c, model, &a, &bytes);
    fetch_first_output(c, other, &b, &others);
    if (bytes != others || (bytes && memcmp(a, b, bytes) != 0))
        COMPLAIN("%s: the output differs after writing and reading %s", c->what, how);
    free(a);
    free(b);
}

/* The model is the same after writing and reading as .keras, and its weights in PyTorch's
 * layout. */
static void compare_files(const layer_case *c, ls_model *model)
{
    ls_model *other = NULL;
    const char *path = in_folder("case.keras"), *torch = in_folder("case.safetensors");
    if (ls_model_save_weights(model, path) != LS_OK || ls_model_from_keras(ctx, path, &other) != LS_OK) {
        COMPLAIN("%s: .keras: %s", c->what, ls_last_error());
        return;
    }
    compare_models(c, model, other, "as .keras");
    OK(ls_model_initialize(other, 99));
    ls_status status = ls_model_save_weights(model, torch, .layout = LS_LAYOUT_TORCH);
    if (status == LS_OK)
        status = ls_model_load_weights(other, torch, .layout = LS_LAYOUT_TORCH);
    if (status == LS_OK)
        compare_models(c, model, other, "in PyTorch's layout");
    else if (status != LS_ERR_UNSUPPORTED)
        COMPLAIN("%s: PyTorch's layout: %s", c->what, ls_last_error());
    ls_model_destroy(other);
}

/* ---- All cases ---- */

/* One case in so many is also written and read: files take longer than all else. */
#define FILES_OF_EACH 4

static void run_case(const layer_case *c)
{
    ls_model *model = make_model(c);
    cases_seen++;
    if (!model)
        return;
    if (set_weights(c, model)) {
        compare_run(c, model);
        if (cases_seen % FILES_OF_EACH == 1)
            compare_files(c, model);
    }
    ls_model_destroy(model);
}

static void run_file(const char *path, const char *file)
{
    ls_array text, drawn, exact;
    json_t *root = NULL, *record, *tensor;
    size_t index, i;
    OK(ls_npz_read(path, "cases", &text));
    OK(ls_npz_read(path, "drawn", &drawn));
    OK(ls_npz_read(path, "exact", &exact));
    assert_int_equal(drawn.dtype, LS_F32);
    assert_int_equal(exact.dtype, LS_F64);
    OK(ls_json_read_buffer(path, text.data, (size_t)text.shape.dims[0], &root));
    const float *next_drawn = drawn.data;
    const double *next_exact = exact.data;
    json_array_foreach(json_object_get(root, "cases"), index, record)
    {
        layer_case c = { .model = json_object_get(record, "model"),
                         .training = json_is_true(json_object_get(record, "training")) };
        snprintf(c.what, sizeof c.what, "%.100s, case %zu (%.60s)", file, index,
                 json_string_value(json_object_get(record, "class")));
        json_array_foreach(json_object_get(record, "tensors"), i, tensor)
        {
            assert_true(c.count < LENGTH(c.tensor));
            read_tensor(tensor, &next_drawn, &next_exact, &c.tensor[c.count++]);
        }
        run_case(&c);
    }
    assert_ptr_equal(next_drawn, (const float *)drawn.data + drawn.shape.dims[0]);
    assert_ptr_equal(next_exact, (const double *)exact.data + exact.shape.dims[0]);
    json_decref(root);
    free(text.data);
    free(drawn.data);
    free(exact.data);
}

static void layers_are_as_close_to_float64_as_keras(void **state)
{
    (void)state;
    const char *from = getenv("LS_LAYER_CASES") ? getenv("LS_LAYER_CASES") : LS_TEST_DATA "/layers";
    DIR *directory = opendir(from);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        char path[1024];
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".npz") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", from, entry->d_name);
        run_file(path, entry->d_name);
    }
    closedir(directory);
    assert_true(cases_seen > 0);
    if (failures > 0)
        fail_msg("%d differences in %d cases", failures, cases_seen);
}

static int set_up(void **state)
{
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    ls_context_close(ctx);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_as_close_to_float64_as_keras),
    };
    return cmocka_run_group_tests_name("keras_layers", tests, set_up, tear_down);
}
