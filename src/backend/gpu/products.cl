/* Convolutions and matrix products. Each element of an output is one chain of fused multiply-adds in the order of
 * docs/bits.md; an item has a tile of them: ROWS pixels (or rows, or input channels) times one vector of LS_VECTOR
 * columns that lie side by side. Sums over positions have a chain for each block, stored by number, and added by
 * add_blocks. Which item computes what, and how wide vectors are, changes no chain. */
#define ROWS LS_ROWS

/* ---- Convolution ---- */

/* ROWS pixels of x, side by side in a row of the output, of which those with a bit in `valid` take part, meet a cell of
 * the kernel: `depth` channels. */
FUNCTION void meet(vec *sum, GLOBAL const float *pixel, i64 step, u32 valid, GLOBAL const float *weights, i64 pitch,
                   i64 depth, i64 count)
{
    if (valid == (1u << ROWS) - 1) {
        for (i64 c = 0; c < depth; c++) {
            vec w = load(weights + c * pitch, count);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                sum[r] = FMA((vec)pixel[r * step + c], w, sum[r]);
        }
        return;
    }
    for (i64 c = 0; c < depth; c++) {
        vec w = load(weights + c * pitch, count);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (valid >> r & 1)
                sum[r] = FMA((vec)pixel[r * step + c], w, sum[r]);
    }
}

/* places: x, kernel, y */
KERNEL conv2d(PLACE(0), PLACE(1), PLACE(2), LANES)
{
    LANE(ls_gpu_window, v);
    if (ITEM(1) >= v->n)
        return;
    i64 vectors = (v->group_out + LS_VECTOR - 1) / LS_VECTOR, columns = vectors * v->groups;
    u32 item = (u32)ITEM(0), tile = item / (u32)columns, column = item % (u32)columns;
    i64 image = ITEM(1), y = tile / (u32)v->tiles, x0 = (i64)(tile % (u32)v->tiles) * ROWS;
    i64 group = column / (u32)vectors, o = (i64)(column % (u32)vectors) * LS_VECTOR;
    i64 count = least(v->group_out - o, LS_VECTOR), rows = least(v->yw - x0, ROWS);
    if (y >= v->yh)
        return;
    vec sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = (vec)0.0f;
    for (i64 i = 0; i < v->kh; i++) {
        i64 h = y * v->stride[0] + i * v->dilation[0] - v->pad[0];
        if (h < 0 || h >= v->h)
            continue;
        for (i64 j = 0; j < v->kw; j++) {
            i64 w = x0 * v->stride[1] + j * v->dilation[1] - v->pad[1];
            u32 valid = 0;
            for (int r = 0; r < ROWS; r++) {
                i64 at = w + r * v->stride[1];
                valid |= (u32)(r < rows && at >= 0 && at < v->w) << r;
            }
            if (valid)
                meet(sum, IN(float, 0) + ((image * v->h + h) * v->w + w) * v->c + group * v->group_in, v->stride[1] * v->c,
                     valid, IN(float, 1) + (i * v->kw + j) * v->group_in * v->out + group * v->group_out + o, v->out,
                     v->group_in, count);
        }
    }
    GLOBAL float *out = OUT(float, 2) + ((image * v->yh + y) * v->yw + x0) * v->out + group * v->group_out + o;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < rows)
            store(sum[r], out + r * v->out, count);
}

/* The data gradient. The kernel comes with its last two axes swapped: [kh,kw,out,group_in]. Pixels of a tile are
 * `stride` apart, so that the same cells meet all of them. places: kernel, dy, dx */
KERNEL conv2d_grad_input(PLACE(0), PLACE(1), PLACE(2), LANES)
{
    LANE(ls_gpu_window, v);
    if (ITEM(1) >= v->n)
        return;
    i64 vectors = (v->group_in + LS_VECTOR - 1) / LS_VECTOR, columns = vectors * v->groups;
    u32 item = (u32)ITEM(0), tile = item / (u32)columns, column = item % (u32)columns;
    i64 image = ITEM(1), h = tile / (u32)v->tiles, place = tile % (u32)v->tiles;
    i64 w0 = place / v->stride[1] * ROWS * v->stride[1] + place % v->stride[1];
    i64 group = column / (u32)vectors, c = (i64)(column % (u32)vectors) * LS_VECTOR;
    i64 count = least(v->group_in - c, LS_VECTOR);
    if (h >= v->h || w0 >= v->w)
        return;
    vec sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = (vec)0.0f;
    for (i64 i = v->kh; i-- > 0;) {
        i64 from = h - i * v->dilation[0] + v->pad[0], y = from / v->stride[0];
        if (from < 0 || from % v->stride[0] != 0 || y >= v->yh)
            continue;
        for (i64 j = v->kw; j-- > 0;) {
            i64 start = w0 - j * v->dilation[1] + v->pad[1];
            if ((start % v->stride[1] + v->stride[1]) % v->stride[1] != 0)
                continue;
            i64 x = start / v->stride[1]; /* exact */
            u32 valid = 0;
            for (int r = 0; r < ROWS; r++)
                valid |= (u32)(w0 + r * v->stride[1] < v->w && x + r >= 0 && x + r < v->yw) << r;
            if (valid)
                meet(sum, IN(float, 1) + ((image * v->yh + y) * v->yw + x) * v->out + group * v->group_out, v->out, valid,
                     IN(float, 0) + ((i * v->kw + j) * v->out + group * v->group_out) * v->group_in + c, v->group_in,
                     v->group_out, count);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        i64 w = w0 + r * v->stride[1];
        if (w < v->w)
            store(sum[r], OUT(float, 2) + ((image * v->h + h) * v->w + w) * v->c + group * v->group_in + c, count);
    }
}

/* The kernel's gradient: a block of positions of one cell, ROWS input channels times a vector of output channels.
 * places: x, dy, partial sums [block][kernel] */
KERNEL conv2d_grad_kernel(PLACE(0), PLACE(1), PLACE(2), LANES)
{
    LANE(ls_gpu_correlate, p);
    GLOBAL const ls_gpu_window *v = &p->v;
    if (ITEM(1) >= p->b.count)
        return;
    i64 vectors = (v->group_out + LS_VECTOR - 1) / LS_VECTOR, inputs = (v->group_in + ROWS - 1) / ROWS;
    u32 item = (u32)ITEM(0), o_at = item % (u32)vectors, rest = item / (u32)vectors;
    i64 c = (i64)(rest % (u32)inputs) * ROWS, cell = rest / (u32)inputs % (u32)(v->kh * v->kw);
    i64 group = rest / (u32)inputs / (u32)(v->kh * v->kw), o = group * v->group_out + (i64)o_at * LS_VECTOR;
    i64 count = least(v->group_out - (i64)o_at * LS_VECTOR, LS_VECTOR), rows = least(v->group_in - c, ROWS);
    i64 i = cell / v->kw, j = cell % v->kw, number = ITEM(1), first, end;
    if (group >= v->groups)
        return;
    block_bounds(&p->b, p->b.first + number, &first, &end);
    vec sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = (vec)0.0f;
    u32 all = (u32)(v->yh * v->yw);
    i64 n = first / all, y = first % all / v->yw, x = first % all % v->yw;
    for (i64 at = first; at < end; at++) {
        i64 h = y * v->stride[0] + i * v->dilation[0] - v->pad[0], w = x * v->stride[1] + j * v->dilation[1] - v->pad[1];
        if (h >= 0 && h < v->h && w >= 0 && w < v->w) {
            GLOBAL const float *pixel = IN(float, 0) + ((n * v->h + h) * v->w + w) * v->c + group * v->group_in + c;
            vec dy = load(IN(float, 1) + at * v->out + o, count);
            if (rows == ROWS) {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    sum[r] = FMA((vec)pixel[r], dy, sum[r]);
            } else {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    if (r < rows)
                        sum[r] = FMA((vec)pixel[r], dy, sum[r]);
            }
        }
        if (++x == v->yw) {
            x = 0;
            if (++y == v->yh) {
                y = 0;
                n++;
            }
        }
    }
    GLOBAL float *out = OUT(float, 2) + number * v->kh * v->kw * v->group_in * v->out + (cell * v->group_in + c) * v->out + o;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < rows)
            store(sum[r], out + r * v->out, count);
}

/* ---- Matrix product ---- */

/* k from .. to-1 of ROWS rows of a times a vector of columns of b. */
FUNCTION void multiply(vec *sum, GLOBAL const ls_gpu_product *p, GLOBAL const float *a, GLOBAL const float *b, i64 from, i64 to,
                       i64 rows, i64 count)
{
    for (i64 k = from; k < to; k++) {
        vec w = load(b + k * p->b_row, count);
        GLOBAL const float *factor = a + k * p->a_column;
        if (rows == ROWS) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                sum[r] = FMA((vec)factor[r * p->a_row], w, sum[r]);
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (r < rows)
                    sum[r] = FMA((vec)factor[r * p->a_row], w, sum[r]);
        }
    }
}

/* places: a, b, out */
KERNEL matmul(PLACE(0), PLACE(1), PLACE(2), LANES)
{
    LANE(ls_gpu_product, p);
    if (ITEM(1) >= p->matrices)
        return;
    i64 vectors = (p->n + LS_VECTOR - 1) / LS_VECTOR, item = ITEM(0), matrix = ITEM(1);
    i64 row = item / vectors * ROWS, column = item % vectors * LS_VECTOR;
    i64 rows = least(p->m - row, ROWS), count = least(p->n - column, LS_VECTOR);
    if (row >= p->m)
        return;
    vec sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = (vec)0.0f;
    multiply(sum, p, IN(float, 0) + walk_at(&p->leading, 0, matrix) + row * p->a_row,
             IN(float, 1) + walk_at(&p->leading, 1, matrix) + column, 0, p->k, rows, count);
    GLOBAL float *out = OUT(float, 2) + (matrix * p->m + row) * p->n + column;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < rows)
            store(sum[r], out + r * p->n, count);
}

/* A block of the positions (matrix, k). places: a, b, partial sums [block][m,n] */
KERNEL matmul_blocks(PLACE(0), PLACE(1), PLACE(2), LANES)
{
    LANE(ls_gpu_product_blocks, q);
    GLOBAL const ls_gpu_product *p = &q->p;
    if (ITEM(1) >= q->b.count)
        return;
    i64 vectors = (p->n + LS_VECTOR - 1) / LS_VECTOR, item = ITEM(0), number = ITEM(1), first, end;
    i64 row = item / vectors * ROWS, column = item % vectors * LS_VECTOR;
    i64 rows = least(p->m - row, ROWS), count = least(p->n - column, LS_VECTOR);
    if (row >= p->m)
        return;
    block_bounds(&q->b, q->b.first + number, &first, &end);
    vec sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = (vec)0.0f;
    for (i64 at = first; at < end;) {
        i64 matrix = at / p->k, k = at % p->k, to = least(p->k, k + end - at);
        multiply(sum, p, IN(float, 0) + walk_at(&p->leading, 0, matrix) + row * p->a_row,
                 IN(float, 1) + walk_at(&p->leading, 1, matrix) + column, k, to, rows, count);
        at += to - k;
    }
    GLOBAL float *out = OUT(float, 2) + (number * p->m + row) * p->n + column;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < rows)
            store(sum[r], out + r * p->n, count);
}
