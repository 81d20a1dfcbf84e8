/* Connectionist temporal classification, as backend/ref/ctc_real.c: frames in parallel, then an
 * item for all states of a sample, forward and back, then frames in parallel. A frame has three
 * numbers: its largest logit, the sum of exponentials, its logarithm. A row has 2 labels + 1
 * states, of which a sample uses the first. A lane without samples has zeros for all numbers. */

/* States of a sample. A label that is out of range, which another kernel reports, counts as 0. */
typedef struct ctc_sample {
    GLOBAL const float *x;
    GLOBAL const double *frames;
    GLOBAL const u8 *labels;
    i64 first, width, classes; /* first: index of the first label */
    i64 length, states;
    double outside;
} ctc_sample;

FUNCTION i64 ctc_label(const ctc_sample *c, i64 i)
{
    i64 label = label_at(c->labels, c->width, c->first + i);
    return label >= 0 && label < c->classes ? label : 0;
}

FUNCTION ctc_sample ctc_begin(GLOBAL const ls_gpu_ctc *p, GLOBAL const float *x, GLOBAL const u8 *labels,
                              GLOBAL const double *frames, i64 sample)
{
    ctc_sample c;
    i64 needed = 0;
    c.x = x + sample * p->frames * p->classes;
    c.frames = frames + sample * p->frames * 3;
    c.labels = labels;
    c.first = sample * p->labels;
    c.width = p->width;
    c.classes = p->classes;
    c.length = 0;
    for (i64 i = 0; i < p->labels; i++)
        c.length += ctc_label(&c, i) != 0;
    for (i64 i = 0; i < c.length; i++)
        needed += 1 + (i > 0 && ctc_label(&c, i) == ctc_label(&c, i - 1) ? 1 : 0);
    c.states = 2 * (needed <= p->frames ? c.length : p->labels) + 1;
    c.outside = needed <= p->frames ? -ENDLESS : p->impossible;
    return c;
}

FUNCTION double ctc_log_probability(const ctc_sample *c, i64 t, i64 state)
{
    i64 at = (state & 1) != 0 ? ctc_label(c, state / 2) : 0;
    return (c->x[t * c->classes + at] - c->frames[3 * t]) - c->frames[3 * t + 2];
}

FUNCTION bool ctc_skips(const ctc_sample *c, i64 state)
{
    return (state & 1) != 0 && state > 1 && ctc_label(c, state / 2) != ctc_label(c, state / 2 - 1);
}

FUNCTION double ctc_add3(double a, double b, double c)
{
    double largest = -ENDLESS;
    largest = a > largest ? a : largest;
    largest = b > largest ? b : largest;
    largest = c > largest ? c : largest;
    if (largest == -ENDLESS)
        return (a + b) + c;
    return largest + wide_log((wide_exp(a - largest) + wide_exp(b - largest)) + wide_exp(c - largest));
}

FUNCTION double ctc_end(const ctc_sample *c, i64 state)
{
    return state == 2 * c->length || state == 2 * c->length - 1 ? 0 : c->outside;
}

/* places: logits, frames */
KERNEL_APART(ctc_frames, 2)
{
    LANE(ls_gpu_ctc, p);
    i64 t = ITEM(0), sample = ITEM(1);
    if (t >= p->frames || sample >= p->samples)
        return;
    i64 at = sample * p->frames + t;
    row_sum row = sum_row(IN(float, 0) + at * p->classes, p->classes, 1);
    OUT(double, 1)[3 * at] = row.largest;
    OUT(double, 1)[3 * at + 1] = row.sum;
    OUT(double, 1)[3 * at + 2] = wide_log(row.sum);
}

FUNCTION float ctc_loss(const ctc_sample *c, GLOBAL double *alpha)
{
    double largest = -ENDLESS, sum = 0;
    for (i64 s = 0; s < c->states; s++) {
        alpha[s] += ctc_end(c, s);
        largest = alpha[s] > largest ? alpha[s] : largest;
    }
    if (largest == -ENDLESS)
        largest = 0;
    for (i64 s = 0; s < c->states; s++)
        sum += wide_exp(alpha[s] - largest);
    return TO_FLOAT(-(largest + wide_log(sum)));
}

/* Keeps the rows of all frames for a gradient; else has one row, and writes the loss. places:
 * logits, labels, frames, alpha, out */
KERNEL_APART(ctc_alpha, 5)
{
    LANE(ls_gpu_ctc, p);
    i64 sample = ITEM(0), row = 2 * p->labels + 1, rows = p->gradient ? p->frames : 1;
    if (sample >= p->samples)
        return;
    ctc_sample c = ctc_begin(p, IN(float, 0), IN(u8, 1), IN(double, 2), sample);
    GLOBAL double *alpha = OUT(double, 3) + sample * rows * row, *before = alpha;
    double outside = p->gradient ? c.outside : -ENDLESS;
    for (i64 s = 0; s < c.states; s++)
        before[s] = outside;
    for (i64 t = 0; t < p->frames; t++) {
        for (i64 s = c.states - 1; s >= 0; s--) {
            double skip = s < 2 && t == 0 ? 0 : ctc_skips(&c, s) ? before[s - 2] : -ENDLESS;
            alpha[s] = ctc_add3(before[s], s > 0 ? before[s - 1] : -ENDLESS, skip) + ctc_log_probability(&c, t, s);
        }
        before = alpha;
        alpha += p->gradient ? row : 0;
    }
    if (!p->gradient)
        OUT(float, 4)[sample] = ctc_loss(&c, before);
}

/* places: logits, labels, frames, beta */
KERNEL_APART(ctc_beta, 4)
{
    LANE(ls_gpu_ctc, p);
    i64 sample = ITEM(0), row = 2 * p->labels + 1;
    if (sample >= p->samples)
        return;
    ctc_sample c = ctc_begin(p, IN(float, 0), IN(u8, 1), IN(double, 2), sample);
    GLOBAL double *beta = OUT(double, 3) + (sample * p->frames + p->frames - 1) * row;
    for (i64 s = 0; s < c.states; s++)
        beta[s] = ctc_end(&c, s);
    for (i64 t = p->frames - 1; t > 0; t--) {
        GLOBAL double *next = beta;
        beta -= row;
        for (i64 s = c.states - 1; s >= 0; s--) {
            double one = -ENDLESS, two = -ENDLESS;
            if (s + 1 < c.states)
                one = next[s + 1] + ctc_log_probability(&c, t, s + 1);
            if (s + 2 < c.states && ctc_skips(&c, s + 2))
                two = next[s + 2] + ctc_log_probability(&c, t, s + 2);
            beta[s] = ctc_add3(next[s] + ctc_log_probability(&c, t, s), one, two);
        }
    }
}

/* Makes a row of alpha the probabilities of its states, and adds them by class. places: logits,
 * labels, dy, frames, alpha, beta, out */
KERNEL_APART(ctc_output, 7)
{
    LANE(ls_gpu_ctc, p);
    i64 t = ITEM(0), sample = ITEM(1), row = 2 * p->labels + 1;
    if (t >= p->frames || sample >= p->samples)
        return;
    i64 at = sample * p->frames + t;
    ctc_sample c = ctc_begin(p, IN(float, 0), IN(u8, 1), IN(double, 3), sample);
    GLOBAL double *alpha = OUT(double, 4) + at * row;
    GLOBAL const double *beta = IN(double, 5) + at * row;
    double largest = -ENDLESS, sum = 0, weight = IN(float, 2)[sample];
    for (i64 s = 0; s < c.states; s++) {
        alpha[s] += beta[s];
        largest = alpha[s] > largest ? alpha[s] : largest;
    }
    for (i64 s = 0; s < c.states; s++) {
        alpha[s] = wide_exp(alpha[s] - largest);
        sum += alpha[s];
    }
    for (i64 i = 0; i < p->classes; i++) {
        double posterior = 0;
        for (i64 s = 0; s < c.states; s++)
            if ((s & 1) == 0 ? i == 0 : s < 2 * c.length && ctc_label(&c, s / 2) == i)
                posterior += alpha[s] / sum;
        double value = wide_exp(c.x[t * p->classes + i] - c.frames[3 * t]) / c.frames[3 * t + 1];
        OUT(float, 6)[at * p->classes + i] = TO_FLOAT((value - posterior) * weight);
    }
}
