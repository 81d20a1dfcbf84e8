/* Prints placements: TensorFlow's log lines, and a table of node, device and reason. */
#include <ctype.h>
#include <stdlib.h>

#include "plan/placement.h"

/* TensorFlow's names of our ops, where they differ from our name in its spelling. */
static const struct {
    ls_op op;
    const char *name;
} names[] = {
    { LS_OP_constant, "_EagerConst" },
    { LS_OP_matmul, "MatMul" },
    { LS_OP_add, "AddV2" },
    { LS_OP_div, "RealDiv" },
    { LS_OP_compare, "Compare" },
    { LS_OP_variable, "ReadVariableOp" },
    { LS_OP_input, "Placeholder" },
    { LS_OP_conv2d, "Conv2D" },
    { LS_OP_conv2d_grad_input, "Conv2DBackpropInput" },
    { LS_OP_conv2d_grad_kernel, "Conv2DBackpropFilter" },
    { LS_OP_max_pool2d, "MaxPool" },
    { LS_OP_max_pool2d_grad, "MaxPoolGrad" },
    { LS_OP_reduce_sum, "Sum" },
    { LS_OP_reduce_max, "Max" },
    { LS_OP_reduce_min, "Min" },
    { LS_OP_assign, "AssignVariableOp" },
    { LS_OP_assign_add, "AssignAddVariableOp" },
    { LS_OP_neg, "Neg" },
};

/* Example: "MatMul". By default our name in camel case: "relu_grad" is "ReluGrad". */
static const char *tensorflow_name(ls_op op, char text[64])
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].op == op)
            return names[i].name;
    size_t used = 0;
    bool start = true;
    for (const char *c = ls_ops[op].name; *c && used < 63; c++) {
        if (*c != '_')
            text[used++] = start ? (char)toupper((unsigned char)*c) : *c;
        start = *c == '_';
    }
    text[used] = '\0';
    return text;
}

typedef struct where {
    int *list;
    int count;
} where;

static void add_device(where *w, int device)
{
    for (int i = 0; i < w->count; i++)
        if (w->list[i] == device)
            return;
    w->list[w->count++] = device;
}

static void group_devices(const ls_placement *p, const ls_group *group, where *w)
{
    const ls_plan *plan = p->plan;
    for (int lane = 0; group->segment >= 0 && lane < plan->lanes; lane++)
        add_device(w, ls_task_device(plan, group->segment, lane));
    for (int i = 0; i < plan->whole_count && group->segment < 0; i++)
        if (plan->whole_steps[i].group == group && p->whole_device[i] >= 0)
            add_device(w, p->whole_device[i]);
    if (w->count == 0 && group->device != LS_ANY_DEVICE)
        add_device(w, group->device);
    if (w->count == 0 && group->kind == LS_CPU)
        /* Computed where it is needed, or by any free CPU: the first represents all. */
        add_device(w, p->home);
    for (int d = 0; d < p->ctx->device_count && w->count == 0; d++)
        if (p->ctx->devices[d].kind == group->kind)
            add_device(w, d);
}

/* State is on the CPU even if it was requested elsewhere. */
static bool is_state_elsewhere(const ls_placement *p, const ls_tensor *node)
{
    return node->op == LS_OP_variable && node->device != LS_ANY_DEVICE && p->ctx->devices[node->device].kind != LS_CPU;
}

/* A constant is on the requested device, otherwise on the fastest one; other leaves are on the
 * CPU. */
static int leaf_device(const ls_placement *p, const ls_tensor *node)
{
    int device = p->home;
    if (is_state_elsewhere(p, node))
        return device;
    if (node->device != LS_ANY_DEVICE)
        device = node->device;
    else if (node->op == LS_OP_constant && ls_task_map_kinds(&p->plan->options.map, p->ctx) == 0)
        for (int d = 0; d < p->ctx->device_count; d++)
            if (p->ctx->devices[d].kind > p->ctx->devices[device].kind)
                device = d;
    return device;
}

/* Returns NULL for a leaf. */
static const ls_group *group_of(const ls_plan *plan, int node)
{
    if (plan->nodes[node].group >= 0)
        return &plan->groups[plan->nodes[node].group];
    for (int g = 0; plan->nodes[node].in && g < plan->group_count; g++)
        for (int i = 0; i < plan->groups[g].node_count; i++)
            if (plan->groups[g].nodes[i] == plan->nodes[node].node)
                return &plan->groups[g];
    return NULL;
}

/* Examples: ".../device:GPU:0"; several devices ".../device:GPU:0-3", ".../device:CPU:0,2". `list`
 * has room for all devices. */
static const char *device_text(const ls_placement *p, int node, int *list, char text[128])
{
    const ls_group *group = group_of(p->plan, node);
    where w = { .list = list };
    if (group)
        group_devices(p, group, &w);
    else
        add_device(&w, leaf_device(p, p->plan->nodes[node].node));
    int used = snprintf(text, 128, "%s", p->ctx->devices[w.list[0]].name);
    for (int i = 1; i < w.count && used < 120; i++) {
        int last = i; /* Lanes are assigned in order, and so are these. */
        while (last + 1 < w.count && w.list[last + 1] == w.list[last] + 1)
            last++;
        bool range = w.list[i] == w.list[i - 1] + 1;
        used += snprintf(text + used, 128 - (size_t)used, range ? "-%d" : ",%d",
                         p->ctx->devices[w.list[range ? last : i]].number);
        i = range ? last : i;
    }
    return text;
}

void ls_placement_log(const ls_placement *p, ls_logger *log)
{
    int *list = calloc((size_t)p->ctx->device_count, sizeof(*list));
    for (int i = 0; list && i < p->plan->node_count; i++) {
        char device[128], name[64];
        const ls_tensor *node = p->plan->nodes[i].node;
        ls_log_always(log, "Executing op %s in device %s", tensorflow_name(node->op, name),
                      device_text(p, i, list, device));
    }
    free(list);
}

static void mark_group(const ls_placement *p, const ls_group *group, int device)
{
    for (int i = 0; i < group->node_count; i++)
        ((ls_tensor *)group->nodes[i])->placed = device < 0 ? p->home : device;
}

void ls_placement_mark(const ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int i = 0; i < plan->node_count; i++)
        if (ls_plan_is_leaf(plan->nodes[i].node))
            ((ls_tensor *)plan->nodes[i].node)->placed = leaf_device(p, plan->nodes[i].node);
    for (int g = 0; g < plan->group_count; g++)
        if (plan->groups[g].segment >= 0)
            mark_group(p, &plan->groups[g], ls_task_device(plan, plan->groups[g].segment, 0));
    for (int i = 0; i < plan->whole_count; i++)
        mark_group(p, plan->whole_steps[i].group, p->whole_device[i]);
    for (int i = 0; i < plan->update_count; i++)
        mark_group(p, plan->updates[i].group, p->home);
}

static const char *reason_text(const ls_placement *p, const ls_plan_node *node, char text[96])
{
    switch (node->reason) {
    case LS_PLACED_ASKED:
        return "asked for";
    case LS_PLACED_NO_KERNEL:
        snprintf(text, 96, "no kernel on %s", p->ctx->kinds[node->wanted].name);
        return text;
    case LS_PLACED_STATE:
        return "the CPU writes variables";
    case LS_PLACED_GRADIENT:
        return "where its gradient is";
    case LS_PLACED_GROUP:
        return "one kernel with the node before";
    case LS_PLACED_FASTEST:
        break;
    }
    return "fastest with a kernel";
}

ls_status ls_placement_print(const ls_placement *p, ls_text *text)
{
    int *list = calloc((size_t)p->ctx->device_count, sizeof(*list));
    if (!list)
        return ls_fail(LS_ERR_MEMORY, "no memory to print a placement");
    ls_text_add(text, "%-28s %-20s %-48s %s\n", "node", "op", "device", "reason");
    for (int i = 0; i < p->plan->node_count; i++) {
        const ls_plan_node *node = &p->plan->nodes[i];
        char label[LS_NODE_TEXT], device[128], reason[96];
        const char *why = !ls_plan_is_leaf(node->node)          ? reason_text(p, node, reason)
                          : is_state_elsewhere(p, node->node)   ? "state is on the CPU"
                          : node->node->device != LS_ANY_DEVICE ? "asked for"
                                                                : "data";
        ls_text_add(text, "%-28s %-20s %-48s %s\n", ls_node_label(node->node, label), ls_tensor_op(node->node),
                    device_text(p, i, list, device), why);
    }
    free(list);
    return text->failed ? ls_fail(LS_ERR_MEMORY, "no memory to print a placement") : LS_OK;
}
