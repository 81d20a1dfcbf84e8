/* One layer of Keras's JSON. The table of each class maps its keys to options, or to the value that
 * a key must have. */
#include "nn/keras_keys.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/names.h"
#include "base/status.h"
#include "base/text.h"
#include "nn/layer.h"

ls_status ls_keras_fail(const ls_json_at *at, const ls_keras_who *who, ls_status status, const char *format, ...)
{
    ls_text text = { 0 };
    va_list args;
    va_start(args, format);
    ls_text_add_v(&text, format, args);
    va_end(args);
    status = ls_json_fail(at, status, "layer \"%s\" (%s): %s", who->name, who->class_name, ls_text_get(&text));
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
               : ls_json_fail(&name, LS_ERR_UNSUPPORTED, "\"%s\" is a class of the user's; only Keras's own are known",
                              text);
}

/* ---- Keys ---- */

#define AT(family, field) offsetof(ls_##family##_options, field)
#define COMMON                                                                                                         \
    { "name", NAME, 0 }, { "trainable", NOT, AT(layer, frozen) },                                                      \
    {                                                                                                                  \
        "dtype", DTYPE, 0                                                                                              \
    }
#define WINDOW(family)                                                                                                 \
    { "padding", PADDING, AT(family, padding) },                                                                       \
    {                                                                                                                  \
        "data_format", MUST_BE_LAST, 0                                                                                 \
    }
#define BIAS(family)                                                                                                   \
    { "activation", ACTIVATION, AT(family, activation) }, { "use_bias", NOT, AT(family, no_bias) },                    \
        { "bias_initializer", INITIALIZER, AT(family, bias_initializer) },                                             \
        { "bias_regularizer", REGULARIZER, AT(family, bias_regularizer) }, { "bias_constraint", MUST_BE_NULL, 0 },     \
    {                                                                                                                  \
        "activity_regularizer", MUST_BE_NULL, 0                                                                        \
    }
#define KERNEL(family, prefix)                                                                                         \
    { prefix "_initializer", INITIALIZER, AT(family, kernel_initializer) },                                            \
        { prefix "_regularizer", REGULARIZER, AT(family, kernel_regularizer) },                                        \
    {                                                                                                                  \
        prefix "_constraint", MUST_BE_NULL, 0                                                                          \
    }
#define NORM                                                                                                           \
    { "epsilon", F64, AT(norm, epsilon) }, { "center", NOT, AT(norm, no_center) },                                     \
        { "scale", NOT, AT(norm, no_scale) }, { "beta_initializer", INITIALIZER, AT(norm, beta_initializer) },         \
        { "gamma_initializer", INITIALIZER, AT(norm, gamma_initializer) },                                             \
        { "beta_regularizer", REGULARIZER, AT(norm, beta_regularizer) },                                               \
        { "gamma_regularizer", REGULARIZER, AT(norm, gamma_regularizer) }, { "beta_constraint", MUST_BE_NULL, 0 },     \
    {                                                                                                                  \
        "gamma_constraint", MUST_BE_NULL, 0                                                                            \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, NAME, 0                                                                                                  \
    }

/* clang-format off */
static const ls_keras_key dense_keys[] = {
    COMMON,
    { "units", ARGUMENT, AT(dense, first) },
    BIAS(dense),
    KERNEL(dense, "kernel"),
    { "quantization_config", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key conv_keys[] = {
    COMMON,
    { "filters", ARGUMENT, AT(conv, first) },
    { "kernel_size", PAIR, AT(conv, kernel_size) },
    { "strides", PAIR, AT(conv, strides) },
    WINDOW(conv),
    { "dilation_rate", PAIR, AT(conv, dilation_rate) },
    { "groups", I64, AT(conv, groups) },
    BIAS(conv),
    KERNEL(conv, "kernel"),
    END
};
static const ls_keras_key depthwise_keys[] = {
    COMMON,
    { "kernel_size", PAIR, AT(conv, kernel_size) },
    { "strides", PAIR, AT(conv, strides) },
    WINDOW(conv),
    { "dilation_rate", PAIR, AT(conv, dilation_rate) },
    { "depth_multiplier", I64, AT(conv, depth_multiplier) },
    BIAS(conv),
    KERNEL(conv, "depthwise"),
    END
};
static const ls_keras_key pool_keys[] = {
    COMMON,
    { "pool_size", PAIR, AT(pool, pool_size) },
    { "strides", PAIR_OR_NULL, AT(pool, strides) },
    WINDOW(pool),
    END
};
static const ls_keras_key global_keys[] = {
    COMMON,
    { "data_format", MUST_BE_LAST, 0 },
    { "keepdims", BOOL, AT(pool, keepdims) },
    END
};
static const ls_keras_key pad_keys[] = {
    COMMON,
    { "padding", SIDES, AT(pad, zero_padding) },
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key flatten_keys[] = {
    COMMON,
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key reshape_keys[] = {
    COMMON,
    { "target_shape", SIZES, AT(reshape, shape) },
    END
};
static const ls_keras_key dropout_keys[] = {
    COMMON,
    { "rate", F64, AT(dropout, rate) },
    { "seed", MUST_BE_NULL, 0 },
    { "noise_shape", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key batch_norm_keys[] = {
    COMMON,
    { "axis", AXIS, AT(norm, axis) },
    { "momentum", F64, AT(norm, momentum) },
    NORM,
    { "moving_mean_initializer", INITIALIZER, AT(norm, moving_mean_initializer) },
    { "moving_variance_initializer", INITIALIZER, AT(norm, moving_variance_initializer) },
    { "synchronized", MUST_BE_FALSE, 0 },
    { "renorm", MUST_BE_FALSE, 0 },
    { "renorm_clipping", ANY, 0 },
    { "renorm_momentum", ANY, 0 },
    END
};
static const ls_keras_key layer_norm_keys[] = {
    COMMON,
    { "axis", LAST_AXES, AT(norm, last_axes) },
    NORM,
    { "rms_scaling", MUST_BE_FALSE, 0 },
    END
};
static const ls_keras_key embedding_keys[] = {
    COMMON,
    { "input_dim", ARGUMENT, AT(embedding, first) },
    { "output_dim", ARGUMENT, AT(embedding, second) },
    KERNEL(embedding, "embeddings"),
    { "activity_regularizer", MUST_BE_NULL, 0 },
    { "mask_zero", MUST_BE_FALSE, 0 },
    { "input_length", MUST_BE_NULL, 0 },
    { "quantization_config", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key activation_keys[] = {
    COMMON,
    { "activation", ACTIVATION, AT(activation, activation) },
    END
};
static const ls_keras_key relu_keys[] = {
    COMMON,
    { "max_value", F64_OR_NULL, AT(activation, max_value) },
    { "negative_slope", F64, AT(activation, negative_slope) },
    { "threshold", F64, AT(activation, threshold) },
    END
};
static const ls_keras_key leaky_keys[] = {
    COMMON,
    { "negative_slope", F64, AT(activation, negative_slope) },
    END
};
static const ls_keras_key softmax_keys[] = {
    COMMON,
    { "axis", AXIS, AT(activation, axis) },
    END
};
static const ls_keras_key merge_keys[] = {
    COMMON,
    END
};
static const ls_keras_key concatenate_keys[] = {
    COMMON,
    { "axis", AXIS, AT(merge, axis) },
    END
};
static const ls_keras_key rescaling_keys[] = {
    COMMON,
    { "scale", F64, AT(rescaling, scale_by) },
    { "offset", F64, AT(rescaling, offset) },
    END
};
/* clang-format on */

static const ls_keras_class classes[] = {
    { "InputLayer", LS_LAYER_INPUT, NULL },
    { "Dense", LS_LAYER_DENSE, dense_keys },
    { "Conv2D", LS_LAYER_CONV2D, conv_keys },
    { "DepthwiseConv2D", LS_LAYER_DEPTHWISE_CONV2D, depthwise_keys },
    { "MaxPooling2D", LS_LAYER_MAX_POOL2D, pool_keys },
    { "AveragePooling2D", LS_LAYER_AVERAGE_POOL2D, pool_keys },
    { "GlobalMaxPooling2D", LS_LAYER_GLOBAL_MAX_POOL2D, global_keys },
    { "GlobalAveragePooling2D", LS_LAYER_GLOBAL_AVERAGE_POOL2D, global_keys },
    { "Flatten", LS_LAYER_FLATTEN, flatten_keys },
    { "Reshape", LS_LAYER_RESHAPE, reshape_keys },
    { "Dropout", LS_LAYER_DROPOUT, dropout_keys },
    { "BatchNormalization", LS_LAYER_BATCH_NORMALIZATION, batch_norm_keys },
    { "LayerNormalization", LS_LAYER_LAYER_NORMALIZATION, layer_norm_keys },
    { "Activation", LS_LAYER_ACTIVATION, activation_keys },
    { "ReLU", LS_LAYER_RELU, relu_keys },
    { "LeakyReLU", LS_LAYER_LEAKY_RELU, leaky_keys },
    { "Softmax", LS_LAYER_SOFTMAX, softmax_keys },
    { "Add", LS_LAYER_ADD, merge_keys },
    { "Multiply", LS_LAYER_MULTIPLY, merge_keys },
    { "Concatenate", LS_LAYER_CONCATENATE, concatenate_keys },
    { "ZeroPadding2D", LS_LAYER_ZERO_PADDING2D, pad_keys },
    { "Embedding", LS_LAYER_EMBEDDING, embedding_keys },
    { "Rescaling", LS_LAYER_RESCALING, rescaling_keys },
};
#define CLASS_COUNT (sizeof(classes) / sizeof(classes[0]))

const ls_keras_class *ls_keras_class_of(ls_layer_kind kind)
{
    for (size_t i = 0; i < CLASS_COUNT; i++)
        if (classes[i].kind == kind)
            return &classes[i];
    return NULL;
}

/* ---- Values ---- */

static ls_status read_pair(const ls_json_at *at, int64_t out[2])
{
    ls_json_at element;
    if (json_is_integer(at->value)) {
        LS_TRY(ls_json_i64(at, &out[0]));
        out[1] = out[0];
    } else {
        LS_TRY(ls_json_is_array(at));
        if (ls_json_count(at) != 2)
            return ls_json_fail(at, LS_ERR_DATA, "expected two numbers, found %zu", ls_json_count(at));
        for (size_t i = 0; i < 2; i++) {
            LS_TRY(ls_json_element(at, i, &element));
            LS_TRY(ls_json_i64(&element, &out[i]));
        }
    }
    for (int i = 0; i < 2; i++)
        if (out[i] < 1)
            return ls_json_fail(at, LS_ERR_DATA, "%lld: both numbers are at least 1", (long long)out[i]);
    return LS_OK;
}

static ls_status read_sides(const ls_json_at *at, int64_t out[4])
{
    ls_json_at row, element;
    LS_TRY(ls_json_is_array(at));
    if (ls_json_count(at) != 2)
        return ls_json_fail(at, LS_ERR_DATA, "expected ((top, bottom), (left, right))");
    for (size_t i = 0; i < 2; i++) {
        LS_TRY(ls_json_element(at, i, &row));
        LS_TRY(ls_json_is_array(&row));
        if (ls_json_count(&row) != 2)
            return ls_json_fail(at, LS_ERR_DATA, "expected ((top, bottom), (left, right))");
        for (size_t j = 0; j < 2; j++) {
            LS_TRY(ls_json_element(&row, j, &element));
            LS_TRY(ls_json_i64(&element, &out[2 * i + j]));
        }
    }
    return LS_OK;
}

static ls_status read_number(const ls_json_at *at, double *out)
{
    LS_TRY(ls_json_f64(at, out));
    if (*out == 0) /* explicitly 0, not unset */
        *out = LS_ZERO;
    return LS_OK;
}

static ls_status read_padding(const ls_json_at *at, ls_padding *out)
{
    const char *text;
    LS_TRY(ls_json_string(at, &text));
    if (strcmp(text, "valid") != 0 && strcmp(text, "same") != 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\": it is \"valid\" or \"same\"", text);
    *out = strcmp(text, "same") == 0 ? LS_SAME : LS_VALID;
    return LS_OK;
}

static ls_status read_activation(const ls_json_at *at, ls_activation *out)
{
    static const char *const aliases[][2] = { { "swish", "silu" } };
    const char *names[32], *text;
    size_t count = 0;
    if (json_is_null(at->value)) {
        *out = LS_LINEAR;
        return LS_OK;
    }
    if (json_is_object(at->value))
        return ls_json_fail(at, LS_ERR_UNSUPPORTED,
                            "an activation that is an object; only Keras's own, by name, are known");
    LS_TRY(ls_json_string(at, &text));
    if (strcmp(text, aliases[0][0]) == 0)
        text = aliases[0][1];
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

/* Reads an axis, or a list of one axis. Axis 0 is the batch axis. */
static ls_status read_axis(const ls_json_at *at, int64_t *out)
{
    ls_json_at only = *at;
    if (json_is_array(at->value) && ls_json_count(at) == 1)
        LS_TRY(ls_json_element(at, 0, &only));
    else if (json_is_array(at->value))
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu axes: only one is supported", ls_json_count(at));
    LS_TRY(ls_json_i64(&only, out));
    return *out == 0 ? ls_json_fail(at, LS_ERR_UNSUPPORTED, "axis 0 is the batch axis") : LS_OK;
}

/* Reads -1, or a list of consecutive axes that ends with the last. Axes counted from the front need
 * the rank, which the build configuration gives. */
static ls_status read_last_axes(const ls_json_at *at, const ls_json_at *layer, int *out)
{
    ls_json_at build, shape, element = *at;
    size_t count = json_is_array(at->value) ? ls_json_count(at) : 1;
    int64_t rank = 0;
    if (ls_json_find(layer, "build_config", &build) && ls_json_find(&build, "input_shape", &shape))
        rank = (int64_t)ls_json_count(&shape);
    if (count == 0 || count > LS_MAX_RANK)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu axes", count);
    for (size_t i = 0; i < count; i++) {
        int64_t axis;
        if (json_is_array(at->value))
            LS_TRY(ls_json_element(at, i, &element));
        LS_TRY(ls_json_i64(&element, &axis));
        if (axis >= 0 && rank > 0)
            axis -= rank;
        if (axis != (int64_t)i - (int64_t)count)
            return ls_json_fail(at, LS_ERR_UNSUPPORTED, "only the last axes, in order, can be normalised over");
    }
    *out = (int)count;
    return LS_OK;
}

static ls_status read_sizes(const ls_json_at *at, ls_shape *out)
{
    ls_json_at element;
    LS_TRY(ls_json_is_array(at));
    if (ls_json_count(at) == 0 || ls_json_count(at) > LS_MAX_RANK - 1)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu sizes; from 1 to %d are supported", ls_json_count(at),
                            LS_MAX_RANK - 1);
    *out = (ls_shape){ .rank = (int)ls_json_count(at) };
    for (int i = 0; i < out->rank; i++) {
        LS_TRY(ls_json_element(at, (size_t)i, &element));
        LS_TRY(ls_json_i64(&element, &out->dims[i]));
    }
    return LS_OK;
}

ls_status ls_keras_dtype(const ls_json_at *at, const ls_keras_who *who, const char **out)
{
    ls_json_at config;
    if (json_is_object(at->value)) {
        const char *policy;
        LS_TRY(ls_json_get_string(at, "class_name", &policy));
        if (strcmp(policy, "DTypePolicy") != 0 && strcmp(policy, "FloatDTypePolicy") != 0)
            return ls_keras_fail(at, who, LS_ERR_UNSUPPORTED, "the type policy %s is not supported", policy);
        LS_TRY(ls_json_get_object(at, "config", &config));
        return ls_json_get_string(&config, "name", out);
    }
    return ls_json_string(at, out);
}

/* ---- Initializers and regularizers ---- */

/* Reads {"class_name": "L2", "config": {"l2": 0.01}} as class and config. */
static ls_status read_object(const ls_json_at *at, const char **class_name, ls_json_at *config)
{
    LS_TRY(ls_json_is_object(at));
    LS_TRY(ls_json_get_string(at, "class_name", class_name));
    LS_TRY(ls_keras_builtin(at, *class_name));
    return ls_json_get_object(at, "config", config);
}

static ls_status read_regularizer(const ls_json_at *at, ls_regularizer *out)
{
    static const char *const known[] = { "l1", "l2" };
    const char *class_name;
    ls_json_at config;
    if (json_is_null(at->value))
        return LS_OK;
    LS_TRY(read_object(at, &class_name, &config));
    if (strcmp(class_name, "L1") != 0 && strcmp(class_name, "L2") != 0 && strcmp(class_name, "L1L2") != 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "the regularizer %s is not supported; L1, L2 and L1L2 are",
                            class_name);
    LS_TRY(ls_json_known_keys(&config, known, 2));
    LS_TRY(ls_json_opt_f64(&config, "l1", &out->l1));
    return ls_json_opt_f64(&config, "l2", &out->l2);
}

static const ls_keras_initializer initializers[] = {
    { "GlorotUniform", "glorot_uniform", LS_INIT_GLOROT_UNIFORM, NULL, NULL },
    { "GlorotNormal", "glorot_normal", LS_INIT_GLOROT_NORMAL, NULL, NULL },
    { "HeUniform", "he_uniform", LS_INIT_HE_UNIFORM, NULL, NULL },
    { "HeNormal", "he_normal", LS_INIT_HE_NORMAL, NULL, NULL },
    { "LecunUniform", "lecun_uniform", LS_INIT_LECUN_UNIFORM, NULL, NULL },
    { "LecunNormal", "lecun_normal", LS_INIT_LECUN_NORMAL, NULL, NULL },
    { "Zeros", "zeros", LS_INIT_ZEROS, NULL, NULL },
    { "Ones", "ones", LS_INIT_ONES, NULL, NULL },
    { "Constant", "constant", LS_INIT_CONSTANT, "value", NULL },
    { "RandomUniform", "random_uniform", LS_INIT_UNIFORM, "minval", "maxval" },
    { "RandomNormal", "random_normal", LS_INIT_NORMAL, "mean", "stddev" },
    { "TruncatedNormal", "truncated_normal", LS_INIT_TRUNCATED_NORMAL, "mean", "stddev" },
    { "Orthogonal", "orthogonal", LS_INIT_ORTHOGONAL, "gain", NULL },
    { "OrthogonalInitializer", "orthogonal", LS_INIT_ORTHOGONAL, "gain", NULL },
};
#define INITIALIZER_COUNT (sizeof(initializers) / sizeof(initializers[0]))

static const ls_keras_initializer *find_initializer(const char *name)
{
    for (size_t i = 0; i < INITIALIZER_COUNT; i++)
        if (strcmp(initializers[i].name, name) == 0 || strcmp(initializers[i].snake, name) == 0)
            return &initializers[i];
    return NULL;
}

const ls_keras_initializer *ls_keras_initializer_of(ls_initializer_kind kind)
{
    for (size_t i = 0; i < INITIALIZER_COUNT; i++)
        if (initializers[i].kind == kind)
            return &initializers[i];
    return NULL;
}

static ls_status read_named_number(const ls_json_at *config, const char *name, double *out)
{
    ls_json_at at;
    return name && ls_json_find(config, name, &at) ? read_number(&at, out) : LS_OK;
}

static ls_status find_word(const ls_json_at *config, const char *name, const char *const *words, size_t count,
                           size_t *out)
{
    ls_json_at at;
    const char *text;
    if (!ls_json_find(config, name, &at))
        return LS_OK;
    LS_TRY(ls_json_string(&at, &text));
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return LS_OK;
        }
    return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "\"%s\" is not known%s", text,
                        ls_advise_name(text, words, count).text);
}

static ls_status read_scaling(const ls_json_at *config, ls_initializer *out)
{
    static const char *const modes[] = { "fan_in", "fan_out", "fan_avg" };
    static const char *const distributions[] = { "uniform", "truncated_normal", "untruncated_normal" };
    size_t mode = LS_FAN_IN, distribution = 1;
    LS_TRY(find_word(config, "mode", modes, 3, &mode));
    LS_TRY(find_word(config, "distribution", distributions, 3, &distribution));
    out->kind = (ls_initializer_kind)(LS_INIT_VARIANCE_UNIFORM + distribution);
    out->b = (double)mode;
    return read_named_number(config, "scale", &out->a);
}

/* Reads an initializer's own seed. Our 0 means none, so Keras's seed 0 is mapped to another
 * number. */
static ls_status read_seed(const ls_json_at *config, uint64_t *out)
{
    ls_json_at at;
    int64_t seed;
    if (!ls_json_find(config, "seed", &at) || json_is_null(at.value))
        return LS_OK;
    if (!json_is_integer(at.value))
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "a seed is a whole number or null");
    LS_TRY(ls_json_i64(&at, &seed));
    *out = seed ? (uint64_t)seed : UINT64_MAX;
    return LS_OK;
}

static ls_status read_initializer(const ls_json_at *at, ls_initializer *out)
{
    const char *name, *names[INITIALIZER_COUNT];
    ls_json_at config = *at, extra;
    bool object = json_is_object(at->value);
    if (object)
        LS_TRY(read_object(at, &name, &config));
    else
        LS_TRY(ls_json_string(at, &name));
    bool scaling = strcmp(name, "VarianceScaling") == 0;
    const ls_keras_initializer *found = find_initializer(name);
    for (size_t i = 0; i < INITIALIZER_COUNT; i++)
        names[i] = initializers[i].name;
    if (!found && !scaling)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "the initializer %s is not known%s", name,
                            ls_advise_name(name, names, INITIALIZER_COUNT).text);
    *out = (ls_initializer){ .kind = found ? found->kind : LS_INIT_DEFAULT };
    if (!object)
        return LS_OK;
    const char *known[8] = { "seed", "input_axes", "output_axes" };
    size_t count = 3;
    if (scaling)
        known[count++] = "scale", known[count++] = "mode", known[count++] = "distribution";
    else if (found->a)
        known[count++] = found->a;
    if (found && found->b)
        known[count++] = found->b;
    LS_TRY(ls_json_known_keys(&config, known, count));
    for (int i = 1; i < 3; i++)
        if (ls_json_find(&config, known[i], &extra) && !json_is_null(extra.value))
            return ls_json_fail(&extra, LS_ERR_UNSUPPORTED, "it is not supported: it must be null");
    LS_TRY(read_seed(&config, &out->seed));
    if (scaling)
        return read_scaling(&config, out);
    LS_TRY(read_named_number(&config, found->a, &out->a));
    return read_named_number(&config, found->b, &out->b);
}

/* ---- A layer ---- */

/* Reads a negated bool, such as Keras's "use_bias" into .no_bias. */
static ls_status read_not(const ls_json_at *at, bool *out)
{
    bool value;
    LS_TRY(ls_json_bool(at, &value));
    *out = !value;
    return LS_OK;
}

static ls_status need_float32(const ls_json_at *at, const ls_keras_who *who)
{
    const char *dtype;
    if (json_is_null(at->value))
        return LS_OK;
    LS_TRY(ls_keras_dtype(at, who, &dtype));
    return strcmp(dtype, "float32") == 0
               ? LS_OK
               : ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\": layers compute in float32", dtype);
}

static ls_status read_key(const ls_keras_key *k, const ls_json_at *at, const ls_json_at *layer, const ls_keras_who *who,
                          ls_layer *out)
{
    void *field = (char *)&out->options + k->offset;
    const char *text;
    bool flag;
    switch (k->rule) {
    case NAME:
    case ANY:
        return LS_OK;
    case DTYPE:
        return need_float32(at, who);
    case I64:
        LS_TRY(ls_json_i64(at, field));
        return *(int64_t *)field >= 1 ? LS_OK : ls_json_fail(at, LS_ERR_DATA, "it is at least 1");
    case ARGUMENT:
        return ls_json_i64(at, field);
    case PAIR_OR_NULL:
        return json_is_null(at->value) ? LS_OK : read_pair(at, field);
    case PAIR:
        return read_pair(at, field);
    case BOOL:
        return ls_json_bool(at, field);
    case NOT:
        return read_not(at, field);
    case F64_OR_NULL:
        return json_is_null(at->value) ? LS_OK : read_number(at, field);
    case F64:
        return read_number(at, field);
    case PADDING:
        return read_padding(at, field);
    case SIDES:
        out->pad.padding = LS_EXPLICIT;
        return read_sides(at, field);
    case ACTIVATION:
        return read_activation(at, field);
    case INITIALIZER:
        return read_initializer(at, field);
    case REGULARIZER:
        return read_regularizer(at, field);
    case AXIS:
        return read_axis(at, field);
    case LAST_AXES:
        return read_last_axes(at, layer, field);
    case SIZES:
        return read_sizes(at, field);
    case MUST_BE_NULL:
        return json_is_null(at->value) ? LS_OK
                                       : ls_json_fail(at, LS_ERR_UNSUPPORTED, "it is not supported: it must be null");
    case MUST_BE_FALSE:
        LS_TRY(ls_json_bool(at, &flag));
        return flag ? ls_json_fail(at, LS_ERR_UNSUPPORTED, "it is not supported: it must be false") : LS_OK;
    case MUST_BE_LAST:
        if (json_is_null(at->value))
            return LS_OK;
        LS_TRY(ls_json_string(at, &text));
        return strcmp(text, "channels_last") == 0
                   ? LS_OK
                   : ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\": it must be \"channels_last\"", text);
    }
    return LS_OK;
}

static ls_status read_input(const ls_json_at *config, const ls_keras_who *who, ls_input_options *o);

static ls_status read_config(const ls_keras_class *class, const ls_json_at *layer, const ls_json_at *config,
                             const ls_keras_who *who, ls_layer *out)
{
    if (!class->keys)
        return read_input(config, who, &out->input);
    const char *known[40];
    size_t count = 0;
    for (const ls_keras_key *k = class->keys; k->name; k++)
        known[count++] = k->name;
    LS_TRY(ls_json_known_keys(config, known, count));
    for (const ls_keras_key *k = class->keys; k->name; k++) {
        ls_json_at at;
        if (ls_json_find(config, k->name, &at))
            LS_TRY(read_key(k, &at, layer, who, out));
    }
    return LS_OK;
}

/* ---- Inputs ---- */

static ls_status read_input_type(const ls_json_at *at, const ls_keras_who *who, ls_dtype *out)
{
    const char *names[LS_DTYPE_COUNT], *text;
    LS_TRY(ls_keras_dtype(at, who, &text));
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
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu axes, the batch axis included; from 1 to %d are supported",
                            rank, LS_MAX_RANK);
    *out = (ls_shape){ .rank = (int)rank - 1 };
    for (size_t i = 0; i < rank; i++) {
        LS_TRY(ls_json_element(at, i, &element));
        if (i == 0 && !json_is_null(element.value))
            return ls_json_fail(&element, LS_ERR_UNSUPPORTED, "a batch of a fixed size; it must be null, any size");
        if (i > 0 && json_is_null(element.value))
            return ls_json_fail(&element, LS_ERR_UNSUPPORTED,
                                "a size that is not known: only the batch axis may be null");
        if (i > 0)
            LS_TRY(ls_json_i64(&element, &out->dims[i - 1]));
    }
    return LS_OK;
}

static ls_status read_input(const ls_json_at *config, const ls_keras_who *who, ls_input_options *o)
{
    static const char *const known[] = { "name", "batch_shape", "dtype", "sparse", "ragged", "optional", "trainable" };
    static const char *const neutral[] = { "sparse", "ragged", "optional" };
    ls_json_at at;
    bool set = false;
    LS_TRY(ls_json_known_keys(config, known, sizeof(known) / sizeof(known[0])));
    for (size_t i = 0; i < sizeof(neutral) / sizeof(neutral[0]); i++) {
        LS_TRY(ls_json_opt_bool(config, neutral[i], &set));
        if (set)
            return ls_keras_fail(config, who, LS_ERR_UNSUPPORTED, "%s is true, which is not supported", neutral[i]);
    }
    if (ls_json_find(config, "dtype", &at) && !json_is_null(at.value))
        LS_TRY(read_input_type(&at, who, &o->dtype));
    LS_TRY(ls_json_get(config, "batch_shape", &at));
    return read_batch_shape(&at, &o->shape);
}

/* ---- By class ---- */

static ls_status unknown_class(const ls_json_at *at, const ls_keras_who *who)
{
    static const char *const nested[] = { "Sequential", "Functional", "Model" };
    const char *names[CLASS_COUNT];
    for (size_t i = 0; i < sizeof(nested) / sizeof(nested[0]); i++)
        if (strcmp(who->class_name, nested[i]) == 0)
            return ls_keras_fail(at, who, LS_ERR_UNSUPPORTED, "a model inside a model is not supported");
    for (size_t i = 0; i < CLASS_COUNT; i++)
        names[i] = classes[i].name;
    return ls_keras_fail(at, who, LS_ERR_UNSUPPORTED, "layers of class %s are not known%s", who->class_name,
                         ls_advise_name(who->class_name, names, CLASS_COUNT).text);
}

ls_status ls_keras_layer(const ls_json_at *at, ls_layer *out)
{
    static const char *const known[] = { "module",       "class_name", "config",       "registered_name",
                                         "build_config", "name",       "inbound_nodes" };
    const ls_keras_class *class = NULL;
    ls_keras_who who = { .name = "?" };
    ls_json_at config;
    LS_TRY(ls_json_is_object(at));
    LS_TRY(ls_json_get_string(at, "class_name", &who.class_name));
    LS_TRY(ls_json_get_object(at, "config", &config));
    LS_TRY(ls_json_opt_string(&config, "name", &who.name));
    for (size_t i = 0; i < CLASS_COUNT && !class; i++)
        if (strcmp(classes[i].name, who.class_name) == 0)
            class = &classes[i];
    if (!class)
        return unknown_class(at, &who);
    LS_TRY(ls_json_known_keys(at, known, sizeof(known) / sizeof(known[0])));
    LS_TRY(ls_keras_builtin(at, who.class_name));
    ls_layer layer;
    memset(&layer, 0, sizeof(layer)); /* an initializer would clear only one member of the union */
    layer.kind = class->kind;
    ls_status status = read_config(class, at, &config, &who, &layer);
    /* The message has path and key, but not the layer. */
    if (status != LS_OK && !strstr(ls_last_error(), "layer \""))
        return ls_fail_within(status, "layer \"%s\" (%s)", who.name, who.class_name);
    LS_TRY(status);
    layer.options.name = strcmp(who.name, "?") == 0 ? NULL : who.name;
    *out = layer;
    return LS_OK;
}
