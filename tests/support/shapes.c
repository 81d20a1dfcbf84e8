/* Expressions at random shapes: see shapes.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "graph/rules.h"
#include "shapes.h"

/* ---- Drawing ---- */

test_draws test_draws_of(uint32_t seed, uint32_t stream)
{
    return (test_draws){ .key = ls_random_key(seed, LS_RANDOM_TEST, 7000 + stream, 0) };
}

uint32_t test_draw(test_draws *d, uint32_t below)
{
    return ls_random_block(d->key, 0, 0, d->count++).word[0] % below;
}

static bool one_in(test_draws *d, uint32_t n)
{
    return test_draw(d, n) == 0;
}

static int between(test_draws *d, int low, int high)
{
    return low + (int)test_draw(d, (uint32_t)(high - low + 1));
}

/* A size: mostly about the widths of vectors; nothing at all now and then. */
static int size_of_axis(test_draws *d, int most)
{
    static const int sizes[] = { 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 48, 63, 65, 100, 129 };
    int size = one_in(d, 60) ? 0 : sizes[test_draw(d, sizeof sizes / sizeof *sizes)];
    return size <= most ? size : between(d, 1, most);
}

#define MOST_AXES 4

/* Sizes of an array of at most `most` elements (of a sample, where it has a batch axis). */
typedef struct box {
    int rank;
    int size[MOST_AXES]; /* size[0] is left out of a per-sample one's spec: N is there */
    bool samples;
} box;

static box draw_box(test_draws *d, int least_rank, int most)
{
    box b = { .rank = between(d, least_rank, MOST_AXES), .samples = test_draw(d, 2) };
    for (int i = b.rank - 1; i >= (b.samples ? 1 : 0); i--) {
        b.size[i] = size_of_axis(d, most);
        most = b.size[i] > 0 ? most / b.size[i] : most;
        most = most > 0 ? most : 1;
    }
    return b;
}

/* prefix as in graph_cases.h's specs; `skip` axes are left out in front, axes of `ones` are 1. */
static const char *spec_of(const box *b, const char *prefix, int skip, unsigned ones, char *out, size_t room)
{
    int at = snprintf(out, room, "%s", prefix ? prefix : "");
    for (int i = skip; i < b->rank; i++) {
        const char *comma = i > skip ? "," : "";
        if (ones >> i & 1)
            at += snprintf(out + at, room - (size_t)at, "%s1", comma);
        else if (b->samples && i == 0)
            at += snprintf(out + at, room - (size_t)at, "%sN", comma);
        else
            at += snprintf(out + at, room - (size_t)at, "%s%d", comma, b->size[i]);
    }
    return out;
}

/* Samples are fed; what is whole is fed or a variable. */
static ls_tensor *leaf(test_graph *t, test_draws *d, const char *spec)
{
    bool fed = test_draw(d, 2) || test_spec_has_batch(spec);
    return test_add(t, spec, fed ? TEST_FED : TEST_VARIABLE)->tensor;
}

static ls_tensor *leaf_like(test_graph *t, test_draws *d, const box *b, const char *prefix)
{
    char spec[96];
    return leaf(t, d, spec_of(b, prefix, 0, 0, spec, sizeof spec));
}

static ls_tensor *leaf_of(test_graph *t, test_draws *d, const char *format, ...)
{
    char spec[96];
    va_list list;
    va_start(list, format);
    vsnprintf(spec, sizeof spec, format, list);
    va_end(list);
    return leaf(t, d, spec);
}

/* An axis that is not the batch's. */
static int inner_axis(test_draws *d, const box *b)
{
    int first = b->samples ? 1 : 0;
    return b->rank > first ? between(d, first, b->rank - 1) : -1;
}

/* ---- Elementwise ---- */

static ls_tensor *make_unary(test_graph *t, test_draws *d)
{
    const test_case *row = &test_unary[test_draw(d, (uint32_t)test_unary_count)];
    box b = draw_box(d, 1, 1200);
    ls_tensor *x = leaf_like(t, d, &b, row->in[0]);
    test_case c = *row;
    c.real = row->real != 0 ? 0.05 + 0.1 * test_draw(d, 20) : 0;
    return one_in(d, 20) ? ls_op_sign(x) : test_build(&c, &x);
}

/* Both inputs lack some of the result's axes, or have 1 there. */
static ls_tensor *make_binary(test_graph *t, test_draws *d)
{
    const test_case *row = &test_binary[test_draw(d, (uint32_t)test_binary_count)];
    box b = draw_box(d, 0, 900);
    char spec[2][96];
    for (int i = 0; i < 2; i++) {
        int skip = one_in(d, 3) ? between(d, 0, b.rank) : 0;
        unsigned ones = one_in(d, 3) ? test_draw(d, 16) : 0;
        spec_of(&b, row->in[i], skip, ones, spec[i], sizeof spec[i]);
    }
    ls_tensor *x[2] = { leaf(t, d, spec[0]), leaf(t, d, spec[1]) };
    ls_tensor *y = test_build(row, x);
    return one_in(d, 6) ? ls_op_select(ls_op_compare(x[0], (ls_relation)test_draw(d, 6), x[1]), y, x[1]) : y;
}

/* ReLUs and their gradients, with another value added. */
static ls_tensor *make_masked(test_graph *t, test_draws *d)
{
    box b = draw_box(d, 1, 900);
    ls_tensor *dy = leaf_like(t, d, &b, ""), *x = leaf_like(t, d, &b, ""), *other = leaf_like(t, d, &b, "");
    double slope = one_in(d, 2) ? 0 : 0.01 * test_draw(d, 30);
    return ls_op_add(ls_op_relu_grad(dy, one_in(d, 2) ? ls_op_relu(x) : x, slope), other);
}

static ls_tensor *make_cast(test_graph *t, test_draws *d)
{
    static const ls_dtype types[] = { LS_F64, LS_I32, LS_I64, LS_U8, LS_BOOL };
    static const char *const integers[] = { "i99:", "j99:", "u99:", "b:" };
    box b = draw_box(d, 1, 900);
    bool integer = test_draw(d, 2);
    ls_tensor *x = leaf_like(t, d, &b, integer ? integers[test_draw(d, 4)] : one_in(d, 2) ? "+" : "");
    return integer ? ls_op_cast(x, LS_F32)
                   : ls_op_cast(ls_op_cast(x, types[test_draw(d, sizeof types / sizeof *types)]), LS_F32);
}

static ls_tensor *make_random(test_graph *t, test_draws *d)
{
    box b = draw_box(d, 1, 1500);
    ls_tensor *x = leaf_like(t, d, &b, "");
    ls_shape shape = ls_tensor_shape(x);
    double a = 0.1 * test_draw(d, 10), c = a + 0.1 * (1 + test_draw(d, 10));
    switch (test_draw(d, 4)) {
    case 0:
        return ls_op_mul(x, ls_op_random_uniform(t->graph, LS_F32, shape, a, c));
    case 1:
        return ls_op_mul(x, ls_op_random_normal(t->graph, LS_F32, shape, a, c));
    case 2:
        return ls_op_mul(x, ls_op_fill(t->graph, LS_F32, shape, c));
    default:
        return ls_op_dropout(x, ls_op_scalar(t->graph, LS_F32, 0.05 * test_draw(d, 20)));
    }
}

/* ---- Rows ---- */

static ls_tensor *make_softmax(test_graph *t, test_draws *d)
{
    box b = draw_box(d, 1, 900);
    int axis = one_in(d, 3) ? inner_axis(d, &b) : b.rank - 1;
    ls_tensor *x = leaf_like(t, d, &b, one_in(d, 3) ? "+" : "");
    x = one_in(d, 3) ? ls_op_scale(x, 30) : x;
    return test_draw(d, 2) ? ls_op_softmax(x, axis) : ls_op_log_softmax(x, axis);
}

static ls_tensor *make_loss(test_graph *t, test_draws *d)
{
    static ls_tensor *(*const pairs[])(ls_tensor *, ls_tensor *) = { ls_op_mean_squared_error,
                                                                     ls_op_mean_absolute_error };
    int classes = between(d, 1, 40), rows = size_of_axis(d, 9);
    bool deep = test_draw(d, 2), whole = one_in(d, 4);
    char first[32], rest[32] = "";
    snprintf(first, sizeof first, "%s", whole ? "6" : "N");
    if (deep)
        snprintf(rest, sizeof rest, ",%d", rows);
    ls_tensor *x = leaf_of(t, d, "%s%s,%d", first, rest, classes), *y;
    uint32_t which = test_draw(d, 6);
    if (which < 3) {
        ls_tensor *labels = leaf_of(t, d, "%c%d:%s%s", "iju"[test_draw(d, 3)], classes, first, rest);
        y = ls_op_sparse_cross_entropy(labels, which ? x : ls_op_softmax(x, -1), which ? LS_LOGITS : LS_PROBABILITIES);
    } else {
        ls_tensor *targets = leaf_of(t, d, "~%s%s,%d", first, rest, classes);
        y = which == 3   ? ls_op_cross_entropy(targets, x, LS_LOGITS)
            : which == 4 ? ls_op_binary_cross_entropy(targets, x, LS_LOGITS)
                         : pairs[test_draw(d, 2)](targets, x);
    }
    return test_draw(d, 2) ? ls_op_reduce_mean(y, LS_ALL_AXES, false) : y;
}

static ls_tensor *make_ctc(test_graph *t, test_draws *d)
{
    int classes = between(d, 1, 40), frames = one_in(d, 6) ? between(d, 1, 3) : between(d, 1, 30);
    const char *rows = one_in(d, 4) ? "6" : "N";
    ls_tensor *x = leaf_of(t, d, "%s,%d,%d", rows, frames, classes);
    ls_tensor *labels = leaf_of(t, d, "%c%d:%s,%d", "iju"[test_draw(d, 3)], classes, rows, between(d, 0, 9));
    return ls_op_ctc(labels, one_in(d, 4) ? ls_op_scale(x, 30) : x);
}

static ls_tensor *make_places(test_graph *t, test_draws *d)
{
    box b = draw_box(d, 1, 600);
    int axis = inner_axis(d, &b);
    if (axis < 0)
        return NULL;
    ls_tensor *x = leaf_like(t, d, &b, one_in(d, 2) ? "#" : "");
    int last = b.size[b.rank - 1];
    switch (test_draw(d, 4)) {
    case 0:
        return ls_op_top_k(x, between(d, 1, last > 0 ? last : 1));
    case 1:
        return ls_op_top_k_indices(x, between(d, 1, last > 0 ? last : 1));
    case 2:
        return ls_op_argmax(x, axis);
    default:
        return ls_op_one_hot(ls_op_argmax(x, axis), LS_F32, b.size[axis] > 0 ? b.size[axis] : 1);
    }
}

static ls_tensor *make_reduction(test_graph *t, test_draws *d)
{
    box b = draw_box(d, 1, 1500);
    const test_reduction *r = &test_reductions[test_draw(d, (uint32_t)test_reduction_count)];
    int64_t mask = 1 + test_draw(d, (1u << b.rank) - 1);
    return r->make(leaf_like(t, d, &b, ""), ls_axes_of_mask(mask), test_draw(d, 2));
}

/* Sums of more than a block of 4,096, and squared norms. */
static ls_tensor *make_long_sum(test_graph *t, test_draws *d)
{
    int rows = between(d, 1, 3), n = one_in(d, 2) ? 4096 * between(d, 1, 2) + between(d, -3, 3) : between(d, 1, 9000);
    switch (test_draw(d, 4)) {
    case 0:
        return ls_op_cast(
            ls_op_reduce_sum(ls_op_square(ls_op_cast(leaf_of(t, d, "%d", n), LS_F64)), LS_ALL_AXES, false), LS_F32);
    case 1:
        return ls_op_reduce_sum(leaf_of(t, d, "%d,%d", rows, n), LS_AXES(1), false);
    case 2:
        return ls_op_reduce_max(leaf_of(t, d, "%d,%d", rows, n), LS_AXES(1), false);
    default:
        return ls_op_reduce_sum(leaf_of(t, d, "%d,%d", n, rows), LS_AXES(0), true);
    }
}

/* ---- Moves ---- */

/* A part of every axis but the batch's; in steps where there is no batch. */
static ls_tensor *make_slice(test_graph *t, test_draws *d, const box *b)
{
    ls_axes from = { .count = b->rank }, to = { .count = b->rank }, step = { .count = b->rank };
    for (int i = 0; i < b->rank; i++) {
        int size = b->samples && i == 0 ? 0 : b->size[i];
        from.axis[i] = size > 0 ? between(d, 0, size - 1) : 0;
        to.axis[i] = size > 0 ? between(d, (int)from.axis[i] + 1, size) : 0;
        step.axis[i] = between(d, 1, 3);
    }
    ls_tensor *x = leaf_like(t, d, b, "");
    if (!b->samples)
        return ls_op_strided_slice(x, from, to, step);
    for (int i = 0; i < b->rank; i++)
        to.axis[i] = i == 0 ? -1 : to.axis[i] - from.axis[i];
    return ls_op_slice(x, from, to);
}

static ls_tensor *make_turn(test_graph *t, test_draws *d, const box *b)
{
    ls_axes turn = { .count = b->rank };
    for (int i = 0; i < b->rank; i++)
        turn.axis[i] = i;
    for (int i = b->rank - 1; i > (b->samples ? 1 : 0); i--) {
        int k = between(d, b->samples ? 1 : 0, i);
        int64_t other = turn.axis[k];
        turn.axis[k] = turn.axis[i];
        turn.axis[i] = other;
    }
    return ls_op_transpose(leaf_like(t, d, b, ""), turn);
}

static ls_tensor *make_padded(test_graph *t, test_draws *d, const box *b)
{
    ls_axes before = { .count = b->rank }, after = { .count = b->rank };
    for (int i = b->samples ? 1 : 0; i < b->rank; i++) {
        before.axis[i] = between(d, 0, 3);
        after.axis[i] = between(d, 0, 2);
    }
    return ls_op_pad(leaf_like(t, d, b, ""), before, after, one_in(d, 2) ? 0 : 0.3);
}

static ls_tensor *make_gathered(test_graph *t, test_draws *d, const box *b)
{
    int axis = inner_axis(d, b);
    if (axis < 0 || b->size[axis] < 1)
        return NULL;
    ls_tensor *x = leaf_like(t, d, b, "");
    return ls_op_gather(x, leaf_of(t, d, "%c%d:%d", "ij"[test_draw(d, 2)], b -> size[axis], between(d, 1, 9)), axis);
}

static ls_tensor *make_move(test_graph *t, test_draws *d)
{
    box b = draw_box(d, 1, 600);
    char spec[96];
    ls_tensor *x;
    int axis = inner_axis(d, &b);
    switch (test_draw(d, 7)) {
    case 0:
        return make_slice(t, d, &b);
    case 1:
        return make_turn(t, d, &b);
    case 2:
        return make_padded(t, d, &b);
    case 3:
        return make_gathered(t, d, &b);
    case 4:
        x = leaf_like(t, d, &b, "");
        return axis < 0 ? NULL : ls_op_concat((ls_tensor *[]){ x, leaf_like(t, d, &b, ""), x }, 3, axis);
    case 5: /* axes of 1 are repeated */
        x = leaf(t, d, spec_of(&b, "", 0, test_draw(d, 16) & ~1u, spec, sizeof spec));
        return ls_op_broadcast(x, ls_tensor_shape(leaf_like(t, d, &b, "")));
    default:
        x = ls_op_stop_gradient(leaf_like(t, d, &b, ""));
        return ls_op_mul(ls_op_flatten(x), ls_op_flatten(leaf_like(t, d, &b, "")));
    }
}

/* Rows of a table: the gradient adds them up where they came from. */
static ls_tensor *make_embedding(test_graph *t, test_draws *d)
{
    int words = between(d, 1, 30), width = size_of_axis(d, 40);
    ls_tensor *table = leaf_of(t, d, "%d,%d", words, width);
    if (test_draw(d, 2))
        return ls_op_gather(table, leaf_of(t, d, "%c%d:N", "ij"[test_draw(d, 2)], words), 0);
    return ls_op_gather(table, leaf_of(t, d, "%c%d:N,%d", "ij"[test_draw(d, 2)], words, between(d, 1, 12)), 0);
}

/* Samples meet. */
static ls_tensor *make_batch(test_graph *t, test_draws *d)
{
    ls_tensor *x = leaf_of(t, d, "N,%d", size_of_axis(d, 20)), *all = ls_op_gather_batch(x);
    switch (test_draw(d, 3)) {
    case 0:
        return ls_op_scatter_batch(ls_op_softmax(all, 0));
    case 1:
        return ls_op_matmul(ls_op_softmax(ls_op_matmul(x, all, .transpose_b = true), -1), all);
    default:
        return ls_op_div(ls_op_reduce_sum(x, LS_AXES(0), false), ls_op_count(t->graph, LS_F32));
    }
}

/* ---- Products ---- */

static ls_tensor *finish(test_graph *t, test_draws *d, ls_tensor *y)
{
    if (ls_tensor_is_error(y))
        return y;
    int channels = (int)y->shape.dims[y->shape.rank - 1];
    if (test_draw(d, 2) && channels > 0)
        y = ls_op_add(y, leaf_of(t, d, "%d", channels));
    if (one_in(d, 4) && y->per_sample)
        y = ls_op_add(y, test_add_like(t, y)->tensor);
    return test_draw(d, 2) ? ls_op_relu(y) : y;
}

static ls_tensor *make_matmul(test_graph *t, test_draws *d)
{
    int k = size_of_axis(d, 80), m = size_of_axis(d, 80), r = between(d, 1, 9), q = between(d, 1, 3);
    bool turn = test_draw(d, 2);
    switch (test_draw(d, 7)) {
    case 0:
    case 1:
        return finish(t, d,
                      ls_op_matmul(leaf_of(t, d, "N,%d", k), leaf_of(t, d, "%d,%d", turn ? m : k, turn ? k : m),
                                   .transpose_b = turn));
    case 2: /* over the batch */
        return ls_op_matmul(leaf_of(t, d, "N,%d", k), leaf_of(t, d, "N,%d", m), .transpose_a = true);
    case 3:
        return finish(t, d, ls_op_matmul(leaf_of(t, d, "N,%d,%d", r, k), leaf_of(t, d, "%d,%d", k, m)));
    case 4:
        return turn ? ls_op_matmul(leaf_of(t, d, "N,%d,%d", k, r), leaf_of(t, d, "N,%d,%d", m, k), .transpose_a = true,
                                   .transpose_b = true)
                    : ls_op_matmul(leaf_of(t, d, "N,%d,%d", r, k), leaf_of(t, d, "N,%d,%d", k, m));
    case 5:
        return ls_op_matmul(leaf_of(t, d, "%d,%d,%d", q, r, k), leaf_of(t, d, "%d,%d", k, m));
    default:
        return ls_op_matmul(leaf_of(t, d, "%d,%d", r, k), leaf_of(t, d, "%d,%d", k, m));
    }
}

/* One operand of a product: leading axes `lead`, of which it may lack the first ones or have 1 in
 * their places, and a matrix, transposed or not. */
static ls_tensor *draw_matrices(test_graph *t, test_draws *d, const box *lead, bool all, int rows, int columns,
                                bool turned)
{
    char spec[96];
    int skip = all ? 0 : between(d, 0, lead->rank);
    box b = *lead;
    b.size[b.rank++] = turned ? columns : rows;
    b.size[b.rank++] = turned ? rows : columns;
    unsigned ones = all ? 0 : test_draw(d, 1U << lead->rank) & test_draw(d, 1U << lead->rank);
    if (lead->samples && skip == 0 && ones & 1) /* 1 cannot replace the batch */
        skip = 1;
    return leaf(t, d, spec_of(&b, NULL, skip, ones, spec, sizeof spec));
}

/* Products of many matrices: any leading axes, broadcast, and any transposes. Their gradients are
 * sums over positions, which have blocks of 256: some sizes are longer than one, and than the 512
 * steps of a piece. */
static ls_tensor *make_products(test_graph *t, test_draws *d)
{
    box lead = { .rank = between(d, 1, 2), .samples = test_draw(d, 3) > 0 };
    int size[3]; /* m, k, n */
    for (int i = 0; i < lead.rank; i++)
        lead.size[i] = one_in(d, 40) ? 0 : between(d, 1, 4);
    for (int i = 0; i < 3; i++)
        size[i] = size_of_axis(d, 70);
    if (one_in(d, 4)) {
        int longest = (int)test_draw(d, 3);
        for (int i = 0; i < 3; i++)
            size[i] = i == longest ? one_in(d, 2) ? between(d, 250, 270) : between(d, 505, 530) : size[i] % 18;
    }
    bool turn_a = test_draw(d, 2), turn_b = test_draw(d, 2), a_has_all = test_draw(d, 2), plain_b = one_in(d, 3);
    ls_tensor *a = draw_matrices(t, d, &lead, a_has_all || plain_b, size[0], size[1], turn_a);
    ls_tensor *b = plain_b ? leaf_of(t, d, "%d,%d", size[turn_b ? 2 : 1], size[turn_b ? 1 : 2])
                           : draw_matrices(t, d, &lead, !a_has_all, size[1], size[2], turn_b);
    ls_tensor *y = ls_op_matmul(a, b, .transpose_a = turn_a, .transpose_b = turn_b);
    return plain_b ? finish(t, d, y) : y;
}

/* A weight as it is, then with its sizes exchanged by a reshape: each product needs panels of its
 * own. */
static ls_tensor *make_reshaped_weight(test_graph *t, test_draws *d)
{
    int k = between(d, 1, 70), m = between(d, 1, 70);
    ls_tensor *w = leaf_of(t, d, "%d,%d", k, m);
    switch (test_draw(d, 3)) {
    case 0:
        return ls_op_matmul(ls_op_matmul(leaf_of(t, d, "N,%d", k), w), ls_op_reshape(w, LS_SHAPE(m, k)));
    case 1:
        return ls_op_matmul(ls_op_matmul(leaf_of(t, d, "N,%d,%d", between(d, 1, 5), k), w),
                            ls_op_reshape(w, LS_SHAPE(m, k)));
    default:
        return ls_op_conv2d(
            ls_op_conv2d(leaf_of(t, d, "N,%d,2,%d", between(d, 1, 5), k), ls_op_reshape(w, LS_SHAPE(1, 1, k, m))),
            ls_op_reshape(w, LS_SHAPE(1, 1, m, k)));
    }
}

static void draw_padding(test_draws *d, const int64_t window[2], ls_padding *padding, int64_t pad[4])
{
    *padding = (ls_padding)test_draw(d, 3);
    for (int i = 0; i < 4; i++)
        pad[i] = *padding == LS_EXPLICIT ? between(d, 0, (int)window[i / 2] - 1) : 0;
}

static ls_tensor *make_conv(test_graph *t, test_draws *d)
{
    static const int channels[] = { 1, 1, 2, 3, 4, 5, 8, 16, 17, 32 };
    int c = channels[test_draw(d, 10)], o = channels[test_draw(d, 10)], groups = one_in(d, 3) ? between(d, 2, 4) : 1;
    if (one_in(d, 8)) { /* depthwise */
        groups = between(d, 1, 33);
        c = 1;
        o = between(d, 1, 2);
    }
    int h = between(d, 1, 11), w = one_in(d, 12) ? between(d, 250, 270) : between(d, 1, 13);
    c = w > 99 && c > 4 ? 4 : c;
    ls_conv2d_op options = { .groups = groups };
    int64_t kernel[2], seen[2];
    for (int i = 0; i < 2; i++) {
        kernel[i] = one_in(d, 3) ? 1 : between(d, 1, 5);
        options.stride[i] = one_in(d, 2) ? 1 : between(d, 1, 3);
        options.dilation[i] = one_in(d, 4) ? between(d, 2, 3) : 1;
        seen[i] = (kernel[i] - 1) * options.dilation[i] + 1;
    }
    draw_padding(d, seen, &options.padding, options.pad);
    ls_tensor *x = leaf_of(t, d, "N,%d,%d,%d", h, w, c * groups);
    options.kernel = leaf_of(t, d, "%d,%d,%d,%d", (int)kernel[0], (int)kernel[1], c, o * groups);
    return finish(t, d, ls_op_conv2d_with(x, options));
}

/* ---- Pools, warps and norms ---- */

static ls_tensor *make_pool(test_graph *t, test_draws *d)
{
    ls_pool2d_op options = { .count_padding = test_draw(d, 2) };
    for (int i = 0; i < 2; i++) {
        options.window[i] = between(d, 1, 4);
        options.stride[i] = between(d, 1, 4);
    }
    if (one_in(d, 3))
        options.window[0] = options.window[1] = options.stride[0] = options.stride[1] = 2;
    draw_padding(d, options.window, &options.padding, options.pad);
    ls_tensor *x = leaf_of(t, d, "%s%s,%d,%d,%d", one_in(d, 2) ? "#" : "", one_in(d, 6) ? "2" : "N", between(d, 1, 9),
                           between(d, 1, 9), size_of_axis(d, 40));
    switch (test_draw(d, 6)) {
    case 0:
    case 1:
        return ls_op_average_pool2d_with(x, options);
    case 2:
        return ls_op_global_average_pool2d(x);
    case 3:
        return ls_op_global_max_pool2d(x);
    default:
        return ls_op_max_pool2d_with(test_draw(d, 2) ? ls_op_relu(x) : x, options);
    }
}

static ls_tensor *make_warp(test_graph *t, test_draws *d)
{
    ls_warp_op options = { .interpolation = (ls_interpolation)test_draw(d, 3),
                           .fill_mode = (ls_fill_mode)test_draw(d, 5),
                           .fill_value = test_draw(d, 3) };
    for (int i = 0; i < 2 && one_in(d, 3); i++)
        options.size[i] = between(d, 1, 11);
    const char *samples = one_in(d, 6) ? "2" : "N";
    ls_tensor *x = leaf_of(t, d, "%s,%d,%d,%d", samples, between(d, 1, 9), between(d, 1, 9), size_of_axis(d, 20));
    options.matrix = leaf_of(t, d, "%s%s,6", one_in(d, 2) ? "#" : "", samples);
    return ls_op_warp_with(x, options);
}

static ls_tensor *make_recurrent(test_graph *t, test_draws *d)
{
    static const ls_gate gates[] = { LS_GATE_TANH,    LS_GATE_TANH, LS_GATE_SIGMOID,      LS_GATE_SIGMOID,
                                     LS_GATE_SIGMOID, LS_GATE_RELU, LS_GATE_HARD_SIGMOID, LS_GATE_LINEAR };
    ls_recurrent options = { .cell = (ls_cell)test_draw(d, LS_CELLS), .reverse = one_in(d, 3) };
    options.activation = gates[test_draw(d, sizeof gates / sizeof *gates)];
    options.recurrent_activation = gates[test_draw(d, sizeof gates / sizeof *gates)];
    int units = size_of_axis(d, 70), steps = between(d, 1, 7), width = units * ls_cell_parts_of(options.cell).gates;
    const char *rows = one_in(d, 6) ? "3" : "N";
    ls_tensor *p = leaf_of(t, d, "%s,%d,%d", rows, steps, width);
    options.kernel = leaf_of(t, d, "%d,%d", units, width);
    if (options.cell == LS_CELL_GRU_RESET_AFTER && !one_in(d, 3))
        options.bias = leaf_of(t, d, "%d", width);
    if (one_in(d, 2))
        options.mask = leaf_of(t, d, "b:%s,%d", rows, steps);
    return ls_op_recurrent(p, &options);
}

static ls_tensor *make_attention(test_graph *t, test_draws *d)
{
    ls_attention_op options = { .kv_heads = between(d, 1, 3), .causal = one_in(d, 2) };
    options.heads = options.kv_heads * between(d, 1, 3);
    int width = one_in(d, 8) ? between(d, 60, 140) : size_of_axis(d, 20),
        value_width = one_in(d, 3) ? size_of_axis(d, 70) : width;
    int queries = one_in(d, 6) ? between(d, 60, 80) : between(d, 1, 20),
        keys = one_in(d, 2) ? queries : between(d, 1, 90);
    const char *rows = one_in(d, 6) ? "2" : "N";
    ls_tensor *q;
    if (one_in(d, 2)) {
        ls_tensor *part[3];
        int columns = (int)options.kv_heads * width;
        keys = queries;
        ls_tensor *x = leaf_of(t, d, "%s,%d,%d", rows, queries, (int)options.heads * width + 2 * columns);
        ls_op_split(x, 2, LS_AXES(options.heads * width, columns, columns), part);
        q = part[0], options.k = part[1], options.v = part[2];
    } else {
        q = leaf_of(t, d, "%s,%d,%d", rows, queries, (int)options.heads * width);
        options.k = leaf_of(t, d, "%s,%d,%d", rows, keys, (int)options.kv_heads * width);
        options.v = leaf_of(t, d, "%s,%d,%d", rows, keys, (int)options.kv_heads * value_width);
    }
    if (one_in(d, 4))
        options.mask = leaf_of(t, d, "b:%d,%d", queries, keys);
    else if (one_in(d, 3))
        options.mask = leaf_of(t, d, "b:%s,%d,%d,%d", rows, one_in(d, 2) ? 1 : (int)options.heads,
                               one_in(d, 2) ? 1 : queries, keys);
    if (one_in(d, 3))
        options.dropout_rate = ls_op_scalar(t->graph, LS_F32, 0.25);
    return ls_op_attention_with(q, options);
}

static ls_tensor *make_custom(test_graph *t, test_draws *d)
{
    int columns = size_of_axis(d, 70);
    const char *rows = one_in(d, 6) ? "3" : "N";
    ls_tensor *x[2] = { leaf_of(t, d, "%s,%d,%d", rows, between(d, 1, 9), columns) };
    x[1] = one_in(d, 2) ? leaf_of(t, d, "%s,%d", rows, columns) : leaf_of(t, d, "%d", columns);
    return test_custom(NULL, x);
}

static ls_tensor *make_norm(test_graph *t, test_draws *d)
{
    box b = draw_box(d, 2, 700);
    b.samples = b.samples || test_draw(d, 3);
    int channels = b.size[b.rank - 1];
    ls_tensor *x = leaf_like(t, d, &b, one_in(d, 4) ? "+" : "");
    ls_tensor *gamma = leaf_of(t, d, "+%d", channels), *beta = leaf_of(t, d, "%d", channels);
    if (one_in(d, 4))
        return ls_op_layer_norm(x, .gamma = gamma, .beta = beta);
    if (one_in(d, 4)) {
        char mean[16], variance[16];
        snprintf(mean, sizeof mean, "%d", channels);
        snprintf(variance, sizeof variance, "+%d", channels);
        return ls_op_batch_norm(x, .gamma = gamma, .beta = beta,
                                .moving_mean = test_add(t, mean, TEST_VARIABLE)->tensor,
                                .moving_variance = test_add(t, variance, TEST_VARIABLE)->tensor);
    }
    ls_tensor *y =
        ls_op_batch_norm(x, .gamma = gamma, .beta = beta, .training = true, .epsilon = one_in(d, 2) ? 0.1 : 0.001);
    if (!ls_tensor_is_error(y) && one_in(d, 3))
        y = ls_op_add(leaf_like(t, d, &b, ""), y);
    return test_draw(d, 2) ? ls_op_relu(y) : y;
}

const test_shapes test_shape_families[] = {
    { "functions of one input", make_unary, 10 },
    { "functions of two inputs", make_binary, 4 },
    { "masks of ReLUs", make_masked, 1 },
    { "casts", make_cast, 1 },
    { "random numbers", make_random, 2 },
    { "softmax", make_softmax, 2 },
    { "losses", make_loss, 3 },
    { "places", make_places, 1 },
    { "reductions", make_reduction, 4 },
    { "long sums", make_long_sum, 1 },
    { "moves", make_move, 3 },
    { "embeddings", make_embedding, 1 },
    { "gathered batches", make_batch, 1 },
    { "matrix products", make_matmul, 4 },
    { "products of many matrices", make_products, 6 },
    { "reshaped weights", make_reshaped_weight, 1 },
    { "convolutions", make_conv, 6 },
    { "pools", make_pool, 4 },
    { "warps", make_warp, 1 },
    { "norms", make_norm, 4 },
    { "recurrent cells", make_recurrent, 2 },
    { "attention", make_attention, 3 },
    { "ops of C functions", make_custom, 1 },
    { "CTC", make_ctc, 1 },
};
const size_t test_shape_family_count = sizeof test_shape_families / sizeof *test_shape_families;
