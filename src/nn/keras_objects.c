/* Reads objects in the configs of Keras's layers: initializers, regularizers and constraints. */
#include <string.h>

#include "base/names.h"
#include "base/status.h"
#include "nn/keras.h"
#include "nn/keras_keys.h"

ls_status ls_keras_read_number(const ls_json_at *at, double *out)
{
    LS_TRY(ls_json_f64(at, out));
    if (*out == 0) /* explicitly 0, not unset */
        *out = LS_ZERO;
    return LS_OK;
}

/* Reads {"class_name": "L2", "config": {"l2": 0.01}} as class and config. */
static ls_status read_object(const ls_json_at *at, const char **class_name, ls_json_at *config)
{
    LS_TRY(ls_json_is_object(at));
    LS_TRY(ls_json_get_string(at, "class_name", class_name));
    LS_TRY(ls_keras_builtin(at, *class_name));
    return ls_json_get_object(at, "config", config);
}

static ls_status read_named_number(const ls_json_at *config, const char *name, double *out)
{
    ls_json_at at;
    return name && ls_json_find(config, name, &at) ? ls_keras_read_number(&at, out) : LS_OK;
}

/* ---- Regularizers and constraints ---- */

static ls_status read_orthogonal(const ls_json_at *config, ls_regularizer *out)
{
    static const char *const known[] = { "factor", "mode" };
    const char *mode = "rows";
    out->orthogonal = 0.01;
    LS_TRY(ls_json_known_keys(config, known, 2));
    LS_TRY(ls_json_opt_f64(config, "factor", &out->orthogonal));
    LS_TRY(ls_json_opt_string(config, "mode", &mode));
    out->orthogonal_columns = strcmp(mode, "columns") == 0;
    if (!out->orthogonal_columns && strcmp(mode, "rows") != 0)
        return ls_json_fail(config, LS_ERR_UNSUPPORTED,
                            "the mode \"%s\" is unknown; it must be \"rows\" or "
                            "\"columns\"",
                            mode);
    return LS_OK;
}

ls_status ls_keras_read_regularizer(const ls_json_at *at, ls_regularizer *out)
{
    static const char *const known[] = { "l1", "l2" };
    const char *class_name;
    ls_json_at config;
    if (json_is_null(at->value))
        return LS_OK;
    LS_TRY(read_object(at, &class_name, &config));
    if (strcmp(class_name, "OrthogonalRegularizer") == 0)
        return read_orthogonal(&config, out);
    if (strcmp(class_name, "L1") != 0 && strcmp(class_name, "L2") != 0 && strcmp(class_name, "L1L2") != 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED,
                            "the regularizer %s is not supported; L1, L2, L1L2 and OrthogonalRegularizer are",
                            class_name);
    LS_TRY(ls_json_known_keys(&config, known, 2));
    LS_TRY(ls_json_opt_f64(&config, "l1", &out->l1));
    return ls_json_opt_f64(&config, "l2", &out->l2);
}

/* Reads the axes of a weight: 0, or [0, 1]. */
static ls_status read_axes(const ls_json_at *config, ls_axes *out)
{
    ls_json_at axis, element;
    if (!ls_json_find(config, "axis", &axis))
        return LS_OK;
    element = axis;
    size_t count = json_is_array(axis.value) ? ls_json_count(&axis) : 1;
    if (count == 0 || count > LS_MAX_RANK)
        return ls_json_fail(&axis, LS_ERR_UNSUPPORTED, "%zu axes are not supported; 1 to %d are", count, LS_MAX_RANK);
    for (size_t i = 0; i < count; i++) {
        if (json_is_array(axis.value))
            LS_TRY(ls_json_element(&axis, i, &element));
        LS_TRY(ls_json_i64(&element, &out->axis[i]));
    }
    out->count = (int)count;
    return LS_OK;
}

ls_status ls_keras_read_constraint(const ls_json_at *at, ls_constraint *out)
{
    static const struct {
        const char *name;
        ls_constraint_kind kind;
        const char *keys[4];
        size_t count;
    } known[] = { { "MaxNorm", LS_MAX_NORM, { "axis", "max_value" }, 2 },
                  { "NonNeg", LS_NON_NEG, { NULL }, 0 },
                  { "UnitNorm", LS_UNIT_NORM, { "axis" }, 1 },
                  { "MinMaxNorm", LS_MIN_MAX_NORM, { "axis", "max_value", "min_value", "rate" }, 4 } };
    const char *class_name;
    ls_json_at config;
    if (json_is_null(at->value))
        return LS_OK;
    LS_TRY(read_object(at, &class_name, &config));
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (strcmp(class_name, known[i].name) != 0)
            continue;
        out->kind = known[i].kind;
        LS_TRY(ls_json_known_keys(&config, known[i].keys, known[i].count));
        LS_TRY(read_named_number(&config, "max_value", &out->max_value));
        LS_TRY(read_named_number(&config, "min_value", &out->min_value));
        LS_TRY(read_named_number(&config, "rate", &out->rate));
        return read_axes(&config, &out->axis);
    }
    return ls_json_fail(at, LS_ERR_UNSUPPORTED,
                        "the constraint %s is not supported; MaxNorm, NonNeg, UnitNorm and MinMaxNorm are", class_name);
}

/* ---- Initializers ---- */

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
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "the seed must be a whole number or null");
    LS_TRY(ls_json_i64(&at, &seed));
    *out = seed ? (uint64_t)seed : UINT64_MAX;
    return LS_OK;
}

ls_status ls_keras_read_initializer(const ls_json_at *at, ls_initializer *out)
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
            return ls_json_fail(&extra, LS_ERR_UNSUPPORTED, "not supported; must be null");
    LS_TRY(read_seed(&config, &out->seed));
    if (scaling)
        return read_scaling(&config, out);
    LS_TRY(read_named_number(&config, found->a, &out->a));
    return read_named_number(&config, found->b, &out->b);
}
