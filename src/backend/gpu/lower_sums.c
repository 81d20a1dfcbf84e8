/* Lowers reductions, batch norm, softmax, random numbers, updates and indexing. */
#include <stdio.h>

#include "backend/gpu/lower.h"
#include "base/philox.h"

/* gather's gradient: up to here each position compares with all others */
#define FEW_POSITIONS 1024

/* Walks over the kept and the reduced axes. */
static void split_axes(const lowering *x, const ls_shape *shape, ls_gpu_walk *kept, ls_gpu_walk *gone)
{
    int64_t strides[LS_MAX_RANK], kept_strides[1][LS_MAX_RANK] = { { 0 } }, gone_strides[1][LS_MAX_RANK] = { { 0 } };
    ls_shape stays = { .rank = 0 }, goes = { .rank = 0 };
    ls_shape_strides(shape, strides);
    for (int i = 0; i < shape->rank; i++) {
        bool away = x->node->attr.reduce.axes >> i & 1;
        ls_shape *to = away ? &goes : &stays;
        (away ? gone_strides : kept_strides)[0][to->rank] = strides[i];
        to->dims[to->rank++] = shape->dims[i];
    }
    *kept = ls_gpu_walk_of(&stays, 1, kept_strides);
    *gone = ls_gpu_walk_of(&goes, 1, gone_strides);
}

/* Whether the elements of each sum are contiguous. */
static bool is_contiguous(const lowering *x, const ls_shape *shape)
{
    bool gone = false;
    for (int i = 0; i < shape->rank; i++) {
        bool goes = x->node->attr.reduce.axes >> i & 1;
        if (gone && !goes && shape->dims[i] != 1)
            return false;
        gone = gone || (goes && shape->dims[i] != 1);
    }
    return true;
}

static ls_blocks blocks_of(const lowering *x, const ls_shape *shape)
{
    int64_t rows = 1, width = 1;
    for (int i = 1; i < shape->rank; i++)
        if (x->node->attr.reduce.axes >> i & 1) {
            rows *= width;
            width = shape->dims[i];
        }
    return ls_blocks_of(rows, width);
}

static ls_status sum_over_batch(lowering *x, ls_gpu_reduce *p, const ls_shape *shape)
{
    char name[48];
    int64_t count;
    ls_dtype dtype = x->node->dtype;
    p->b = ls_gpu_blocks_of(blocks_of(x, shape), shape->dims[0], &count);
    bool side = dtype == LS_F32 && p->gone.rank <= 1 && p->kept.rank == 1 && p->kept.stride[0][0] == 1;
    int64_t width = side ? x->l->tuning->vector : 1;
    snprintf(name, sizeof(name), "sum_blocks_%s%s", ls_gpu_type(dtype), side ? "_columns" : "");
    blocks_sum s = { .module = LS_GPU_SUMS,
                     .kernel = name,
                     .numbers = p,
                     .size = sizeof(*p),
                     .blocks = &p->b,
                     .items = (p->kept.n + width - 1) / width,
                     .places = 1,
                     .place = { ls_gpu_in(x, 0) },
                     .dtype = dtype,
                     .elements = p->kept.n };
    return ls_gpu_sum_blocks(x, &s);
}

static ls_status sum_side_by_side(lowering *x, ls_gpu_reduce *p)
{
    p->b.count = (p->gone.n + 4095) / 4096;
    ls_gpu_add add = { .n = p->kept.n, .count = p->b.count };
    ls_memory_place parts = ls_gpu_scratch(x, (size_t)(p->kept.n * p->b.count) * sizeof(double));
    LS_TRY(LAUNCH(x, LS_GPU_SUMS, "sum_side_by_side", p, p->kept.n, p->b.count, ls_gpu_in(x, 0), parts));
    return LAUNCH(x, LS_GPU_SUMS, "finish_side_by_side", &add, add.n, 1, parts, x->out);
}

ls_status ls_gpu_reduce_sum(lowering *x)
{
    char name[48];
    ls_gpu_reduce p = { .kept = { 0 } };
    ls_shape shape = ls_gpu_in_shape(x, 0);
    split_axes(x, &shape, &p.kept, &p.gone);
    if (x->node->use == LS_USE_REDUCES)
        return sum_over_batch(x, &p, &shape);
    if (x->node->dtype == LS_F32 && is_contiguous(x, &shape))
        return sum_side_by_side(x, &p);
    snprintf(name, sizeof(name), "sum_%s", ls_gpu_type(x->node->dtype));
    return LAUNCH(x, LS_GPU_SUMS, name, &p, p.kept.n, 1, ls_gpu_in(x, 0), x->out);
}

ls_status ls_gpu_reduce_extreme(lowering *x)
{
    ls_gpu_reduce p = { .kept = { 0 } };
    ls_shape shape = ls_gpu_in_shape(x, 0);
    split_axes(x, &shape, &p.kept, &p.gone);
    return LAUNCH(x, LS_GPU_SUMS, x->node->op == LS_OP_reduce_max ? "max_f32" : "min_f32", &p, p.kept.n, 1,
                  ls_gpu_in(x, 0), x->out);
}

static ls_gpu_norm norm_of(const lowering *x, int input)
{
    ls_shape shape = ls_gpu_in_shape(x, input);
    int rank = shape.rank;
    bool split = x->node->in[0]->per_sample;
    int64_t each = ls_gpu_extent(&shape, split ? 1 : 0, rank - 1), count;
    int64_t batch = x->run->batch < 0 ? 1 : x->run->batch;
    int64_t samples = ls_node_is_by_lane(x->node) ? x->run->samples : batch;
    ls_blocks blocks =
        rank > 2 ? ls_blocks_of(ls_gpu_extent(&shape, 1, rank - 2), shape.dims[rank - 2]) : ls_blocks_of(1, 1);
    return (ls_gpu_norm){
        .positions = ls_gpu_extent(&shape, 0, rank - 1),
        .channels = shape.dims[rank - 1],
        .count = (double)each * (split ? (double)samples : 1),
        .epsilon = x->node->op == LS_OP_moments ? 0 : x->node->attr.norm.epsilon,
        .b = ls_gpu_blocks_of(blocks, rank > 1 ? shape.dims[0] : 1, &count),
    };
}

static ls_status sum_channels(lowering *x, ls_gpu_norm *p, const char *kernel, int places)
{
    blocks_sum s = { .module = LS_GPU_NORM,
                     .kernel = kernel,
                     .numbers = p,
                     .size = sizeof(*p),
                     .blocks = &p->b,
                     .items = p->channels,
                     .places = places,
                     .dtype = LS_F64,
                     .elements = 2 * p->channels };
    for (int i = 0; i < places; i++)
        s.place[i] = ls_gpu_in(x, i);
    return ls_gpu_sum_blocks(x, &s);
}

ls_status ls_gpu_moments(lowering *x)
{
    ls_gpu_norm p = norm_of(x, 0);
    return sum_channels(x, &p, "moments", 1);
}

ls_status ls_gpu_grad_moments(lowering *x)
{
    ls_gpu_norm p = norm_of(x, 1);
    return sum_channels(x, &p, "batch_norm_grad_moments", 3);
}

static ls_status make_statistics(lowering *x, const ls_gpu_norm *p, int moments, int sums, ls_memory_place *out)
{
    *out = ls_gpu_scratch(x, (size_t)(4 * p->channels) * sizeof(float));
    return LAUNCH(x, LS_GPU_NORM, "norm_statistics", p, p->channels, 1, ls_gpu_in(x, moments), ls_gpu_in(x, sums),
                  *out);
}

/* Work items that handle a vector of channels of several positions each. */
static int64_t runs_of(const lowering *x, const ls_gpu_norm *p)
{
    int64_t vector = x->l->tuning->vector, run = LS_GPU_RUN(vector);
    return (p->channels + vector - 1) / vector * ((p->positions + run - 1) / run);
}

ls_status ls_gpu_norm_input(lowering *x)
{
    ls_gpu_norm p = norm_of(x, 0);
    ls_memory_place statistics;
    p.rectified = x->rectified;
    LS_TRY(make_statistics(x, &p, 1, 1, &statistics));
    return LAUNCH(x, LS_GPU_NORM, "batch_norm", &p, runs_of(x, &p), 1, ls_gpu_in(x, 0), statistics, ls_gpu_in(x, 2),
                  ls_gpu_in(x, 3), x->out);
}

ls_status ls_gpu_norm_grad_input(lowering *x)
{
    ls_gpu_norm p = norm_of(x, 1);
    ls_memory_place statistics;
    LS_TRY(make_statistics(x, &p, 2, 4, &statistics));
    return LAUNCH(x, LS_GPU_NORM, "batch_norm_grad_input", &p, runs_of(x, &p), 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1),
                  statistics, ls_gpu_in(x, 3), x->out);
}

/* `shape` as [outer, n, inner] around an axis. */
static ls_gpu_rows rows_of(const ls_shape *shape, int axis)
{
    return (ls_gpu_rows){ .outer = ls_gpu_extent(shape, 0, axis),
                          .n = shape->dims[axis],
                          .inner = ls_gpu_extent(shape, axis + 1, shape->rank) };
}

ls_status ls_gpu_softmax(lowering *x)
{
    ls_gpu_rows p = rows_of(&x->out_shape, (int)x->node->attr.axis.axis);
    p.way = x->node->op == LS_OP_log_softmax ? LS_GPU_LOG_SOFTMAX : LS_GPU_SOFTMAX_ROWS;
    return LAUNCH(x, LS_GPU_SOFTMAX, "softmax_rows", &p, p.outer * p.inner, 1, ls_gpu_in(x, 0), x->out, x->out, x->out);
}

ls_status ls_gpu_argmax(lowering *x)
{
    ls_shape shape = ls_gpu_in_shape(x, 0);
    ls_gpu_rows p = rows_of(&shape, (int)x->node->attr.axis.axis);
    return LAUNCH(x, LS_GPU_SUMS, "argmax_f32", &p, p.outer * p.inner, 1, ls_gpu_in(x, 0), x->out);
}

ls_status ls_gpu_check_indices(lowering *x, int input, int64_t size, int kind)
{
    ls_shape shape = ls_gpu_in_shape(x, input);
    ls_gpu_rows p = { .outer = x->l->step,
                      .n = ls_gpu_elements(&shape),
                      .inner = kind,
                      .size = size,
                      .width = (i64)ls_dtype_bytes(x->node->in[input]->dtype),
                      .first = x->run->first };
    x->l->checks = true;
    return LAUNCH(x, LS_GPU_MOVES, "check_indices", &p, 1, 1, ls_gpu_in(x, input), x->l->fault);
}

static ls_gpu_rows logits_of(const lowering *x)
{
    ls_shape shape = ls_gpu_in_shape(x, 0);
    ls_gpu_rows p = rows_of(&shape, shape.rank - 1);
    p.width = (i64)ls_dtype_bytes(x->node->in[1]->dtype);
    return p;
}

ls_status ls_gpu_cross_entropy(lowering *x)
{
    ls_gpu_rows p = logits_of(x);
    LS_TRY(ls_gpu_check_indices(x, 1, p.n, LS_GPU_FAULT_LABEL));
    p.way = LS_GPU_CROSS_ENTROPY;
    return LAUNCH(x, LS_GPU_SOFTMAX, "softmax_rows", &p, p.outer, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out, x->out);
}

ls_status ls_gpu_cross_entropy_grad(lowering *x)
{
    ls_gpu_rows p = logits_of(x);
    LS_TRY(ls_gpu_check_indices(x, 1, p.n, LS_GPU_FAULT_LABEL));
    p.way = LS_GPU_CROSS_ENTROPY_GRAD;
    return LAUNCH(x, LS_GPU_SOFTMAX, "softmax_rows", &p, p.outer, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1), ls_gpu_in(x, 2),
                  x->out);
}

/* [outer, size, inner], of which n indices select rows. */
static ls_gpu_rows taken_of(const lowering *x, const ls_shape *shape, int axis)
{
    ls_shape indices = ls_gpu_in_shape(x, 1);
    ls_gpu_rows p = rows_of(shape, axis);
    p.size = p.n;
    p.n = ls_gpu_elements(&indices);
    p.width = (i64)ls_dtype_bytes(x->node->in[1]->dtype);
    return p;
}

ls_status ls_gpu_gather(lowering *x)
{
    char name[48];
    ls_shape shape = ls_gpu_in_shape(x, 0);
    ls_gpu_rows p = taken_of(x, &shape, (int)x->node->attr.axis.axis);
    LS_TRY(ls_gpu_check_indices(x, 1, p.size, LS_GPU_FAULT_INDEX));
    snprintf(name, sizeof(name), "gather_%zu", ls_dtype_bytes(x->node->dtype));
    return LAUNCH(x, LS_GPU_MOVES, name, &p, p.outer * p.n * p.inner, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out);
}

/* Links positions with the same index, by comparing all pairs if there are few, else by sorting. */
static ls_status link_positions(lowering *x, const ls_gpu_rows *p, ls_memory_place *links)
{
    size_t bytes = (size_t)p->n * sizeof(i64);
    ls_memory_place indices = ls_gpu_in(x, 1);
    bool few = p->n <= FEW_POSITIONS;
    *links = ls_gpu_scratch(x, few ? bytes : 2 * bytes); /* sorting also uses it for entries */
    if (few)
        return LAUNCH(x, LS_GPU_MOVES, "gather_links", p, p->n, 1, indices, *links);
    ls_gpu_rows runs = *p;
    ls_memory_place sorted = ls_gpu_scratch(x, 2 * bytes);
    LS_TRY(LAUNCH(x, LS_GPU_MOVES, "gather_sort", p, p->n, 1, indices, sorted));
    for (runs.size = LS_GPU_SORTED; runs.size < p->n; runs.size *= 2) {
        ls_memory_place merged = *links;
        LS_TRY(LAUNCH(x, LS_GPU_MOVES, "gather_merge", &runs, p->n, 1, sorted, merged));
        *links = sorted;
        sorted = merged;
    }
    return LAUNCH(x, LS_GPU_MOVES, "gather_sorted_links", p, p->n, 1, sorted, *links);
}

ls_status ls_gpu_gather_grad(lowering *x)
{
    ls_memory_place links;
    ls_gpu_rows p = taken_of(x, &x->out_shape, (int)x->node->attr.axis_size.axis);
    LS_TRY(ls_gpu_check_indices(x, 1, p.size, LS_GPU_FAULT_INDEX));
    LS_TRY(ls_gpu_fill(x, x->out, LS_F32, p.outer * p.size * p.inner, 0));
    LS_TRY(link_positions(x, &p, &links));
    return LAUNCH(x, LS_GPU_MOVES, "gather_grad_f32", &p, p.outer * p.n * p.inner, 1, ls_gpu_in(x, 0), ls_gpu_in(x, 1),
                  links, x->out);
}

ls_status ls_gpu_one_hot(lowering *x)
{
    ls_shape indices = ls_gpu_in_shape(x, 0);
    ls_gpu_rows p = { .n = ls_gpu_elements(&indices),
                      .size = x->out_shape.dims[x->out_shape.rank - 1],
                      .width = (i64)ls_dtype_bytes(x->node->in[0]->dtype) };
    return LAUNCH(x, LS_GPU_MOVES, "one_hot_f32", &p, p.n * p.size, 1, ls_gpu_in(x, 0), x->out);
}

static ls_gpu_random random_of(const lowering *x, ls_random_purpose purpose)
{
    const ls_attrs *attr = &x->node->attr;
    const ls_shape *shape = &x->out_shape;
    bool split = x->node->per_sample && shape->rank > 0;
    x->l->random = true;
    return (ls_gpu_random){ .samples = split ? shape->dims[0] : 1,
                            .each = ls_gpu_extent(shape, split ? 1 : 0, shape->rank),
                            .first = x->node->per_sample ? x->run->first : 0,
                            .seed = x->run->seed,
                            .run = x->run->run,
                            .purpose = purpose,
                            .layer = attr->random.layer,
                            .call = attr->random.call,
                            .a = attr->random.a,
                            .b = attr->random.b };
}

ls_status ls_gpu_dropout(lowering *x)
{
    ls_gpu_random p = random_of(x, LS_RANDOM_DROPOUT);
    ls_gpu_rows check = { .outer = x->l->step };
    x->l->checks = true;
    LS_TRY(LAUNCH(x, LS_GPU_RANDOM, "check_rate", &check, 1, 1, ls_gpu_in(x, 1), x->l->fault));
    return LAUNCH(x, LS_GPU_RANDOM, "dropout", &p, (p.each + 3) / 4, p.samples, ls_gpu_in(x, 0), ls_gpu_in(x, 1),
                  x->out);
}

ls_status ls_gpu_uniform(lowering *x)
{
    ls_gpu_random p = random_of(x, LS_RANDOM_OP);
    return LAUNCH(x, LS_GPU_RANDOM, "random_uniform", &p, (p.each + 3) / 4, p.samples, x->out);
}

ls_status ls_gpu_normal(lowering *x)
{
    ls_gpu_random p = random_of(x, LS_RANDOM_OP);
    return LAUNCH(x, LS_GPU_NORMAL, "random_normal", &p, (p.each + 3) / 4, p.samples, x->out);
}

static const char *rule_kernel(ls_apply_rule rule)
{
    switch (rule) {
#define RULE(id, slots, step, ...)                                                                                     \
    case LS_APPLY_##id:                                                                                                \
        return "update_" #id;
#include "graph/apply.def"
#undef RULE
    }
    return "";
}

static i64 corrects(ls_apply_rule rule)
{
    return rule == LS_APPLY_ADAM     ? LS_CORRECTS_ADAM
           : rule == LS_APPLY_ADAMAX ? LS_CORRECTS_ADAMAX
           : rule == LS_APPLY_NADAM  ? LS_CORRECTS_NADAM
                                     : LS_CORRECTS_NOTHING;
}

ls_status ls_gpu_apply(lowering *x)
{
    const ls_attrs *attr = &x->node->attr;
    const ls_program_step *s = x->step;
    int step = ls_apply_step(x->node), when = ls_apply_when(x->node);
    ls_gpu_update p = { .n = ls_gpu_elements(&x->out_shape),
                        .has_step = step >= 0,
                        .has_when = when >= 0,
                        .corrects = corrects((ls_apply_rule)attr->apply.rule),
                        .momentum = attr->apply.momentum,
                        .rho = attr->apply.rho,
                        .epsilon = attr->apply.epsilon,
                        .beta_1 = attr->apply.beta_1,
                        .beta_2 = attr->apply.beta_2,
                        .weight_decay = attr->apply.weight_decay,
                        .l1 = attr->apply.l1,
                        .l2 = attr->apply.l2,
                        .shrinkage = attr->apply.shrinkage,
                        .beta = attr->apply.beta };
    ls_gpu_flat flat = { .n = p.n };
    ls_memory_place scalars = ls_gpu_scratch(x, 256), rate = ls_gpu_in(x, 1), old[3], new[3];
    /* a slot that the rule does not have is not read */
    for (int i = 0; i < 3; i++) {
        old[i] = ls_gpu_slot(x, &s->state[i < s->state_count ? i : 0]);
        new[i] = ls_gpu_slot(x, &s->new_state[i < s->state_count ? i : 0]);
    }
    LS_TRY(LAUNCH(x, LS_GPU_UPDATE, "update_scalars", &p, 1, 1, rate, step >= 0 ? ls_gpu_in(x, step) : rate,
                  when >= 0 ? ls_gpu_in(x, when) : rate, scalars));
    return LAUNCH(x, LS_GPU_UPDATE, rule_kernel((ls_apply_rule)attr->apply.rule), &flat, flat.n, 1, ls_gpu_in(x, 0),
                  old[0], old[1], old[2], new[0], new[1], new[2], scalars);
}
