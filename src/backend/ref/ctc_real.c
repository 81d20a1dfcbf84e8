/* Connectionist temporal classification by its definition (docs/bits.md): sums over paths in the
 * logarithm, in double, sample by sample. */
#include <stdlib.h>
#include <string.h>

#include "backend/ref/array.h"
#include "backend/ref/functions.h"
#include "backend/ref/interleaved.h"
#include "backend/ref/real.h"
#include "graph/ctc.h"

/* A frame's largest logit, and the sum of exp(logit - largest). */
typedef struct frame {
    double largest, sum, log_sum;
} frame;

typedef struct ctc {
    int64_t frame_count, classes, label_count;
    /* numbers of the sample */
    const real *x;
    int64_t length, states;
    double outside; /* logarithm for a start or end elsewhere; -infinity if the labels fit */
    /* memory for any sample */
    int64_t *label;
    frame *frames;
    double *alpha, *beta; /* rows of states; ctc_grad has an alpha of every frame */
    double *posterior;    /* by class */
} ctc;

static int64_t class_of(const ctc *c, int64_t state)
{
    return state % 2 ? c->label[state / 2] : 0;
}

static double log_probability(const ctc *c, int64_t t, int64_t state)
{
    return (c->x[t * c->classes + class_of(c, state)] - c->frames[t].largest) - c->frames[t].log_sum;
}

/* Whether a path may move to the state from two states before. */
static bool skips(const ctc *c, int64_t state)
{
    return state % 2 && state > 1 && c->label[state / 2] != c->label[state / 2 - 1];
}

/* log(exp(a) + exp(b) + exp(c)) */
static double add3(double a, double b, double c)
{
    double largest = -INFINITY;
    largest = a > largest ? a : largest;
    largest = b > largest ? b : largest;
    largest = c > largest ? c : largest;
    if (largest == -INFINITY)
        return (a + b) + c; /* NaN stays */
    return largest + wide_log((wide_exp(a - largest) + wide_exp(b - largest)) + wide_exp(c - largest));
}

/* ---- One sample ---- */

static void find_frame(const ctc *c, int64_t t)
{
    const real *x = c->x + t * c->classes;
    frame f = { -INFINITY, 0, 0 };
    ls_ref_interleaved sums = { { 0 } };
    for (int64_t i = 0; i < c->classes; i++)
        f.largest = x[i] > f.largest ? x[i] : f.largest;
    for (int64_t i = 0; i < c->classes; i++)
        sums.part[i % LS_REF_PARTS] += wide_exp(x[i] - f.largest);
    f.sum = ls_ref_interleaved_total(&sums);
    f.log_sum = wide_log(f.sum);
    c->frames[t] = f;
}

/* Reads the labels; a sample whose labels need more frames gets Keras's states, of the padding
 * too. */
static ls_status begin_sample(ctc *c, const ls_ref_call *call, int64_t sample)
{
    int64_t needed = 0;
    c->length = 0;
    c->x = (const real *)call->in[0].data + sample * c->frame_count * c->classes;
    for (int64_t i = 0; i < c->label_count; i++) {
        c->label[i] = ls_ref_index(&call->in[1], sample * c->label_count + i);
        if (c->label[i] < 0 || c->label[i] >= c->classes)
            return ls_fail(LS_ERR_DATA, "label %lld of sample %lld is outside 0..%lld", (long long)c->label[i],
                           (long long)(call->first + sample), (long long)c->classes - 1);
        c->length += c->label[i] != 0;
    }
    for (int64_t i = 0; i < c->length; i++)
        needed += 1 + (i > 0 && c->label[i] == c->label[i - 1]);
    bool fits = needed <= c->frame_count;
    c->states = 2 * (fits ? c->length : c->label_count) + 1;
    c->outside = fits ? -INFINITY : LS_CTC_IMPOSSIBLE;
    for (int64_t t = 0; t < c->frame_count; t++)
        find_frame(c, t);
    return LS_OK;
}

/* alpha of frame t from `before`, that of the frame before; they may be the same row. Of the first
 * frame, every number before is that of a start elsewhere. */
static void step_forward(const ctc *c, int64_t t, const double *before, double *alpha)
{
    for (int64_t s = c->states - 1; s >= 0; s--) {
        double skip = s < 2 && t == 0 ? 0 : skips(c, s) ? before[s - 2] : -INFINITY;
        alpha[s] = add3(before[s], s > 0 ? before[s - 1] : -INFINITY, skip) + log_probability(c, t, s);
    }
}

static void begin_forward(const ctc *c, double outside, double *before)
{
    for (int64_t s = 0; s < c->states; s++)
        before[s] = outside;
}

/* Logarithm of the weight of paths that end in the state. */
static double end_of(const ctc *c, int64_t state)
{
    return state == 2 * c->length || state == 2 * c->length - 1 ? 0 : c->outside;
}

/* Replaces beta of frame t + 1 by that of frame t. */
static void step_back(const ctc *c, int64_t t, double *beta)
{
    for (int64_t s = 0; s < c->states; s++)
        beta[s] += log_probability(c, t + 1, s);
    for (int64_t s = 0; s < c->states; s++)
        beta[s] = add3(beta[s], s + 1 < c->states ? beta[s + 1] : -INFINITY,
                       s + 2 < c->states && skips(c, s + 2) ? beta[s + 2] : -INFINITY);
}

static double loss_of(const ctc *c)
{
    double largest = -INFINITY, sum = 0;
    begin_forward(c, -INFINITY, c->alpha);
    for (int64_t t = 0; t < c->frame_count; t++)
        step_forward(c, t, c->alpha, c->alpha);
    for (int64_t s = 0; s < c->states; s++) {
        c->alpha[s] += end_of(c, s);
        largest = c->alpha[s] > largest ? c->alpha[s] : largest;
    }
    if (largest == -INFINITY)
        largest = 0; /* the sum is 0, or NaN */
    for (int64_t s = 0; s < c->states; s++)
        sum += wide_exp(c->alpha[s] - largest);
    return -(largest + wide_log(sum));
}

/* Probability of each class in a frame, given the labels, from its alpha, which becomes the
 * probability of each state. States of the padding count in no class. */
static void find_posterior(const ctc *c, double *alpha)
{
    double largest = -INFINITY, sum = 0;
    memset(c->posterior, 0, (size_t)c->classes * sizeof(double));
    for (int64_t s = 0; s < c->states; s++) {
        alpha[s] += c->beta[s];
        largest = alpha[s] > largest ? alpha[s] : largest;
    }
    for (int64_t s = 0; s < c->states; s++) {
        alpha[s] = wide_exp(alpha[s] - largest);
        sum += alpha[s];
    }
    for (int64_t s = 0; s < c->states; s++)
        if (s % 2 == 0 || s < 2 * c->length)
            c->posterior[class_of(c, s)] += alpha[s] / sum;
}

static void gradient_of(const ctc *c, double dy, real *out)
{
    begin_forward(c, c->outside, c->beta);
    for (int64_t t = 0; t < c->frame_count; t++)
        step_forward(c, t, t > 0 ? c->alpha + (t - 1) * c->states : c->beta, c->alpha + t * c->states);
    for (int64_t s = 0; s < c->states; s++)
        c->beta[s] = end_of(c, s);
    for (int64_t t = c->frame_count - 1; t >= 0; t--) {
        double *alpha = c->alpha + t * c->states;
        find_posterior(c, alpha);
        for (int64_t i = 0; i < c->classes; i++) {
            double p = wide_exp(c->x[t * c->classes + i] - c->frames[t].largest) / c->frames[t].sum;
            out[t * c->classes + i] = (real)((p - c->posterior[i]) * dy);
        }
        if (t > 0)
            step_back(c, t - 1, c->beta);
    }
}

/* ---- Calls ---- */

static void close_ctc(ctc *c)
{
    free(c->label);
    free(c->frames);
    free(c->alpha);
    free(c->beta);
    free(c->posterior);
}

static ls_status open_ctc(const ls_ref_call *call, int64_t rows, ctc *c)
{
    const int64_t *size = call->in[0].shape.dims;
    *c = (ctc){ .frame_count = size[1], .classes = size[2], .label_count = call->in[1].shape.dims[1] };
    size_t states = 2 * (size_t)c->label_count + 1;
    c->label = calloc((size_t)c->label_count + 1, sizeof(*c->label));
    c->frames = calloc((size_t)c->frame_count, sizeof(*c->frames));
    c->alpha = calloc((size_t)rows * states, sizeof(*c->alpha));
    c->beta = calloc(states, sizeof(*c->beta));
    c->posterior = calloc((size_t)c->classes, sizeof(*c->posterior));
    if (c->label && c->frames && c->alpha && c->beta && c->posterior)
        return LS_OK;
    close_ctc(c);
    return ls_fail(LS_ERR_MEMORY, "no memory for %zu states of %lld frames", states, (long long)rows);
}

/* in: logits [N,T,C], labels [N,L]; out [N] */
ls_status LS_REF(ctc)(const ls_ref_call *call)
{
    real *out = call->out.data;
    ls_status status = LS_OK;
    ctc c;
    LS_TRY(open_ctc(call, 1, &c));
    for (int64_t i = 0; i < call->in[0].shape.dims[0] && status == LS_OK; i++) {
        status = begin_sample(&c, call, i);
        if (status == LS_OK)
            out[i] = (real)loss_of(&c);
    }
    close_ctc(&c);
    return status;
}

/* in: logits [N,T,C], labels [N,L], dy [N]; out [N,T,C] */
ls_status LS_REF(ctc_grad)(const ls_ref_call *call)
{
    const real *dy = call->in[2].data;
    real *out = call->out.data;
    ls_status status = LS_OK;
    ctc c;
    LS_TRY(open_ctc(call, call->in[0].shape.dims[1], &c));
    for (int64_t i = 0; i < call->in[0].shape.dims[0] && status == LS_OK; i++) {
        status = begin_sample(&c, call, i);
        if (status == LS_OK)
            gradient_of(&c, dy[i], out + i * c.frame_count * c.classes);
    }
    close_ctc(&c);
    return status;
}
