/* Batch normalisation over all axes but the last, x as [positions, channels]; moments are f64 [2, channels]. */

/* Sums of x and of its square, by channel and block, in double. places: x, partial sums f64 [block][2, channels] */
KERNEL moments(PLACE(0), PLACE(1), LANES)
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

/* Sums of dy and of dy times the normalised x: chains of floats, put together in double. places: dy, x, moments, partial
 * sums f64 [block][2, channels] */
KERNEL batch_norm_grad_moments(PLACE(0), PLACE(1), PLACE(2), PLACE(3), LANES)
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

/* By channel, what pixels need of the moments: mean, inverse, and, with sums, g0 and g1. places: moments, sums, f32
 * [4][channels] */
KERNEL norm_statistics(PLACE(0), PLACE(1), PLACE(2), LANES)
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

/* places: x, statistics, gamma, beta, out */
KERNEL batch_norm(PLACE(0), PLACE(1), PLACE(2), PLACE(3), PLACE(4), LANES)
{
    LANE(ls_gpu_norm, p);
    i64 c = ITEM(0), i = ITEM(1), at = i * p->channels + c;
    if (c >= p->channels || i >= p->positions)
        return;
    float mean = IN(float, 1)[c], inverse = IN(float, 1)[p->channels + c];
    OUT(float, 4)[at] = (IN(float, 0)[at] - mean) * (IN(float, 2)[c] * inverse) + IN(float, 3)[c];
}

/* places: dy, x, statistics, gamma, out */
KERNEL batch_norm_grad_input(PLACE(0), PLACE(1), PLACE(2), PLACE(3), PLACE(4), LANES)
{
    LANE(ls_gpu_norm, p);
    i64 c = ITEM(0), i = ITEM(1), at = i * p->channels + c;
    if (c >= p->channels || i >= p->positions)
        return;
    GLOBAL const float *s = IN(float, 2) + c;
    float mean = s[0], inverse = s[p->channels], g0 = s[2 * p->channels], g1 = s[3 * p->channels];
    float normal = (IN(float, 1)[at] - mean) * inverse;
    OUT(float, 4)[at] = IN(float, 3)[c] * inverse * (IN(float, 0)[at] - (g0 + normal * g1));
}
