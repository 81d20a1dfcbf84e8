/* Attention of several heads as one node, and its gradient as another: both keep samples apart and
 * store no scores. */
#include "graph/attention.h"

#include <math.h>

#include "graph/claim.h"
#include "graph/rules.h"

/* ---- Inputs ---- */

static int first_input(const ls_tensor *node)
{
    return node->op == LS_OP_attention_grad ? 1 : 0;
}

int ls_attention_q(const ls_tensor *node)
{
    return first_input(node);
}

int ls_attention_k(const ls_tensor *node)
{
    return first_input(node) + (node->attr.attention.packed ? 0 : 1);
}

int ls_attention_v(const ls_tensor *node)
{
    return first_input(node) + (node->attr.attention.packed ? 0 : 2);
}

int ls_attention_mask(const ls_tensor *node)
{
    return node->attr.attention.masked ? ls_attention_v(node) + 1 : -1;
}

int ls_attention_rate(const ls_tensor *node)
{
    return node->attr.attention.drops ? ls_attention_v(node) + 1 + (node->attr.attention.masked ? 1 : 0) : -1;
}

ls_attention_sizes ls_attention_sizes_of(const ls_tensor *node)
{
    const ls_tensor *q = node->in[ls_attention_q(node)], *k = node->in[ls_attention_k(node)];
    int64_t heads = node->attr.attention.heads, kv_heads = node->attr.attention.kv_heads;
    ls_attention_sizes s = { .heads = heads,
                             .shared = heads / kv_heads,
                             .queries = q->shape.dims[1],
                             .keys = k->shape.dims[1],
                             .width = node->attr.attention.width,
                             .value_width = node->attr.attention.value_width };
    int64_t columns[3] = { heads * s.width, kv_heads * s.width, kv_heads * s.value_width };
    int64_t rows[3] = { s.queries, s.keys, s.keys }, all = columns[0] + columns[1] + columns[2];
    for (int i = 0, packed = node->attr.attention.packed; i < 3; i++) {
        s.row[i] = packed ? all : columns[i];
        s.sample[i] = rows[i] * s.row[i];
        s.at[i] = packed && i > 0 ? s.at[i - 1] + columns[i - 1] : 0;
        s.gradient_at[i] = packed ? s.at[i] : i > 0 ? s.gradient_at[i - 1] + s.sample[i - 1] : 0;
        s.gradient_row[i] = s.row[i];
    }
    s.gradient_sample = node->attr.attention.packed ? s.sample[0] : s.gradient_at[2] + s.sample[2];
    if (node->attr.attention.masked) {
        const int64_t *mask = node->in[ls_attention_mask(node)]->shape.dims;
        s.mask_query = mask[2] == 1 ? 0 : mask[3];
        s.mask_head = mask[1] == 1 ? 0 : mask[2] * mask[3];
        s.mask_sample = mask[0] == 1 ? 0 : mask[1] * mask[2] * mask[3];
    }
    return s;
}

/* ---- Rules ---- */

static ls_status need_operand(const ls_tensor *node, int input, const char *what)
{
    const ls_tensor *q = node->in[0], *x = node->in[input];
    LS_TRY(ls_need_rank(node, input, 3));
    if (x->dtype != q->dtype)
        return ls_fail(LS_ERR_DTYPE, "%s is %s, but q is %s", what, ls_dtype_name(x->dtype), ls_dtype_name(q->dtype));
    if (x->per_sample != q->per_sample)
        return ls_mixes("q, k and v do not have the same samples");
    if (x->shape.dims[0] != q->shape.dims[0])
        return ls_fail(LS_ERR_SHAPE, "%s has %lld samples, but q has %lld", what, (long long)x->shape.dims[0],
                       (long long)q->shape.dims[0]);
    return LS_OK;
}

/* Sizes that do not fit the heads. */
static ls_status need_columns(const ls_tensor *node)
{
    int64_t heads = node->attr.attention.heads, kv_heads = node->attr.attention.kv_heads;
    const ls_tensor *q = node->in[0], *k = node->in[1], *v = node->in[2];
    int64_t width = q->shape.dims[2] / heads;
    if (width < 1 || width * heads != q->shape.dims[2])
        return ls_fail(LS_ERR_SHAPE, "q has %lld columns, which %lld heads cannot share equally",
                       (long long)q->shape.dims[2], (long long)heads);
    if (k->shape.dims[2] != width * kv_heads)
        return ls_fail(LS_ERR_SHAPE, "k has %lld columns; %lld heads of %lld need %lld", (long long)k->shape.dims[2],
                       (long long)kv_heads, (long long)width, (long long)(width * kv_heads));
    if (v->shape.dims[2] < kv_heads || v->shape.dims[2] % kv_heads != 0)
        return ls_fail(LS_ERR_SHAPE, "v has %lld columns, which %lld heads cannot share equally",
                       (long long)v->shape.dims[2], (long long)kv_heads);
    if (k->shape.dims[1] != v->shape.dims[1])
        return ls_fail(LS_ERR_SHAPE, "k has %lld positions and v has %lld", (long long)k->shape.dims[1],
                       (long long)v->shape.dims[1]);
    return LS_OK;
}

static ls_status need_mask(const ls_tensor *node, int64_t queries, int64_t keys)
{
    char have[LS_SHAPE_TEXT];
    const ls_tensor *q = node->in[0], *mask = node->in[ls_attention_mask(node)];
    const int64_t *dims = mask->shape.dims, heads = node->attr.attention.heads;
    bool fits = mask->dtype == LS_BOOL && mask->shape.rank == 4 && (dims[0] == 1 || dims[0] == q->shape.dims[0]) &&
                (dims[1] == 1 || dims[1] == heads) && (dims[2] == 1 || dims[2] == queries) && dims[3] == keys;
    if (!fits)
        return ls_fail(LS_ERR_SHAPE,
                       "the mask is %s %s; expected bool with %lld heads or 1, %lld queries or 1, and %lld keys",
                       ls_dtype_name(mask->dtype), ls_shape_format(&mask->shape, have), (long long)heads,
                       (long long)queries, (long long)keys);
    if (mask->per_sample != q->per_sample && (mask->per_sample || dims[0] != 1))
        return ls_mixes("the mask does not have the samples of q");
    return LS_OK;
}

ls_status ls_shape_attention(ls_tensor *node)
{
    int64_t heads = node->attr.attention.heads, kv_heads = node->attr.attention.kv_heads;
    int rate = ls_attention_rate(node);
    LS_TRY(ls_need_real(node, 0));
    LS_TRY(ls_need_rank(node, 0, 3));
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
        return ls_fail(LS_ERR_INVALID, "%lld heads of q cannot share %lld heads of k and v equally", (long long)heads,
                       (long long)kv_heads);
    if (!node->attr.attention.packed) {
        LS_TRY(need_operand(node, 1, "k"));
        LS_TRY(need_operand(node, 2, "v"));
        LS_TRY(need_columns(node));
        node->attr.attention.width = node->in[0]->shape.dims[2] / heads;
        node->attr.attention.value_width = node->in[2]->shape.dims[2] / kv_heads;
    }
    double scale = node->attr.attention.scale;
    if (!isfinite(scale))
        return ls_fail(LS_ERR_INVALID, "the scale is %g; it must be finite", scale);
    if (node->attr.attention.masked)
        LS_TRY(need_mask(node, node->in[0]->shape.dims[1], node->in[ls_attention_k(node)]->shape.dims[1]));
    if (rate >= 0 && (node->in[rate]->dtype != node->in[0]->dtype || node->in[rate]->shape.rank != 0))
        return ls_fail(LS_ERR_SHAPE, "the dropout rate must be a scalar of q's type");
    ls_rule_like_first(node);
    node->shape.dims[2] = heads * node->attr.attention.value_width;
    return LS_OK;
}

ls_status ls_shape_attention_grad(ls_tensor *node)
{
    const ls_tensor *q = node->in[1];
    ls_rule_like_first(node);
    if (node->attr.attention.packed) {
        node->shape = q->shape;
        return LS_OK;
    }
    node->shape = LS_SHAPE(q->shape.dims[0], ls_attention_sizes_of(node).gradient_sample);
    return LS_OK;
}

static double visible_pairs(const ls_tensor *node, const ls_attention_sizes *s)
{
    if (!node->attr.attention.causal)
        return (double)s->queries * (double)s->keys;
    double most = (double)(s->queries < s->keys ? s->queries : s->keys);
    return most * (most + 1) / 2 + (double)(s->queries > s->keys ? s->queries - s->keys : 0) * (double)s->keys;
}

/* The products of pairs that see each other; the gradient computes the scores again. */
double ls_flops_attention(const ls_tensor *node)
{
    ls_attention_sizes s = ls_attention_sizes_of(node);
    double width = (double)s.width, value_width = (double)s.value_width;
    double each = node->op == LS_OP_attention ? width + value_width : 3 * width + 2 * value_width;
    return 2 * (double)s.heads * visible_pairs(node, &s) * each;
}

/* ---- Builders ---- */

/* Whether q, k and v are adjacent columns of one tensor that has no others. If so, returns it. */
static ls_tensor *find_packed(ls_tensor *const part[3])
{
    int64_t column = 0;
    for (int i = 0; i < 3; i++) {
        const ls_tensor *x = part[i];
        if (x->op != LS_OP_slice || x->shape.rank != 3 || x->in[0] != part[0]->in[0] ||
            x->shape.dims[1] != x->in[0]->shape.dims[1] || x->attr.slice.begin[1] != 0 || x->attr.slice.step[1] != 1 ||
            x->attr.slice.begin[2] != column || x->attr.slice.step[2] != 1 || x->per_sample != x->in[0]->per_sample ||
            x->shape.dims[0] != x->in[0]->shape.dims[0] || x->attr.slice.begin[0] != 0 || x->attr.slice.step[0] != 1)
            return NULL;
        column += x->shape.dims[2];
    }
    return column == part[0]->in[0]->shape.dims[2] ? part[0]->in[0] : NULL;
}

/* A mask of [N,Tk] or [N,Tq,Tk], or of [Tq,Tk] for all samples, as [N,H,Tq,Tk] with sizes of 1. */
static ls_tensor *with_four_axes(ls_tensor *mask)
{
    ls_shape s = mask->shape;
    if (s.rank == 2 && mask->per_sample)
        return ls_op_reshape(mask, LS_SHAPE(s.dims[0], 1, 1, s.dims[1]));
    if (s.rank == 2)
        return ls_op_reshape(mask, LS_SHAPE(1, 1, s.dims[0], s.dims[1]));
    if (s.rank == 3)
        return ls_op_reshape(mask, LS_SHAPE(s.dims[0], 1, s.dims[1], s.dims[2]));
    return mask;
}

ls_tensor *ls_op_attention_keyed(ls_tensor *q, const ls_attention_op *options, int64_t layer, int64_t call)
{
    ls_tensor *in[5] = { q, options->k, options->v };
    int count = 3;
    ls_attrs attr = { .attention = { .heads = options->heads,
                                     .kv_heads = options->kv_heads ? options->kv_heads : options->heads,
                                     .causal = options->causal,
                                     .masked = options->mask != NULL,
                                     .drops = options->dropout_rate != NULL,
                                     .scale = options->scale,
                                     .layer = layer,
                                     .call = call } };
    bool known = true;
    for (int i = 0; i < 3; i++)
        known = known && in[i] && !ls_tensor_is_error(in[i]);
    if (options->mask)
        in[count++] = with_four_axes(options->mask);
    if (options->dropout_rate)
        in[count++] = options->dropout_rate;
    if (known && attr.attention.heads > 0 && attr.attention.scale == 0 && q->shape.rank == 3 && q->shape.dims[2] > 0)
        attr.attention.scale = 1 / sqrt((double)q->shape.dims[2] / (double)attr.attention.heads);
    ls_tensor *y =
        ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_attention, .in = in, .input_count = count, .attr = attr });
    ls_tensor *packed = ls_tensor_is_error(y) ? NULL : find_packed(in);
    if (!packed)
        return y;
    /* The sizes have been checked: the packed node computes the same numbers. */
    attr = y->attr;
    attr.attention.packed = true;
    in[2] = packed;
    return ls_node_make(NULL,
                        &(ls_node_spec){ .op = LS_OP_attention, .in = in + 2, .input_count = count - 2, .attr = attr });
}

ls_tensor *ls_op_attention_with(ls_tensor *q, ls_attention_op options)
{
    LS_CLAIM_TENSORS(q);
    if (ls_tensor_is_error(q))
        return q;
    int64_t layer = options.dropout_rate ? q->graph->random_count++ : 0;
    return ls_op_attention_keyed(q, &options, layer, 0);
}

void ls_grad_attention(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *in[6] = { dy };
    for (int i = 0; i < y->input_count; i++)
        in[i + 1] = y->in[i];
    ls_tensor *all = ls_node_make(
        NULL,
        &(ls_node_spec){ .op = LS_OP_attention_grad, .in = in, .input_count = y->input_count + 1, .attr = y->attr });
    dx[0] = all;
    if (y->attr.attention.packed || ls_tensor_is_error(all))
        return;
    ls_attention_sizes s = ls_attention_sizes_of(y);
    for (int i = 0; i < 3; i++) {
        ls_tensor *part = ls_op_slice(all, LS_AXES(0, s.gradient_at[i]), LS_AXES(-1, s.sample[i]));
        dx[i] = ls_op_reshape(part, y->in[i]->shape);
    }
}
