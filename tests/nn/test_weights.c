/* Weights in other formats and layouts: through each of them and back the bits stay; files of
 * PyTorch, NumPy and Keras (tests/reference/make_weights.py) load, and give what those
 * compute; what contradicts itself is refused; differences are reported. */
#include <math.h>

#include "data_files.h"

#include "base/file.h"
#include "base/json.h"
#include "data/tensors.h"
#include "machine.h"
#include "nn/layout.h"

#define FILES "tests/reference/weights/"

static ls_context *ctx;

/* Layers named as those of the network in make_weights.py. */
static ls_model *torch_cnn(void)
{
    ls_model *model;
    OK(ls_sequential(ctx, "torch_cnn", &model, ls_input(5, 4, 3), ls_conv2d(4, 3, .padding = LS_SAME, .name = "conv"),
                     ls_batch_normalization(.epsilon = 1e-5, .name = "bn"), ls_relu(),
                     ls_depthwise_conv2d(3, .depth_multiplier = 2, .name = "dw"), ls_flatten(),
                     ls_batch_normalization(.epsilon = 1e-5, .name = "flat_bn"),
                     ls_layer_normalization(.epsilon = 1e-5, .name = "flat_ln"), ls_relu(), ls_dropout(0.5),
                     ls_dense(6, .activation = LS_TANH, .name = "fc"), ls_dense(5, .no_bias = true, .name = "out")));
    return model;
}

typedef struct hash {
    char hex[65];
} hash;

static hash hash_of(ls_model *model)
{
    hash h;
    OK(ls_model_weights_sha256(model, h.hex));
    return h;
}

static void read_file(const char *path, bytes *out)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    out->count = fread(out->data, 1, sizeof out->data, f);
    assert_true(feof(f));
    fclose(f);
}

/* ---- Round trips ---- */

static void every_format_and_layout_keeps_the_bits(void **state)
{
    (void)state;
    static const char *const names[] = { "w.safetensors", "w.npz", "w" };
    static bytes first, second;
    ls_model *model = torch_cnn();
    OK(ls_model_initialize(model, 5));
    hash before = hash_of(model);
    for (size_t i = 0; i < LENGTH(names); i++)
        for (int layout = LS_LAYOUT_AUTO; layout <= LS_LAYOUT_TORCH; layout++) {
            const char *path = in_folder(names[i]);
            OK(ls_model_save_weights(model, path, .layout = (ls_layout)layout));
            read_file(path, &first);
            OK(ls_model_initialize(model, 6));
            assert_string_not_equal(hash_of(model).hex, before.hex);
            OK(ls_model_load_weights(model, path));
            assert_string_equal(hash_of(model).hex, before.hex);
            OK(ls_model_save_weights(model, path, .layout = (ls_layout)layout)); /* equal weights, equal files */
            read_file(path, &second);
            assert_int_equal(first.count, second.count);
            assert_memory_equal(first.data, second.data, first.count);
        }
    ls_model_destroy(model);
}

static void a_dry_run_writes_nothing(void **state)
{
    (void)state;
    ls_model *model = torch_cnn();
    OK(ls_model_save_weights(model, in_folder("w.npz"), .dry_run = true));
    assert_int_not_equal(access(in_folder("w.npz"), F_OK), 0);
    FAILS(ls_model_save_weights(model, in_folder("w.pt"), .dry_run = true), LS_ERR_UNSUPPORTED, "w.pt", "safetensors");
    ls_model_destroy(model);
}

/* ---- Files by others ---- */

static ls_array array_of(const char *file, const char *name)
{
    ls_array array = { .data = NULL };
    OK(ls_npz_read(file, name, &array));
    return array;
}

static int64_t count_of(const ls_array *array)
{
    int64_t count = 1;
    for (int i = 0; i < array->shape.rank; i++)
        count *= array->shape.dims[i];
    return count;
}

static void assert_near(const ls_array *got, const ls_array *want, double tolerance)
{
    assert_int_equal(count_of(got), count_of(want));
    for (int64_t i = 0; i < count_of(got); i++) {
        double far = fabs((double)((float *)got->data)[i] - (double)((float *)want->data)[i]);
        if (!(far <= tolerance))
            fail_msg("element %lld: %g, not %g", (long long)i, (double)((float *)got->data)[i],
                     (double)((float *)want->data)[i]);
    }
}

static void pytorchs_weights_give_pytorchs_predictions(void **state)
{
    (void)state;
    static const char *const halves[][2] = { { "", "y" }, { "_f16", "y_f16" }, { "_bf16", "y_bf16" } };
    ls_model *model = torch_cnn();
    ls_array x = array_of(FILES "torch_cnn.npz", "x"), y;
    for (size_t i = 0; i < LENGTH(halves); i++) {
        char path[128];
        snprintf(path, sizeof path, FILES "torch_cnn%s.safetensors", halves[i][0]);
        ls_array want = array_of(FILES "torch_cnn.npz", halves[i][1]);
        OK(ls_model_load_weights(model, path)); /* the names tell the layout */
        OK(ls_predict_array(model, x, &y));
        assert_near(&y, &want, 1e-5);
        free(y.data);
        free(want.data);
    }
    free(x.data);
    ls_model_destroy(model);
}

/* The written file equals PyTorch's, except for its counters of batches. */
static void our_file_is_pytorchs(void **state)
{
    (void)state;
    bool equal;
    char *text;
    ls_model *model = torch_cnn();
    OK(ls_model_load_weights(model, FILES "torch_cnn.safetensors", .layout = LS_LAYOUT_TORCH));
    OK(ls_model_save_weights(model, in_folder("w.safetensors"), .layout = LS_LAYOUT_TORCH));
    OK(ls_weights_diff(FILES "torch_cnn.safetensors", in_folder("w.safetensors"), NULL, &equal, &text));
    assert_false(equal);
    machine_has(text, "\"bn.num_batches_tracked\" (): only in " FILES "torch_cnn.safetensors\n");
    machine_has(text, "different: 2 of 19 tensors\n");
    free(text);
    ls_model_destroy(model);
}

/* Number i of a stored kernel is the element of ours that PyTorch has there: [out, in, sizes], for
 * transposed kernels [in, out, sizes], for depthwise ones [channel x multiplier, 1, sizes]. */
static void kernels_have_pytorchs_order(void **state)
{
    (void)state;
    static const struct {
        const char *stored, *ours;
        bool depthwise;
    } rows[] = {
        { "c1.weight", "c1/kernel", false },
        { "t1.weight", "t1/kernel", false },
        { "d1.weight", "d1/kernel", true },
        { "s1.depthwise.weight", "s1/depthwise_kernel", true },
        { "t2.weight", "t2/kernel", false },
        { "s2.depthwise.weight", "s2/depthwise_kernel", true },
        { "s2.pointwise.weight", "s2/pointwise_kernel", false },
        { "s1.pointwise.weight", "s1/pointwise_kernel", false },
    };
    ls_model *model;
    OK(ls_sequential(ctx, "kernels", &model, ls_input(6, 5, 4), ls_conv2d_transpose(3, 2, .name = "t2"),
                     ls_separable_conv2d(4, .kernel_size = { 2, 3 }, .depth_multiplier = 2, .name = "s2"),
                     ls_reshape(-1, 4), ls_conv1d(6, 3, .groups = 2, .name = "c1"),
                     ls_conv1d_transpose(5, 4, 2, .name = "t1"),
                     ls_depthwise_conv1d(3, .depth_multiplier = 2, .name = "d1"),
                     ls_separable_conv1d(3, 2, .depth_multiplier = 3, .name = "s1")));
    ls_status status = ls_model_save_weights(model, in_folder("k.npz"), .layout = LS_LAYOUT_TORCH);
    assert_int_equal(status, LS_ERR_UNSUPPORTED); /* the reshape of an image */
    machine_has(ls_last_error(), "reshape");
    ls_model_destroy(model);
    OK(ls_functional_begin(ctx, "kernels", &model));
    ls_symbol image = ls_symbol_input(model, ls_input(6, 5, 4)), sequence = ls_symbol_input(model, ls_input(9, 4));
    image = ls_symbol_call(model, ls_conv2d_transpose(3, 2, .name = "t2"), image);
    image = ls_symbol_call(model, ls_separable_conv2d(4, .kernel_size = { 2, 3 }, .depth_multiplier = 2, .name = "s2"),
                           image);
    sequence = ls_symbol_call(model, ls_conv1d(6, 3, .groups = 2, .name = "c1"), sequence);
    sequence = ls_symbol_call(model, ls_conv1d_transpose(5, 4, 2, .name = "t1"), sequence);
    sequence = ls_symbol_call(model, ls_depthwise_conv1d(3, .depth_multiplier = 2, .name = "d1"), sequence);
    sequence = ls_symbol_call(model, ls_separable_conv1d(3, 2, .depth_multiplier = 3, .name = "s1"), sequence);
    OK(ls_functional_end(model, image, sequence));
    OK(ls_model_save_weights(model, in_folder("k.npz"), .layout = LS_LAYOUT_TORCH));
    for (size_t r = 0; r < LENGTH(rows); r++) {
        ls_array stored = array_of(in_folder("k.npz"), rows[r].stored), own;
        size_t at = 0;
        while (strcmp(ls_model_variable_name(model, at), rows[r].ours) != 0)
            at++;
        OK(ls_value(ls_model_variable(model, at), &own));
        const int64_t *k = own.shape.dims, *s = stored.shape.dims, in = k[own.shape.rank - 2],
                      out = k[own.shape.rank - 1];
        int64_t sizes = own.shape.rank == 4 ? k[0] * k[1] : k[0];
        assert_int_equal(stored.shape.rank, own.shape.rank);
        assert_int_equal(s[0], rows[r].depthwise ? in * out : out);
        assert_int_equal(s[1], rows[r].depthwise ? 1 : in);
        for (int64_t i = 0; i < count_of(&own); i++) {
            int64_t size = i % sizes, second = i / sizes % s[1], first = i / sizes / s[1];
            int64_t from = rows[r].depthwise ? first : second * out + first;
            if (((float *)stored.data)[i] != ((float *)own.data)[size * in * out + from])
                fail_msg("%s: element %lld", rows[r].stored, (long long)i);
        }
        free(stored.data);
    }
    ls_array bias = array_of(in_folder("k.npz"), "s1.pointwise.bias");
    free(bias.data);
    ls_model_destroy(model);
}

/* PyTorch's sequences are [C,T], so features after a Flatten have another order; those of a Dense
 * have not. */
static void flattened_sequences_have_pytorchs_order(void **state)
{
    (void)state;
    for (int convolved = 0; convolved < 2; convolved++) {
        ls_model *model;
        ls_layer first = convolved ? ls_conv1d(4, 2, .name = "first") : ls_dense(4, .name = "first");
        OK(ls_sequential(ctx, "flat", &model, ls_input(convolved ? 4 : 3, 2), first, ls_relu(), ls_flatten(),
                         ls_dense(5, .name = "fc")));
        OK(ls_model_save_weights(model, in_folder("f.npz"), .layout = LS_LAYOUT_TORCH));
        ls_array stored = array_of(in_folder("f.npz"), "fc.weight"), own;
        OK(ls_value(ls_model_variable(model, 2), &own));
        for (int unit = 0; unit < 5; unit++)
            for (int step = 0; step < 3; step++)
                for (int channel = 0; channel < 4; channel++) {
                    int feature = convolved ? channel * 3 + step : step * 4 + channel;
                    assert_true(((float *)stored.data)[unit * 12 + feature] ==
                                ((float *)own.data)[(step * 4 + channel) * 5 + unit]);
                }
        free(stored.data);
        ls_model_destroy(model);
    }
}

static void numpys_archives_load(void **state)
{
    (void)state;
    static const char *const files[] = { FILES "numpy.npz", FILES "numpy_packed.npz" };
    ls_model *model;
    float values[6];
    OK(ls_sequential(ctx, "m", &model, ls_input(2), ls_dense(3)));
    for (size_t i = 0; i < LENGTH(files); i++) {
        OK(ls_model_initialize(model, 1));
        OK(ls_model_load_weights(model, files[i]));
        OK(ls_read(ls_model_variable(model, 0), values, sizeof values));
        for (int k = 0; k < 6; k++)
            assert_true(values[k] == (float)k);
        OK(ls_read(ls_model_variable(model, 1), values, 3 * sizeof *values));
        assert_true(values[1] == -0.5f && isinf(values[2]));
    }
    ls_model_destroy(model);
}

/* ---- Keras's files ---- */

/* The variables are those of the .npz, bit for bit. */
static void assert_variables(ls_model *model, const char *file)
{
    for (size_t i = 0; i < ls_model_variable_count(model); i++) {
        ls_array want = array_of(file, ls_model_variable_name(model, i));
        size_t bytes = (size_t)count_of(&want) * sizeof(float);
        float *got = malloc(bytes);
        assert_non_null(got);
        OK(ls_read(ls_model_variable(model, i), got, bytes));
        assert_memory_equal(got, want.data, bytes);
        free(got);
        free(want.data);
    }
}

static void assert_predictions(ls_model *model, const char *file)
{
    ls_array inputs[2] = { { .data = NULL } }, want = array_of(file, "y"), got;
    int count = (int)ls_model_input_count(model);
    for (int i = 0; i < count; i++)
        inputs[i] = array_of(file, i == 0 ? "x0" : "x1");
    ls_dataset *data = ls_from_tensor_slices(.inputs = inputs, .input_count = count, .keep = LS_KEEP_OWNED);
    OK(ls_predict(model, data, &got));
    assert_near(&got, &want, 1e-6);
    free(got.data);
    free(want.data);
    ls_dataset_destroy(data);
}

static void kerass_files_load(void **state)
{
    (void)state;
    static const char *const names[] = { "sequential", "functional", "embedding" };
    for (size_t i = 0; i < LENGTH(names); i++) {
        char keras[128], json[128], weights[128], arrays[128];
        ls_model *whole, *model;
        snprintf(keras, sizeof keras, FILES "%s.keras", names[i]);
        snprintf(json, sizeof json, FILES "%s.json", names[i]);
        snprintf(weights, sizeof weights, FILES "%s.weights.h5", names[i]);
        snprintf(arrays, sizeof arrays, FILES "%s.npz", names[i]);
        OK(ls_model_from_keras(ctx, keras, &whole));
        assert_variables(whole, arrays);
        assert_predictions(whole, arrays);
        OK(ls_model_from_keras_json(ctx, json, &model));
        OK(ls_model_load_weights(model, weights));
        assert_variables(model, arrays);
        OK(ls_model_save_weights(model, in_folder("w.weights.h5"))); /* ours has the same arrays under the same names */
        bool equal;
        char *text;
        OK(ls_weights_diff(weights, in_folder("w.weights.h5"), NULL, &equal, &text));
        if (!equal)
            fail_msg("%s", text);
        free(text);
        ls_model_destroy(whole);
        ls_model_destroy(model);
    }
}

static void hdf5_keeps_the_bits(void **state)
{
    (void)state;
    static bytes first, second;
    ls_model *model = torch_cnn();
    hash before = hash_of(model);
    OK(ls_model_save_weights(model, in_folder("w.weights.h5")));
    read_file(in_folder("w.weights.h5"), &first);
    OK(ls_model_initialize(model, 6));
    OK(ls_model_load_weights(model, in_folder("w.weights.h5")));
    assert_string_equal(hash_of(model).hex, before.hex);
    OK(ls_model_save_weights(model, in_folder("w.weights.h5"))); /* equal weights, equal files */
    read_file(in_folder("w.weights.h5"), &second);
    assert_int_equal(first.count, second.count);
    assert_memory_equal(first.data, second.data, first.count);
    FAILS(ls_model_save_weights(model, in_folder("w.h5")), LS_ERR_INVALID, "w.h5", ".weights.h5");
    FAILS(ls_model_save_weights(model, in_folder("w.weights.h5"), .layout = LS_LAYOUT_TORCH), LS_ERR_INVALID,
          "Keras's layout");
    FAILS(ls_model_load_weights(model, in_folder("w.weights.h5"), .layout = LS_LAYOUT_TORCH), LS_ERR_INVALID,
          "Keras's layout");
    ls_model_destroy(model);
}

/* The model is written, too: read again, it is the same layers with the same weights, and computes
 * the same. */
static void assert_archive(ls_model *model, const char *name)
{
    char *before, *after, *first, *second;
    size_t bytes, others;
    ls_model *again;
    OK(ls_model_save_weights(model, in_folder("m.keras")));
    OK(ls_model_from_keras(ctx, in_folder("m.keras"), &again));
    assert_string_equal(hash_of(model).hex, hash_of(again).hex);
    OK(ls_model_summary(model, &before));
    OK(ls_model_summary(again, &after));
    if (strcmp(before, after) != 0)
        fail_msg("%s: %s\n%s", name, before, after);
    OK(ls_model_save_weights(again, in_folder("n.keras")));
    OK(ls_file_read(in_folder("m.keras"), SIZE_MAX, &first, &bytes));
    OK(ls_file_read(in_folder("n.keras"), SIZE_MAX, &second, &others));
    assert_int_equal(bytes, others);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
    free(before);
    free(after);
    ls_model_destroy(again);
}

static void models_are_written_as_keras_has_them(void **state)
{
    (void)state;
    static const char *const names[] = { "binary",    "class_weights", "cnn",         "depthwise",     "dropout",
                                         "embedding", "layer_norm",    "mlp",         "residual",      "regression",
                                         "shared",    "two_inputs",    "two_outputs", "sample_weights" };
    static const char *const texts[] = { "initializers", "frozen", "input_shape", "keyword_input" };
    ls_model *model;
    for (size_t i = 0; i < LENGTH(names) + LENGTH(texts); i++) {
        char path[128];
        const char *name = i < LENGTH(names) ? names[i] : texts[i - LENGTH(names)];
        snprintf(path, sizeof path, "tests/reference/keras/%s%s%s.json", i < LENGTH(names) ? "" : "readable/", name,
                 i < LENGTH(names) ? "/model" : "");
        OK(ls_model_from_keras_json(ctx, path, &model));
        assert_archive(model, name);
        ls_model_destroy(model);
    }
    OK(ls_model_from_keras(ctx, FILES "functional.keras", &model));
    OK(ls_model_save_weights(model, in_folder("f.keras")));
    ls_model_destroy(model);
    OK(ls_model_from_keras(ctx, in_folder("f.keras"), &model));
    assert_predictions(model, FILES "functional.npz");
    ls_model_destroy(model);
    OK(ls_model_builtin(ctx, "mnist-cnn", &model));
    assert_archive(model, "mnist-cnn");
    ls_model_destroy(model);
}

static void what_keras_has_no_word_for_is_refused(void **state)
{
    (void)state;
    ls_model *model;
    OK(ls_sequential(ctx, "m", &model, ls_input(5, 5, 2),
                     ls_conv2d(2, 3, .padding = LS_EXPLICIT, .zero_padding = { 1, 0, 1, 0 }, .name = "pads")));
    FAILS(ls_model_save_weights(model, in_folder("m.keras")), LS_ERR_UNSUPPORTED, "\"pads\"", ".weights.h5");
    FAILS(ls_model_save_weights(model, in_folder("m.keras"), .dry_run = true), LS_ERR_UNSUPPORTED, "\"pads\"");
    assert_int_not_equal(access(in_folder("m.keras"), F_OK), 0);
    OK(ls_model_save_weights(model, in_folder("m.weights.h5")));
    ls_model_destroy(model);
}

/* Groups whose trees have up to three levels. */
static void many_arrays_in_a_group(void **state)
{
    (void)state;
    enum { MOST = 8200 };
    static const size_t counts[] = { 1, 8, 9, 256, 257, MOST };
    ls_safetensors_entry *entries = calloc(MOST, sizeof *entries);
    char(*names)[16] = calloc(MOST, sizeof *names);
    int32_t *values = calloc(MOST, sizeof *values);
    assert_true(entries && names && values);
    for (int i = 0; i < MOST; i++) {
        values[i] = i;
        snprintf(names[i], sizeof names[i], "many/%d", i);
        entries[i] = (ls_safetensors_entry){
            .name = names[i], .dtype = LS_I32, .shape = LS_SHAPE(1), .data = &values[i], .bytes = 4
        };
    }
    for (size_t c = 0; c < LENGTH(counts); c++) {
        ls_tensors file;
        OK(ls_tensors_write(in_folder("w.h5"), LS_TENSORS_HDF5, entries, counts[c], NULL, 0));
        OK(ls_tensors_open(in_folder("w.h5"), &file));
        assert_int_equal(file.count, counts[c]);
        for (size_t i = 0; i < file.count; i++)
            assert_int_equal(((const int32_t *)file.entries[i].data)[0], atoi(file.entries[i].name + 5));
        ls_tensors_close(&file);
    }
    free(entries);
    free(names);
    free(values);
}

/* Variables of a Functional model, in the order in which Keras wrote them, created in another
 * order. */
static void layers_are_in_kerass_order(void **state)
{
    (void)state;
    static const char *const files[] = { "tests/reference/keras/readable/resnet50.json", FILES "functional.json",
                                         "tests/reference/keras/residual/model.json",
                                         "tests/reference/keras/two_outputs/model.json" };
    for (size_t f = 0; f < LENGTH(files); f++) {
        json_t *json = NULL, *entry;
        ls_model *model;
        size_t order[256], count, i;
        OK(ls_json_read_file(files[f], &json));
        OK(ls_model_from_keras_json(ctx, files[f], &model));
        assert_true(model->layer_count <= LENGTH(order));
        OK(ls_keras_order(model, order, &count));
        json_t *layers = json_object_get(json_object_get(json, "config"), "layers");
        assert_int_equal(json_array_size(layers), count);
        json_array_foreach(layers, i, entry)
            assert_string_equal(json_string_value(json_object_get(entry, "name")), model->layers[order[i]]->name);
        ls_model_destroy(model);
        json_decref(json);
    }
}

static void hostile_hdf5_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *words;
        ls_status status;
    } files[] = {
        { "external_link", "later format", LS_ERR_UNSUPPORTED },
        { "soft_link", "is a link to another", LS_ERR_UNSUPPORTED },
        { "external_storage", "another file", LS_ERR_UNSUPPORTED },
        { "virtual", "in one piece", LS_ERR_UNSUPPORTED },
        { "packed", "filter", LS_ERR_UNSUPPORTED },
        { "huge", "in one piece", LS_ERR_UNSUPPORTED },
        { "huge_shape", "exceeds any memory", LS_ERR_DATA },
        { "text", "neither little-endian integers nor", LS_ERR_UNSUPPORTED },
        { "unsigned", "neither little-endian integers nor", LS_ERR_UNSUPPORTED },
        { "many_axes", "9 axes", LS_ERR_UNSUPPORTED },
        { "loop", "too deep", LS_ERR_DATA },
        { "deep", "too deep", LS_ERR_DATA },
        { "same_bytes_twice", "of which other arrays have 8000", LS_ERR_DATA },
        { "latest", "later format of HDF5 (superblock", LS_ERR_UNSUPPORTED },
        { "big_endian", "neither little-endian integers nor", LS_ERR_UNSUPPORTED },
    };
    for (size_t i = 0; i < LENGTH(files); i++) {
        char path[128];
        ls_tensors file;
        snprintf(path, sizeof path, FILES "hostile_%s.h5", files[i].name);
        FAILS(ls_tensors_open(path, &file), files[i].status, path, files[i].words);
    }
}

/* Every type that h5py writes in these sizes, an array without elements, one number, and a group of
 * 270 arrays, whose tree has two levels. */
static void hdf5s_types_are_ours(void **state)
{
    (void)state;
    static const double values[] = { -3, 0, 100 };
    ls_tensors file;
    OK(ls_tensors_open(FILES "types.h5", &file));
    assert_int_equal(file.count, 270 + 11);
    for (size_t i = 0; i < file.count; i++) {
        const ls_safetensors_entry *e = &file.entries[i];
        if (strncmp(e->name, "many/", 5) == 0) {
            assert_int_equal(((const int32_t *)e->data)[0], atoi(e->name + 5));
            continue;
        }
        bool is_unsigned = e->name[0] == 'u';
        if (strcmp(e->name, "none") == 0 || strcmp(e->name, "one") == 0) {
            assert_int_equal(e->bytes, e->name[1] == 'o' ? 0 : 8);
            assert_true(e->name[1] == 'o' || *(const double *)e->data == 2.5);
            continue;
        }
        for (int k = 0; k < 3; k++) {
            double want = is_unsigned && k == 0 ? 3 : values[k];
            double got = e->dtype == LS_F32   ? (double)((const float *)e->data)[k]
                         : e->dtype == LS_F64 ? ((const double *)e->data)[k]
                         : e->dtype == LS_I32 ? ((const int32_t *)e->data)[k]
                         : e->dtype == LS_I64 ? (double)((const int64_t *)e->data)[k]
                                              : ((const uint8_t *)e->data)[k];
            if (!(got == want))
                fail_msg("%s: %g, not %g", e->name, got, want);
        }
    }
    ls_tensors_close(&file);
}

static void hdf5_files_cut_short_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "embedding.weights.h5", "embedding.keras" };
    static bytes whole;
    ls_tensors file;
    for (size_t i = 0; i < LENGTH(names); i++) {
        char path[128];
        snprintf(path, sizeof path, FILES "%s", names[i]);
        read_file(path, &whole);
        for (size_t n = 0; n < whole.count; n += n < 600 ? 1 : 97) {
            write_file(in_folder(names[i]), whole.data, n);
            assert_int_not_equal(ls_tensors_open(in_folder(names[i]), &file), LS_OK);
            assert_true(ls_last_error()[0] != '\0');
        }
        for (size_t n = 0; n < whole.count; n += 3) { /* wherever a byte is another, nothing worse than a failure */
            for (int bit = 0; bit < 8; bit += 7) {
                whole.data[n] ^= (unsigned char)(1 << bit);
                write_file(in_folder(names[i]), whole.data, whole.count);
                if (ls_tensors_open(in_folder(names[i]), &file) == LS_OK)
                    ls_tensors_close(&file);
                whole.data[n] ^= (unsigned char)(1 << bit);
            }
        }
    }
}

static void archives_that_are_no_kerass_are_refused(void **state)
{
    (void)state;
    static zip_writer z;
    static bytes content;
    ls_model *model = NULL;
    FAILS(ls_model_from_keras(ctx, FILES "numpy.npz", &model), LS_ERR_DATA, "not a .keras archive");
    content.count = 0;
    put(&content, "{}", 2);
    z = (zip_writer){ .count = 0 };
    zip_add(&z, "config.json", 0, false, &content);
    zip_end(&z, false, "");
    write_file(in_folder("w.keras"), z.file.data, z.file.count);
    FAILS(ls_model_from_keras(ctx, in_folder("w.keras"), &model), LS_ERR_DATA, "class_name");
    FAILS(ls_weights_diff(in_folder("w.keras"), in_folder("w.keras"), NULL, &(bool){ false }, &(char *){ NULL }),
          LS_ERR_DATA, "has no member model.weights.h5");
    write_file(in_folder("w.npz"), z.file.data, z.file.count);
    FAILS(ls_weights_diff(in_folder("w.npz"), in_folder("w.npz"), NULL, &(bool){ false }, &(char *){ NULL }),
          LS_ERR_DATA, "contradicts its ending", ".keras archive");
    assert_null(model);
}

/* ---- Names and contents ---- */

static void endings_and_contents_must_agree(void **state)
{
    (void)state;
    ls_model *model = torch_cnn();
    OK(ls_model_save_weights(model, in_folder("a.safetensors")));
    OK(ls_model_save_weights(model, in_folder("b.npz")));
    assert_int_equal(rename(in_folder("a.safetensors"), in_folder("a.npz")), 0);
    assert_int_equal(rename(in_folder("b.npz"), in_folder("b.safetensors")), 0);
    FAILS(ls_model_load_weights(model, in_folder("a.npz")), LS_ERR_DATA, "a.npz", "contradicts its ending",
          "safetensors file");
    FAILS(ls_model_load_weights(model, in_folder("b.safetensors")), LS_ERR_DATA, "b.safetensors", ".npz archive");
    assert_int_equal(rename(in_folder("b.safetensors"), in_folder("b")), 0);
    OK(ls_model_load_weights(model, in_folder("b"))); /* a name that says nothing */
    static const char *const others[] = { "w.pt", "w.pth", "w.bin", "w.ckpt", "w.onnx", "W.PT", "w.json", "w.csv" };
    for (size_t i = 0; i < LENGTH(others); i++) {
        FAILS(ls_model_save_weights(model, in_folder(others[i])), LS_ERR_UNSUPPORTED, others[i]);
        FAILS(ls_model_load_weights(model, in_folder(others[i])), LS_ERR_UNSUPPORTED, others[i]);
    }
    FAILS(ls_model_save_weights(model, in_folder("w.npy")), LS_ERR_INVALID, "one array", ".npz");
    FAILS(ls_model_load_weights(model, in_folder("none.npz")), LS_ERR_NOT_FOUND, "none.npz");
    ls_model_destroy(model);
}

static void a_layout_that_does_not_fit_is_reported(void **state)
{
    (void)state;
    ls_model *model = torch_cnn(), *pads;
    hash before = hash_of(model);
    OK(ls_model_save_weights(model, in_folder("w.npz")));
    FAILS(ls_model_load_weights(model, in_folder("w.npz"), .layout = LS_LAYOUT_TORCH), LS_ERR_NOT_FOUND,
          "\"conv.weight\"", "\"conv/kernel\"");
    assert_string_equal(hash_of(model).hex, before.hex);
    ls_model_destroy(model);
    /* No order of these features in PyTorch: a part of them was flattened. */
    OK(ls_functional_begin(ctx, "pads", &pads));
    ls_symbol a = ls_symbol_input(pads, ls_input(2, 2, 2)), b = ls_symbol_input(pads, ls_input(8, .name = "b"));
    ls_symbol both = ls_symbol_call(pads, ls_concatenate(.name = "both"), ls_symbol_call(pads, ls_flatten(), a), b);
    OK(ls_functional_end(pads, ls_symbol_call(pads, ls_dense(3), both)));
    FAILS(ls_model_save_weights(pads, in_folder("p.npz"), .layout = LS_LAYOUT_TORCH), LS_ERR_UNSUPPORTED, "both",
          "Flatten", "layout keras");
    OK(ls_model_save_weights(pads, in_folder("p.npz")));
    OK(ls_model_load_weights(pads, in_folder("p.npz")));
    ls_model_destroy(pads);
}

/* ---- Broken archives ---- */

static void an_archive_cut_anywhere_is_refused(void **state)
{
    (void)state;
    static bytes whole;
    ls_tensors file;
    float x[3] = { 1, 2, 3 };
    const char *names[] = { "a", "b/c" };
    ls_array arrays[] = { ls_array_of(LS_F32, LS_SHAPE(3), x), ls_array_of(LS_U8, LS_SHAPE(2), x) };
    OK(ls_npz_write(in_folder("w.npz"), names, arrays, 2));
    read_file(in_folder("w.npz"), &whole);
    OK(ls_tensors_open(in_folder("w.npz"), &file));
    assert_int_equal(file.count, 2);
    assert_string_equal(file.entries[1].name, "b/c");
    assert_memory_equal(file.entries[0].data, x, sizeof x);
    ls_tensors_close(&file);
    for (size_t i = 0; i < whole.count; i++) {
        write_file(in_folder("cut.npz"), whole.data, i);
        assert_int_not_equal(ls_tensors_open(in_folder("cut.npz"), &file), LS_OK);
    }
    for (size_t i = 0; i < whole.count; i++) { /* wherever a byte is another, nothing worse than a failure */
        whole.data[i] ^= 0x5a;
        write_file(in_folder("changed.npz"), whole.data, whole.count);
        if (ls_tensors_open(in_folder("changed.npz"), &file) == LS_OK)
            ls_tensors_close(&file);
        whole.data[i] ^= 0x5a;
    }
}

/* Members of a bomb: each says it is all of the file. */
static void members_over_each_other_are_refused(void **state)
{
    (void)state;
    static zip_writer z;
    static bytes content;
    static float zeros[4000];
    ls_tensors file;
    make_npy(&content, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4000,), }", zeros, sizeof zeros);
    z = (zip_writer){ .count = 0 };
    zip_add(&z, "a.npy", 0, false, &content);
    bytes entry = z.directory;
    for (int i = 0; i < 9; i++) { /* the same bytes again under another name */
        size_t begin = z.directory.count;
        put(&z.directory, entry.data, entry.count);
        z.directory.data[begin + 46] = (unsigned char)('b' + i);
        z.count++;
    }
    zip_end(&z, false, "");
    write_file(in_folder("bomb.npz"), z.file.data, z.file.count);
    FAILS(ls_tensors_open(in_folder("bomb.npz"), &file), LS_ERR_DATA, "bomb.npz", "members overlap", "b.npy");
}

static void archives_that_are_no_weights_are_refused(void **state)
{
    (void)state;
    static zip_writer z;
    static bytes content;
    ls_tensors file;
    content.count = 0;
    put(&content, "hello", 5);
    z = (zip_writer){ .count = 0 };
    zip_add(&z, "a.txt", 0, false, &content);
    zip_end(&z, false, "");
    write_file(in_folder("w.npz"), z.file.data, z.file.count);
    FAILS(ls_tensors_open(in_folder("w.npz"), &file), LS_ERR_DATA, "\"a.txt\" is not a .npy file");
    FAILS(ls_npz_write(in_folder("w.npz"), (const char *[]){ "a", "a" },
                       (ls_array[]){ ls_array_of(LS_U8, LS_SHAPE(1), "x"), ls_array_of(LS_U8, LS_SHAPE(1), "x") }, 2),
          LS_ERR_INVALID, "two members are named \"a.npy\"");
    FAILS(ls_npz_write(in_folder("w.npz"), (const char *[]){ "\xff" },
                       (ls_array[]){ ls_array_of(LS_U8, LS_SHAPE(1), "x") }, 1),
          LS_ERR_INVALID, "not a valid name for a member");
}

/* ---- Differences ---- */

static char *diff_of(const float a[3], const float b[3], bool *equal)
{
    char *text;
    const char *name = "w";
    OK(ls_npz_write(in_folder("a.npz"), &name, &ls_array_of(LS_F32, LS_SHAPE(3), a), 1));
    OK(ls_npz_write(in_folder("b.npz"), &name, &ls_array_of(LS_F32, LS_SHAPE(3), b), 1));
    OK(ls_weights_diff(in_folder("a.npz"), in_folder("b.npz"), NULL, equal, &text));
    return text;
}

static void assert_diff(const float a[3], const float b[3], const char *words)
{
    bool equal;
    char *text = diff_of(a, b, &equal);
    machine_has(text, words);
    assert_true(equal == (strstr(words, "equal bits") != NULL));
    free(text);
}

static void differences_are_reported(void **state)
{
    (void)state;
    const float nan1 = NAN, one[] = { 1, 2, 3 };
    assert_diff(one, one, "equal bits: 1 tensors, 3 elements\n");
    assert_diff(one, (float[]){ 1, 2.5, 3.25 },
                "\"w\": 2 of 3 elements differ, the most by 0.5 at (1,): 2 and 2.5\n"
                "different: 1 of 1 tensors; the largest difference is 0.5, in \"w\" at (1,)\n");
    assert_diff((float[]){ nan1, 2, 3 }, (float[]){ nan1, 2, 3 }, "equal bits");
    assert_diff((float[]){ 9, nan1, 3 }, (float[]){ 1, 2, 3 },
                "2 of 3 elements differ, the most by nan at (1,): nan and 2");
    assert_diff((float[]){ 1, 2, nan1 }, (float[]){ 1, 2, -nan1 }, "1 of 3 elements differ, the most by 0 at (2,)");
    assert_diff((float[]){ 0.f, 2, 3 }, (float[]){ -0.f, 2, 3 }, "the most by 0 at (0,): 0 and -0");
    assert_diff((float[]){ INFINITY, 2, 3 }, (float[]){ -INFINITY, 2, 3 }, "the most by inf at (0,): inf and -inf");
}

static void names_shapes_and_types_are_compared(void **state)
{
    (void)state;
    float x[4] = { 1, 2, 3, 4 };
    double wide[4] = { 1, 2, 3, 4 };
    bool equal;
    char *text;
    OK(ls_npz_write(in_folder("a.npz"), (const char *[]){ "s", "t", "only_a" },
                    (ls_array[]){ ls_array_of(LS_F32, LS_SHAPE(2, 2), x), ls_array_of(LS_F32, LS_SHAPE(4), x),
                                  ls_array_of(LS_F32, LS_SHAPE(1), x) },
                    3));
    OK(ls_npz_write(in_folder("b.npz"), (const char *[]){ "s", "t", "only_b" },
                    (ls_array[]){ ls_array_of(LS_F32, LS_SHAPE(4), x), ls_array_of(LS_F64, LS_SHAPE(4), wide),
                                  ls_array_of(LS_F32, LS_SCALAR, x) },
                    3));
    OK(ls_weights_diff(in_folder("a.npz"), in_folder("b.npz"), NULL, &equal, &text));
    assert_false(equal);
    machine_has(text, "\"s\": shapes (2, 2) and (4,)\n");
    machine_has(text, "\"t\": float32 and float64; 0 of 4 elements differ\n");
    machine_has(text, "\"only_a\" (1,): only in ");
    machine_has(text, "\"only_b\" (): only in ");
    machine_has(text, "different: 4 of 4 tensors\n");
    free(text);
}

static void layouts_are_compared_through_a_model(void **state)
{
    (void)state;
    bool equal;
    char *text;
    ls_model *model = torch_cnn();
    OK(ls_model_save_weights(model, in_folder("a.npz")));
    OK(ls_model_save_weights(model, in_folder("b.safetensors"), .layout = LS_LAYOUT_TORCH));
    OK(ls_weights_diff(in_folder("a.npz"), in_folder("b.safetensors"), NULL, &equal, &text));
    assert_false(equal);
    machine_has(text, "--model");
    free(text);
    OK(ls_weights_diff(in_folder("a.npz"), in_folder("b.safetensors"), model, &equal, &text));
    assert_true(equal);
    free(text);
    OK(ls_model_initialize(model, 3));
    hash before = hash_of(model);
    OK(ls_model_save_weights(model, in_folder("c.safetensors"), .layout = LS_LAYOUT_TORCH));
    OK(ls_weights_diff(in_folder("a.npz"), in_folder("c.safetensors"), model, &equal, &text));
    assert_false(equal);
    machine_has(text, "\"conv/kernel\": 108 of 108 elements differ");
    assert_string_equal(hash_of(model).hex, before.hex);
    free(text);
    ls_model_destroy(model);
}

static int open_context(void **state)
{
    (void)state;
    return ls_context_open(&(ls_context_options){ .log_level = LS_LOG_ERROR }, &ctx);
}

static int close_context(void **state)
{
    (void)state;
    ls_context_close(ctx);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_format_and_layout_keeps_the_bits),
        TEST(a_dry_run_writes_nothing),
        TEST(pytorchs_weights_give_pytorchs_predictions),
        TEST(our_file_is_pytorchs),
        TEST(kernels_have_pytorchs_order),
        TEST(flattened_sequences_have_pytorchs_order),
        TEST(numpys_archives_load),
        TEST(kerass_files_load),
        TEST(hdf5_keeps_the_bits),
        TEST(models_are_written_as_keras_has_them),
        TEST(what_keras_has_no_word_for_is_refused),
        TEST(many_arrays_in_a_group),
        TEST(layers_are_in_kerass_order),
        TEST(hostile_hdf5_files_are_refused),
        TEST(hdf5s_types_are_ours),
        TEST(hdf5_files_cut_short_are_refused),
        TEST(archives_that_are_no_kerass_are_refused),
        TEST(endings_and_contents_must_agree),
        TEST(a_layout_that_does_not_fit_is_reported),
        TEST(an_archive_cut_anywhere_is_refused),
        TEST(members_over_each_other_are_refused),
        TEST(archives_that_are_no_weights_are_refused),
        TEST(differences_are_reported),
        TEST(names_shapes_and_types_are_compared),
        TEST(layouts_are_compared_through_a_model),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
