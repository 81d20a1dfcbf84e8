/* Lowers steps to launches: the table of ops, elementwise and copying ops. */
#include <stdio.h>
#include <string.h>

#include "backend/gpu/chains.h"
#include "backend/gpu/lower.h"
#include "backend/ref/array.h"

/* ---- Helpers for lowering functions ---- */

ls_memory_place ls_gpu_slot(const lowering *x, const ls_program_slot *slot)
{
    const ls_memory_place *room = &x->run->room[slot->room];
    size_t row = slot->per_sample && slot->kept ? slot->unit * (size_t)x->run->row : 0;
    return (ls_memory_place){ room->memory, room->offset + slot->offset + row };
}

ls_memory_place ls_gpu_in(const lowering *x, int input)
{
    return ls_gpu_slot(x, &x->step->in[input]);
}

ls_shape ls_gpu_in_shape(const lowering *x, int input)
{
    return ls_ref_shape(x->node->in[input], x->run->batch, x->run->samples);
}

int64_t ls_gpu_extent(const ls_shape *shape, int first, int end)
{
    return ls_ref_extent(shape, first, end);
}

int64_t ls_gpu_elements(const ls_shape *shape)
{
    return ls_ref_extent(shape, 0, shape->rank);
}

ls_memory_place ls_gpu_scratch(lowering *x, size_t bytes)
{
    ls_memory_place place = { x->l->scratch.memory, x->l->scratch.offset + x->used };
    /* Every place of a launch needs memory, even of 0 bytes. */
    x->used += bytes > 0 ? (bytes + 127) / 128 * 128 : 128;
    x->l->needs = x->used > x->l->needs ? x->used : x->l->needs;
    return place;
}

const char *ls_gpu_type(ls_dtype dtype)
{
    static const char *const names[] = { "f32", "f64", "i32", "i64", "u8", "bool" };
    return names[dtype];
}

ls_status ls_gpu_launch_on(ls_gpu_lowering *l, ls_gpu_module module, const char *kernel, const void *numbers,
                           size_t size, int64_t items, int64_t more_items, bool heavy, int places,
                           const ls_memory_place *place)
{
    if (items <= 0 || more_items <= 0)
        return LS_OK;
    ls_gpu_launch launch = { .module = module,
                             .kernel = kernel,
                             .numbers = numbers,
                             .size = size,
                             .places = places,
                             .items = { items, more_items },
                             .heavy = heavy };
    memcpy(launch.place, place, (size_t)places * sizeof(*place));
    return l->launch(l->user, &launch);
}

void ls_gpu_broadcast_strides(const ls_shape *shape, const ls_shape *over, int64_t strides[LS_MAX_RANK])
{
    ls_ref_broadcast_strides(shape, over, strides);
}

static bool lie_side_by_side(const ls_gpu_walk *w, int arrays, int outer, int64_t size, int64_t (*strides)[LS_MAX_RANK],
                             int inner)
{
    for (int k = 0; k < arrays; k++)
        if (w->stride[k][outer] != strides[k][inner] * size)
            return false;
    return true;
}

/* For dividing numbers below 2^31 by d: with 2^b >= d, multiplying by floor(2^(31+b) / d) + 1 and
 * shifting is exact. */
static void set_magic(ls_gpu_walk *w)
{
    if (w->rank > 2 || w->n >= (int64_t)1 << 31)
        return;
    if (w->rank < 2) { /* store the only axis as the second */
        w->size[1] = w->rank == 1 ? w->size[0] : 1;
        for (int k = 0; k < 4; k++)
            w->stride[k][1] = w->stride[k][0];
    }
    int bits = 0;
    while ((int64_t)1 << bits < w->size[1])
        bits++;
    w->shift = 31 + bits;
    w->magic = w->size[1] > 0 ? ((int64_t)1 << w->shift) / w->size[1] + 1 : 0;
}

ls_gpu_walk ls_gpu_walk_of(const ls_shape *shape, int arrays, int64_t (*strides)[LS_MAX_RANK])
{
    ls_gpu_walk w = { .n = ls_gpu_elements(shape) };
    for (int i = 0; i < shape->rank; i++) {
        int64_t size = shape->dims[i];
        if (size == 1)
            continue;
        bool merge = w.rank > 0 && lie_side_by_side(&w, arrays, (int)w.rank - 1, size, strides, i);
        i64 to = merge ? w.rank - 1 : w.rank++;
        w.size[to] = merge ? w.size[to] * size : size;
        for (int k = 0; k < arrays; k++)
            w.stride[k][to] = strides[k][i];
    }
    set_magic(&w);
    return w;
}

/* ---- Sums over blocks ---- */

/* A sum of one block needs no second kernel. Small sums use one anyway: it costs little, and
 * launches do not depend on the samples of a lane. */
#define SMALL_SUM (1 << 20) /* bytes */

ls_gpu_blocks ls_gpu_blocks_of(ls_blocks b, int64_t samples, int64_t *count)
{
    ls_gpu_blocks g = { .sample = b.sample,
                        .width = b.width,
                        .samples = b.samples,
                        .rows = b.rows,
                        .columns = b.columns,
                        .positions = samples * b.sample };
    *count = 0;
    if (g.positions == 0)
        return g;
    if (b.samples > 0) {
        *count = (samples + b.samples - 1) / b.samples;
    } else {
        int64_t rows = b.sample / b.width;
        g.per_row = b.rows > 0 ? 1 : (b.width + b.columns - 1) / b.columns;
        g.per_sample = b.rows > 0 ? (rows + b.rows - 1) / b.rows : rows * g.per_row;
        *count = samples * g.per_sample;
    }
    g.count = *count;
    return g;
}

ls_status ls_gpu_sum_blocks(lowering *x, blocks_sum *s)
{
    char adder[32];
    int64_t all = s->blocks->count, bytes = s->elements * (int64_t)ls_dtype_bytes(s->dtype);
    int64_t limit = x->l->parts_limit / x->l->lanes, at_once = bytes > 0 && limit / bytes < all ? limit / bytes : all;
    at_once = at_once < 1 ? 1 : at_once;
    if (all == 0)
        return ls_gpu_fill(x, x->out, s->dtype, s->elements, 0);
    bool parts = all > 1 || bytes < SMALL_SUM;
    s->place[s->places] = parts ? ls_gpu_scratch(x, (size_t)(at_once * bytes)) : x->out;
    for (int i = 1; i <= s->more_places; i++)
        s->place[s->places + i] = s->place[s->places];
    snprintf(adder, sizeof(adder), "add_blocks_%s", ls_gpu_type(s->dtype));
    for (int64_t first = 0; first < all; first += at_once) {
        int64_t count = all - first < at_once ? all - first : at_once;
        ls_gpu_add add = { .n = s->elements, .count = count, .more = first > 0 };
        s->blocks->first = first;
        s->blocks->count = count;
        LS_TRY(ls_gpu_launch_on(x->l, s->module, s->kernel, s->numbers, s->size, s->items, count, s->heavy,
                                s->places + 1 + s->more_places, s->place));
        if (parts)
            LS_TRY(LAUNCH(x, LS_GPU_SUMS, adder, &add, s->elements, 1, s->place[s->places], x->out));
    }
    return LS_OK;
}

static const char *typed(char name[48], const char *op, ls_dtype dtype, const char *how)
{
    snprintf(name, 48, "%s_%s%s", op, ls_gpu_type(dtype), how);
    return name;
}

static int64_t vectors(const lowering *x, int64_t elements)
{
    return (elements + x->l->tuning->vector - 1) / x->l->tuning->vector;
}

/* Work items that handle several elements each. */
static int64_t some(const lowering *x, int64_t elements)
{
    int64_t each = LS_GPU_SOME(x->l->tuning->vector);
    return (elements + each - 1) / each;
}

static ls_status unary(lowering *x)
{
    char name[48];
    const ls_attrs *attr = &x->node->attr;
    ls_gpu_flat p = { .n = ls_gpu_elements(&x->out_shape) };
    const char *op = ls_tensor_op(x->node);
    if (x->node->op == LS_OP_leaky_relu || x->node->op == LS_OP_elu)
        p.a = attr->slope.slope;
    if (x->node->op == LS_OP_capped_relu)
        p.a = attr->number.value;
    if (x->node->op == LS_OP_clip) {
        p.a = attr->range.low;
        p.b = attr->range.high;
    }
    if (x->node->op == LS_OP_relu)
        return LAUNCH(x, LS_GPU_ELEMENTWISE, "relu_f32_vectors", &p, vectors(x, p.n), 1, ls_gpu_in(x, 0), x->out);
    if (x->node->op == LS_OP_gelu && attr->gelu.tanh_form)
        op = "gelu_tanh";
    return LAUNCH(x, LS_GPU_ELEMENTWISE, typed(name, op, x->node->dtype, ""), &p, p.n, 1, ls_gpu_in(x, 0), x->out);
}

static bool same_shape(const ls_shape *a, const ls_shape *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof(a->dims[0])) == 0;
}

/* a, b: numbers of inputs. op: the kernel's name without the type. */
static ls_status binary_as(lowering *x, const char *op, int a, int b)
{
    char name[48];
    int64_t strides[2][LS_MAX_RANK];
    ls_dtype dtype = x->node->in[0]->dtype;
    ls_shape left = ls_gpu_in_shape(x, a), right = ls_gpu_in_shape(x, b);
    ls_op kind = x->node->op;
    bool by_vectors = dtype == LS_F32 && (kind == LS_OP_add || kind == LS_OP_sub || kind == LS_OP_mul);
    if (same_shape(&left, &right)) {
        ls_gpu_flat p = { .n = ls_gpu_elements(&x->out_shape) };
        if (by_vectors)
            return LAUNCH(x, LS_GPU_ELEMENTWISE, typed(name, op, dtype, "_vectors"), &p, vectors(x, p.n), 1,
                          ls_gpu_in(x, a), ls_gpu_in(x, b), x->out);
        return LAUNCH(x, LS_GPU_ELEMENTWISE, typed(name, op, dtype, ""), &p, p.n, 1, ls_gpu_in(x, a), ls_gpu_in(x, b),
                      x->out);
    }
    if ((by_vectors || (dtype == LS_F32 && kind == LS_OP_div)) && ls_gpu_elements(&right) == 1 &&
        ls_gpu_elements(&left) == ls_gpu_elements(&x->out_shape)) {
        ls_gpu_flat p = { .n = ls_gpu_elements(&x->out_shape) };
        return LAUNCH(x, LS_GPU_ELEMENTWISE, typed(name, op, dtype, "_one"), &p, some(x, p.n), 1, ls_gpu_in(x, a),
                      ls_gpu_in(x, b), x->out);
    }
    ls_gpu_broadcast_strides(&left, &x->out_shape, strides[0]);
    ls_gpu_broadcast_strides(&right, &x->out_shape, strides[1]);
    ls_gpu_walk p = ls_gpu_walk_of(&x->out_shape, 2, strides);
    if (by_vectors && p.rank == 2 && p.magic && p.stride[0][1] == 1 && p.stride[1][1] == 1) {
        return LAUNCH(x, LS_GPU_ELEMENTWISE, typed(name, op, dtype, "_columns"), &p, p.size[0] * vectors(x, p.size[1]),
                      1, ls_gpu_in(x, a), ls_gpu_in(x, b), x->out);
    }
    return LAUNCH(x, LS_GPU_ELEMENTWISE, typed(name, op, dtype, p.magic ? "_rows" : "_walk"), &p, p.n, 1,
                  ls_gpu_in(x, a), ls_gpu_in(x, b), x->out);
}

static ls_status binary(lowering *x)
{
    return binary_as(x, ls_tensor_op(x->node), 0, 1);
}

static ls_status power(lowering *x)
{
    int64_t strides[2][LS_MAX_RANK];
    for (int i = 0; i < 2; i++) {
        ls_shape shape = ls_gpu_in_shape(x, i);
        ls_gpu_broadcast_strides(&shape, &x->out_shape, strides[i]);
    }
    ls_gpu_walk p = ls_gpu_walk_of(&x->out_shape, 2, strides);
    return LAUNCH(x, LS_GPU_NORMAL, "pow_f32", &p, p.n, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out);
}

static ls_status compare(lowering *x)
{
    static const char *const names[] = {
        [LS_EQUAL] = "equal",           [LS_NOT_EQUAL] = "not_equal", [LS_LESS] = "less",
        [LS_LESS_EQUAL] = "less_equal", [LS_GREATER] = "less",        [LS_GREATER_EQUAL] = "less_equal"
    };
    ls_relation relation = (ls_relation)x->node->attr.relation.relation;
    bool swapped = relation == LS_GREATER || relation == LS_GREATER_EQUAL;
    return binary_as(x, names[relation], swapped, !swapped);
}

static ls_status relu_grad(lowering *x)
{
    ls_gpu_flat p = { .n = ls_gpu_elements(&x->out_shape), .a = x->node->attr.slope.slope };
    return LAUNCH(x, LS_GPU_ELEMENTWISE, "relu_grad_f32_vectors", &p, vectors(x, p.n), 1, ls_gpu_in(x, 0),
                  ls_gpu_in(x, 1), x->out);
}

static ls_status capped_relu_grad(lowering *x)
{
    ls_gpu_flat p = { .n = ls_gpu_elements(&x->out_shape), .a = x->node->attr.number.value };
    return LAUNCH(x, LS_GPU_ELEMENTWISE, "capped_relu_grad_f32_vectors", &p, vectors(x, p.n), 1, ls_gpu_in(x, 0),
                  ls_gpu_in(x, 1), x->out);
}

static ls_status silu_grad(lowering *x)
{
    ls_gpu_flat p = { .n = ls_gpu_elements(&x->out_shape) };
    return LAUNCH(x, LS_GPU_ELEMENTWISE, "silu_grad_f32", &p, p.n, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out);
}

static ls_status select_from(lowering *x)
{
    char name[48];
    int64_t strides[3][LS_MAX_RANK];
    for (int i = 0; i < 3; i++) {
        ls_shape shape = ls_gpu_in_shape(x, i);
        ls_gpu_broadcast_strides(&shape, &x->out_shape, strides[i]);
    }
    ls_gpu_walk p = ls_gpu_walk_of(&x->out_shape, 3, strides);
    snprintf(name, sizeof(name), "select_%zu", ls_dtype_bytes(x->node->dtype));
    return LAUNCH(x, LS_GPU_ELEMENTWISE, name, &p, p.n, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1), ls_gpu_in(x, 2), x->out);
}

ls_status ls_gpu_fill(lowering *x, ls_memory_place at, ls_dtype dtype, int64_t count, double value)
{
    char name[48];
    uint64_t bits = 0;
    ls_gpu_flat p = { .n = count };
    ls_ref_store(&bits, dtype, value);
    memcpy(&p.a, &bits, sizeof(bits));
    snprintf(name, sizeof(name), "fill_%zu", ls_dtype_bytes(dtype));
    return LAUNCH(x, LS_GPU_MOVES, name, &p, some(x, count), 1, at);
}

ls_status ls_gpu_copy(lowering *x, size_t width, const ls_shape *shape, ls_memory_place to, int64_t to_start,
                      const int64_t *to_strides, ls_memory_place from, int64_t from_start, const int64_t *from_strides)
{
    char name[48];
    int64_t strides[2][LS_MAX_RANK];
    memcpy(strides[0], to_strides, sizeof(strides[0]));
    memcpy(strides[1], from_strides, sizeof(strides[1]));
    ls_gpu_walk p = ls_gpu_walk_of(shape, 2, strides);
    p.start[0] = to_start;
    p.start[1] = from_start;
    snprintf(name, sizeof(name), "copy_%zu%s", width, p.magic ? "_rows" : "");
    return LAUNCH(x, LS_GPU_MOVES, name, &p, p.n, 1, to, from);
}

/* Element (i, j, ...) of the output is the input's at start + i strides[0] + ... */
static ls_status copy_view(lowering *x, int64_t start, const int64_t *strides)
{
    int64_t dense[LS_MAX_RANK] = { 0 };
    ls_shape_strides(&x->out_shape, dense);
    return ls_gpu_copy(x, ls_dtype_bytes(x->node->dtype), &x->out_shape, x->out, 0, dense, ls_gpu_in(x, 0), start,
                       strides);
}

/* Element (i, j, ...) of input k goes to start + i strides[0] + ... */
static ls_status copy_into(lowering *x, int k, int64_t start, const int64_t *strides)
{
    int64_t dense[LS_MAX_RANK] = { 0 };
    ls_shape shape = ls_gpu_in_shape(x, k);
    ls_shape_strides(&shape, dense);
    return ls_gpu_copy(x, ls_dtype_bytes(x->node->dtype), &shape, x->out, start, strides, ls_gpu_in(x, k), 0, dense);
}

static ls_status copy_all(lowering *x)
{
    int64_t dense[LS_MAX_RANK] = { 0 };
    ls_shape_strides(&x->out_shape, dense);
    return copy_view(x, 0, dense);
}

static ls_status fill(lowering *x)
{
    return ls_gpu_fill(x, x->out, x->node->dtype, ls_gpu_elements(&x->out_shape), x->node->attr.number.value);
}

static ls_status count(lowering *x)
{
    double batch = x->run->batch < 0 ? 1 : (double)x->run->batch;
    return ls_gpu_fill(x, x->out, x->node->dtype, ls_gpu_elements(&x->out_shape), batch);
}

static ls_status transpose(lowering *x)
{
    int64_t dense[LS_MAX_RANK] = { 0 }, strides[LS_MAX_RANK] = { 0 };
    ls_shape shape = ls_gpu_in_shape(x, 0);
    ls_shape_strides(&shape, dense);
    for (int i = 0; i < shape.rank; i++)
        strides[i] = dense[x->node->attr.permutation.of[i]];
    return copy_view(x, 0, strides);
}

static ls_status broadcast(lowering *x)
{
    int64_t strides[LS_MAX_RANK] = { 0 };
    ls_shape shape = ls_gpu_in_shape(x, 0);
    ls_gpu_broadcast_strides(&shape, &x->out_shape, strides);
    return copy_view(x, 0, strides);
}

static int64_t slice_strides(const lowering *x, const ls_shape *whole, int64_t *strides)
{
    int64_t start = 0;
    ls_shape_strides(whole, strides);
    for (int i = 0; i < whole->rank; i++) {
        start += x->node->attr.slice.begin[i] * strides[i];
        strides[i] *= x->node->attr.slice.step[i];
    }
    return start;
}

static ls_status slice(lowering *x)
{
    int64_t strides[LS_MAX_RANK] = { 0 };
    ls_shape shape = ls_gpu_in_shape(x, 0);
    int64_t start = slice_strides(x, &shape, strides);
    return copy_view(x, start, strides);
}

static ls_status slice_grad(lowering *x)
{
    int64_t strides[LS_MAX_RANK] = { 0 }, start = slice_strides(x, &x->out_shape, strides);
    LS_TRY(ls_gpu_fill(x, x->out, x->node->dtype, ls_gpu_elements(&x->out_shape), 0));
    return copy_into(x, 0, start, strides);
}

static ls_status pad(lowering *x)
{
    int64_t strides[LS_MAX_RANK] = { 0 }, start = 0;
    ls_shape_strides(&x->out_shape, strides);
    for (int i = 0; i < x->out_shape.rank; i++)
        start += x->node->attr.pad.before[i] * strides[i];
    LS_TRY(ls_gpu_fill(x, x->out, x->node->dtype, ls_gpu_elements(&x->out_shape), x->node->attr.pad.value));
    return copy_into(x, 0, start, strides);
}

static ls_status concat(lowering *x)
{
    int64_t strides[LS_MAX_RANK] = { 0 }, at = 0;
    int axis = (int)x->node->attr.axis.axis;
    ls_shape_strides(&x->out_shape, strides);
    for (int k = 0; k < x->node->input_count; k++) {
        LS_TRY(copy_into(x, k, at * strides[axis], strides));
        at += ls_gpu_in_shape(x, k).dims[axis];
    }
    return LS_OK;
}

static ls_status cast(lowering *x)
{
    char name[48];
    ls_dtype from = x->node->in[0]->dtype, to = x->node->dtype;
    if (from == to)
        return copy_all(x);
    ls_gpu_flat p = { .n = ls_gpu_elements(&x->out_shape) };
    snprintf(name, sizeof(name), "cast_%s_%s", ls_gpu_type(from == LS_BOOL ? LS_U8 : from), ls_gpu_type(to));
    return LAUNCH(x, LS_GPU_MOVES, name, &p, some(x, p.n), 1, ls_gpu_in(x, 0), x->out);
}

/* ---- The table ---- */

/* Types of input 0 (without inputs: of the output). */
enum {
    F32 = 1 << LS_F32,
    F64 = 1 << LS_F64,
    REALS = F32 | F64,
    NUMBERS = REALS | 1 << LS_I32 | 1 << LS_I64,
    ANY = NUMBERS | 1 << LS_U8 | 1 << LS_BOOL,
};

static const struct row {
    lower_function *lower;
    unsigned types;
} table[LS_OP_COUNT] = {
    [LS_OP_fill] = { fill, ANY },
    [LS_OP_count] = { count, ANY },
    [LS_OP_random_uniform] = { ls_gpu_uniform, F32 },
    [LS_OP_random_normal] = { ls_gpu_normal, F32 },
    [LS_OP_apply] = { ls_gpu_apply, F32 },
    [LS_OP_stop_gradient] = { copy_all, ANY },
    [LS_OP_cast] = { cast, ANY },
    [LS_OP_add] = { binary, NUMBERS },
    [LS_OP_sub] = { binary, NUMBERS },
    [LS_OP_mul] = { binary, NUMBERS },
    [LS_OP_div] = { binary, REALS },
    [LS_OP_pow] = { power, F32 },
    [LS_OP_maximum] = { binary, NUMBERS },
    [LS_OP_minimum] = { binary, NUMBERS },
    [LS_OP_compare] = { compare, NUMBERS },
    [LS_OP_select] = { select_from, ANY },
    [LS_OP_neg] = { unary, NUMBERS },
    [LS_OP_abs] = { unary, NUMBERS },
    [LS_OP_sign] = { unary, NUMBERS },
    [LS_OP_square] = { unary, NUMBERS },
    [LS_OP_clip] = { unary, F32 },
    [LS_OP_exp] = { unary, F32 },
    [LS_OP_log] = { unary, F32 },
    [LS_OP_sqrt] = { unary, F32 },
    [LS_OP_rsqrt] = { unary, F32 },
    [LS_OP_erf] = { unary, F32 },
    [LS_OP_relu] = { unary, F32 },
    [LS_OP_leaky_relu] = { unary, F32 },
    [LS_OP_relu_grad] = { relu_grad, F32 },
    [LS_OP_capped_relu] = { unary, F32 },
    [LS_OP_capped_relu_grad] = { capped_relu_grad, F32 },
    [LS_OP_sigmoid] = { unary, F32 },
    [LS_OP_tanh] = { unary, F32 },
    [LS_OP_softplus] = { unary, F32 },
    [LS_OP_gelu] = { unary, F32 },
    [LS_OP_silu] = { unary, F32 },
    [LS_OP_silu_grad] = { silu_grad, F32 },
    [LS_OP_elu] = { unary, F32 },
    [LS_OP_reshape] = { copy_all, ANY },
    [LS_OP_transpose] = { transpose, ANY },
    [LS_OP_broadcast] = { broadcast, ANY },
    [LS_OP_concat] = { concat, ANY },
    [LS_OP_slice] = { slice, ANY },
    [LS_OP_slice_grad] = { slice_grad, ANY },
    [LS_OP_pad] = { pad, ANY },
    [LS_OP_gather] = { ls_gpu_gather, ANY },
    [LS_OP_gather_grad] = { ls_gpu_gather_grad, F32 },
    [LS_OP_one_hot] = { ls_gpu_one_hot, ANY },
    [LS_OP_matmul] = { ls_gpu_matmul, F32 },
    [LS_OP_reduce_sum] = { ls_gpu_reduce_sum, NUMBERS },
    [LS_OP_reduce_max] = { ls_gpu_reduce_extreme, F32 },
    [LS_OP_reduce_min] = { ls_gpu_reduce_extreme, F32 },
    [LS_OP_argmax] = { ls_gpu_argmax, F32 },
    [LS_OP_softmax] = { ls_gpu_softmax, F32 },
    [LS_OP_log_softmax] = { ls_gpu_softmax, F32 },
    [LS_OP_conv2d] = { ls_gpu_conv2d, F32 },
    [LS_OP_conv2d_grad_input] = { ls_gpu_conv2d_grad_input, F32 },
    [LS_OP_conv2d_grad_kernel] = { ls_gpu_conv2d_grad_kernel, F32 },
    [LS_OP_max_pool2d] = { ls_gpu_pool, F32 },
    [LS_OP_max_pool2d_grad] = { ls_gpu_pool_grad, F32 },
    [LS_OP_average_pool2d] = { ls_gpu_pool, F32 },
    [LS_OP_average_pool2d_grad] = { ls_gpu_pool_grad, F32 },
    [LS_OP_warp] = { ls_gpu_warp, F32 },
    [LS_OP_warp_grad] = { ls_gpu_warp_grad, F32 },
    [LS_OP_recurrent] = { ls_gpu_recurrent_op, F32 },
    [LS_OP_recurrent_grad] = { ls_gpu_recurrent_grad, F32 },
    [LS_OP_attention] = { ls_gpu_attention_op, F32 },
    [LS_OP_attention_grad] = { ls_gpu_attention_grad, F32 },
    [LS_OP_moments] = { ls_gpu_moments, F32 },
    [LS_OP_batch_norm] = { ls_gpu_norm_input, F32 },
    [LS_OP_batch_norm_grad_moments] = { ls_gpu_grad_moments, F32 },
    [LS_OP_batch_norm_grad_input] = { ls_gpu_norm_grad_input, F32 },
    [LS_OP_dropout] = { ls_gpu_dropout, F32 },
    [LS_OP_sparse_cross_entropy] = { ls_gpu_cross_entropy, F32 },
    [LS_OP_sparse_cross_entropy_grad] = { ls_gpu_cross_entropy_grad, F32 },
    [LS_OP_ctc] = { ls_gpu_ctc_loss, F32 },
    [LS_OP_ctc_grad] = { ls_gpu_ctc_grad, F32 },
};

/* Some kernels count the elements of a sample in 31 bits. */
static bool is_small(const ls_tensor *node)
{
    ls_shape shape = ls_shape_at(&node->shape, 1);
    return ls_gpu_elements(&shape) < (int64_t)1 << 31;
}

/* Rules that divide need correctly rounded division. */
static bool divides(const ls_tensor *node)
{
    ls_apply_rule rule = (ls_apply_rule)node->attr.apply.rule;
    return rule != LS_APPLY_SGD && rule != LS_APPLY_MOMENTUM && rule != LS_APPLY_NESTEROV && rule != LS_APPLY_SUM &&
           rule != LS_APPLY_LION;
}

bool ls_gpu_supports(const ls_tensor *node, bool rounded)
{
    const struct row *row = &table[node->op];
    ls_dtype dtype = node->op == LS_OP_select ? node->in[1]->dtype
                     : node->input_count > 0  ? node->in[0]->dtype
                                              : node->dtype;
    if (!row->lower || !(row->types >> dtype & 1) || !is_small(node))
        return false;
    for (int i = 0; i < node->input_count; i++)
        if (!is_small(node->in[i]))
            return false;
    if (node->op == LS_OP_apply && !rounded && divides(node))
        return false;
    if (node->op == LS_OP_one_hot && node->dtype != LS_F32)
        return false;
    if (node->op == LS_OP_attention || node->op == LS_OP_attention_grad)
        return ls_gpu_attention_fits(node);
    if (node->op == LS_OP_ctc || node->op == LS_OP_ctc_grad)
        return ls_gpu_ctc_fits(node);
    if (node->op == LS_OP_conv2d_grad_kernel || node->op == LS_OP_moments || node->op == LS_OP_batch_norm_grad_moments)
        return node->use == LS_USE_REDUCES;
    return true;
}

static lowering lowering_of(ls_gpu_lowering *l, const ls_program_step *step, const ls_program_run *run)
{
    lowering x = { .l = l,
                   .step = step,
                   .run = run,
                   .node = step->node,
                   .out_shape = ls_ref_shape(step->node, run->batch, run->samples) };
    x.out = ls_gpu_slot(&x, &step->out);
    return x;
}

ls_status ls_gpu_lower(ls_gpu_lowering *l, const ls_program_step *step, const ls_program_run *run)
{
    lowering x = lowering_of(l, step, run);
    if (!table[step->node->op].lower)
        return ls_fail(LS_ERR_INTERNAL, "there is no kernel for %s", ls_tensor_op(step->node));
    return table[step->node->op].lower(&x);
}

ls_status ls_gpu_lower_tail(ls_gpu_lowering *l, const ls_program *program, const ls_gpu_chain_steps *c,
                            const ls_program_run *run)
{
    lowering x = lowering_of(l, &program->steps[c->first], run);
    x.out = ls_gpu_slot(&x, &program->steps[c->first + c->count - 1].out);
    x.rectified = c->rectified;
    x.biased = c->biased;
    if (c->biased)
        x.bias = ls_gpu_slot(&x, &program->steps[c->first + 1].in[c->bias]);
    return table[x.node->op].lower(&x);
}

/* ---- Joins and checks for finite values ---- */

static const char *const join_kinds[] = { [LS_JOIN_SUM] = "sum", [LS_JOIN_MAX] = "max", [LS_JOIN_MIN] = "min" };

ls_status ls_gpu_join(ls_gpu_lowering *l, const ls_join_call *call)
{
    char name[48];
    ls_gpu_flat p = { .n = call->count };
    snprintf(name, sizeof(name), "join_%s_%s", join_kinds[call->kind], ls_gpu_type(call->dtype));
    ls_memory_place place[] = { call->to, call->right };
    return ls_gpu_launch_on(l, LS_GPU_SUMS, name, &p, sizeof(p), p.n, 1, false, 2, place);
}

/* Writes the non-empty lanes of a .. b-1 and how many joins each completes. Returns whether there
 * are any. */
static bool write_tree(const ls_join_lanes_call *call, int a, int b, i64 **to)
{
    if (b - a == 1) {
        if (!call->lane[a].memory)
            return false;
        (*to)[0] = (i64)call->lane[a].offset;
        (*to)[1] = 0;
        *to += 2;
        return true;
    }
    int k = 1;
    while (k * 2 < b - a)
        k *= 2;
    bool left = write_tree(call, a, a + k, to), right = write_tree(call, a + k, b, to);
    if (left && right)
        (*to)[-1]++;
    return left || right;
}

ls_status ls_gpu_join_lanes(ls_gpu_lowering *l, const ls_join_lanes_call *call, i64 *tree)
{
    char name[48];
    ls_gpu_tree p = { .n = call->count, .to = (i64)call->to.offset };
    i64 *lanes = tree + sizeof(p) / sizeof(i64), *end = lanes;
    bool wide = call->kind == LS_JOIN_SUM && call->dtype == LS_F32;
    int64_t width = wide ? l->tuning->vector : 1;
    (void)write_tree(call, 0, call->lanes, &end);
    p.lanes = (end - lanes) / 2;
    memcpy(tree, &p, sizeof(p));
    snprintf(name, sizeof(name), "join_lanes_%s_%s", join_kinds[call->kind], ls_gpu_type(call->dtype));
    ls_memory_place place = { call->to.memory, 0 };
    return ls_gpu_launch_on(l, LS_GPU_SUMS, name, tree, (size_t)(end - tree) * sizeof(i64), (p.n + width - 1) / width,
                            1, false, 1, &place);
}

ls_status ls_gpu_finite(ls_gpu_lowering *l, ls_dtype dtype, ls_memory_place from, int64_t count, ls_memory_place flags,
                        int64_t flag_count)
{
    ls_gpu_add p = { .n = count, .count = flag_count };
    ls_memory_place place[] = { from, flags };
    return ls_gpu_launch_on(l, LS_GPU_SUMS, dtype == LS_F64 ? "finite_f64" : "finite_f32", &p, sizeof(p), p.count, 1,
                            false, 2, place);
}

ls_status ls_gpu_fault_status(const ls_gpu_fault *fault, const ls_program_step *step)
{
    const ls_tensor *node = step->node;
    int64_t each = 0;
    if (fault->kind == LS_GPU_FAULT_RATE)
        return ls_fail(LS_ERR_DATA, "a dropout rate of %.9g is outside [0, 1)", fault->rate);
    if (node->in[1]->per_sample) {
        ls_shape shape = ls_ref_shape(node->in[1], 1, 1);
        each = ls_gpu_extent(&shape, 1, shape.rank);
    }
    if (fault->kind == LS_GPU_FAULT_LABEL)
        return ls_fail(LS_ERR_DATA, "label %lld of sample %lld is outside 0..%lld", (long long)fault->value,
                       (long long)(fault->first + (each > 0 ? fault->at / each : 0)), (long long)fault->limit - 1);
    return ls_fail(LS_ERR_DATA, "index %lld at position %lld is outside 0..%lld", (long long)fault->value,
                   (long long)(fault->at + fault->first * each), (long long)fault->limit - 1);
}
