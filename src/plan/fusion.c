/* Pass 3: fuses nodes into groups, which are never cut. Depends only on the graph and the kinds of
 * nodes. Each pattern is a chain whose inner values have no other users. */
#include "device/context.h"
#include "plan/plan.h"

typedef struct fuser {
    ls_plan *plan;
    int *user; /* By node: its only user. */
    bool *absorbed;
    bool *inside; /* By node: absorbed, and not its group's value. */
} fuser;

static const ls_tensor *node_at(const fuser *f, int i)
{
    return f->plan->nodes[i].node;
}

static bool is_together(const ls_plan_node *a, const ls_plan_node *b)
{
    return a->kind == b->kind && a->spread == b->spread;
}

/* -1: node i has other users, or its user cannot follow in a group. */
static int follower(const fuser *f, int i, ls_op op)
{
    const ls_plan_node *p = &f->plan->nodes[i];
    if (p->users != 1 || p->fetched || f->absorbed[f->user[i]] || node_at(f, f->user[i])->op != op ||
        !is_together(&f->plan->nodes[f->user[i]], p))
        return -1;
    return f->user[i];
}

static void absorb(ls_group *group, const ls_tensor *node)
{
    group->nodes[group->node_count++] = node;
    group->root = node;
}

static int other_input(const fuser *f, int node, int one)
{
    const int *in = f->plan->nodes[node].in;
    return in[0] == one ? in[1] : in[0];
}

/* A whole vector that is added to the last axis. */
static bool is_bias(const ls_tensor *bias, const ls_tensor *x)
{
    return !bias->per_sample && bias->shape.rank == 1 && bias->dtype == x->dtype &&
           bias->shape.dims[0] == x->shape.dims[x->shape.rank - 1];
}

static void follow_relu(fuser *f, ls_group *group, int *last)
{
    int relu = follower(f, *last, LS_OP_relu);
    if (relu < 0)
        return;
    absorb(group, node_at(f, relu));
    group->relu = true;
    *last = relu;
}

/* conv2d or matmul, then a bias, then a ReLU. */
static int fuse_product(fuser *f, ls_group *group, int i)
{
    int last = i, add = follower(f, i, LS_OP_add);
    group->fusion = group->root->op == LS_OP_conv2d ? LS_FUSE_CONV : LS_FUSE_DENSE;
    if (add >= 0) {
        int bias = other_input(f, add, i);
        if (bias != i && is_bias(node_at(f, bias), node_at(f, i))) {
            absorb(group, node_at(f, add));
            group->bias = true;
            group->in[group->in_count++] = bias;
            last = add;
        }
    }
    follow_relu(f, group, &last);
    return last;
}

/* batch_norm, then the addition of a residual, then a ReLU. */
static int fuse_norm(fuser *f, ls_group *group, int i)
{
    int last = i, add = follower(f, i, LS_OP_add);
    group->fusion = LS_FUSE_NORM;
    if (add >= 0) {
        int residual = other_input(f, add, i);
        const ls_tensor *r = node_at(f, residual);
        if (residual != i && r->per_sample == group->root->per_sample &&
            ls_shape_equal(&r->shape, &group->root->shape)) {
            absorb(group, node_at(f, add));
            group->residual = true;
            group->in[group->in_count++] = residual;
            last = add;
        }
    }
    follow_relu(f, group, &last);
    return last;
}

/* A node whose last input is a batch_norm, which its kernel computes again: silu, its gradient and
 * capped_relu. The batch_norm stays a group of its own, because a gradient may read it too. */
static void fuse_after_norm(fuser *f, ls_group *group, int i)
{
    const ls_plan_node *nodes = f->plan->nodes;
    int count = nodes[i].node->input_count, norm = nodes[i].in[count - 1];
    if (nodes[norm].node->op != LS_OP_batch_norm || !nodes[norm].in || f->inside[norm] ||
        !is_together(&nodes[norm], &nodes[i]) || (count > 1 && nodes[i].in[0] == norm))
        return;
    group->fusion = LS_FUSE_NORM_AND;
    group->nodes[0] = nodes[norm].node;
    group->nodes[1] = nodes[i].node;
    group->node_count = 2;
    group->in_count = nodes[norm].node->input_count;
    for (int k = 0; k < group->in_count; k++)
        group->in[k] = nodes[norm].in[k];
    if (count > 1)
        group->in[group->in_count++] = nodes[i].in[0];
}

static int fuse_relu_pool(fuser *f, ls_group *group, int i)
{
    int pool = follower(f, i, LS_OP_max_pool2d);
    if (pool < 0)
        return i;
    group->fusion = LS_FUSE_RELU_POOL;
    group->relu = true;
    absorb(group, node_at(f, pool));
    return pool;
}

/* max_pool2d_grad(y, dp), then relu_grad of the result and y. */
static int fuse_pool_grad(fuser *f, ls_group *group, int i)
{
    int relu = follower(f, i, LS_OP_relu_grad);
    if (relu < 0 || f->plan->nodes[relu].in[0] != i || f->plan->nodes[relu].in[1] != f->plan->nodes[i].in[0] ||
        node_at(f, relu)->attr.slope.slope != 0)
        return i;
    group->fusion = LS_FUSE_POOL_RELU_GRAD;
    group->relu = true;
    absorb(group, node_at(f, relu));
    return relu;
}

/* The batch norm that feeds the ReLU of a relu_grad or capped_relu_grad directly; otherwise -1. */
static int norm_of(const fuser *f, int relu_grad)
{
    const ls_plan_node *nodes = f->plan->nodes;
    int y = nodes[relu_grad].in[1];
    if (nodes[relu_grad].node->op == LS_OP_capped_relu_grad)
        return nodes[y].node->op == LS_OP_batch_norm && nodes[y].in ? y : -1;
    if (nodes[relu_grad].node->attr.slope.slope != 0 || nodes[y].node->op != LS_OP_relu || !nodes[y].in)
        return -1;
    int norm = nodes[y].in[0];
    return nodes[norm].node->op == LS_OP_batch_norm && nodes[norm].in ? norm : -1;
}

/* Whether node i can be computed from the inputs of a relu_grad, which stays a group of its own. */
static bool takes_relu_grad(const fuser *f, int relu_grad, int i)
{
    const ls_plan_node *nodes = f->plan->nodes;
    return nodes[relu_grad].node->op == LS_OP_relu_grad && nodes[relu_grad].in &&
           nodes[relu_grad].node->attr.slope.slope == 0 && is_together(&nodes[relu_grad], &nodes[i]) &&
           /* Otherwise a pool's gradient has already absorbed it. */
           !f->inside[nodes[relu_grad].in[0]];
}

static bool takes_capped_grad(const fuser *f, int grad, int i)
{
    const ls_plan_node *nodes = f->plan->nodes;
    return nodes[grad].node->op == LS_OP_capped_relu_grad && nodes[grad].in && is_together(&nodes[grad], &nodes[i]);
}

static void take_relu_grad(const fuser *f, ls_group *group, int relu_grad, int i, ls_fusion fusion)
{
    group->fusion = fusion;
    group->nodes[0] = f->plan->nodes[relu_grad].node;
    group->nodes[1] = f->plan->nodes[i].node;
    group->node_count = 2;
}

/* relu_grad(dy, y) + other, in one sweep: dy, y, other. */
static void fuse_masked_add(fuser *f, ls_group *group, int i)
{
    const ls_plan_node *nodes = f->plan->nodes;
    const int *in = nodes[i].in;
    int relu_grad = takes_relu_grad(f, in[0], i) ? in[0] : in[1], other = other_input(f, i, relu_grad);
    const ls_tensor *a = node_at(f, relu_grad), *b = node_at(f, other);
    if (!takes_relu_grad(f, relu_grad, i) || other == relu_grad || !a->per_sample || !b->per_sample ||
        !ls_shape_equal(&a->shape, &b->shape))
        return;
    take_relu_grad(f, group, relu_grad, i, LS_FUSE_MASKED_ADD);
    group->in[0] = nodes[relu_grad].in[0];
    group->in[1] = nodes[relu_grad].in[1];
    group->in[group->in_count++] = other;
}

/* Recomputes the ReLU's mask from x; takes it from the output if something was added before. */
static void fuse_norm_grad(fuser *f, ls_group *group, int i)
{
    const ls_plan_node *nodes = f->plan->nodes;
    int relu_grad = nodes[i].in[0];
    bool moments = nodes[i].node->op == LS_OP_batch_norm_grad_moments, capped = takes_capped_grad(f, relu_grad, i);
    if (!takes_relu_grad(f, relu_grad, i) && !capped)
        return;
    int norm = norm_of(f, relu_grad);
    bool ours = norm >= 0 && nodes[norm].in[0] == nodes[i].in[1] && nodes[norm].in[1] == nodes[i].in[2];
    if (capped && !ours)
        return;
    take_relu_grad(f, group, relu_grad, i, moments ? LS_FUSE_NORM_GRAD_MOMENTS : LS_FUSE_NORM_GRAD_INPUT);
    group->in[0] = nodes[relu_grad].in[0];
    if (!ours) {
        group->masked = true;
        group->in[group->in_count++] = nodes[relu_grad].in[1];
        return;
    }
    group->relu = true;
    if (moments)
        group->in[group->in_count++] = nodes[norm].in[2]; /* Gamma. */
    group->in[group->in_count++] = nodes[norm].in[3];     /* Beta. */
}

/* The squared norm of a gradient, in one sweep. */
static int fuse_squares(fuser *f, ls_group *group, int i)
{
    int square = group->root->use == LS_USE_WHOLE && group->root->dtype == LS_F64 ? follower(f, i, LS_OP_square) : -1;
    int sum = square >= 0 ? follower(f, square, LS_OP_reduce_sum) : -1;
    if (sum < 0 || node_at(f, sum)->shape.rank != 0)
        return i;
    group->fusion = LS_FUSE_SQUARES;
    absorb(group, node_at(f, square));
    absorb(group, node_at(f, sum));
    return sum;
}

static bool is_dense(const ls_tensor *node)
{
    return node->use == LS_USE_KEEPS && node->in[0]->per_sample && node->in[1]->shape.rank == 2 &&
           !node->attr.matmul.transpose_a;
}

/* Returns the last node of the group that begins with node i. */
static int match(fuser *f, ls_group *group, int i)
{
    switch (group->root->op) {
    case LS_OP_conv2d:
        return fuse_product(f, group, i);
    case LS_OP_matmul:
        return is_dense(group->root) ? fuse_product(f, group, i) : i;
    case LS_OP_batch_norm:
        return fuse_norm(f, group, i);
    case LS_OP_capped_relu:
    case LS_OP_silu:
    case LS_OP_silu_grad:
        fuse_after_norm(f, group, i);
        return i;
    case LS_OP_cast:
        return fuse_squares(f, group, i);
    case LS_OP_add:
        fuse_masked_add(f, group, i);
        return i;
    case LS_OP_relu:
        return fuse_relu_pool(f, group, i);
    case LS_OP_max_pool2d_grad:
        return fuse_pool_grad(f, group, i);
    case LS_OP_batch_norm_grad_moments:
    case LS_OP_batch_norm_grad_input:
        fuse_norm_grad(f, group, i);
        return i;
    default:
        return i;
    }
}

/* One pass over memory, no sum. */
static bool is_cheap_op(const ls_tensor *node)
{
    return ls_node_is(node, LS_TRAIT_CHEAP) ||
           (ls_node_is(node, LS_TRAIT_CHEAP_WITH_WHOLE) && !(node->in[0]->per_sample && node->in[1]->per_sample));
}

static void describe(ls_plan *plan, ls_group *group)
{
    const ls_tensor *root = group->root;
    group->per_sample = root->use != LS_USE_WHOLE || root->per_sample;
    group->reduces = root->use == LS_USE_REDUCES;
    group->alias = group->node_count == 1 && ls_node_is(root, LS_TRAIT_VIEW);
    group->cheap = group->per_sample && !group->reduces;
    for (int i = 0; i < group->node_count; i++)
        group->cheap = group->cheap && is_cheap_op(group->nodes[i]);
    if (group->residual)
        group->cheap = false;
    group->segment = -1;
    group->lane_kept = -1;
    group->plan = plan;
}

/* Looks through reshapes. */
static const ls_tensor *node_behind(const ls_plan *plan, int value)
{
    while (plan->nodes[value].group >= 0 && plan->groups[plan->nodes[value].group].alias)
        value = plan->groups[plan->nodes[value].group].in[0];
    return plan->nodes[value].node;
}

/* Returns NULL if the bytes are not those of a variable. */
static const ls_variable *variable_of(const ls_plan *plan, int value)
{
    const ls_tensor *node = node_behind(plan, value);
    return node->op == LS_OP_variable ? node->attr.variable.variable : NULL;
}

static bool is_updated(const ls_plan *plan, const ls_variable *variable)
{
    for (int i = 0; i < plan->node_count; i++) {
        ls_variable *written[LS_MAX_WRITES];
        int count =
            ls_node_is(plan->nodes[i].node, LS_TRAIT_UPDATES) ? ls_node_writes(plan->nodes[i].node, written) : 0;
        for (int k = 0; k < count; k++)
            if (written[k] == variable)
                return true;
    }
    return false;
}

/* Fetched views of variables show the old value; inputs may be picked from a larger set. */
static void copy_views(ls_plan *plan)
{
    for (int i = 0; i < plan->fetch_count; i++) {
        int group = plan->nodes[plan->fetches[i]].group;
        const ls_tensor *behind = node_behind(plan, plan->fetches[i]);
        if (group >= 0 && plan->groups[group].alias && ls_node_is(behind, LS_TRAIT_EXTERNAL))
            plan->groups[group].alias = false;
    }
}

/* An update may be in place if its value is not read, and no other update writes what it reads. */
static void find_updates(ls_plan *plan)
{
    for (int i = 0; i < plan->node_count; i++) {
        ls_plan_node *p = &plan->nodes[i];
        if (ls_node_is(p->node, LS_TRAIT_UPDATES) && p->group >= 0)
            plan->groups[p->group].in_place = true;
    }
    for (int i = 0; i < plan->node_count; i++) {
        const ls_plan_node *p = &plan->nodes[i];
        for (int k = 0; p->in && ls_node_is(p->node, LS_TRAIT_UPDATES) && p->group >= 0 && k < p->node->input_count;
             k++) {
            const ls_variable *read = variable_of(plan, p->in[k]);
            if (read && is_updated(plan, read))
                plan->groups[p->group].in_place = false;
        }
        for (int k = 0; p->in && !ls_node_is(p->node, LS_TRAIT_ORDERS) && k < p->node->input_count; k++)
            if (ls_node_is(plan->nodes[p->in[k]].node, LS_TRAIT_UPDATES) && plan->nodes[p->in[k]].group >= 0)
                plan->groups[plan->nodes[p->in[k]].group].in_place = false;
    }
}

/* An update runs where its gradient is (host memory if the host joins), if that kind has a kernel
 * and nothing reads the new value. */
static void place_updates(ls_plan *plan)
{
    const ls_context *ctx = plan->graph->context;
    for (int i = 0; !plan->at_home && i < plan->group_count; i++) {
        ls_group *group = &plan->groups[i];
        ls_plan_node *node = &plan->nodes[group->value];
        int from = group->in_place && !node->fetched ? ls_plan_source(plan, group->in[0]) : -1;
        int kind = from >= 0 ? plan->groups[from].kind : LS_CPU;
        const ls_backend *backend = &ctx->kinds[kind].backend;
        if (kind == LS_CPU || (backend->supports && !backend->supports(backend->user, group->root)))
            continue;
        group->kind = node->kind = kind;
        node->reason = LS_PLACED_GRADIENT;
    }
}

static ls_status prepare(fuser *f)
{
    ls_plan *plan = f->plan;
    size_t count = (size_t)plan->node_count;
    f->user = ls_plan_alloc(plan, count, sizeof(*f->user));
    f->absorbed = ls_plan_alloc(plan, count, sizeof(*f->absorbed));
    f->inside = ls_plan_alloc(plan, count, sizeof(*f->inside));
    if (!f->user || !f->absorbed || !f->inside)
        return LS_ERR_MEMORY;
    for (int i = 0; i < plan->node_count; i++) {
        const ls_plan_node *p = &plan->nodes[i];
        for (int k = 0; p->in && k < p->node->input_count; k++)
            f->user[p->in[k]] = i;
    }
    return LS_OK;
}

/* Makes the group that begins with node i. *root: the index of its root. */
static ls_status make_group(fuser *f, int i, ls_group *group, int *root)
{
    ls_plan *plan = f->plan;
    const ls_plan_node *p = &plan->nodes[i];
    *group = (ls_group){ .node_count = 1, .nodes = { p->node }, .root = p->node, .in_count = p->node->input_count };
    group->in = ls_plan_alloc(plan, (size_t)p->node->input_count + 4, sizeof(*group->in));
    if (!group->in)
        return LS_ERR_MEMORY;
    for (int k = 0; k < p->node->input_count; k++)
        group->in[k] = p->in[k];
    if (ls_node_is(p->node, LS_TRAIT_ORDERS))
        group->in_count = 0; /* It reads no value. */
    ls_group plain = *group;
    /* Other backends fuse within a program as they like. */
    bool alone = plan->options.unfused || p->kind != LS_CPU || p->spread;
    *root = alone ? i : match(f, group, i);
    if (group->node_count > 1) {
        describe(plan, group);
        if (!plan->source.can_fuse(plan->source.backend, group)) {
            for (int k = 0; k < plain.root->input_count; k++)
                group->in[k] = p->in[k];
            *group = plain;
            *root = i;
        }
    } else {
        *group = plain;
    }
    group->value = *root;
    group->kind = p->kind;
    group->spread = p->spread;
    group->device = p->device;
    describe(plan, group);
    return LS_OK;
}

/* If device scopes would cut a group, its nodes go with the first one. */
static void keep_together(ls_plan *plan, const fuser *f, int first, int root)
{
    for (int k = first; k != root;) {
        k = f->user[k];
        ls_plan_node *p = &plan->nodes[k];
        if (p->device == plan->nodes[first].device)
            continue;
        char a[LS_NODE_TEXT], b[LS_NODE_TEXT];
        p->device = plan->nodes[first].device;
        p->reason = LS_PLACED_GROUP;
        ls_log_write(&plan->graph->context->log, LS_LOG_INFO, "%s is computed together with %s, on its device",
                     ls_node_label(p->node, a), ls_node_label(plan->nodes[first].node, b));
    }
}

ls_status ls_plan_fuse(ls_plan *plan)
{
    fuser f = { .plan = plan };
    LS_TRY(prepare(&f));
    /* By root: keeps the order. */
    ls_group *at_root = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*at_root));
    plan->groups = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*plan->groups));
    if (!at_root || !plan->groups)
        return LS_ERR_MEMORY;
    for (int i = 0; i < plan->node_count; i++) {
        if (!plan->nodes[i].in || f.absorbed[i])
            continue;
        ls_group group;
        int root;
        LS_TRY(make_group(&f, i, &group, &root));
        keep_together(plan, &f, i, root);
        for (int k = i; k != root;) {
            f.absorbed[k] = true;
            f.inside[k] = true;
            k = f.user[k];
        }
        f.absorbed[root] = true;
        at_root[root] = group;
    }
    for (int i = 0; i < plan->node_count; i++) {
        if (at_root[i].node_count == 0)
            continue;
        plan->nodes[i].group = plan->group_count;
        plan->groups[plan->group_count++] = at_root[i];
    }
    copy_views(plan);
    find_updates(plan);
    place_updates(plan);
    return LS_OK;
}
