/* Softmax and ops built on it: an item has a row of n elements that are `inner` apart. Subtracts
 * the maximum, computes exponentials and sums in double, and rounds the result once. */
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

FUNCTION i64 label_at(GLOBAL const u8 *at, i64 width, i64 i)
{
    return width == 8 ? ((GLOBAL const i64 *)at)[i] : width == 4 ? ((GLOBAL const i32 *)at)[i] : at[i];
}

/* [outer, n, inner]: computes what p->way selects for each row. For a cross-entropy inner is 1, and
 * labels and dy are [outer]; a label that is out of range, which another kernel reports, counts as
 * 0. One kernel computes all four, because most of its code is their exponentials. places: x,
 * labels, dy, out */
KERNEL_APART(softmax_rows, 4)
{
    LANE(ls_gpu_rows, p);
    i64 r = ITEM(0), n = p->n, step = p->inner, way = p->way, label = -1;
    if (r >= p->outer * step)
        return;
    i64 start = r / step * n * step + r % step;
    GLOBAL const float *x = IN(float, 0) + start;
    row_sum row = sum_row(x, n, step);
    double by = row.sum;
    if (way == LS_GPU_LOG_SOFTMAX || way == LS_GPU_CROSS_ENTROPY)
        by = wide_log(by);
    if (way == LS_GPU_CROSS_ENTROPY || way == LS_GPU_CROSS_ENTROPY_GRAD)
        label = label_at(IN(u8, 1), p->width, r);
    if (way == LS_GPU_CROSS_ENTROPY) {
        label = label >= 0 && label < n ? label : 0;
        OUT(float, 3)[r] = TO_FLOAT(by - (x[label] - row.largest));
        return;
    }
    for (i64 i = 0; i < n; i++) {
        double value = x[i * step] - row.largest;
        value = way == LS_GPU_LOG_SOFTMAX ? value - by : wide_exp(value) / by;
        if (way == LS_GPU_CROSS_ENTROPY_GRAD)
            value = (value - (i == label ? 1 : 0)) * IN(float, 2)[r];
        OUT(float, 3)[start + i * step] = TO_FLOAT(value);
    }
}
