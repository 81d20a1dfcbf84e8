#include "nn/init.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "base/size.h"
#include "base/status.h"
#include "graph/shape.h"

/* The deviation of a standard normal variable cut off at two deviations. */
#define TRUNCATED_DEVIATION 0.87962566103423978

/* ---- Draws ---- */

static void fill(float *out, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)value;
}

/* Block k holds elements 4k .. 4k + 3. */
static void uniform(float *out, int64_t count, ls_philox_key key, double low, double high)
{
    for (int64_t i = 0; i < count; i += 4) {
        ls_philox_block block = ls_random_block(key, 0, 0, (uint32_t)(i / 4));
        for (int64_t j = 0; j < 4 && i + j < count; j++)
            out[i + j] = (float)(low + (high - low) * (double)ls_random_unit_f32(block.word[j]));
    }
}

/* The four standard normal numbers of a block. */
static void draw(ls_philox_key key, uint32_t attempt, uint32_t block, double out[4])
{
    ls_philox_block words = ls_random_block(key, 0, attempt, block);
    ls_random_normal_pair(words.word[0], words.word[1], out);
    ls_random_normal_pair(words.word[2], words.word[3], out + 2);
}

/* An element beyond `limit` deviations is drawn again: attempt k of the same element. */
static void normal(float *out, int64_t count, ls_philox_key key, double mean, double deviation, double limit)
{
    for (int64_t i = 0; i < count; i += 4) {
        double value[4], again[4];
        draw(key, 0, (uint32_t)(i / 4), value);
        for (int64_t j = 0; j < 4 && i + j < count; j++) {
            for (uint32_t attempt = 1; !(fabs(value[j]) <= limit); attempt++) {
                draw(key, attempt, (uint32_t)(i / 4), again);
                value[j] = again[j];
            }
            out[i + j] = (float)(mean + deviation * value[j]);
        }
    }
}

/* ---- Orthogonal ---- */

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Q of the QR factors with a positive diagonal, by Gram and Schmidt, each vector twice: orthogonal to the last bits.
 * `vectors` of them, each of `length` numbers, stand one behind the other. */
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

/* Rows: all axes but the last. Where there are fewer rows than columns the rows are orthonormal, else the columns. */
static ls_status orthogonal(float *out, const ls_shape *shape, int64_t count, ls_philox_key key, double gain)
{
    int64_t columns = shape->dims[shape->rank - 1], rows = columns ? count / columns : 0;
    int64_t vectors = rows < columns ? rows : columns, length = rows < columns ? columns : rows;
    size_t bytes;
    if (!ls_size_mul((size_t)count, sizeof(double), &bytes))
        return ls_fail(LS_ERR_OVERFLOW, "%lld numbers overflow", (long long)count);
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
            out[r * columns + c] = (float)(gain * (rows < columns ? data[r * length + c] : data[c * length + r]));
    free(data);
    return LS_OK;
}

/* ---- Kinds ---- */

/* Keras's: of a kernel the last two axes are channels in and out, those before them the window. */
static void fans(const ls_shape *shape, double *in, double *out)
{
    double window = 1;
    for (int i = 0; i < shape->rank - 2; i++)
        window *= (double)shape->dims[i];
    *in = shape->rank == 0 ? 1 : (double)shape->dims[shape->rank < 2 ? 0 : shape->rank - 2] * window;
    *out = shape->rank == 0 ? 1 : (double)shape->dims[shape->rank - 1] * window;
}

/* Values of a given variance. */
static void scaled(float *out, int64_t count, ls_philox_key key, ls_initializer_kind distribution, double variance)
{
    if (distribution == LS_INIT_VARIANCE_UNIFORM)
        uniform(out, count, key, -sqrt(3 * variance), sqrt(3 * variance));
    else if (distribution == LS_INIT_VARIANCE_NORMAL)
        normal(out, count, key, 0, sqrt(variance) / TRUNCATED_DEVIATION, 2);
    else
        normal(out, count, key, 0, sqrt(variance), INFINITY);
}

/* Those with a name, as VarianceScaling. */
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

ls_status ls_init_check(ls_initializer initializer, const ls_shape *shape)
{
    int64_t count;
    if (!ls_shape_count(shape, 1, &count) || count > (int64_t)4 * UINT32_MAX)
        return ls_fail(LS_ERR_OVERFLOW, "a variable of too many elements");
    if (initializer.kind == LS_INIT_ORTHOGONAL && shape->rank < 2)
        return ls_fail(LS_ERR_SHAPE, "an orthogonal initializer needs at least 2 axes");
    return LS_OK;
}

ls_status ls_init_fill(ls_initializer initializer, const ls_shape *shape, uint64_t seed, int64_t layer, size_t number,
                       float *out)
{
    int64_t count = 0;
    double in, to;
    LS_TRY(ls_init_check(initializer, shape));
    ls_shape_count(shape, 1, &count);
    ls_philox_key key = initializer.seed ? ls_random_key(initializer.seed, LS_RANDOM_INIT, 0, 0)
                                         : ls_random_key(seed, LS_RANDOM_INIT, (uint32_t)layer, (uint32_t)number);
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
        return ls_fail(LS_ERR_INTERNAL, "an initializer that was not settled");
    }
}
