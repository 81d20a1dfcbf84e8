/* Convolutions and matrix products. Each output element is one chain of fused multiply-adds in the
 * order of docs/bits.md. An item computes a tile: ROWS pixels (or rows, or cells of a kernel) times
 * one or two vectors of LS_VECTOR adjacent columns. A sum over positions has a chain for each
 * block; add_blocks adds them. The division into items and the width of vectors change no chain: if
 * rows or columns are not a multiple of a tile, the last tile begins earlier and computes some of
 * them again.
 *
 * * Kernels have three forms: for fewer columns than a vector has, for one whole vector (_whole)
 * and for two (_wide). `vecs` and `whole` select the form and are compile-time constants. */
#define ROWS LS_ROWS
#define ALL_ROWS ((1u << ROWS) - 1)
#define MOST_VECS 2

#define EACH_ROW _Pragma("unroll") for (int r = 0; r < ROWS; r++)
#define EACH_VEC(v)                                                                                                    \
    _Pragma("unroll") for (int v = 0; v < MOST_VECS; v++) if (v < vecs)

/* Loads column vector v of `vecs`, of which `count` columns exist. */
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
        else
            store(sum[v], at + v * LS_VECTOR, count - v * LS_VECTOR);
    }
}

/* Tail of a product in the same kernel: adds a bias to its rows, and replaces numbers of at most
 * `limit` by 0. Without a tail the bias is -0 and the limit NaN, which change nothing: a branch for
 * each row would cost more. */
INLINED void find_end(vec *bias, vec *limit, int vecs, bool whole, i64 biased, i64 rectified, GLOBAL const float *at, i64 count)
{
    EACH_VEC(v)
        bias[v] = (vec)-0.0f;
    if (biased)
        EACH_VEC(v)
            bias[v] = load_columns(at, whole, v, count);
    *limit = (vec)(rectified ? 0.0f : TO_FLOAT(NO_NUMBER));
}

INLINED void finish_row(vec *sum, int vecs, const vec *bias, vec limit)
{
    EACH_VEC(v)
    {
        sum[v] = sum[v] + bias[v];
        sum[v] = CHOOSE(sum[v] <= limit, (vec)0.0f, sum[v]);
    }
}

/* Multiplies one number of a row by the columns. */
INLINED void add_product(vec *sum, int vecs, float x, const vec *w)
{
    EACH_VEC(v)
        sum[v] = FMA((vec)x, w[v], sum[v]);
}

/* ---- The tile of an item ---- */

/* Numbers that rarely need 64 bits. */
FUNCTION i64 quotient(i64 a, i64 b)
{
    return (a | b) >> 31 ? a / b : (i64)((u32)a / (u32)b);
}

/* Start of a tile of `each` among `size` rows or columns, if there are at least `each`. */
FUNCTION i64 tile_start(i64 tile, i64 each, i64 size)
{
    return size >= each ? least(tile * each, size - each) : tile * each;
}

FUNCTION i64 tiles_of(i64 size, i64 each)
{
    return quotient(size + each - 1, each);
}

/* Adjacent items have the same columns if columns are vectors, so that weights stay in the cache,
 * and the same rows if items are lanes of a vector. */
FUNCTION void split_item(i64 item, i64 tiles, i64 columns, i64 *tile, i64 *column)
{
    i64 inner = LS_VECTOR > 1 ? tiles : columns, outer = quotient(item, inner), rest = item - outer * inner;
    *tile = LS_VECTOR > 1 ? rest : outer;
    *column = LS_VECTOR > 1 ? outer : rest;
}

/* ---- Convolution ---- */

/* Multiplies ROWS pixels by one cell of the kernel: `depth` channels, from channel `from` on, which
 * may belong to a following pixel. Only rows whose bit of `on` is set take part. Channels are
 * counted from there, so that the pointers of rows stay unchanged in registers. */
INLINED void meet(vec sum[][MOST_VECS], int vecs, bool whole, GLOBAL const float *const *pixel, i64 from, u32 on,
                  GLOBAL const float *weights, i64 pitch, i64 depth, i64 count)
{
    vec w[MOST_VECS];
    if (on == ALL_ROWS) {
        for (i64 c = from; c < from + depth; c++) {
            EACH_VEC(v)
                w[v] = load_columns(weights, whole, v, count);
            EACH_ROW
                add_product(sum[r], vecs, pixel[r][c], w);
            weights += pitch;
        }
        return;
    }
    for (i64 c = from; c < from + depth; c++) {
        EACH_VEC(v)
            w[v] = load_columns(weights, whole, v, count);
        EACH_ROW
            if (on >> r & 1)
                add_product(sum[r], vecs, pixel[r][c], w);
        weights += pitch;
    }
}

/* Returns which of the pixels (h[r] + down, w[r] + right) are inside the image. same: all have the
 * same coordinates. */
INLINED u32 rows_inside(const i64 *h, const i64 *w, bool same, i64 down, i64 right, i64 height, i64 width)
{
    u32 on = 0;
    if (same)
        return (u64)(h[0] + down) < (u64)height && (u64)(w[0] + right) < (u64)width ? ALL_ROWS : 0;
    EACH_ROW
        on |= (u32)((u64)(h[r] + down) < (u64)height && (u64)(w[r] + right) < (u64)width) << r;
    return on;
}

/* Sets the offset of a cell's pixels from those of the tile along an axis; `at` counts output
 * pixels. Returns false if the cell lies between two input pixels. */
FUNCTION bool cell_offset(i64 at, i64 step, i64 *out)
{
    *out = at;
    if (step == 1)
        return true;
    *out = at / step;
    return *out * step == at;
}

/* Pixels of a tile are out_step apart on both axes, so that the same cells apply to all of them:
 * the pixels of an image of `height` and `width` that starts at (top, left). `next` is the index of
 * the next pixel; `in` and `out` are its input and output addresses. If `padded` is set, the same
 * pixel of all images comes before the next pixel, so that most pixels of a tile have the same
 * coordinates and the same cells inside the image. */
typedef struct pixels {
    i64 top, left, height, width, total, next;
    i64 fast, middle, slow; /* image, row and column, ordered by how often they change */
    i64 each, inner;        /* sizes of `fast` and `middle` */
    i64 in, in_step[3], out, out_step[3];
} pixels;

INLINED void begin_pixels(GLOBAL const ls_gpu_conv *v, pixels *p)
{
    i64 in_column = v->in_step[1] * v->c, in_row = v->in_step[0] * v->w * v->c, in_image = v->h * v->w * v->c;
    i64 out_column = v->out_step[1] * v->out, out_row = v->out_step[0] * v->yw * v->out, out_image = v->yh * v->yw * v->out;
    bool across = v->padded;
    p->each = across ? v->n : p->width;
    p->inner = across ? p->width : p->height;
    p->in_step[0] = across ? in_image : in_column;
    p->in_step[1] = across ? in_column : in_row;
    p->in_step[2] = across ? in_row : in_image;
    p->out_step[0] = across ? out_image : out_column;
    p->out_step[1] = across ? out_column : out_row;
    p->out_step[2] = across ? out_row : out_image;
    p->next = -1;
}

INLINED void go_to_pixel(pixels *p, i64 first)
{
    i64 row = quotient(first, p->each);
    p->fast = first - row * p->each;
    p->slow = quotient(row, p->inner);
    p->middle = row - p->slow * p->inner;
    p->in = p->fast * p->in_step[0] + p->middle * p->in_step[1] + p->slow * p->in_step[2];
    p->out = p->fast * p->out_step[0] + p->middle * p->out_step[1] + p->slow * p->out_step[2];
}

INLINED void next_pixel(pixels *p)
{
    p->in += p->in_step[0];
    p->out += p->out_step[0];
    if (++p->fast < p->each)
        return;
    p->fast = 0;
    p->in += p->in_step[1] - p->each * p->in_step[0];
    p->out += p->out_step[1] - p->each * p->out_step[0];
    if (++p->middle < p->inner)
        return;
    p->middle = 0;
    p->slow++;
    p->in += p->in_step[2] - p->inner * p->in_step[1];
    p->out += p->out_step[2] - p->inner * p->out_step[1];
}

/* Rows after the last pixel repeat it and are not stored. */
INLINED void conv2d_tile(GLOBAL const ls_gpu_conv *v, int vecs, bool whole, GLOBAL const float *in,
                         GLOBAL const float *kernel_, GLOBAL float *out, GLOBAL const float *bias, pixels *p, i64 first,
                         i64 count)
{
    i64 to[ROWS], h[ROWS], w[ROWS], top = p->top + v->start[0], left = p->left + v->start[1];
    i64 down, right, most_down, most_right;
    GLOBAL const float *pixel[ROWS];
    vec sum[ROWS][MOST_VECS];
    bool inside = !v->padded, same = false;
    clear(sum, vecs);
    if (first != p->next)
        go_to_pixel(p, first);
    EACH_ROW
    {
        pixel[r] = in + p->in;
        to[r] = p->out;
        h[r] = p->slow * v->in_step[0]; /* only used with padding */
        w[r] = p->middle * v->in_step[1];
        if (p->total >= ROWS || r + 1 < p->total)
            next_pixel(p);
    }
    p->next = first + ROWS;
    if (!inside) {
        same = h[0] == h[ROWS - 1] && w[0] == w[ROWS - 1];
        if (cell_offset(top, v->out_step[0], &down) && cell_offset(left, v->out_step[1], &right) &&
            cell_offset(top + (v->kh - 1) * v->dilation[0], v->out_step[0], &most_down) &&
            cell_offset(left + (v->kw - 1) * v->dilation[1], v->out_step[1], &most_right))
            inside = (rows_inside(h, w, same, down, right, v->h, v->w) &
                      rows_inside(h, w, same, most_down, most_right, v->h, v->w)) == ALL_ROWS;
    }
    /* The cells of a row are adjacent, so are their pixels, and all of them are inside the
     * image. */
    bool by_row = inside && v->rows_lie;
    i64 cells = by_row ? 1 : v->kw, length = by_row ? v->kw * v->depth : v->depth;
    for (i64 i = 0; i < v->kh; i++) {
        if (!cell_offset(top + i * v->dilation[0], v->out_step[0], &down))
            continue;
        for (i64 j = 0; j < cells; j++) {
            if (!cell_offset(left + j * v->dilation[1], v->out_step[1], &right))
                continue;
            u32 on = inside ? ALL_ROWS : rows_inside(h, w, same, down, right, v->h, v->w);
            if (on)
                meet(sum, vecs, whole, pixel, (down * v->w + right) * v->c, on,
                     kernel_ + v->first_cell + (i * v->kw + j) * v->cell, v->pitch, length, count);
        }
    }
    vec added[MOST_VECS], limit;
    find_end(added, &limit, vecs, whole, v->biased, v->rectified, bias, count);
    EACH_ROW
    {
        finish_row(sum[r], vecs, added, limit);
        if (first + r < p->total)
            store_row(sum[r], vecs, whole, out + to[r], count);
    }
}

/* A convolution, or its input gradient: a convolution from dy to dx with the cells in reverse order
 * and the last two axes of the kernel swapped. The second axis of the grid has the pixels at which
 * tiles may begin. places: x, kernel, y, bias */
#define CONV2D(name, vecs, whole)                                                                                      \
    KERNEL_APART(name, 4)                                                                                              \
    {                                                                                                                  \
        LANE(ls_gpu_conv, v);                                                                                          \
        if (ITEM(1) >= v->out_step[0] * v->out_step[1])                                                                \
            return;                                                                                                    \
        pixels p;                                                                                                      \
        i64 tile, column, group = 0, vectors = tiles_of(v->columns, vecs * LS_VECTOR);                                 \
        p.top = quotient(ITEM(1), v->out_step[1]);                                                                     \
        p.left = ITEM(1) - p.top * v->out_step[1];                                                                     \
        p.height = tiles_of(v->yh - p.top, v->out_step[0]);                                                            \
        p.width = tiles_of(v->yw - p.left, v->out_step[1]);                                                            \
        p.total = v->n * p.height * p.width;                                                                           \
        i64 tiles = tiles_of(p.total, ROWS), runs = LS_VECTOR > 1 ? tiles_of(tiles, v->run) : tiles;                   \
        if (ITEM(0) >= runs * vectors * v->groups)                                                                     \
            return;                                                                                                    \
        split_item(ITEM(0), runs, vectors * v->groups, &tile, &column);                                                \
        if (v->groups > 1) {                                                                                           \
            group = quotient(column, vectors);                                                                         \
            column -= group * vectors;                                                                                 \
        }                                                                                                              \
        i64 o = tile_start(column, vecs * LS_VECTOR, v->columns), count = v->columns - o, to = o + group * v->columns; \
        GLOBAL float *out = OUT(float, 2) + to + (p.top * v->yw + p.left) * v->out;                                    \
        i64 end = LS_VECTOR > 1 ? least((tile + 1) * v->run, tiles) : tile + 1;                                        \
        begin_pixels(v, &p);                                                                                           \
        for (tile = LS_VECTOR > 1 ? tile * v->run : tile; tile < end; tile++)                                          \
            conv2d_tile(v, vecs, whole, IN(float, 0) + group * v->depth, IN(float, 1) + group * v->group_weights + o,  \
                        out, IN(float, 3) + to, &p, tile_start(tile, ROWS, p.total), count);                           \
    }
CONV2D(conv2d, 1, false)
CONV2D(conv2d_whole, 1, true)
CONV2D(conv2d_wide, 2, true)

/* Multiplies ROWS cells of a kernel, at[r] floats from the pixel and (down, right) of it, by
 * positions from .. to-1 of a row of y. Position 0 has `pixel`, at column w, and dy. If `edge` is
 * set, some cells may be outside the image. */
INLINED void correlate_row(GLOBAL const ls_gpu_window *v, vec sum[][MOST_VECS], int vecs, bool whole, bool edge,
                           GLOBAL const float *pixel, const i64 *at, const i64 *down, const i64 *right, i64 h, i64 w,
                           GLOBAL const float *dy, i64 from, i64 to, i64 count)
{
    i64 step = v->stride[1] * v->c, pitch = v->out;
    pixel += from * step;
    dy += from * pitch;
    w += from * v->stride[1];
    for (i64 x = from; x < to; x++) {
        vec d[MOST_VECS];
        EACH_VEC(k)
            d[k] = load_columns(dy, whole, k, count);
        EACH_ROW
            if (!edge || ((u64)(h + down[r]) < (u64)v->h && (u64)(w + right[r]) < (u64)v->w))
                add_product(sum[r], vecs, pixel[at[r]], d);
        pixel += step;
        dy += pitch;
        w += v->stride[1];
    }
}

/* Sets the first x with w + x * stride >= 0 and with w + x * stride >= size, at most `length`. */
FUNCTION void columns_inside(i64 w, i64 stride, i64 size, i64 length, i64 *from, i64 *to)
{
    i64 before = w < 0 ? -w : 0, inside = size > w ? size - w : 0;
    *from = stride == 1 ? before : (i64)((u32)(before + stride - 1) / (u32)stride);
    *to = stride == 1 ? inside : (i64)((u32)(inside + stride - 1) / (u32)stride);
    *to = least(*to, length);
}

/* Cells from `cell` on, of `cells`. same: they are channels of one pixel of the kernel. */
INLINED void correlate_block(GLOBAL const ls_gpu_window *v, int vecs, bool whole, GLOBAL const float *in,
                             GLOBAL const float *dy, GLOBAL float *out, i64 cell, i64 cells, bool same, i64 first, i64 end,
                             i64 count)
{
    vec sum[ROWS][MOST_VECS];
    i64 at[ROWS], down[ROWS], right[ROWS];
    u32 all = (u32)(v->yh * v->yw);
    clear(sum, vecs);
    EACH_ROW
    {
        u32 number = (u32)least(cell + r, cells - 1), c = number % (u32)v->group_in, place = number / (u32)v->group_in;
        down[r] = (i64)(place / (u32)v->kw) * v->dilation[0];
        right[r] = (i64)(place % (u32)v->kw) * v->dilation[1];
        at[r] = (down[r] * v->w + right[r]) * v->c + c;
    }
    i64 n = first / all, y = first % all / v->yw, x = first % all % v->yw;
    while (first < end) {
        i64 length = least(v->yw - x, end - first), from = 0, to = length;
        i64 h = y * v->stride[0] - v->pad[0], w = x * v->stride[1] - v->pad[1];
        GLOBAL const float *pixel = in + ((n * v->h + h) * v->w + w) * v->c, *d = dy + first * v->out;
        bool inside = h + down[0] >= 0 && h + down[ROWS - 1] < v->h && w >= 0 &&
                      w + (length - 1) * v->stride[1] + (v->kw - 1) * v->dilation[1] < v->w;
        if (same && !inside) {
            inside = true;
            columns_inside(w + right[0], v->stride[1], v->w, length, &from, &to);
            if ((u64)(h + down[0]) >= (u64)v->h)
                to = 0;
        }
        if (inside)
            correlate_row(v, sum, vecs, whole, false, pixel, at, down, right, h, w, d, from, to, count);
        else
            correlate_row(v, sum, vecs, whole, true, pixel, at, down, right, h, w, d, from, to, count);
        first += length;
        x = 0;
        if (++y == v->yh) {
            y = 0;
            n++;
        }
    }
    EACH_ROW
        if (cell + r < cells)
            store_row(sum[r], vecs, whole, out + (cell + r) * v->out, count);
}

/* The kernel's gradient for a block of positions: ROWS of the cells [kh,kw,group_in] times output
 * channels. tiles: tiles of the channels of each kernel pixel, or 0: of all cells. places: x, dy,
 * partial sums [block][kernel] */
#define CONV2D_GRAD_KERNEL(name, vecs, whole)                                                                          \
    KERNEL_APART(name, 3)                                                                                              \
    {                                                                                                                  \
        LANE(ls_gpu_correlate, p);                                                                                     \
        GLOBAL const ls_gpu_window *v = &p->v;                                                                         \
        i64 vectors = tiles_of(v->group_out, vecs * LS_VECTOR), cells = v->kh * v->kw * v->group_in, first, end;       \
        i64 tiles = v->tiles ? v->kh * v->kw * v->tiles : tiles_of(cells, ROWS), number = ITEM(1), tile, column;       \
        if (number >= p->b.count || ITEM(0) >= tiles * vectors * v->groups)                                            \
            return;                                                                                                    \
        split_item(ITEM(0), tiles, vectors * v->groups, &tile, &column);                                               \
        i64 group = quotient(column, vectors), cell = tile_start(tile, ROWS, cells);                                   \
        i64 o = tile_start(column - group * vectors, vecs * LS_VECTOR, v->group_out), count = v->group_out - o;        \
        o += group * v->group_out;                                                                                     \
        if (v->tiles) {                                                                                                \
            i64 pixel = quotient(tile, v->tiles);                                                                      \
            cell = pixel * v->group_in + tile_start(tile - pixel * v->tiles, ROWS, v->group_in);                       \
        }                                                                                                              \
        block_bounds(&p->b, p->b.first + number, &first, &end);                                                        \
        correlate_block(v, vecs, whole, IN(float, 0) + group * v->group_in, IN(float, 1) + o,                          \
                        OUT(float, 2) + number * cells * v->out + o, cell, cells, v->tiles != 0, first, end, count);   \
    }
CONV2D_GRAD_KERNEL(conv2d_grad_kernel, 1, false)
CONV2D_GRAD_KERNEL(conv2d_grad_kernel_whole, 1, true)
CONV2D_GRAD_KERNEL(conv2d_grad_kernel_wide, 2, true)

/* ---- Matrix product ---- */

/* Multiplies k from .. to-1 of ROWS rows of a by columns of b. Rows after the last repeat the first
 * and are not stored. */
INLINED void multiply(vec sum[][MOST_VECS], int vecs, bool whole, GLOBAL const ls_gpu_product *p, GLOBAL const float *a,
                      GLOBAL const float *b, i64 from, i64 to, i64 rows, i64 count)
{
    i64 at[ROWS], pitch = p->b_row, step = p->a_column;
    EACH_ROW
        at[r] = r < rows ? r * p->a_row : 0;
    a += from * step;
    b += from * pitch;
    for (i64 k = from; k < to; k++) {
        vec w[MOST_VECS];
        EACH_VEC(v)
            w[v] = load_columns(b, whole, v, count);
        EACH_ROW
            add_product(sum[r], vecs, a[at[r]], w);
        a += step;
        b += pitch;
    }
}

/* A block of the positions (matrix, k), or all of one matrix. */
INLINED void multiply_block(GLOBAL const ls_gpu_product *p, int vecs, bool whole, GLOBAL const float *a,
                            GLOBAL const float *b, GLOBAL float *out, GLOBAL const float *bias, i64 first, i64 end, i64 tile,
                            i64 column)
{
    i64 row = tile_start(tile, ROWS, p->m), rows = least(p->m - row, ROWS), count;
    vec sum[ROWS][MOST_VECS];
    column = tile_start(column, vecs * LS_VECTOR, p->n);
    count = p->n - column;
    clear(sum, vecs);
    for (i64 at = first; at < end;) {
        i64 matrix = quotient(at, p->k), k = at - matrix * p->k, to = least(p->k, k + end - at);
        multiply(sum, vecs, whole, p, a + walk_at(&p->leading, 0, matrix) + row * p->a_row,
                 b + walk_at(&p->leading, 1, matrix) + column, k, to, rows, count);
        at += to - k;
    }
    vec added[MOST_VECS], limit;
    find_end(added, &limit, vecs, whole, p->biased, p->rectified, bias + column, count);
    EACH_ROW
    {
        finish_row(sum[r], vecs, added, limit);
        if (r < rows)
            store_row(sum[r], vecs, whole, out + (row + r) * p->n + column, count);
    }
}

/* Whole matrices, or blocks of the positions (matrix, k): out then has partial sums [block][m,n].
 * places: a, b, out, bias */
#define MATMUL(name, vecs, whole)                                                                                      \
    KERNEL_APART(name, 4)                                                                                              \
    {                                                                                                                  \
        LANE(ls_gpu_product_blocks, q);                                                                                \
        GLOBAL const ls_gpu_product *p = &q->p;                                                                        \
        i64 vectors = tiles_of(p->n, vecs * LS_VECTOR), tiles = tiles_of(p->m, ROWS), tile, column;                    \
        i64 number = ITEM(1), first = number * p->k, end = first + p->k;                                               \
        if (number >= q->b.count || ITEM(0) >= tiles * vectors)                                                        \
            return;                                                                                                    \
        split_item(ITEM(0), tiles, vectors, &tile, &column);                                                           \
        if (p->sums)                                                                                                   \
            block_bounds(&q->b, q->b.first + number, &first, &end);                                                    \
        multiply_block(p, vecs, whole, IN(float, 0), IN(float, 1), OUT(float, 2) + number * p->m * p->n, IN(float, 3), \
                       first, end, tile, column);                                                                      \
    }
MATMUL(matmul, 1, false)
MATMUL(matmul_whole, 1, true)
MATMUL(matmul_wide, 2, true)
