/* Convolutions and their input gradients: each output pixel is a row, the sum over the kernel's
 * taps of an input pixel times a matrix of weights. Which taps lie inside the image differs at the
 * borders and, for gradients, with the stride. So pixels are grouped into classes with the same
 * taps: all rows of a class have the same runs of input relative to their own position, and nothing
 * is multiplied by padding.
 *
 * Weights are panels of 64 columns, [groups][panels][taps * in][64], padded with zeros to whole
 * vectors. For gradients each tap's matrix is transposed and the taps are reversed, so that runs
 * ascend. Rows pass through all panels in blocks that stay in the cache; long sums are split into
 * parts. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/arena.h"

#define BLOCK_ROWS 192
#define PART       640                /* maximum steps of a part of a sum: 160 KiB of a panel */
#define HEAVY      ((int64_t)1 << 20) /* elements of weights that exceed a cache */
#define SHORT      16                 /* with fewer input channels, every step of a sum is a run */

/* Coordinates of one axis with the same taps, in the order of the weights. */
typedef struct axis_class {
    int64_t first, taps, step;
    int64_t source_step; /* between taps in the input */
    int64_t *at;         /* output coordinates */
    int64_t *source;     /* input coordinate of the first tap of each */
    int64_t count;
} axis_class;

typedef struct axis {
    int64_t in, out, taps; /* sizes */
    int64_t stride, dilation, pad;
    axis_class *classes;
    int64_t count;
} axis;

typedef struct part {
    const ls_gemm_run *runs;
    int64_t run_count, length;
} part;

typedef struct pixel_class {
    const axis_class *rows, *columns;
    part *parts; /* at least one; without taps it has no runs */
    int64_t part_count;
} pixel_class;

typedef struct conv {
    ls_cpu_kernel base;
    ls_arena arena; /* owns the arrays below */
    bool gradient;  /* computes the input gradient */
    bool prefetch;  /* Rows are close together in the input: prefetch the next ones. */
    /* Large weights: all classes use one panel before the next, so that weights are read once. */
    bool heavy;
    bool single;     /* every run is one step */
    bool by_channel; /* depthwise: one channel per group */
    int64_t in, out; /* channels per group */
    int64_t groups;
    int64_t weights; /* floats of a group */
    axis y, x;
    pixel_class *classes;
    int64_t class_count;
} conv;

/* Rows of one class that pass through all panels together. */
typedef struct block {
    const float *in[BLOCK_ROWS + LS_GEMM_MOST_ROWS]; /* padded to a whole tile */
    float *out[BLOCK_ROWS + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* output of the padding rows */
    int64_t rows;
} block;

typedef struct work {
    const conv *c;
    const pixel_class *class;
    const float *in, *weights, *bias;
    float *out;
    block *block;
} work;

/* Fills the block with rows from `next` on, counted over samples, rows and columns. */
static void fill_block(const work *w, int64_t samples, int64_t next)
{
    const conv *c = w->c;
    const axis_class *rows = w->class->rows, *columns = w->class->columns;
    int64_t column = next % columns->count, row = next / columns->count % rows->count;
    int64_t n = next / columns->count / rows->count;
    block *b = w->block;
    const int64_t in_step = c->groups * c->in, out_step = c->groups * c->out;
    for (b->rows = 0; b->rows < BLOCK_ROWS && n < samples;) {
        const float *in = w->in + (n * c->y.in + rows->source[row]) * c->x.in * in_step;
        float *out = w->out + (n * c->y.out + rows->at[row]) * c->x.out * out_step;
        int64_t end = columns->count - column < BLOCK_ROWS - b->rows ? columns->count : column + BLOCK_ROWS - b->rows;
        for (; column < end; column++, b->rows++) {
            b->in[b->rows] = in + columns->source[column] * in_step;
            b->out[b->rows] = out + columns->at[column] * out_step;
        }
        column = 0;
        row = row + 1 < rows->count ? row + 1 : 0;
        n += row == 0;
    }
    for (int64_t i = b->rows; i < b->rows + LS_GEMM_MOST_ROWS; i++) {
        b->in[i] = b->in[b->rows - 1];
        b->out[i] = b->nowhere;
    }
}

/* Requests the lines that the next tile writes: a short sum is over before they arrive. */
static void expect_rows(const block *b, int64_t first, int64_t rows, int64_t column, int64_t vectors)
{
    for (int64_t i = first; i < b->rows && i < first + rows; i++)
        for (int64_t v = 0; v < vectors; v++)
            __builtin_prefetch(b->out[i] + column + v * LS_GEMM_VECTOR, 1, 3);
}

/* Adds one part of the sums of all rows of the block, for the panel at `column`. */
static void multiply_part(const work *w, const part *p, ls_gemm_rows t, int64_t column, const float *ahead)
{
    const block *b = w->block;
    const conv *c = w->c;
    const ls_gemm *gemm = c->base.cpu->gemm;
    int64_t left = c->out - column, vectors = ls_gemm_vectors(left);
    /* Cache lines to prefetch; a tile prefetches one per step. */
    int64_t lines = ahead ? b->rows * c->in / LS_GEMM_VECTOR : 0;
    float *out[LS_GEMM_MOST_ROWS];
    t.runs = p->runs, t.run_count = p->run_count;
    t.b = w->weights + column * c->y.taps * c->x.taps * c->in;
    t.ahead_step = LS_GEMM_VECTOR, t.single = c->single;
    t.columns = left < vectors * LS_GEMM_VECTOR ? left : 0;
    for (int64_t i = 0, size; i < b->rows; i += size) {
        size = gemm->rows_tile_size(b->rows - i, vectors);
        for (int64_t k = 0; column > 0 && k < size; k++)
            out[k] = b->out[i + k] + (i + k < b->rows ? column : 0);
        t.out = column > 0 ? out : b->out + i;
        t.in = b->in + i;
        t.ahead = lines > 0 ? ahead : t.b;
        if (!t.add)
            expect_rows(b, i + size, size, column, vectors);
        gemm->rows_tile(size, vectors, &t);
        if (lines > 0)
            ahead += p->length * LS_GEMM_VECTOR;
        lines -= p->length;
    }
}

static void multiply_block(const work *w, bool relu, int64_t first, int64_t end)
{
    const conv *c = w->c;
    const block *b = w->block;
    const float *next = b->in[b->rows - 1] + c->in;
    for (int64_t i = 0; i < w->class->part_count; i++) {
        bool last = i + 1 == w->class->part_count;
        for (int64_t column = first; column < end; column += LS_GEMM_PANEL) {
            ls_gemm_rows t = { .add = i > 0, .relu = last && relu };
            t.bias = last && w->bias ? w->bias + column : NULL;
            bool fetch = c->prefetch && last && column + LS_GEMM_PANEL >= end;
            multiply_part(w, &w->class->parts[i], t, column, fetch ? next : NULL);
        }
    }
}

static void multiply(work *w, int64_t samples, int64_t first, int64_t end)
{
    const conv *c = w->c;
    for (int64_t i = 0; i < c->class_count; i++) {
        w->class = &c->classes[i];
        int64_t rows = samples * w->class->rows->count * w->class->columns->count;
        for (int64_t next = 0; next < rows; next += BLOCK_ROWS) {
            fill_block(w, samples, next);
            multiply_block(w, c->base.group->relu, first, end);
        }
    }
}

/* Columns of a class from `first` on that are equally far apart, in the output and the input. */
static int64_t even_columns(const axis_class *columns, int64_t first)
{
    int64_t n = columns->count - first < 2 ? columns->count - first : 2;
    while (first + n < columns->count && n >= 2 &&
           columns->at[first + n] - columns->at[first + n - 1] == columns->at[first + 1] - columns->at[first] &&
           columns->source[first + n] - columns->source[first + n - 1] ==
               columns->source[first + 1] - columns->source[first])
        n++;
    return n;
}

/* Depthwise convolution of one row of output pixels, whose taps in y are those of row class `k`: a
 * vector holds adjacent channels. */
static void multiply_taps(const conv *c, ls_gemm_taps *t, int64_t k, const float *in, float *out)
{
    for (int64_t i = 0; i < c->x.count; i++) {
        const axis_class *columns = &c->x.classes[i];
        const part *p = &c->classes[k * c->x.count + i].parts[0];
        t->runs = p->runs, t->run_count = p->run_count;
        for (int64_t first = 0; first < columns->count; first += t->pixels) {
            const int64_t *source = columns->source + first, *at = columns->at + first;
            t->pixels = even_columns(columns, first);
            t->in = in + source[0] * c->groups;
            t->out = out + at[0] * c->groups;
            t->in_step = t->pixels > 1 ? (source[1] - source[0]) * c->groups : 0;
            t->out_step = t->pixels > 1 ? (at[1] - at[0]) * c->groups : 0;
            c->base.cpu->gemm->taps(t);
        }
    }
}

static ls_status run_channels(ls_kernel *kernel, const ls_kernel_call *call)
{
    const conv *c = (const conv *)kernel;
    ls_gemm_taps t = { .b = call->in[c->gradient ? 0 : 1], .b_step = c->groups, .channels = c->groups };
    t.bias = c->base.group->bias ? call->in[2] : NULL;
    t.relu = c->base.group->relu;
    const float *in = call->in[c->gradient ? 1 : 0];
    float *out = call->out;
    int64_t in_row = c->x.in * c->groups, out_row = c->x.out * c->groups;
    for (int64_t n = 0; n < call->samples; n++, in += c->y.in * in_row, out += c->y.out * out_row)
        for (int64_t k = 0; k < c->y.count; k++) {
            const axis_class *rows = &c->y.classes[k];
            for (int64_t r = 0; r < rows->count; r++)
                multiply_taps(c, &t, k, in + rows->source[r] * in_row, out + rows->at[r] * out_row);
        }
    return LS_OK;
}

/* For one input channel: multiplies all lines of a sample by one panel, then by the next. */
static void multiply_lines(const work *w, int64_t samples)
{
    const conv *c = w->c;
    const axis_class *rows = w->class->rows, *columns = w->class->columns;
    const part *p = &w->class->parts[0];
    ls_gemm_line t = { .runs = p->runs, .run_count = p->run_count, .pixels = columns->count, .lines = rows->count };
    t.out_step = c->out, t.in_line = c->x.in, t.out_line = c->x.out * c->out;
    t.relu = c->base.group->relu;
    for (int64_t n = 0; n < samples; n++) {
        float *out = w->out + ((n * c->y.out + rows->at[0]) * c->x.out + columns->at[0]) * c->out;
        t.in = w->in + (n * c->y.in + rows->source[0]) * c->x.in + columns->source[0];
        for (int64_t column = 0; column < c->out; column += LS_GEMM_PANEL) {
            int64_t left = c->out - column, vectors = ls_gemm_vectors(left);
            t.b = w->weights + column * c->y.taps * c->x.taps;
            t.columns = left < vectors * LS_GEMM_VECTOR ? left : 0;
            t.bias = w->bias ? w->bias + column : NULL;
            t.out = out + column;
            c->base.cpu->gemm->line(vectors, &t);
        }
    }
}

static ls_status run_lines(ls_kernel *kernel, const ls_kernel_call *call)
{
    const conv *c = (const conv *)kernel;
    work w = { .c = c, .out = call->out, .in = call->in[c->gradient ? 1 : 0] };
    w.weights = call->in[c->gradient ? 0 : 1];
    w.bias = c->base.group->bias ? call->in[2] : NULL;
    for (int64_t i = 0; i < c->class_count; i++) {
        w.class = &c->classes[i];
        multiply_lines(&w, call->samples);
    }
    return LS_OK;
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const conv *c = (const conv *)kernel;
    work w = { .c = c, .out = call->out, .block = call->scratch };
    w.in = call->in[c->gradient ? 1 : 0];
    w.weights = call->in[c->gradient ? 0 : 1];
    w.bias = c->base.group->bias ? call->in[2] : NULL;
    int64_t step = c->heavy ? LS_GEMM_PANEL : c->out;
    for (int64_t g = 0; g < c->groups; g++) {
        for (int64_t first = 0; first < c->out; first += step)
            multiply(&w, call->samples, first, first + step < c->out ? first + step : c->out);
        w.in += c->in, w.out += c->out, w.weights += c->weights;
        w.bias = w.bias ? w.bias + c->out : NULL;
    }
    return LS_OK;
}

static void pack_forward(const conv *c, const float *from, float *to)
{
    int64_t rows = c->y.taps * c->x.taps * c->in;
    for (int64_t column = 0; column < c->out; column += LS_GEMM_PANEL) {
        int64_t width = c->out - column < LS_GEMM_PANEL ? c->out - column : LS_GEMM_PANEL;
        c->base.cpu->gemm->copy_panel(to + column * rows, from + column, c->groups * c->out, rows, width);
    }
}

/* Transposes each tap's matrix and reverses the taps. */
static void pack_gradient(const conv *c, const float *from, float *to)
{
    int64_t taps = c->y.taps * c->x.taps, step = c->groups * c->in;
    memset(to, 0, (size_t)c->weights * sizeof(*to)); /* padding of the last panel */
    for (int64_t column = 0; column < c->out; column += LS_GEMM_PANEL) {
        int64_t width = c->out - column < LS_GEMM_PANEL ? c->out - column : LS_GEMM_PANEL;
        for (int64_t t = taps, panel = ls_gemm_padded(width); t-- > 0; to += c->in * panel)
            c->base.cpu->gemm->transpose(to, panel, from + (t * c->out + column) * step, step, width, c->in);
    }
}

static ls_status pack(ls_kernel *kernel, const void *from, void *to, int thread, void *scratch)
{
    (void)thread, (void)scratch;
    const conv *c = (const conv *)kernel;
    for (int64_t g = 0; g < c->groups; g++)
        (c->gradient ? pack_gradient : pack_forward)(c, (const float *)from + g * (c->gradient ? c->in : c->out),
                                                     (float *)to + g * c->weights);
    return LS_OK;
}

static bool same_packing(const ls_kernel *a, const ls_kernel *b)
{
    const conv *one = (const conv *)a, *other = (const conv *)b;
    return one->gradient == other->gradient && one->groups == other->groups && one->in == other->in &&
           one->out == other->out; /* a reshaped kernel has different panels */
}

static ls_conv sizes_of(const ls_tensor *node, int64_t samples)
{
    const ls_tensor *x = node->op == LS_OP_conv2d_grad_input ? node : node->in[0];
    const ls_tensor *kernel = node->op == LS_OP_conv2d              ? node->in[1]
                              : node->op == LS_OP_conv2d_grad_input ? node->in[0]
                                                                    : node;
    const ls_tensor *y = node->op == LS_OP_conv2d ? node : node->in[1];
    const int64_t *k = kernel->shape.dims;
    ls_conv c = { .n = samples, .h = x->shape.dims[1], .w = x->shape.dims[2], .c = x->shape.dims[3] };
    c.kh = k[0], c.kw = k[1], c.o = k[3], c.oh = y->shape.dims[1], c.ow = y->shape.dims[2];
    for (int i = 0; i < 2; i++) {
        c.stride[i] = node->attr.window.stride[i];
        c.dilation[i] = node->attr.window.dilation[i];
    }
    for (int i = 0; i < 4; i++)
        c.pad[i] = node->attr.window.pad[i];
    c.groups = node->attr.window.groups;
    return c;
}

ls_conv ls_cpu_conv_sizes(const ls_group *group, int64_t samples)
{
    return sizes_of(group->nodes[0], samples);
}

/* Offsets of runs must fit in 32 bits. */
static bool fits(const ls_conv *v)
{
    int64_t most = v->c > v->o ? v->c : v->o;
    return v->h * v->w * v->c < INT32_MAX && v->oh * v->ow * v->o < INT32_MAX &&
           v->kh * v->kw * most < INT32_MAX / LS_GEMM_PANEL;
}

bool ls_cpu_takes_conv(const ls_tensor *node)
{
    bool ours = node->op == LS_OP_conv2d || node->op == LS_OP_conv2d_grad_input || node->op == LS_OP_conv2d_grad_kernel;
    if (!ours || node->dtype != LS_F32 || node->use == LS_USE_WHOLE)
        return false;
    for (int k = 0; k < 3; k++) { /* empty images or kernels */
        const ls_shape *shape = k < 2 ? &node->in[k]->shape : &node->shape;
        for (int i = 0; i < shape->rank; i++)
            if (shape->dims[i] == 0)
                return false;
    }
    ls_conv v = sizes_of(node, 1);
    return fits(&v);
}

/* Returns the input coordinate of tap `tap`, in the order of the weights, for output coordinate
 * `at`; -1: outside the input. */
static int64_t source_of(const axis *a, bool gradient, int64_t at, int64_t tap)
{
    int64_t source = at * a->stride - a->pad + tap * a->dilation;
    if (gradient) {
        source = at + a->pad - (a->taps - 1 - tap) * a->dilation;
        source = source % a->stride == 0 ? source / a->stride : -1;
    }
    return source >= 0 && source < a->in ? source : -1;
}

/* Returns the taps of output coordinate `at`, and the input coordinate of the first in *source. */
static axis_class class_of(const axis *a, bool gradient, int64_t at, int64_t *source)
{
    axis_class c = { .step = 1 };
    *source = 0;
    for (int64_t tap = 0; tap < a->taps; tap++) {
        int64_t found = source_of(a, gradient, at, tap);
        if (found < 0)
            continue;
        if (c.taps == 0)
            c.first = tap, *source = found;
        if (c.taps == 1)
            c.step = tap - c.first, c.source_step = found - *source;
        c.taps++;
    }
    return c;
}

static ls_status classify(conv *c, axis *a)
{
    a->classes = ls_arena_alloc(&c->arena, (size_t)a->out * sizeof(*a->classes));
    for (int64_t at = 0; a->classes && at < a->out; at++) {
        int64_t source, i = 0;
        axis_class found = class_of(a, c->gradient, at, &source);
        while (i < a->count && (a->classes[i].first != found.first || a->classes[i].taps != found.taps ||
                                a->classes[i].step != found.step))
            i++;
        axis_class *class = &a->classes[i];
        if (i == a->count) {
            *class = found;
            class->at = ls_arena_alloc(&c->arena, (size_t)a->out * sizeof(*class->at));
            class->source = ls_arena_alloc(&c->arena, (size_t)a->out * sizeof(*class->source));
            if (!class->at || !class->source)
                break;
            a->count++;
        }
        class->at[class->count] = at;
        class->source[class->count++] = source;
        if (at + 1 == a->out)
            return LS_OK;
    }
    return ls_fail(LS_ERR_MEMORY, "no memory for the classes of a convolution's pixels");
}

/* Merges adjacent runs of a class. */
static int64_t find_runs(const conv *c, const pixel_class *class, ls_gemm_run *runs)
{
    const axis_class *rows = class->rows, *columns = class->columns;
    int64_t count = 0;
    for (int64_t y = 0; y < rows->taps; y++)
        for (int64_t x = 0; x < columns->taps; x++) {
            int64_t tap = (rows->first + y * rows->step) * c->x.taps + columns->first + x * columns->step;
            int64_t pixel = y * rows->source_step * c->x.in + x * columns->source_step;
            int64_t a = pixel * c->groups * c->in, b = tap * c->in;
            if (c->by_channel && c->gradient) /* these weights are not reversed */
                b = c->y.taps * c->x.taps - 1 - tap;
            ls_gemm_run *last = count > 0 ? &runs[count - 1] : NULL;
            if (!c->single && last && last->a + last->count == a && last->b + last->count == b)
                last->count += (int32_t)c->in;
            else if (!c->single)
                runs[count++] = (ls_gemm_run){ .a = (int32_t)a, .b = (int32_t)b, .count = (int32_t)c->in };
            for (int64_t k = 0; c->single && k < c->in; k++)
                runs[count++] = (ls_gemm_run){ .a = (int32_t)(a + k), .b = (int32_t)(b + k), .count = 1 };
        }
    return count;
}

/* Returns the length of a part: parts are nearly equal, and multiples of a vector. */
static int64_t part_length(int64_t length)
{
    int64_t parts = (length + PART - 1) / PART;
    return parts < 2 ? PART : (length / parts + LS_GEMM_VECTOR) / LS_GEMM_VECTOR * LS_GEMM_VECTOR;
}

/* Divides runs into parts of at most `most` steps. `cut` has room for one more run per part. */
static void cut_runs(pixel_class *class, const ls_gemm_run *runs, int64_t count, int64_t most, ls_gemm_run *cut)
{
    part *p = class->parts;
    *p = (part){ .runs = cut };
    for (int64_t i = 0; i < count; i++)
        for (ls_gemm_run rest = runs[i]; rest.count > 0;) {
            if (p->length == most)
                *++p = (part){ .runs = cut };
            int32_t room = (int32_t)(most - p->length), take = rest.count < room ? rest.count : room;
            *cut++ = (ls_gemm_run){ .a = rest.a, .b = rest.b, .count = take };
            p->run_count++, p->length += take;
            rest.a += take, rest.b += take, rest.count -= take;
        }
    class->part_count = p - class->parts + 1;
}

static ls_status make_class(conv *c, pixel_class *class)
{
    int64_t taps = class->rows->taps * class->columns->taps;
    int64_t most = c->by_channel ? taps + 1 : part_length(taps * c->in);
    int64_t parts = taps * c->in / most + 1, count = c->single ? taps * c->in : taps;
    ls_gemm_run *runs = ls_arena_alloc(&c->arena, (size_t)(count + 1) * sizeof(*runs));
    ls_gemm_run *cut = ls_arena_alloc(&c->arena, (size_t)(count + parts) * sizeof(*cut));
    class->parts = ls_arena_alloc(&c->arena, (size_t)parts * sizeof(*class->parts));
    if (!runs || !cut || !class->parts)
        return ls_fail(LS_ERR_MEMORY, "no memory for the runs of a convolution's pixels");
    cut_runs(class, runs, find_runs(c, class, runs), most, cut);
    return LS_OK;
}

/* Returns whether the coordinates of each class are consecutive in input and output. */
static bool in_line(const axis *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        const axis_class *class = &a->classes[i];
        for (int64_t k = 1; k < class->count; k++)
            if (class->at[k] != class->at[0] + k || class->source[k] != class->source[0] + k)
                return false;
    }
    return true;
}

static ls_status make_classes(conv *c)
{
    LS_TRY(classify(c, &c->y));
    LS_TRY(classify(c, &c->x));
    c->class_count = c->y.count * c->x.count;
    c->classes = ls_arena_alloc(&c->arena, (size_t)c->class_count * sizeof(*c->classes));
    if (!c->classes)
        return ls_fail(LS_ERR_MEMORY, "no memory for the classes of a convolution's pixels");
    c->heavy = c->class_count > 1 && c->y.taps * c->x.taps * c->in * c->out >= HEAVY;
    for (int64_t i = 0; i < c->class_count; i++) {
        c->classes[i].rows = &c->y.classes[i / c->x.count];
        c->classes[i].columns = &c->x.classes[i % c->x.count];
        LS_TRY(make_class(c, &c->classes[i]));
    }
    if (c->groups == 1 && c->in == 1 && c->y.taps * c->x.taps <= PART && in_line(&c->y) && in_line(&c->x))
        c->base.base.run = run_lines, c->base.base.name = "lines by panels";
    return LS_OK;
}

static void destroy(ls_kernel *kernel)
{
    ls_arena_free(&((conv *)kernel)->arena);
    free(kernel);
}

static void set_sizes(conv *c, const ls_conv *v)
{
    c->groups = v->groups;
    c->in = (c->gradient ? v->o : v->c) / v->groups;
    c->out = (c->gradient ? v->c : v->o) / v->groups;
    c->y = (axis){ .in = c->gradient ? v->oh : v->h, .out = c->gradient ? v->h : v->oh, .taps = v->kh };
    c->x = (axis){ .in = c->gradient ? v->ow : v->w, .out = c->gradient ? v->w : v->ow, .taps = v->kw };
    c->y.stride = v->stride[0], c->y.dilation = v->dilation[0], c->y.pad = v->pad[0];
    c->x.stride = v->stride[1], c->x.dilation = v->dilation[1], c->x.pad = v->pad[2];
    c->single = c->in < SHORT;
    c->prefetch = v->stride[0] == 1 && v->stride[1] == 1 && v->groups == 1 && !c->single;
    c->weights = v->kh * v->kw * c->in * ls_gemm_padded(c->out);
    ls_kernel *base = &c->base.base;
    base->destroy = destroy;
    base->scratch_bytes = sizeof(block);
    bool panel = !c->gradient && c->groups == 1 && c->out <= LS_GEMM_PANEL && c->out % LS_GEMM_VECTOR == 0;
    c->by_channel = c->groups > 1 && c->in == 1 && c->out == 1;
    if (c->by_channel)
        base->run = run_channels, base->name = "channel by channel";
    else if (!panel) { /* otherwise HWIO is a single panel already */
        size_t bytes = (size_t)(c->groups * c->weights) * sizeof(float);
        base->prepare = (ls_prepare){ .input = c->gradient ? 0 : 1, .bytes = bytes, .run = pack, .same = same_packing };
        base->layout = "panels";
    }
}

ls_status ls_cpu_make_conv_rows(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->nodes[0];
    if (!ls_cpu_takes_conv(node) || node->op == LS_OP_conv2d_grad_kernel)
        return ls_cpu_pass();
    ls_conv v = ls_cpu_conv_sizes(group, 1);
    conv *c = ls_cpu_kernel_new(cpu, group, sizeof(*c), "rows by panels", run);
    if (!c)
        return LS_ERR_MEMORY;
    c->gradient = node->op == LS_OP_conv2d_grad_input;
    set_sizes(c, &v);
    ls_status status = make_classes(c);
    if (status != LS_OK) {
        destroy(&c->base.base);
        return status;
    }
    *out = &c->base.base;
    return LS_OK;
}
