/* Softmax and what is built on it: an item has a row of n elements, `inner` apart. The largest is subtracted, sums and
 * exponentials are in double, what comes out is rounded once. */
typedef struct row_sum {
    double largest, sum;
} row_sum;

FUNCTION row_sum sum_row(GLOBAL const float *x, i64 n, i64 step)
{
    row_sum row;
    double part[16];
    row.largest = -ENDLESS;
    for (int k = 0; k < 16; k++)
        part[k] = 0;
    for (i64 i = 0; i < n; i++)
        row.largest = x[i * step] > row.largest ? x[i * step] : row.largest;
    for (i64 i = 0; i < n; i++)
        part[i & 15] += wide_exp(x[i * step] - row.largest);
    row.sum = interleaved_total(part);
    return row;
}

/* places: x, out */
#define ALONG(name, prepare, expression)                                                                               \
    KERNEL(name)(PLACE(0), PLACE(1), LANES)                                                                            \
    {                                                                                                                  \
        LANE(ls_gpu_rows, p);                                                                                          \
        i64 r = ITEM(0);                                                                                               \
        if (r >= p->outer * p->inner)                                                                                  \
            return;                                                                                                    \
        i64 start = r / p->inner * p->n * p->inner + r % p->inner;                                                     \
        GLOBAL const float *x = IN(float, 0) + start;                                                                  \
        row_sum row = sum_row(x, p->n, p->inner);                                                                      \
        double by = prepare;                                                                                           \
        for (i64 i = 0; i < p->n; i++) {                                                                               \
            double shifted = x[i * p->inner] - row.largest;                                                            \
            OUT(float, 1)[start + i * p->inner] = TO_FLOAT(expression);                                                \
        }                                                                                                              \
    }
ALONG(softmax, row.sum, wide_exp(shifted) / by)
ALONG(log_softmax, wide_log(row.sum), shifted - by)

FUNCTION i64 label_at(GLOBAL const u8 *at, i64 width, i64 i)
{
    return width == 8 ? ((GLOBAL const i64 *)at)[i] : width == 4 ? ((GLOBAL const i32 *)at)[i] : at[i];
}

/* A label outside, which another kernel tells of, is taken as 0. places: logits [outer, n], labels [outer], out [outer] */
KERNEL(sparse_cross_entropy)(PLACE(0), PLACE(1), PLACE(2), LANES)
{
    LANE(ls_gpu_rows, p);
    i64 r = ITEM(0);
    if (r >= p->outer)
        return;
    GLOBAL const float *x = IN(float, 0) + r * p->n;
    i64 label = label_at(IN(u8, 1), p->width, r);
    row_sum row = sum_row(x, p->n, 1);
    label = label >= 0 && label < p->n ? label : 0;
    OUT(float, 2)[r] = TO_FLOAT(wide_log(row.sum) - (x[label] - row.largest));
}

/* places: logits, labels, dy, out */
KERNEL(sparse_cross_entropy_grad)(PLACE(0), PLACE(1), PLACE(2), PLACE(3), LANES)
{
    LANE(ls_gpu_rows, p);
    i64 r = ITEM(0);
    if (r >= p->outer)
        return;
    GLOBAL const float *x = IN(float, 0) + r * p->n;
    i64 label = label_at(IN(u8, 1), p->width, r);
    row_sum row = sum_row(x, p->n, 1);
    float dy = IN(float, 2)[r];
    for (i64 c = 0; c < p->n; c++)
        OUT(float, 3)[r * p->n + c] =
            TO_FLOAT((wide_exp(x[c] - row.largest) / row.sum - (c == label ? 1 : 0)) * dy);
}
