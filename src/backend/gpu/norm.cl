/* Batch norm over all axes but the last, x as [positions, channels]; moments are f64 [2,
 * channels]. */

/* Sums x and its square in double, by channel and block. places: x, partial sums f64 [block][2,
 * channels] */
KERNEL_APART(moments, 2)
{
    LANE(ls_gpu_norm, p);
    i64 c = ITEM(0), number = ITEM(1), first, end;
    if (c >= p->channels || number >= p->b.count)
        return;
    block_bounds(&p->b, p->b.first + number, &first, &end);
    GLOBAL const float *x = IN(float, 0) + c;
    double sum = 0, squares = 0;
    for (i64 i = first; i < end; i++) {
        double value = x[i * p->channels];
        sum = sum + value;
        squares = squares + value * value;
    }
    GLOBAL double *out = OUT(double, 1) + number * 2 * p->channels + c;
    out[0] = sum;
    out[p->channels] = squares;
}

FUNCTION float mean_of(GLOBAL const ls_gpu_norm *p, GLOBAL const double *moments, i64 c)
{
    return TO_FLOAT(moments[c] / p->count);
}

FUNCTION float inverse_of(GLOBAL const ls_gpu_norm *p, GLOBAL const double *moments, i64 c)
{
    double mean = moments[c] / p->count, variance = moments[p->channels + c] / p->count - mean * mean;
    variance = variance < 0 ? 0 : variance;
    return TO_FLOAT(1 / sqrt(variance + p->epsilon));
}

/* Sums dy and dy times the normalized x: chains of floats, added in double. places: dy, x, moments,
 * partial sums f64 [block][2, channels] */
KERNEL_APART(batch_norm_grad_moments, 4)
{
    LANE(ls_gpu_norm, p);
    i64 c = ITEM(0), number = ITEM(1), first, end;
    if (c >= p->channels || number >= p->b.count)
        return;
    block_bounds(&p->b, p->b.first + number, &first, &end);
    float mean = mean_of(p, IN(double, 2), c), inverse = inverse_of(p, IN(double, 2), c), sum = 0, products = 0;
    for (i64 i = first; i < end; i++) {
        float dy = IN(float, 0)[i * p->channels + c], x = IN(float, 1)[i * p->channels + c];
        sum = sum + dy;
        products = products + dy * ((x - mean) * inverse);
    }
    GLOBAL double *out = OUT(double, 3) + number * 2 * p->channels + c;
    out[0] = sum;
    out[p->channels] = products;
}

/* Computes per channel the numbers that pixels need: mean, inverse and, with sums, g0 and g1.
 * places: moments, sums, f32 [4][channels] */
KERNEL(norm_statistics, 3)
{
    LANE(ls_gpu_norm, p);
    i64 c = ITEM(0);
    if (c >= p->channels)
        return;
    GLOBAL float *out = OUT(float, 2) + c;
    out[0] = mean_of(p, IN(double, 0), c);
    out[p->channels] = inverse_of(p, IN(double, 0), c);
    out[2 * p->channels] = TO_FLOAT(IN(double, 1)[c] / p->count);
    out[3 * p->channels] = TO_FLOAT(IN(double, 1)[p->channels + c] / p->count);
}

/* Sets the item's vector of channels, of which `count` exist, and its pixels. Returns false if the
 * item has none. */
FUNCTION bool find_run(GLOBAL const ls_gpu_norm *p, u32 item, i64 *c, i64 *first, i64 *end, i64 *count)
{
    if (p->channels == 0)
        return false;
    u32 pieces = (u32)((p->channels + LS_VECTOR - 1) / LS_VECTOR);
    *c = (i64)(item % pieces) * LS_VECTOR;
    *first = (i64)(item / pieces) * LS_GPU_RUN(LS_VECTOR);
    *end = least(*first + LS_GPU_RUN(LS_VECTOR), p->positions);
    *count = p->channels - *c;
    return *first < p->positions;
}

/* An item has a vector of channels of some pixels. places: x, statistics, gamma, beta, out */
KERNEL_APART(batch_norm, 5)
{
    LANE(ls_gpu_norm, p);
    i64 c, first, end, count;
    if (!find_run(p, (u32)ITEM(0), &c, &first, &end, &count))
        return;
    vec mean = load(IN(float, 1) + c, count), inverse = load(IN(float, 1) + p->channels + c, count);
    vec scale = load(IN(float, 2) + c, count) * inverse, beta = load(IN(float, 3) + c, count);
    for (i64 i = first; i < end; i++) {
        vec y = (load(IN(float, 0) + i * p->channels + c, count) - mean) * scale + beta;
        if (p->rectified)
            y = CHOOSE(y <= (vec)0.0f, (vec)0.0f, y);
        store(y, OUT(float, 4) + i * p->channels + c, count);
    }
}

/* places: dy, x, statistics, gamma, out */
KERNEL_APART(batch_norm_grad_input, 5)
{
    LANE(ls_gpu_norm, p);
    i64 c, first, end, count;
    if (!find_run(p, (u32)ITEM(0), &c, &first, &end, &count))
        return;
    GLOBAL const float *s = IN(float, 2) + c;
    vec mean = load(s, count), inverse = load(s + p->channels, count), g0 = load(s + 2 * p->channels, count);
    vec g1 = load(s + 3 * p->channels, count), scale = load(IN(float, 3) + c, count) * inverse;
    for (i64 i = first; i < end; i++) {
        i64 at = i * p->channels + c;
        vec normal = (load(IN(float, 1) + at, count) - mean) * inverse;
        store(scale * (load(IN(float, 0) + at, count) - (g0 + normal * g1)), OUT(float, 4) + at, count);
    }
}
