/* Resolves and checks initializers and computes their values. */
#include "graph/init.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "base/size.h"
#include "base/status.h"
#include "graph/rules.h"

/* Standard deviation of a standard normal distribution truncated at two standard deviations. */
#define TRUNCATED_DEVIATION 0.87962566103423978

typedef struct values {
    void *data;
    ls_dtype dtype;
} values;

static void put(values to, int64_t i, double value)
{
    switch (to.dtype) {
    case LS_F32:
        ((float *)to.data)[i] = (float)value;
        break;
    case LS_F64:
        ((double *)to.data)[i] = value;
        break;
    case LS_I32:
        ((int32_t *)to.data)[i] = (int32_t)value;
        break;
    case LS_I64:
        ((int64_t *)to.data)[i] = (int64_t)value;
        break;
    default: /* u8, bool */
        ((uint8_t *)to.data)[i] = (uint8_t)value;
        break;
    }
}

static void fill(values out, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++)
        put(out, i, value);
}

/* Random block k gives elements 4k to 4k + 3. */
static void uniform(values out, int64_t count, ls_philox_key key, double low, double high)
{
    for (int64_t i = 0; i < count; i += 4) {
        ls_philox_block block = ls_random_block(key, 0, 0, (uint32_t)(i / 4));
        for (int64_t j = 0; j < 4 && i + j < count; j++)
            put(out, i + j, low + (high - low) * (double)ls_random_unit_f32(block.word[j]));
    }
}

static void draw(ls_philox_key key, uint32_t attempt, uint32_t block, double out[4])
{
    ls_philox_block words = ls_random_block(key, 0, attempt, block);
    ls_random_normal_pair(words.word[0], words.word[1], out);
    ls_random_normal_pair(words.word[2], words.word[3], out + 2);
}

/* Redraws an element beyond `limit` standard deviations. The attempt is part of the random counter,
 * so other elements do not change. */
static void normal(values out, int64_t count, ls_philox_key key, double mean, double deviation, double limit)
{
    for (int64_t i = 0; i < count; i += 4) {
        double value[4], again[4];
        draw(key, 0, (uint32_t)(i / 4), value);
        for (int64_t j = 0; j < 4 && i + j < count; j++) {
            for (uint32_t attempt = 1; !(fabs(value[j]) <= limit); attempt++) {
                draw(key, attempt, (uint32_t)(i / 4), again);
                value[j] = again[j];
            }
            put(out, i + j, mean + deviation * value[j]);
        }
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Computes Q of the QR factorization with positive diagonal, by Gram-Schmidt. Two passes over each
 * vector make them orthogonal up to rounding. `data` has `vectors` consecutive vectors of `length`
 * numbers. */
static void orthonormalize(double *data, int64_t vectors, int64_t length)
{
    for (int64_t v = 0; v < vectors; v++) {
        double *x = data + v * length;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t u = 0; u < v; u++) {
                const double *y = data + u * length;
                double along = dot(x, y, length);
                for (int64_t i = 0; i < length; i++)
                    x[i] -= along * y[i];
            }
        double norm = sqrt(dot(x, x, length));
        for (int64_t i = 0; i < length; i++)
            x[i] = norm > 0 ? x[i] / norm : 0;
    }
}

/* Treats the variable as a matrix whose columns are the last axis. The rows are orthonormal if
 * there are fewer rows than columns, otherwise the columns are. */
static ls_status orthogonal(values out, const ls_shape *shape, int64_t count, ls_philox_key key, double gain)
{
    int64_t columns = shape->dims[shape->rank - 1], rows = columns ? count / columns : 0;
    int64_t vectors = rows < columns ? rows : columns, length = rows < columns ? columns : rows;
    size_t bytes;
    if (!ls_size_mul((size_t)count, sizeof(double), &bytes))
        return ls_fail(LS_ERR_OVERFLOW, "%lld numbers do not fit into memory", (long long)count);
    double *data = malloc(bytes ? bytes : 1);
    if (!data)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes", bytes);
    for (int64_t i = 0; i < count; i += 4) {
        double value[4];
        draw(key, 0, (uint32_t)(i / 4), value);
        for (int64_t j = 0; j < 4 && i + j < count; j++)
            data[i + j] = value[j];
    }
    orthonormalize(data, vectors, length);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            put(out, r * columns + c, gain * (rows < columns ? data[r * length + c] : data[c * length + r]));
    free(data);
    return LS_OK;
}

/* Computes Keras's fan-in and fan-out. The last two axes are input and output channels, the axes
 * before them the window. */
static void fans(const ls_shape *shape, double *in, double *out)
{
    double window = 1;
    for (int i = 0; i < shape->rank - 2; i++)
        window *= (double)shape->dims[i];
    *in = shape->rank == 0 ? 1 : (double)shape->dims[shape->rank < 2 ? 0 : shape->rank - 2] * window;
    *out = shape->rank == 0 ? 1 : (double)shape->dims[shape->rank - 1] * window;
}

static void scaled(values out, int64_t count, ls_philox_key key, ls_initializer_kind distribution, double variance)
{
    if (distribution == LS_INIT_VARIANCE_UNIFORM)
        uniform(out, count, key, -sqrt(3 * variance), sqrt(3 * variance));
    else if (distribution == LS_INIT_VARIANCE_NORMAL)
        normal(out, count, key, 0, sqrt(variance) / TRUNCATED_DEVIATION, 2);
    else
        normal(out, count, key, 0, sqrt(variance), INFINITY);
}

/* Converts Glorot, He and LeCun initializers to VarianceScaling. */
static ls_initializer as_scaling(ls_initializer i)
{
    switch (i.kind) {
    case LS_INIT_GLOROT_UNIFORM:
        return (ls_initializer){ .kind = LS_INIT_VARIANCE_UNIFORM, .a = 1, .b = LS_FAN_AVG };
    case LS_INIT_GLOROT_NORMAL:
        return (ls_initializer){ .kind = LS_INIT_VARIANCE_NORMAL, .a = 1, .b = LS_FAN_AVG };
    case LS_INIT_HE_UNIFORM:
        return (ls_initializer){ .kind = LS_INIT_VARIANCE_UNIFORM, .a = 2, .b = LS_FAN_IN };
    case LS_INIT_HE_NORMAL:
        return (ls_initializer){ .kind = LS_INIT_VARIANCE_NORMAL, .a = 2, .b = LS_FAN_IN };
    case LS_INIT_LECUN_UNIFORM:
        return (ls_initializer){ .kind = LS_INIT_VARIANCE_UNIFORM, .a = 1, .b = LS_FAN_IN };
    case LS_INIT_LECUN_NORMAL:
        return (ls_initializer){ .kind = LS_INIT_VARIANCE_NORMAL, .a = 1, .b = LS_FAN_IN };
    default:
        return i;
    }
}

static void set_default(double *value, double preset)
{
    *value = *value == 0 ? preset : *value == LS_ZERO ? 0 : *value;
}

ls_status ls_init_resolve(const char *name, ls_initializer *value, ls_initializer preset)
{
    static const double default_spread = 0.05; /* Keras's default deviation and limit */
    if (value->kind == LS_INIT_DEFAULT)
        *value = preset;
    switch (value->kind) {
    case LS_INIT_CONSTANT:
        set_default(&value->a, 0);
        break;
    case LS_INIT_UNIFORM:
        if (value->a == 0 && value->b == 0)
            value->a = -default_spread, value->b = default_spread;
        set_default(&value->a, 0);
        set_default(&value->b, 0);
        if (!(value->a <= value->b))
            return ls_fail(LS_ERR_INVALID,
                           "%s: the lower limit of a uniform initializer must not exceed the upper (got %g to %g)",
                           name, value->a, value->b);
        break;
    case LS_INIT_NORMAL:
    case LS_INIT_TRUNCATED_NORMAL:
        set_default(&value->a, 0);
        set_default(&value->b, default_spread);
        if (!(value->b >= 0))
            return ls_fail(LS_ERR_INVALID, "%s: the standard deviation must be at least 0 (got %g)", name, value->b);
        break;
    case LS_INIT_ORTHOGONAL:
        set_default(&value->a, 1);
        break;
    case LS_INIT_VARIANCE_UNIFORM:
    case LS_INIT_VARIANCE_NORMAL:
    case LS_INIT_VARIANCE_UNTRUNCATED:
        set_default(&value->a, 1);
        if (!(value->a > 0))
            return ls_fail(LS_ERR_INVALID, "%s: scale must be above 0 (got %g)", name, value->a);
        if (value->b != LS_FAN_IN && value->b != LS_FAN_OUT && value->b != LS_FAN_AVG)
            return ls_fail(LS_ERR_INVALID, "%s: b must be LS_FAN_IN, LS_FAN_OUT or LS_FAN_AVG (got %g)", name,
                           value->b);
        break;
    case LS_INIT_GLOROT_UNIFORM:
    case LS_INIT_GLOROT_NORMAL:
    case LS_INIT_HE_UNIFORM:
    case LS_INIT_HE_NORMAL:
    case LS_INIT_LECUN_UNIFORM:
    case LS_INIT_LECUN_NORMAL:
    case LS_INIT_ZEROS:
    case LS_INIT_ONES:
        return LS_OK;
    default:
        return ls_fail(LS_ERR_INVALID, "%s: unknown initializer %d", name, (int)value->kind);
    }
    if (!isfinite(value->a) || !isfinite(value->b))
        return ls_fail(LS_ERR_INVALID, "%s: %g and %g must be finite", name, value->a, value->b);
    return LS_OK;
}

bool ls_init_draws(ls_initializer i)
{
    return i.kind != LS_INIT_ZEROS && i.kind != LS_INIT_ONES && i.kind != LS_INIT_CONSTANT;
}

/* Integers and bools accept only zeros, ones and constants that the type can represent. */
static ls_status check_integer(const ls_initializer *i, ls_dtype dtype)
{
    double limit = dtype == LS_BOOL ? 1 : dtype == LS_U8 ? UINT8_MAX : dtype == LS_I32 ? INT32_MAX : 0x1p53;
    double low = dtype == LS_I32 || dtype == LS_I64 ? -limit : 0;
    if (ls_init_draws(*i))
        return ls_fail(LS_ERR_DTYPE, "a variable of type %s can be initialized only by zeros, ones or a constant",
                       ls_dtype_name(dtype));
    if (i->kind == LS_INIT_CONSTANT && !(i->a >= low && i->a <= limit && i->a == (double)(int64_t)i->a))
        return ls_fail(LS_ERR_INVALID, "%g is not a value of type %s", i->a, ls_dtype_name(dtype));
    return LS_OK;
}

ls_status ls_init_check(ls_initializer initializer, ls_dtype dtype, const ls_shape *shape)
{
    int64_t count;
    if (!ls_dtype_is_real(dtype))
        LS_TRY(check_integer(&initializer, dtype));
    if (!ls_shape_count(shape, 1, &count) || count > (int64_t)4 * UINT32_MAX)
        return ls_fail(LS_ERR_OVERFLOW, "the variable has too many elements");
    if (initializer.kind == LS_INIT_ORTHOGONAL && shape->rank < 2)
        return ls_fail(LS_ERR_SHAPE, "an orthogonal initializer needs at least 2 axes");
    return LS_OK;
}

ls_status ls_init_fill(ls_initializer initializer, ls_dtype dtype, const ls_shape *shape, ls_init_key at, void *data)
{
    const values out = { data, dtype };
    int64_t count = 0;
    double in, to;
    LS_TRY(ls_init_check(initializer, dtype, shape));
    ls_shape_count(shape, 1, &count);
    ls_philox_key key = initializer.seed ? ls_random_key(initializer.seed, LS_RANDOM_INIT, 0, 0)
                                         : ls_random_key(at.seed, LS_RANDOM_INIT, at.layer, at.number);
    ls_initializer i = as_scaling(initializer);
    fans(shape, &in, &to);
    switch (i.kind) {
    case LS_INIT_ZEROS:
        fill(out, count, 0);
        return LS_OK;
    case LS_INIT_ONES:
        fill(out, count, 1);
        return LS_OK;
    case LS_INIT_CONSTANT:
        fill(out, count, i.a);
        return LS_OK;
    case LS_INIT_UNIFORM:
        uniform(out, count, key, i.a, i.b);
        return LS_OK;
    case LS_INIT_NORMAL:
        normal(out, count, key, i.a, i.b, INFINITY);
        return LS_OK;
    case LS_INIT_TRUNCATED_NORMAL:
        normal(out, count, key, i.a, i.b, 2);
        return LS_OK;
    case LS_INIT_ORTHOGONAL:
        return orthogonal(out, shape, count, key, i.a);
    case LS_INIT_VARIANCE_UNIFORM:
    case LS_INIT_VARIANCE_NORMAL:
    case LS_INIT_VARIANCE_UNTRUNCATED:
        scaled(out, count, key, i.kind, i.a / fmax(1, i.b == LS_FAN_IN ? in : i.b == LS_FAN_OUT ? to : (in + to) / 2));
        return LS_OK;
    default:
        return ls_fail(LS_ERR_INTERNAL, "the initializer was not resolved");
    }
}
