/* Attention: where the numbers of a sample are. docs/bits.md has the formulas.
 *
 * Inputs of `attention`: q [N,Tq,H D], k [N,Tk,G D], v [N,Tk,G V]; packed: one tensor [N,T,...]
 * with the columns of q, k and v side by side. Then the mask and the dropout rate, if there are
 * any. `attention_grad` has the gradient of the result before them. It returns the gradient of the
 * packed input, or [N,...] with the gradients of q, of k and of v one after the other.
 *
 * H heads of q share G heads of k and v: head h uses h / (H / G). */
#ifndef LS_GRAPH_ATTENTION_H
#define LS_GRAPH_ATTENTION_H

#include "graph/node.h"

typedef struct ls_attention_sizes {
    int64_t heads, shared; /* shared: heads of q that use one head of k and v */
    int64_t queries, keys;
    int64_t width, value_width; /* columns of a head of q and k; of v */
    /* Of q, k and v, in numbers: where a sample's first row is, and the distances of rows and
     * samples. The same for their gradients. */
    int64_t at[3], row[3], sample[3];
    int64_t gradient_at[3], gradient_row[3], gradient_sample;
    /* Distances in the mask, 0 where it repeats. */
    int64_t mask_sample, mask_head, mask_query;
} ls_attention_sizes;

ls_attention_sizes ls_attention_sizes_of(const ls_tensor *node);

/* Index of an input of `attention` or `attention_grad`; -1: it has none. q, k and v are one input
 * if they are packed. */
int ls_attention_q(const ls_tensor *node);
int ls_attention_k(const ls_tensor *node);
int ls_attention_v(const ls_tensor *node);
int ls_attention_mask(const ls_tensor *node);
int ls_attention_rate(const ls_tensor *node);

/* Number of first keys that a query may see. */
static inline int64_t ls_attention_visible(const ls_tensor *node, const ls_attention_sizes *sizes, int64_t query)
{
    return node->attr.attention.causal && query + 1 < sizes->keys ? query + 1 : sizes->keys;
}

/* Attention with an explicit key of its dropout: a layer's call draws the same masks however often
 * it is traced. */
ls_tensor *ls_op_attention_keyed(ls_tensor *q, const ls_attention_op *options, int64_t layer, int64_t call);

#endif
