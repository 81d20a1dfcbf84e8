/* Pass 2: the kind of device for each node: the requested one, else the fastest with a kernel,
 * which is the one added last. The CPU has all kernels. */
#include "device/context.h"
#include "plan/plan.h"

static bool has_device(const ls_context *ctx, int kind)
{
    for (int d = 0; d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind)
            return true;
    return false;
}

static bool supports(const ls_context *ctx, int kind, const ls_tensor *node)
{
    const ls_backend *backend = &ctx->kinds[kind].backend;
    if (kind == LS_CPU || ls_node_is(node, LS_TRAIT_CUSTOM))
        return kind == LS_CPU;
    return !backend->supports || backend->supports(backend->user, node);
}

static bool is_allowed(const ls_plan *plan, int kind)
{
    const ls_context *ctx = plan->graph->context;
    unsigned named = ls_task_map_kinds(&plan->options.map, ctx);
    return kind == LS_CPU || (named == 0 ? !ctx->kinds[kind].only_named : named >> kind & 1);
}

static ls_status refuse(const ls_context *ctx, const ls_tensor *node, int kind)
{
    char label[LS_NODE_TEXT], others[64] = "";
    int used = 0;
    for (int k = 0; k < ctx->kind_count; k++)
        if (has_device(ctx, k) && supports(ctx, k, node) && used >= 0 && (size_t)used < sizeof(others))
            used +=
                snprintf(others + used, sizeof(others) - (size_t)used, "%s%s", used ? ", " : "", ctx->kinds[k].name);
    return ls_fail(LS_ERR_UNSUPPORTED, "%s (op %s) cannot run on %s: a %s has no kernel for it; place it on: %s",
                   ls_node_label(node, label), ls_tensor_op(node), ctx->devices[node->device].name,
                   ctx->kinds[kind].name, others);
}

/* An op of the vendor's kernels has their bits everywhere, so it cannot be requested on other
 * kinds. Only the canary may: it measures each kind's own bits. */
static ls_status check_kernels(const ls_plan *plan, const ls_tensor *node, int kind)
{
    char label[LS_NODE_TEXT];
    const ls_context *ctx = plan->graph->context;
    int vendor = ls_context_vendor_kind(ctx);
    bool theirs = node->op == LS_OP_matmul || node->op == LS_OP_conv2d || node->op == LS_OP_conv2d_grad_input ||
                  node->op == LS_OP_conv2d_grad_kernel;
    if (!vendor || kind == vendor || !theirs || plan->graph->alone)
        return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "%s (op %s) cannot run on %s: the vendor's kernels run only on %s; place it there, or use the "
                   "library's own kernels",
                   ls_node_label(node, label), ls_tensor_op(node), ctx->devices[node->device].name,
                   ctx->kinds[vendor].name);
}

/* Whether every kind in the map has a kernel. *wanted: the kind without one. */
static bool is_spread(const ls_plan *plan, const ls_tensor *node, int *wanted)
{
    const ls_context *ctx = plan->graph->context;
    unsigned named = ls_task_map_kinds(&plan->options.map, ctx);
    for (int k = ctx->kind_count; k-- > 1;)
        if (named >> k & 1 && !supports(ctx, k, node)) {
            *wanted = k;
            return false;
        }
    return node->use != LS_USE_WHOLE || node->per_sample;
}

/* Fails with LS_ERR_UNSUPPORTED if the requested kind is impossible. */
static ls_status choose(const ls_plan *plan, const ls_tensor *node, ls_plan_node *p)
{
    const ls_context *ctx = plan->graph->context;
    p->kind = LS_CPU;
    p->device = LS_ANY_DEVICE;
    p->reason = LS_PLACED_FASTEST;
    if (ls_node_is(node, LS_TRAIT_CPU)) {
        p->reason = LS_PLACED_STATE;
    } else if (node->device != LS_ANY_DEVICE) {
        int kind = ctx->devices[node->device].kind;
        LS_TRY(check_kernels(plan, node, kind));
        bool can = supports(ctx, kind, node);
        if (!can && ctx->hard_placement)
            return refuse(ctx, node, kind);
        p->kind = can ? kind : LS_CPU;
        p->device = can ? node->device : LS_ANY_DEVICE;
        p->reason = can ? LS_PLACED_ASKED : LS_PLACED_NO_KERNEL;
        p->wanted = kind;
    } else if (ls_task_map_is_mixed(&plan->options.map, ctx)) {
        p->wanted = LS_CPU;
        p->spread = is_spread(plan, node, &p->wanted);
        p->reason = p->wanted == LS_CPU ? LS_PLACED_FASTEST : LS_PLACED_NO_KERNEL;
    } else {
        for (int k = ctx->kind_count; k-- > 1;) {
            if (!has_device(ctx, k) || !is_allowed(plan, k))
                continue;
            if (supports(ctx, k, node)) {
                p->kind = k;
                break;
            }
            p->reason = LS_PLACED_NO_KERNEL;
            p->wanted = k;
        }
    }
    return LS_OK;
}

/* One line for each op without a kernel on its device. */
static void report(ls_plan *plan)
{
    uint64_t told[(LS_OP_COUNT + 63) / 64] = { 0 };
    ls_context *ctx = plan->graph->context;
    for (int i = 0; i < plan->node_count; i++) {
        const ls_plan_node *p = &plan->nodes[i];
        uint64_t *word = &told[p->node->op / 64], bit = (uint64_t)1 << (p->node->op % 64);
        if (!p->in || p->reason != LS_PLACED_NO_KERNEL || *word & bit)
            continue;
        *word |= bit;
        ls_log_write(&ctx->log, LS_LOG_INFO, "%s: no kernel on %s, the CPU runs it", ls_tensor_op(p->node),
                     ctx->kinds[p->wanted].name);
    }
}

ls_status ls_plan_kinds(ls_plan *plan)
{
    for (int i = 0; i < plan->node_count; i++)
        if (plan->nodes[i].in) /* Leaves are data: they go where they are read. */
            LS_TRY(choose(plan, plan->nodes[i].node, &plan->nodes[i]));
    report(plan);
    return LS_OK;
}
