/* Reads one layer of Keras's JSON by the tables of keras_classes.c. */
#include "nn/keras_keys.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/status.h"
#include "base/text.h"
#include "nn/layer.h"

ls_status ls_keras_fail(const ls_json_at *at, const ls_keras_label *label, ls_status status, const char *format, ...)
{
    ls_text text = { 0 };
    va_list args;
    va_start(args, format);
    ls_text_add_v(&text, format, args);
    va_end(args);
    status = ls_json_fail(at, status, "layer \"%s\" (%s): %s", label->name, label->class_name, ls_text_get(&text));
    ls_text_free(&text);
    return status;
}

ls_status ls_keras_builtin(const ls_json_at *at, const char *class_name)
{
    ls_json_at name;
    const char *text;
    if (!ls_json_find(at, "registered_name", &name) || json_is_null(name.value))
        return LS_OK;
    LS_TRY(ls_json_string(&name, &text));
    return strcmp(text, class_name) == 0
               ? LS_OK
               : ls_json_fail(&name, LS_ERR_UNSUPPORTED,
                              "\"%s\" is a custom class; only Keras's own classes are supported", text);
}

/* ---- Values ---- */

/* Reads 3, or a list of `count` integers that are at least `least`. */
static ls_status read_numbers(const ls_json_at *at, size_t count, int64_t least, int64_t *out)
{
    ls_json_at element = *at;
    bool list = json_is_array(at->value);
    if (list && ls_json_count(at) != count)
        return ls_json_fail(at, LS_ERR_DATA, "expected %zu number%s, found %zu", count, count == 1 ? "" : "s",
                            ls_json_count(at));
    for (size_t i = 0; i < count; i++) {
        if (list)
            LS_TRY(ls_json_element(at, i, &element));
        LS_TRY(ls_json_i64(&element, &out[i]));
        if (out[i] < least)
            return ls_json_fail(&element, LS_ERR_DATA, "must be at least %lld (got %lld)", (long long)least,
                                (long long)out[i]);
    }
    return LS_OK;
}

/* An output padding of 0 differs from none. */
static ls_status read_extra(const ls_json_at *at, size_t count, int64_t *out)
{
    LS_TRY(read_numbers(at, count, 0, out));
    for (size_t i = 0; i < count; i++)
        out[i] = out[i] ? out[i] : -1;
    return LS_OK;
}

static ls_status read_sides(const ls_json_at *at, int64_t out[4])
{
    ls_json_at row;
    LS_TRY(ls_json_is_array(at));
    if (ls_json_count(at) != 2)
        return ls_json_fail(at, LS_ERR_DATA, "expected ((top, bottom), (left, right))");
    for (size_t i = 0; i < 2; i++) {
        LS_TRY(ls_json_element(at, i, &row));
        LS_TRY(ls_json_is_array(&row));
        LS_TRY(read_numbers(&row, 2, 0, out + 2 * i));
    }
    return LS_OK;
}

static ls_status read_padding(const ls_json_at *at, bool takes_causal, ls_padding *out)
{
    const char *text;
    LS_TRY(ls_json_string(at, &text));
    bool causal = takes_causal && strcmp(text, "causal") == 0;
    if (!causal && strcmp(text, "valid") != 0 && strcmp(text, "same") != 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\": must be \"valid\"%s or \"same\"", text,
                            takes_causal ? ", \"causal\"" : "");
    *out = causal ? LS_CAUSAL : strcmp(text, "same") == 0 ? LS_SAME : LS_VALID;
    return LS_OK;
}

static ls_status read_interpolation(const ls_json_at *at, ls_interpolation *out)
{
    const char *text;
    LS_TRY(ls_json_string(at, &text));
    bool nearest = strcmp(text, "nearest") == 0;
    if (!nearest && strcmp(text, "bilinear") != 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\" is not supported; use \"nearest\" or \"bilinear\"", text);
    *out = nearest ? LS_NEAREST : LS_BILINEAR;
    return LS_OK;
}

/* Reads a layer in place of an activation, with the options that one of ours has. */
static ls_status read_activation_layer(const ls_json_at *at, ls_activation *out)
{
    ls_arena arena = { 0 };
    ls_layer read, layer;
    ls_status status = ls_keras_layer(at, &arena, &read);
    if (status == LS_OK)
        status = ls_layer_resolve(&read, &layer);
    ls_arena_free(&arena); /* layers inside, which no activation has */
    LS_TRY(status);
    const ls_activation_options *o = &layer.activation;
    bool relu = layer.kind == LS_LAYER_RELU && o->negative_slope == 0 && o->threshold == 0;
    if (relu && (isinf(o->max_value) || o->max_value == 6))
        *out = o->max_value == 6 ? LS_RELU6 : LS_RELU;
    else if (layer.kind == LS_LAYER_LEAKY_RELU && o->negative_slope == 0.2)
        *out = LS_LEAKY_RELU;
    else if (layer.kind == LS_LAYER_ELU && o->alpha == 1)
        *out = LS_ELU;
    else if (layer.kind == LS_LAYER_SOFTMAX && o->axis == -1)
        *out = LS_SOFTMAX;
    else
        return ls_json_fail(at, LS_ERR_UNSUPPORTED,
                            "a layer %s with these options is not supported as an activation; add it to the model as "
                            "a layer after this one, which then has the activation linear",
                            ls_layer_info_of(layer.kind)->class_name);
    return LS_OK;
}

/* Reads {"class_name": "function", "config": "relu"} as "relu"; NULL: the object is a layer. */
static ls_status read_function(const ls_json_at *at, const char **name)
{
    const char *class_name;
    LS_TRY(ls_json_get_string(at, "class_name", &class_name));
    *name = NULL;
    return strcmp(class_name, "function") == 0 ? ls_json_get_string(at, "config", name) : LS_OK;
}

/* Reads a word as its number in the list, from 1 on. */
static ls_status read_word(const ls_json_at *at, const char *const *words, int *out)
{
    const char *text;
    size_t count = 0;
    LS_TRY(ls_json_string(at, &text));
    for (; words[count]; count++)
        if (strcmp(words[count], text) == 0) {
            *out = (int)count + 1;
            return LS_OK;
        }
    return ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\" is not known%s", text, ls_advise_name(text, words, count).text);
}

/* Reads one number, or a list of `count`; 0 as LS_ZERO. */
static ls_status read_reals(const ls_json_at *at, size_t count, double *out)
{
    ls_json_at element;
    if (!json_is_array(at->value))
        return ls_keras_read_number(at, out);
    if (ls_json_count(at) != count)
        return ls_json_fail(at, LS_ERR_DATA, "expected %zu numbers, found %zu", count, ls_json_count(at));
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_json_element(at, i, &element));
        LS_TRY(ls_keras_read_number(&element, &out[i]));
    }
    return LS_OK;
}

static ls_status read_limits(const ls_json_at *at, double out[2])
{
    LS_TRY(ls_json_is_array(at));
    return read_reals(at, 2, out);
}

/* A layer's seed of 0 differs from none. */
static ls_status read_layer_seed(const ls_json_at *at, int64_t *out)
{
    if (json_is_null(at->value))
        return LS_OK;
    LS_TRY(ls_json_i64(at, out));
    if (*out < 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "the seed is %lld; it must be at least 0 or null", (long long)*out);
    *out = *out ? *out : -1;
    return LS_OK;
}

static ls_status read_activation(const ls_json_at *at, ls_activation *out)
{
    static const char *const aliases[][2] = { { "swish", "silu" }, { "hard_swish", "hard_silu" } };
    const char *names[64], *text;
    size_t count = 0;
    if (json_is_null(at->value)) {
        *out = LS_LINEAR;
        return LS_OK;
    }
    LS_TRY(json_is_object(at->value) ? read_function(at, &text) : ls_json_string(at, &text));
    if (!text)
        return read_activation_layer(at, out);
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        text = strcmp(text, aliases[i][0]) == 0 ? aliases[i][1] : text;
    if (strcmp(text, "threshold") == 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"threshold\" needs numbers, which JSON does not have");
    for (int a = 0; ls_activation_name((ls_activation)a); a++) {
        if (a == LS_GELU_TANH)
            continue;
        names[count++] = ls_activation_name((ls_activation)a);
        if (strcmp(text, names[count - 1]) == 0) {
            *out = (ls_activation)a;
            return LS_OK;
        }
    }
    return ls_json_fail(at, LS_ERR_UNSUPPORTED, "the activation \"%s\" is not known%s", text,
                        ls_advise_name(text, names, count).text);
}

static ls_status read_axis(const ls_json_at *at, int64_t *out)
{
    ls_json_at only = *at;
    if (json_is_array(at->value) && ls_json_count(at) == 1)
        LS_TRY(ls_json_element(at, 0, &only));
    else if (json_is_array(at->value))
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu axes: only one is supported", ls_json_count(at));
    LS_TRY(ls_json_i64(&only, out));
    return *out == 0 ? ls_json_fail(at, LS_ERR_UNSUPPORTED, "axis 0 is the batch axis; use another") : LS_OK;
}

static ls_status read_sizes(const ls_json_at *at, ls_shape *out)
{
    ls_json_at element;
    LS_TRY(ls_json_is_array(at));
    if (ls_json_count(at) == 0 || ls_json_count(at) > LS_MAX_RANK - 1)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu sizes; 1 to %d are supported", ls_json_count(at),
                            LS_MAX_RANK - 1);
    *out = (ls_shape){ .rank = (int)ls_json_count(at) };
    for (int i = 0; i < out->rank; i++) {
        LS_TRY(ls_json_element(at, (size_t)i, &element));
        LS_TRY(ls_json_i64(&element, &out->dims[i]));
    }
    return LS_OK;
}

ls_status ls_keras_dtype(const ls_json_at *at, const ls_keras_label *label, const char **out)
{
    ls_json_at config;
    if (json_is_object(at->value)) {
        const char *policy;
        LS_TRY(ls_json_get_string(at, "class_name", &policy));
        if (strcmp(policy, "DTypePolicy") != 0 && strcmp(policy, "FloatDTypePolicy") != 0)
            return ls_keras_fail(at, label, LS_ERR_UNSUPPORTED,
                                 "the type policy %s is not supported; use DTypePolicy with float32", policy);
        LS_TRY(ls_json_get_object(at, "config", &config));
        return ls_json_get_string(&config, "name", out);
    }
    return ls_json_string(at, out);
}

/* ---- A layer ---- */

static ls_status read_not(const ls_json_at *at, bool *out)
{
    bool value;
    LS_TRY(ls_json_bool(at, &value));
    *out = !value;
    return LS_OK;
}

static ls_status need_float32(const ls_json_at *at, const ls_keras_label *label)
{
    const char *dtype;
    if (json_is_null(at->value))
        return LS_OK;
    LS_TRY(ls_keras_dtype(at, label, &dtype));
    return strcmp(dtype, "float32") == 0
               ? LS_OK
               : ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\" is not supported; layers compute in float32", dtype);
}

/* A linear gate is not the default. */
static ls_status read_gate(const ls_json_at *at, ls_activation *out)
{
    LS_TRY(read_activation(at, out));
    if (*out == LS_LINEAR)
        *out = LS_NO_ACTIVATION;
    return LS_OK;
}

static ls_status read_inner(const ls_json_at *at, ls_arena *arena, const ls_layer **out)
{
    if (json_is_null(at->value))
        return LS_OK;
    ls_layer *inner = ls_arena_alloc(arena, sizeof(*inner));
    if (!inner)
        return ls_fail(LS_ERR_MEMORY, "no memory for a layer");
    *out = inner;
    return ls_keras_layer(at, arena, inner);
}

static ls_status read_merge_mode(const ls_json_at *at, ls_merge_mode *out)
{
    const char *text;
    if (json_is_null(at->value))
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "null, which gives two outputs, is not supported; use \"concat\"");
    LS_TRY(ls_json_string(at, &text));
    for (int i = 0; i < 4; i++)
        if (strcmp(text, ls_keras_merge_modes[i]) == 0) {
            *out = (ls_merge_mode)i;
            return LS_OK;
        }
    return ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\" is not known%s", text,
                        ls_advise_name(text, ls_keras_merge_modes, 4).text);
}

static ls_status need_word(const ls_json_at *at, const char *word)
{
    const char *text;
    LS_TRY(ls_json_string(at, &text));
    return strcmp(text, word) == 0
               ? LS_OK
               : ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\" is not supported; must be \"%s\"", text, word);
}

static ls_status read_key(const ls_keras_key *k, const ls_json_at *at, const ls_keras_label *label, ls_arena *arena,
                          ls_layer *out)
{
    void *field = (char *)&out->options + k->offset;
    double number;
    bool flag;
    switch (k->rule) {
    case NAME:
    case ANY:
        return LS_OK;
    case DTYPE:
        return need_float32(at, label);
    case I64_OR_NULL:
        return json_is_null(at->value) ? LS_OK : read_numbers(at, 1, 1, field);
    case I64:
        return read_numbers(at, 1, 1, field);
    case ARGUMENT:
        return ls_json_i64(at, field);
    case PAIR_OR_NULL:
        return json_is_null(at->value) ? LS_OK : read_numbers(at, 2, 1, field);
    case PAIR:
        return read_numbers(at, 2, 1, field);
    case EXTRA:
    case EXTRA_PAIR:
        return json_is_null(at->value) ? LS_OK : read_extra(at, k->rule == EXTRA ? 1 : 2, field);
    case BOOL:
        return ls_json_bool(at, field);
    case NOT:
        return read_not(at, field);
    case F64_OR_NULL:
        return json_is_null(at->value) ? LS_OK : ls_keras_read_number(at, field);
    case F64:
        return ls_keras_read_number(at, field);
    case PADDING:
    case CAUSAL_PADDING:
        return read_padding(at, k->rule == CAUSAL_PADDING, field);
    case SIDES:
        out->pad.padding = LS_EXPLICIT;
        return read_sides(at, field);
    case ENDS:
        out->pad.padding = LS_EXPLICIT;
        return read_numbers(at, 2, 0, field);
    case INTERPOLATION:
        return read_interpolation(at, field);
    case FILL_MODE:
        return read_word(at, ls_keras_fill_modes, field);
    case FLIP_MODE:
        return read_word(at, ls_keras_flip_modes, field);
    case FACTOR_OR_NULL:
        return json_is_null(at->value) ? LS_OK : read_reals(at, 2, field);
    case FACTOR:
        return read_reals(at, 2, field);
    case LIMITS:
        return read_limits(at, field);
    case FILL_VALUES:
        return json_is_null(at->value) ? LS_OK : read_reals(at, 3, field);
    case SEED:
        return read_layer_seed(at, field);
    case ACTIVATION:
        return read_activation(at, field);
    case GATE:
        return read_gate(at, field);
    case LAYER:
        return read_inner(at, arena, field);
    case MERGE_MODE:
        return read_merge_mode(at, field);
    case INITIALIZER:
        return ls_keras_read_initializer(at, field);
    case REGULARIZER:
    case ACTIVITY:
        return ls_keras_read_regularizer(at, field);
    case CONSTRAINT:
        return ls_keras_read_constraint(at, field);
    case AXIS:
        return read_axis(at, field);
    case AXES:
        LS_TRY(ls_keras_read_axes(at, field));
        if (out->kind == LS_LAYER_NORMALIZATION)
            out->normalization.no_axis = out->normalization.axes.count == 0;
        return LS_OK;
    case DOT_AXES:
        return ls_keras_read_dot_axes(at, &out->options);
    case NUMBERS:
        return ls_keras_read_numbers(at, field);
    case SIZES:
    case DIMS:
        return read_sizes(at, field);
    case NOISE_SHAPE:
        return ls_keras_read_noise_shape(at, field);
    case MUST_BE_NULL:
        return json_is_null(at->value) ? LS_OK : ls_json_fail(at, LS_ERR_UNSUPPORTED, "not supported; must be null");
    case MUST_BE_FALSE:
        LS_TRY(ls_json_bool(at, &flag));
        return flag ? ls_json_fail(at, LS_ERR_UNSUPPORTED, "not supported; must be false") : LS_OK;
    case MUST_BE_ZERO:
        LS_TRY(ls_json_f64(at, &number));
        return number != 0 ? ls_json_fail(at, LS_ERR_UNSUPPORTED, "%g is not supported; must be 0", number) : LS_OK;
    case MUST_BE_LAST:
        return json_is_null(at->value) ? LS_OK : need_word(at, "channels_last");
    case MUST_BE_CONSTANT:
        return need_word(at, "constant");
    }
    return LS_OK;
}

static ls_status read_input(const ls_json_at *config, const ls_keras_label *label, ls_input_options *o);

static ls_status read_config(const ls_keras_class *class, const ls_json_at *config, const ls_keras_label *label,
                             ls_arena *arena, ls_layer *out)
{
    if (!class->keys)
        return read_input(config, label, &out->input);
    const char *known[40];
    size_t count = 0;
    for (const ls_keras_key *k = class->keys; k->name; k++)
        known[count++] = k->name;
    LS_TRY(ls_json_known_keys(config, known, count));
    for (const ls_keras_key *k = class->keys; k->name; k++) {
        ls_json_at at;
        if (ls_json_find(config, k->name, &at))
            LS_TRY(read_key(k, &at, label, arena, out));
    }
    return LS_OK;
}

/* ---- Inputs ---- */

static ls_status read_input_type(const ls_json_at *at, const ls_keras_label *label, ls_dtype *out)
{
    const char *names[LS_DTYPE_COUNT], *text;
    LS_TRY(ls_keras_dtype(at, label, &text));
    for (int d = 0; d < LS_DTYPE_COUNT; d++) {
        names[d] = ls_dtype_name((ls_dtype)d);
        if (strcmp(names[d], text) == 0) {
            *out = (ls_dtype)d;
            return LS_OK;
        }
    }
    return ls_json_fail(at, LS_ERR_UNSUPPORTED, "inputs of type \"%s\" are not supported%s", text,
                        ls_advise_name(text, names, LS_DTYPE_COUNT).text);
}

/* [null, 28, 28, 1] */
static ls_status read_batch_shape(const ls_json_at *at, ls_shape *out)
{
    ls_json_at element;
    LS_TRY(ls_json_is_array(at));
    size_t rank = ls_json_count(at);
    if (rank == 0 || rank > LS_MAX_RANK)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu axes with the batch axis; 1 to %d are supported", rank,
                            LS_MAX_RANK);
    *out = (ls_shape){ .rank = (int)rank - 1 };
    for (size_t i = 0; i < rank; i++) {
        LS_TRY(ls_json_element(at, i, &element));
        if (i == 0 && !json_is_null(element.value))
            return ls_json_fail(&element, LS_ERR_UNSUPPORTED, "a fixed batch size is not supported; must be null");
        if (i > 0 && json_is_null(element.value))
            return ls_json_fail(&element, LS_ERR_UNSUPPORTED, "a size is unknown; only the batch axis may be null");
        if (i > 0)
            LS_TRY(ls_json_i64(&element, &out->dims[i - 1]));
    }
    return LS_OK;
}

static ls_status read_input(const ls_json_at *config, const ls_keras_label *label, ls_input_options *o)
{
    static const char *const known[] = { "name", "batch_shape", "dtype", "sparse", "ragged", "optional", "trainable" };
    static const char *const neutral[] = { "sparse", "ragged", "optional" };
    ls_json_at at;
    bool set = false;
    LS_TRY(ls_json_known_keys(config, known, sizeof(known) / sizeof(known[0])));
    for (size_t i = 0; i < sizeof(neutral) / sizeof(neutral[0]); i++) {
        LS_TRY(ls_json_opt_bool(config, neutral[i], &set));
        if (set)
            return ls_keras_fail(config, label, LS_ERR_UNSUPPORTED, "%s is true, which is not supported; must be false",
                                 neutral[i]);
    }
    if (ls_json_find(config, "dtype", &at) && !json_is_null(at.value))
        LS_TRY(read_input_type(&at, label, &o->dtype));
    LS_TRY(ls_json_get(config, "batch_shape", &at));
    return read_batch_shape(&at, &o->shape);
}

/* ---- By class ---- */

static ls_status unknown_class(const ls_json_at *at, const ls_keras_label *label)
{
    const char *names[LS_LAYER_KINDS];
    if (strcmp(label->class_name, "Lambda") == 0)
        return ls_keras_fail(at, label, LS_ERR_UNSUPPORTED,
                             "a Lambda holds Python code; make it a class of its own in Keras, and register a layer "
                             "of that class name with ls_register_layer");
    for (size_t i = 0; i < ls_keras_class_count; i++)
        names[i] = ls_keras_classes[i].name;
    return ls_keras_fail(at, label, LS_ERR_UNSUPPORTED,
                         "layers of class %s are not known%s; register a layer of your own with ls_register_layer",
                         label->class_name, ls_advise_name(label->class_name, names, ls_keras_class_count).text);
}

/* Reads a layer whose registered_name or class_name is registered. The JSON tree keeps the text of
 * the config, since a spec does not own memory. */
static ls_status read_registered(const ls_json_at *at, const ls_json_at *config, const ls_keras_label *label,
                                 ls_layer *out)
{
    const char *name = label->class_name;
    bool trainable = true;
    LS_TRY(ls_json_opt_string(at, "registered_name", &name));
    if (!ls_registered_find(name, NULL, NULL) && !ls_registered_find(label->class_name, NULL, NULL))
        return unknown_class(at, label);
    LS_TRY(ls_json_opt_bool(config, "trainable", &trainable));
    char *text = json_dumps(config->value, JSON_COMPACT | JSON_SORT_KEYS);
    json_t *kept = text ? json_string(text) : NULL;
    free(text);
    if (!kept || json_object_set_new((json_t *)at->value, "config text", kept) != 0)
        return ls_fail(LS_ERR_MEMORY, "no memory for the config of a layer");
    *out = ls_registered(ls_registered_find(name, NULL, NULL) ? name : label->class_name, json_string_value(kept));
    out->options.frozen = !trainable;
    out->options.name = strcmp(label->name, "?") == 0 ? NULL : label->name;
    return LS_OK;
}

ls_status ls_keras_layer(const ls_json_at *at, ls_arena *arena, ls_layer *out)
{
    static const char *const known[] = { "module",       "class_name", "config",       "registered_name",
                                         "build_config", "name",       "inbound_nodes" };
    const ls_keras_class *class = NULL;
    ls_keras_label label = { .name = "?" };
    ls_json_at config;
    LS_TRY(ls_json_is_object(at));
    LS_TRY(ls_json_get_string(at, "class_name", &label.class_name));
    LS_TRY(ls_json_get_object(at, "config", &config));
    LS_TRY(ls_json_opt_string(&config, "name", &label.name));
    for (size_t i = 0; i < ls_keras_class_count && !class; i++)
        if (strcmp(ls_keras_classes[i].name, label.class_name) == 0)
            class = &ls_keras_classes[i];
    if (!class)
        return read_registered(at, &config, &label, out);
    LS_TRY(ls_json_known_keys(at, known, sizeof(known) / sizeof(known[0])));
    LS_TRY(ls_keras_builtin(at, label.class_name));
    ls_layer layer;
    memset(&layer, 0, sizeof(layer)); /* an initializer would clear only one member of the union */
    layer.kind = class->kind;
    ls_status status = read_config(class, &config, &label, arena, &layer);
    /* The message has path and key, but not the layer. */
    if (status != LS_OK && !strstr(ls_last_error(), "layer \""))
        return ls_fail_within(status, "layer \"%s\" (%s)", label.name, label.class_name);
    LS_TRY(status);
    layer.options.name = strcmp(label.name, "?") == 0 ? NULL : label.name;
    *out = layer;
    return LS_OK;
}
