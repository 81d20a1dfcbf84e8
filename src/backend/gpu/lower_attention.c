/* Lowers attention: scores and weights of all pairs of a lane are in scratch memory. */
#include "backend/gpu/lower.h"
#include "base/philox.h"
#include "graph/attention.h"

bool ls_gpu_attention_fits(const ls_tensor *node)
{
    ls_attention_sizes s = ls_attention_sizes_of(node);
    int64_t most = ((int64_t)1 << 31) - 1;
    return s.keys > 0 && s.heads <= most / s.keys && (s.queries == 0 || s.heads * s.keys <= most / s.queries);
}

static ls_gpu_attention numbers_of(const lowering *x)
{
    const ls_tensor *node = x->node;
    ls_attention_sizes s = ls_attention_sizes_of(node);
    ls_gpu_attention p = { .samples = x->out_shape.dims[0],
                           .heads = s.heads,
                           .shared = s.shared,
                           .queries = s.queries,
                           .keys = s.keys,
                           .width = s.width,
                           .value_width = s.value_width,
                           .gradient_sample = s.gradient_sample,
                           .masked = node->attr.attention.masked,
                           .mask_sample = s.mask_sample,
                           .mask_head = s.mask_head,
                           .mask_query = s.mask_query,
                           .causal = node->attr.attention.causal,
                           .drops = node->attr.attention.drops,
                           .scale = node->attr.attention.scale };
    for (int i = 0; i < 3; i++) {
        p.at[i] = s.at[i], p.row[i] = s.row[i], p.sample[i] = s.sample[i];
        p.gradient_at[i] = s.gradient_at[i], p.gradient_row[i] = s.gradient_row[i];
    }
    if (!p.drops)
        return p;
    x->l->random = true;
    p.random = (ls_gpu_random){ .first = node->per_sample ? x->run->first : 0,
                                .seed = x->run->seed,
                                .run = x->run->run,
                                .purpose = LS_RANDOM_DROPOUT,
                                .layer = node->attr.attention.layer,
                                .call = node->attr.attention.call };
    return p;
}

/* Places of a call. Inputs that it lacks are q, which kernels then do not read. */
typedef struct operands {
    ls_memory_place q, k, v, mask, rate;
    ls_memory_place p, dropped; /* weights, and what multiplies v */
    int64_t pairs, rows;        /* of queries and keys; of weights */
} operands;

/* Computes the weights. */
static ls_status weigh(lowering *x, const ls_gpu_attention *p, operands *o)
{
    const ls_tensor *node = x->node;
    size_t bytes = (size_t)(p->samples * p->heads * p->queries * p->keys) * sizeof(float);
    *o = (operands){ .q = ls_gpu_in(x, ls_attention_q(node)),
                     .k = ls_gpu_in(x, ls_attention_k(node)),
                     .v = ls_gpu_in(x, ls_attention_v(node)),
                     .p = ls_gpu_scratch(x, bytes),
                     .pairs = p->queries * p->keys,
                     .rows = p->samples * p->heads };
    o->mask = p->masked ? ls_gpu_in(x, ls_attention_mask(node)) : o->q;
    o->rate = p->drops ? ls_gpu_in(x, ls_attention_rate(node)) : o->q;
    o->dropped = p->drops ? ls_gpu_scratch(x, bytes) : o->p;
    if (p->drops) {
        ls_gpu_rows check = { .outer = x->l->step };
        x->l->checks = true;
        LS_TRY(LAUNCH(x, LS_GPU_RANDOM, "check_rate", &check, 1, 1, o->rate, x->l->fault));
    }
    LS_TRY(LAUNCH(x, LS_GPU_ATTENTION, "attention_scores", p, o->pairs, o->rows, o->q, o->k, o->mask, o->p));
    return p->drops ? LAUNCH(x, LS_GPU_ATTENTION, "attention_weights_dropped", p, p->queries, o->rows, o->mask, o->rate,
                             o->p, o->dropped)
                    : LAUNCH(x, LS_GPU_ATTENTION, "attention_weights", p, p->queries, o->rows, o->mask, o->p);
}

ls_status ls_gpu_attention_op(lowering *x)
{
    ls_gpu_attention p = numbers_of(x);
    operands o;
    LS_TRY(weigh(x, &p, &o));
    return LAUNCH(x, LS_GPU_ATTENTION, "attention_output", &p, p.queries * p.heads * p.value_width, p.samples, o.v,
                  o.mask, o.dropped, x->out);
}

ls_status ls_gpu_attention_grad(lowering *x)
{
    ls_gpu_attention p = numbers_of(x), of_values = p;
    ls_memory_place dy = ls_gpu_in(x, 0);
    int64_t kv_heads = p.heads / p.shared;
    operands o;
    of_values.of_values = 1;
    LS_TRY(weigh(x, &p, &o));
    ls_memory_place ds = ls_gpu_scratch(x, (size_t)(o.rows * o.pairs) * sizeof(float));
    LS_TRY(LAUNCH(x, LS_GPU_ATTENTION, "attention_weights_grad", &p, o.pairs, o.rows, dy, o.v, o.mask, o.rate, ds));
    LS_TRY(LAUNCH(x, LS_GPU_ATTENTION, "attention_scores_grad", &p, p.queries, o.rows, o.mask, o.p, ds));
    LS_TRY(LAUNCH(x, LS_GPU_ATTENTION, "attention_queries_grad", &p, p.queries * p.heads * p.width, p.samples, o.k,
                  o.mask, ds, x->out));
    LS_TRY(LAUNCH(x, LS_GPU_ATTENTION, "attention_keys_grad", &p, p.keys * kv_heads * p.width, p.samples, o.q, o.mask,
                  ds, x->out));
    return LAUNCH(x, LS_GPU_ATTENTION, "attention_keys_grad", &of_values, p.keys * kv_heads * p.value_width, p.samples,
                  dy, o.mask, o.dropped, x->out);
}
