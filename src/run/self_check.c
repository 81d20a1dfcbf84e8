/* One graph contains all checks. Each column of its inputs has one magnitude, and so have its sums
 * and batch norms. */
#include "run/self_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/sha256.h"
#include "base/status.h"
#include "lockstep/run.h"
#include "run/runtime.h"

#define SAMPLES 12
#define LANES   2

/* x and y of a column are just below these powers of two; `sign` is the sign of y. */
static const struct column {
    int x, y, sign;
} columns[] = {
    { -100, -40, 1 }, /* Normal numbers with a subnormal product. */
    { -130, 0, 1 },   /* Subnormal x, product and sums. */
    { -140, 30, 1 },  /* Subnormal x with a normal product. */
    { -125, 0, -1 },  /* x and the product cancel: the sum is subnormal. */
    { -126, -1, 1 },  /* The largest subnormals. */
    { 0, 0, 1 },      /* Ordinary numbers. */
    { 7, 0, -1 },     /* exp of the product is subnormal or zero. */
    { 3, 3, 1 },      /* exp of the product is large. */
    { -2, 0, -1 },    /* Small arguments of tanh and erf. */
    { -35, -35, 1 },  /* The square of the product, in Adam, is subnormal. */
    { -63, 63, 1 },   /* The quotient is at the limit of the subnormals. */
    { -62, 66, 1 },   /* A subnormal quotient. */
};
#define COLUMNS ((int)(sizeof(columns) / sizeof(*columns)))
#define MOST    (COLUMNS * COLUMNS)

typedef enum check {
    PRODUCT,
    SUM,
    ROOT,
    EXP,
    TANH,
    ERF,
    DIVISION,
    BATCH_SUM,
    MATRIX_PRODUCT,
    BATCH_NORM,
    BATCH_NORM_GRADIENT,
    ADAM,
    ADAM_M,
    ADAM_V,
    CHECKS,
    FETCHED = ADAM /* Checks before this one are fetched; Adam's are variables. */
} check;

static const char *const names[CHECKS] = { [PRODUCT] = "product",
                                           [SUM] = "sum",
                                           [ROOT] = "square root",
                                           [EXP] = "exp",
                                           [TANH] = "tanh",
                                           [ERF] = "erf",
                                           [DIVISION] = "division",
                                           [BATCH_SUM] = "sum over the batch",
                                           [MATRIX_PRODUCT] = "matrix product",
                                           [BATCH_NORM] = "batch norm",
                                           [BATCH_NORM_GRADIENT] = "gradient of batch norm",
                                           [ADAM] = "Adam",
                                           [ADAM_M] = "Adam's first moment",
                                           [ADAM_V] = "Adam's second moment" };

typedef struct results {
    float value[CHECKS][MOST]; /* Zero after the values of a check. */
} results;

/* ---- One run ---- */

typedef struct numbers {
    float x[SAMPLES * COLUMNS], y[SAMPLES * COLUMNS], variable[COLUMNS], slot[2][COLUMNS];
} numbers;

static float draw(int exponent, int index)
{
    ls_philox_key key = ls_random_key(0, LS_RANDOM_TEST, 100, 0);
    float unit = ls_random_unit_f32(ls_random_block(key, 0, 0, (uint32_t)index / 4).word[index % 4]);
    return ldexpf(0.5f + unit / 2, exponent);
}

static void fill(numbers *n)
{
    for (int i = 0; i < SAMPLES * COLUMNS; i++) {
        const struct column *c = &columns[i % COLUMNS];
        n->x[i] = draw(c->x, 2 * i);
        n->y[i] = (float)c->sign * draw(c->y, 2 * i + 1);
    }
    for (int c = 0; c < COLUMNS; c++) { /* Magnitudes of the gradient and of its square. */
        int size = columns[c].x + columns[c].y;
        n->variable[c] = draw(size, 1000 + c);
        n->slot[0][c] = draw(size, 2000 + c);
        n->slot[1][c] = draw(2 * size, 3000 + c);
    }
}

/* Functions of one number are consecutive, so that a GPU fuses them. */
static ls_tensor *build(ls_graph *graph, const numbers *n, ls_tensor *in[2], ls_tensor *out[CHECKS])
{
    const ls_shape row = LS_SHAPE(COLUMNS);
    ls_tensor *x = in[0] = ls_op_input(graph, "x", LS_F32, LS_SHAPE(LS_BATCH, COLUMNS));
    ls_tensor *y = in[1] = ls_op_input(graph, "y", LS_F32, LS_SHAPE(LS_BATCH, COLUMNS));
    out[PRODUCT] = ls_op_mul(x, y);
    out[SUM] = ls_op_add(out[PRODUCT], x); /* Never negative. */
    out[ROOT] = ls_op_sqrt(out[SUM]);
    out[EXP] = ls_op_exp(out[PRODUCT]);
    out[TANH] = ls_op_tanh(out[PRODUCT]);
    out[ERF] = ls_op_erf(out[PRODUCT]);
    out[DIVISION] = ls_op_div(x, y);
    out[BATCH_SUM] = ls_op_reduce_sum(out[PRODUCT], LS_AXES(0), false);
    out[MATRIX_PRODUCT] = ls_op_matmul(x, y, .transpose_a = true);
    out[BATCH_NORM] = ls_op_batch_norm(x, .training = true);
    if (ls_gradients_with(out[BATCH_NORM], &x, 1, (ls_gradients_options){ .cotangent = out[PRODUCT] },
                          &out[BATCH_NORM_GRADIENT]) != LS_OK)
        return NULL;
    out[ADAM] = ls_op_variable(graph, NULL, LS_F32, row, .data = n->variable);
    out[ADAM_M] = ls_op_variable(graph, NULL, LS_F32, row, .data = n->slot[0]);
    out[ADAM_V] = ls_op_variable(graph, NULL, LS_F32, row, .data = n->slot[1]);
    ls_tensor *update =
        ls_op_apply(out[ADAM], out[BATCH_SUM], LS_APPLY_ADAM, .learning_rate = ls_op_scalar(graph, LS_F32, 0.01),
                    .step = ls_op_scalar(graph, LS_F32, 1), .slots = { out[ADAM_M], out[ADAM_V] }, .beta_1 = 0.9,
                    .beta_2 = 0.999, .epsilon = 1e-7);
    /* An update whose value is not fetched runs where its gradient is. */
    return ls_op_group(&update, 1);
}

static ls_status read_check(ls_tensor *tensor, float to[MOST])
{
    ls_array value;
    int64_t count = 0;
    LS_TRY(ls_value(tensor, &value));
    if (!ls_shape_count(&value.shape, 0, &count) || count > MOST)
        return ls_fail(LS_ERR_INTERNAL, "the self-check has %lld values in a check of %d", (long long)count, MOST);
    for (int64_t i = 0; i < count; i++) {
        float x = ((const float *)value.data)[i];
        to[i] = x != x ? NAN : x; /* Every NaN equals every other NaN. */
    }
    return LS_OK;
}

static ls_status run_graph(ls_graph *graph, results *out)
{
    numbers n;
    fill(&n);
    ls_tensor *in[2], *made[CHECKS], *fetches[FETCHED + 1];
    fetches[FETCHED] = build(graph, &n, in, made);
    LS_TRY(ls_graph_status(graph));
    LS_TRY(ls_graph_set_lanes(graph, LANES));
    memcpy(fetches, made, FETCHED * sizeof(*made));
    const ls_feed feeds[] = { { in[0], ls_array_of(LS_F32, LS_SHAPE(SAMPLES, COLUMNS), n.x) },
                              { in[1], ls_array_of(LS_F32, LS_SHAPE(SAMPLES, COLUMNS), n.y) } };
    LS_TRY(ls_eval(graph, feeds, 2, fetches, FETCHED + 1));
    for (int i = 0; i < CHECKS; i++)
        LS_TRY(read_check(made[i], out->value[i]));
    return LS_OK;
}

/* Ops without a kernel on the device run on the CPU, as in any run. */
static ls_status run_on(ls_context *ctx, int device, bool reference, results *out)
{
    ls_graph *graph = NULL;
    LS_TRY(ls_graph_create(ctx, &graph));
    graph->device = device;
    graph->alone = true;
    graph->reference = reference;
    memset(out, 0, sizeof(*out));
    ls_status status = run_graph(graph, out);
    ls_graph_destroy(graph);
    return status;
}

/* ---- Devices ---- */

static const char *about(const ls_context *ctx, const ls_device *device)
{
    for (int i = 0; i < ctx->physical_count; i++)
        if (ctx->physical[i].kind == device->kind && ctx->physical[i].number == device->physical)
            return ctx->physical[i].about;
    return "";
}

/* Devices of one kind with the same description compute the same. */
static bool is_distinct(const ls_context *ctx, int device)
{
    const ls_device *d = &ctx->devices[device];
    for (int i = 0; i < device; i++)
        if (ctx->devices[i].kind == d->kind && strcmp(about(ctx, &ctx->devices[i]), about(ctx, d)) == 0)
            return false;
    return true;
}

static ls_status report(ls_context *ctx, int device, const results *expected, const results *got, ls_text *text)
{
    const ls_kind *kind = &ctx->kinds[ctx->devices[device].kind];
    char hex[65], entry[128], name[LS_SHORT_NAME];
    int first = -1, count = 0;
    for (int i = 0; i < CHECKS; i++) {
        /* The vendor's kernels have their own bits; the bit class names them. */
        bool vendors = kind->vendor && i == MATRIX_PRODUCT;
        if (!vendors && memcmp(expected->value[i], got->value[i], sizeof(got->value[i])) != 0)
            first = count++ ? first : i;
    }
    if (count == 0)
        return LS_OK;
    LS_TRY(ls_sha256_of(got->value, sizeof(got->value), hex));
    snprintf(entry, sizeof(entry), "; %s self-check %.16s (%s)", kind->name, hex, names[first]);
    ls_log_write(
        &ctx->log, LS_LOG_WARNING,
        "%s: %d of %d self-checks differ from the CPU's reference kernels, the first is %s: runs that use this "
        "device have other bits than the CPU, and a bit class of their own",
        ls_device_short_name(ctx, device, name), count, CHECKS, names[first]);
    if (!strstr(ls_text_get(text), entry))
        ls_text_put(text, entry);
    return LS_OK;
}

ls_status ls_self_check(ls_context *ctx, ls_text *text)
{
    results *both = malloc(2 * sizeof(*both));
    if (!both)
        return ls_fail(LS_ERR_MEMORY, "no memory for a self-check");
    ls_status status = run_on(ctx, 0, true, &both[0]);
    for (int d = 0; d < ctx->device_count && status == LS_OK; d++) {
        if (!is_distinct(ctx, d))
            continue;
        status = run_on(ctx, d, false, &both[1]);
        if (status == LS_OK)
            status = report(ctx, d, &both[0], &both[1], text);
    }
    free(both);
    return status;
}
