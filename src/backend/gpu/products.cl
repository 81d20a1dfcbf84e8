/* Convolutions and matrix products. Each element of an output is one chain of fused multiply-adds in the order of
 * docs/bits.md; an item has a tile of them: ROWS pixels (or rows, or cells of a kernel) times one or two vectors of LS_VECTOR
 * columns that lie side by side. Sums over positions have a chain for each block, stored by number, and added by
 * add_blocks. Which item computes what, and how wide vectors are, changes no chain: where rows are no multiple of ROWS, the
 * last tile begins earlier, and computes some of them again.
 *
 * Kernels come three times: for one vector of which some columns may be missing, for one (_whole) and for two (_wide) that are
 * always there. `vecs` and `whole` say so, and are known to the compiler. */
#define ROWS LS_ROWS
#define MOST_VECS 2

#define EACH_ROW _Pragma("unroll") for (int r = 0; r < ROWS; r++)
#define EACH_VEC(v)                                                                                                    \
    _Pragma("unroll") for (int v = 0; v < MOST_VECS; v++) if (v < vecs)

/* Column vector v of `vecs`, of which `count` columns are there. */
FUNCTION vec load_columns(GLOBAL const float *at, bool whole, int v, i64 count)
{
    return whole ? LOAD(at + v * LS_VECTOR) : load(at + v * LS_VECTOR, count - v * LS_VECTOR);
}

INLINED void clear(vec sum[][MOST_VECS], int vecs)
{
    EACH_ROW
        EACH_VEC(v)
            sum[r][v] = (vec)0.0f;
}

INLINED void store_row(vec *sum, int vecs, bool whole, GLOBAL float *at, i64 count)
{
    EACH_VEC(v)
    {
        if (whole)
            STORE(sum[v], at + v * LS_VECTOR);
        else if (count > v * LS_VECTOR)
            store(sum[v], at + v * LS_VECTOR, count - v * LS_VECTOR);
    }
}

/* One number of a row times the columns. */
INLINED void add_product(vec *sum, int vecs, float x, const vec *w)
{
    EACH_VEC(v)
        sum[v] = FMA((vec)x, w[v], sum[v]);
}

/* Where the last tile of `size` rows begins, if it is not too small for one. */
FUNCTION i64 tile_start(i64 tile, i64 size)
{
    return size >= ROWS ? least(tile * ROWS, size - ROWS) : tile * ROWS;
}

/* ---- Convolution ---- */

/* ROWS pixels, `step` floats apart, meet a cell of the kernel: `depth` channels. Rows from .. to-1 take part. */
INLINED void meet(vec sum[][MOST_VECS], int vecs, bool whole, GLOBAL const float *pixel, i64 step, i64 from, i64 to,
                  GLOBAL const float *weights, i64 pitch, i64 depth, i64 count)
{
    vec w[MOST_VECS];
    if (from <= 0 && to >= ROWS) {
        for (i64 c = 0; c < depth; c++) {
            EACH_VEC(v)
                w[v] = load_columns(weights + c * pitch, whole, v, count);
            EACH_ROW
                add_product(sum[r], vecs, pixel[r * step + c], w);
        }
        return;
    }
    i64 at[ROWS]; /* others look at a pixel that is there */
    mask on[ROWS];
    EACH_ROW
    {
        bool there = r >= from && r < to;
        at[r] = (there ? r : from > 0 ? from : 0) * step;
        on[r] = (mask)(there ? -1 : 0);
    }
    for (i64 c = 0; c < depth; c++) {
        EACH_VEC(v)
            w[v] = load_columns(weights + c * pitch, whole, v, count);
        EACH_ROW
            EACH_VEC(v)
                sum[r][v] = CHOOSE(on[r], FMA((vec)pixel[at[r] + c], w[v], sum[r][v]), sum[r][v]);
    }
}

/* The first r with w + r * stride >= 0, and the first with w + r * stride >= size, neither beyond `rows`. */
FUNCTION void rows_inside(i64 w, i64 stride, i64 size, i64 rows, i64 *from, i64 *to)
{
    i64 before = w < 0 ? -w : 0, inside = size > w ? size - w : 0;
    *from = stride == 1 ? before : (i64)((u32)(before + stride - 1) / (u32)stride);
    *to = stride == 1 ? inside : (i64)((u32)(inside + stride - 1) / (u32)stride);
    *to = least(*to, rows);
}

INLINED void conv2d_tile(GLOBAL const ls_gpu_window *v, int vecs, bool whole, GLOBAL const float *in,
                         GLOBAL const float *kernel_, GLOBAL float *out, i64 y, i64 x0, i64 count)
{
    i64 rows = least(v->yw - x0, ROWS), step = v->stride[1] * v->c, pitch = v->out, depth = v->group_in;
    i64 left = x0 * v->stride[1] - v->pad[1], last = left + (ROWS - 1) * v->stride[1] + v->kw - 1;
    /* the cells of a row lie side by side, as do the pixels that meet them, and all of these are there */
    bool by_row = v->dilation[1] == 1 && v->groups == 1 && rows == ROWS && left >= 0 && last < v->w;
    vec sum[ROWS][MOST_VECS];
    clear(sum, vecs);
    for (i64 i = 0; i < v->kh; i++) {
        i64 h = y * v->stride[0] + i * v->dilation[0] - v->pad[0];
        if (h < 0 || h >= v->h)
            continue;
        for (i64 j = 0; j < (by_row ? 1 : v->kw); j++) {
            i64 w = left + j * v->dilation[1], from, to;
            rows_inside(w, v->stride[1], v->w, rows, &from, &to);
            if (from < to)
                meet(sum, vecs, whole, in + (h * v->w + w) * v->c, step, from, to,
                     kernel_ + (i * v->kw + j) * depth * pitch, pitch, by_row ? v->kw * depth : depth, count);
        }
    }
    EACH_ROW
        if (r < rows)
            store_row(sum[r], vecs, whole, out + r * v->out, count);
}

/* places: x, kernel, y */
#define CONV2D(name, vecs, whole)                                                                                      \
    KERNEL name(PLACE(0), PLACE(1), PLACE(2), LANES)                                                                   \
    {                                                                                                                  \
        LANE(ls_gpu_window, v);                                                                                        \
        if (ITEM(1) >= v->n)                                                                                           \
            return;                                                                                                    \
        i64 vectors = (v->group_out + vecs * LS_VECTOR - 1) / (vecs * LS_VECTOR), columns = vectors * v->groups;       \
        u32 item = (u32)ITEM(0), tile = item / (u32)columns, column = item % (u32)columns;                             \
        i64 image = ITEM(1), y = tile / (u32)v->tiles, x0 = tile_start(tile % (u32)v->tiles, v->yw);                   \
        i64 group = column / (u32)vectors, o = (i64)(column % (u32)vectors) * (vecs * LS_VECTOR);                      \
        i64 count = v->group_out - o;                                                                                  \
        if (y >= v->yh)                                                                                                \
            return;                                                                                                    \
        GLOBAL const float *in = IN(float, 0) + image * v->h * v->w * v->c + group * v->group_in;                      \
        GLOBAL const float *kernel_ = IN(float, 1) + group * v->group_out + o;                                         \
        GLOBAL float *out = OUT(float, 2) + ((image * v->yh + y) * v->yw + x0) * v->out + group * v->group_out + o;    \
        conv2d_tile(v, vecs, whole, in, kernel_, out, y, x0, count);                                                   \
    }
CONV2D(conv2d, 1, false)
CONV2D(conv2d_whole, 1, true)
CONV2D(conv2d_wide, 2, true)

INLINED void conv2d_grad_tile(GLOBAL const ls_gpu_window *v, int vecs, bool whole, GLOBAL const float *kernel_,
                              GLOBAL const float *dy, GLOBAL float *out, i64 h, i64 w0, i64 count)
{
    i64 stride = v->stride[1], rows = least((v->w - w0 + stride - 1) / stride, ROWS), pitch = v->group_in;
    vec sum[ROWS][MOST_VECS];
    clear(sum, vecs);
    for (i64 i = v->kh; i-- > 0;) {
        i64 above = h - i * v->dilation[0] + v->pad[0], y = above / v->stride[0];
        if (above < 0 || above % v->stride[0] != 0 || y >= v->yh)
            continue;
        for (i64 j = v->kw; j-- > 0;) {
            i64 start = w0 - j * v->dilation[1] + v->pad[1], from, to;
            if (stride > 1 && (start % stride + stride) % stride != 0)
                continue;
            i64 x = stride > 1 ? start / stride : start; /* exact */
            rows_inside(x, 1, v->yw, rows, &from, &to);
            if (from < to)
                meet(sum, vecs, whole, dy + (y * v->yw + x) * v->out, v->out, from, to,
                     kernel_ + (i * v->kw + j) * v->out * pitch, pitch, v->group_out, count);
        }
    }
    EACH_ROW
        if (r < rows)
            store_row(sum[r], vecs, whole, out + r * stride * v->c, count);
}

/* The data gradient. The kernel comes with its last two axes swapped: [kh,kw,out,group_in]. Pixels of a tile are
 * `stride` apart, so that the same cells meet all of them. places: kernel, dy, dx */
#define CONV2D_GRAD_INPUT(name, vecs, whole)                                                                           \
    KERNEL name(PLACE(0), PLACE(1), PLACE(2), LANES)                                                                   \
    {                                                                                                                  \
        LANE(ls_gpu_window, v);                                                                                        \
        if (ITEM(1) >= v->n)                                                                                           \
            return;                                                                                                    \
        i64 vectors = (v->group_in + vecs * LS_VECTOR - 1) / (vecs * LS_VECTOR), columns = vectors * v->groups;        \
        u32 item = (u32)ITEM(0), tile = item / (u32)columns, column = item % (u32)columns;                             \
        i64 image = ITEM(1), h = tile / (u32)v->tiles, place = tile % (u32)v->tiles, stride = v->stride[1];            \
        i64 w0 = stride == 1 ? tile_start(place, v->w) : place / stride * ROWS * stride + place % stride;              \
        i64 group = column / (u32)vectors, c = (i64)(column % (u32)vectors) * (vecs * LS_VECTOR);                      \
        i64 count = v->group_in - c;                                                                                   \
        if (h >= v->h || w0 >= v->w)                                                                                   \
            return;                                                                                                    \
        GLOBAL const float *kernel_ = IN(float, 0) + group * v->group_out * v->group_in + c;                           \
        GLOBAL const float *dy = IN(float, 1) + image * v->yh * v->yw * v->out + group * v->group_out;                 \
        GLOBAL float *out = OUT(float, 2) + ((image * v->h + h) * v->w + w0) * v->c + group * v->group_in + c;         \
        conv2d_grad_tile(v, vecs, whole, kernel_, dy, out, h, w0, count);                                              \
    }
CONV2D_GRAD_INPUT(conv2d_grad_input, 1, false)
CONV2D_GRAD_INPUT(conv2d_grad_input_whole, 1, true)
CONV2D_GRAD_INPUT(conv2d_grad_input_wide, 2, true)

/* `length` positions of a row of y, the first at column x, meet ROWS cells of the kernel, which are at[r] floats from the
 * pixel, and where `side` is set side by side. Where `edge` is set some may be outside of the image. */
INLINED void correlate_row(GLOBAL const ls_gpu_window *v, vec sum[][MOST_VECS], int vecs, bool whole, bool side, bool edge,
                           GLOBAL const float *pixel, const i64 *at, const i64 *down, const i64 *right, i64 h, i64 w,
                           GLOBAL const float *dy, i64 length, i64 count)
{
    i64 step = v->stride[1] * v->c, pitch = v->out, stride = v->stride[1];
    for (i64 x = 0; x < length; x++) {
        vec d[MOST_VECS];
        EACH_VEC(k)
            d[k] = load_columns(dy, whole, k, count);
        EACH_ROW
        {
            if (edge) {
                i64 row = h + down[r], column = w + right[r];
                if (row >= 0 && row < v->h && column >= 0 && column < v->w)
                    add_product(sum[r], vecs, pixel[at[r]], d);
            } else {
                add_product(sum[r], vecs, side ? pixel[at[0] + r] : pixel[at[r]], d);
            }
        }
        pixel += step;
        dy += pitch;
        w += stride;
    }
}

INLINED void correlate_block(GLOBAL const ls_gpu_window *v, int vecs, bool whole, GLOBAL const float *in,
                             GLOBAL const float *dy, GLOBAL float *out, i64 cell, i64 first, i64 end, i64 count)
{
    vec sum[ROWS][MOST_VECS];
    i64 at[ROWS], down[ROWS], right[ROWS], cells = v->kh * v->kw * v->group_in;
    u32 all = (u32)(v->yh * v->yw);
    clear(sum, vecs);
    EACH_ROW
    {
        u32 number = (u32)least(cell + r, cells - 1), c = number % (u32)v->group_in, place = number / (u32)v->group_in;
        down[r] = (i64)(place / (u32)v->kw) * v->dilation[0];
        right[r] = (i64)(place % (u32)v->kw) * v->dilation[1];
        at[r] = (down[r] * v->w + right[r]) * v->c + c;
    }
    bool side = at[ROWS - 1] == at[0] + ROWS - 1;
    i64 n = first / all, y = first % all / v->yw, x = first % all % v->yw;
    while (first < end) {
        i64 length = least(v->yw - x, end - first);
        i64 h = y * v->stride[0] - v->pad[0], w = x * v->stride[1] - v->pad[1];
        GLOBAL const float *pixel = in + ((n * v->h + h) * v->w + w) * v->c, *d = dy + first * v->out;
        bool inside = h + down[0] >= 0 && h + down[ROWS - 1] < v->h && w >= 0 &&
                      w + (length - 1) * v->stride[1] + (v->kw - 1) * v->dilation[1] < v->w;
        if (inside && side)
            correlate_row(v, sum, vecs, whole, true, false, pixel, at, down, right, h, w, d, length, count);
        else if (inside)
            correlate_row(v, sum, vecs, whole, false, false, pixel, at, down, right, h, w, d, length, count);
        else
            correlate_row(v, sum, vecs, whole, false, true, pixel, at, down, right, h, w, d, length, count);
        first += length;
        x = 0;
        if (++y == v->yh) {
            y = 0;
            n++;
        }
    }
    EACH_ROW
        if (cell + r < cells)
            store_row(sum[r], vecs, whole, out + r * v->out, count);
}

/* The kernel's gradient: a block of positions, ROWS of the cells [kh,kw,group_in] times output channels. places: x, dy,
 * partial sums [block][kernel] */
#define CONV2D_GRAD_KERNEL(name, vecs, whole)                                                                          \
    KERNEL name(PLACE(0), PLACE(1), PLACE(2), LANES)                                                                   \
    {                                                                                                                  \
        LANE(ls_gpu_correlate, p);                                                                                     \
        GLOBAL const ls_gpu_window *v = &p->v;                                                                         \
        if (ITEM(1) >= p->b.count)                                                                                     \
            return;                                                                                                    \
        i64 vectors = (v->group_out + vecs * LS_VECTOR - 1) / (vecs * LS_VECTOR);                                      \
        i64 cells = v->kh * v->kw * v->group_in, tiles = (cells + ROWS - 1) / ROWS;                                    \
        u32 item = (u32)ITEM(0), o_at = item % (u32)vectors, rest = item / (u32)vectors;                               \
        i64 cell = tile_start(rest % (u32)tiles, cells), group = rest / (u32)tiles, first, end;                        \
        i64 o = group * v->group_out + (i64)o_at * (vecs * LS_VECTOR), number = ITEM(1);                               \
        i64 count = v->group_out - (i64)o_at * (vecs * LS_VECTOR);                                                     \
        if (group >= v->groups)                                                                                        \
            return;                                                                                                    \
        block_bounds(&p->b, p->b.first + number, &first, &end);                                                        \
        GLOBAL const float *in = IN(float, 0) + group * v->group_in, *dy = IN(float, 1) + o;                           \
        GLOBAL float *out = OUT(float, 2) + (number * cells + cell) * v->out + o;                                      \
        correlate_block(v, vecs, whole, in, dy, out, cell, first, end, count);                                         \
    }
CONV2D_GRAD_KERNEL(conv2d_grad_kernel, 1, false)
CONV2D_GRAD_KERNEL(conv2d_grad_kernel_whole, 1, true)
CONV2D_GRAD_KERNEL(conv2d_grad_kernel_wide, 2, true)

/* ---- Matrix product ---- */

/* k from .. to-1 of ROWS rows of a times columns of b. Rows beyond the last are the first again, and not stored. */
INLINED void multiply(vec sum[][MOST_VECS], int vecs, bool whole, GLOBAL const ls_gpu_product *p, GLOBAL const float *a,
                      GLOBAL const float *b, i64 from, i64 to, i64 rows, i64 count)
{
    i64 at[ROWS], pitch = p->b_row, step = p->a_column;
    EACH_ROW
        at[r] = r < rows ? r * p->a_row : 0;
    for (i64 k = from; k < to; k++) {
        vec w[MOST_VECS];
        EACH_VEC(v)
            w[v] = load_columns(b + k * pitch, whole, v, count);
        EACH_ROW
            add_product(sum[r], vecs, a[k * step + at[r]], w);
    }
}

INLINED void store_tile(vec sum[][MOST_VECS], int vecs, bool whole, GLOBAL float *out, i64 pitch, i64 rows, i64 count)
{
    EACH_ROW
        if (r < rows)
            store_row(sum[r], vecs, whole, out + r * pitch, count);
}

/* A block of the positions (matrix, k), or all of one matrix. */
INLINED void multiply_block(GLOBAL const ls_gpu_product *p, int vecs, bool whole, GLOBAL const float *a,
                            GLOBAL const float *b, GLOBAL float *out, i64 first, i64 end, i64 row, i64 column)
{
    i64 rows = least(p->m - row, ROWS), count = p->n - column;
    vec sum[ROWS][MOST_VECS];
    clear(sum, vecs);
    for (i64 at = first; at < end;) {
        i64 matrix = at / p->k, k = at - matrix * p->k, to = least(p->k, k + end - at);
        multiply(sum, vecs, whole, p, a + walk_at(&p->leading, 0, matrix) + row * p->a_row,
                 b + walk_at(&p->leading, 1, matrix) + column, k, to, rows, count);
        at += to - k;
    }
    store_tile(sum, vecs, whole, out, p->n, rows, count);
}

/* places: a, b, out */
#define MATMUL(name, vecs, whole)                                                                                      \
    KERNEL name(PLACE(0), PLACE(1), PLACE(2), LANES)                                                                   \
    {                                                                                                                  \
        LANE(ls_gpu_product, p);                                                                                       \
        if (ITEM(1) >= p->matrices)                                                                                    \
            return;                                                                                                    \
        i64 vectors = (p->n + vecs * LS_VECTOR - 1) / (vecs * LS_VECTOR), item = ITEM(0), matrix = ITEM(1);            \
        i64 tile = item / vectors, column = item % vectors * (vecs * LS_VECTOR), row = tile_start(tile, p->m);         \
        if (tile * ROWS >= p->m)                                                                                       \
            return;                                                                                                    \
        GLOBAL float *out = OUT(float, 2) + (matrix * p->m + row) * p->n + column;                                     \
        i64 first = matrix * p->k, end = first + p->k;                                                                 \
        multiply_block(p, vecs, whole, IN(float, 0), IN(float, 1), out, first, end, row, column);                      \
    }
MATMUL(matmul, 1, false)
MATMUL(matmul_whole, 1, true)
MATMUL(matmul_wide, 2, true)

/* A block of the positions (matrix, k). places: a, b, partial sums [block][m,n] */
#define MATMUL_BLOCKS(name, vecs, whole)                                                                               \
    KERNEL name(PLACE(0), PLACE(1), PLACE(2), LANES)                                                                   \
    {                                                                                                                  \
        LANE(ls_gpu_product_blocks, q);                                                                                \
        GLOBAL const ls_gpu_product *p = &q->p;                                                                        \
        if (ITEM(1) >= q->b.count)                                                                                     \
            return;                                                                                                    \
        i64 vectors = (p->n + vecs * LS_VECTOR - 1) / (vecs * LS_VECTOR), item = ITEM(0), number = ITEM(1);            \
        i64 tile = item / vectors, column = item % vectors * (vecs * LS_VECTOR), row = tile_start(tile, p->m);         \
        i64 first, end;                                                                                                \
        if (tile * ROWS >= p->m)                                                                                       \
            return;                                                                                                    \
        block_bounds(&q->b, q->b.first + number, &first, &end);                                                        \
        GLOBAL float *out = OUT(float, 2) + (number * p->m + row) * p->n + column;                                     \
        multiply_block(p, vecs, whole, IN(float, 0), IN(float, 1), out, first, end, row, column);                      \
    }
MATMUL_BLOCKS(matmul_blocks, 1, false)
MATMUL_BLOCKS(matmul_blocks_whole, 1, true)
MATMUL_BLOCKS(matmul_blocks_wide, 2, true)
