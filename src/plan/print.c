/* Prints plans: which kernels run, and the memory they need. */
#include <stdlib.h>

#include "plan/plan.h"

static const char *const fusion_names[] = {
    [LS_FUSE_NONE] = "",
    [LS_FUSE_CONV] = "conv",
    [LS_FUSE_DENSE] = "dense",
    [LS_FUSE_RELU_POOL] = "relu+pool",
    [LS_FUSE_POOL_RELU_GRAD] = "pool+relu backward",
    [LS_FUSE_NORM] = "norm",
    [LS_FUSE_NORM_AND] = "norm+activation",
    [LS_FUSE_NORM_GRAD_MOMENTS] = "norm+relu backward",
    [LS_FUSE_NORM_GRAD_INPUT] = "norm+relu backward",
    [LS_FUSE_MASKED_ADD] = "relu backward+add",
    [LS_FUSE_SQUARES] = "squared norm",
};

/* One line per group, in the order of the graph. Must not depend on devices. */
ls_status ls_plan_print(const ls_plan *plan, ls_text *text)
{
    ls_text_add(text, "batch %lld, lanes %d, levels %d\n", (long long)plan->batch, plan->lanes, plan->levels);
    for (int g = 0; g < plan->group_count; g++) {
        const ls_group *group = &plan->groups[g];
        if (!group->needed)
            continue;
        for (int i = 0; i < group->node_count; i++) {
            char label[LS_NODE_TEXT];
            ls_text_add(text, "%s%s", i ? " + " : "", ls_node_label(group->nodes[i], label));
        }
        ls_text_add(text, ": %s", group->alias ? "alias" : group->kernel ? group->kernel->name : "not run");
        if (group->fusion != LS_FUSE_NONE)
            ls_text_add(text, " [%s]", fusion_names[group->fusion]);
        if (group->kernel && group->kernel->layout && group->kernel->layout[0])
            ls_text_add(text, " layout %s", group->kernel->layout);
        if (group->segment >= 0)
            ls_text_add(text, " micro %lld", (long long)plan->segments[group->segment].micro);
        ls_text_put(text, "\n");
    }
    return text->failed ? ls_fail(LS_ERR_MEMORY, "no memory to print a plan") : LS_OK;
}

typedef struct entry {
    const ls_tensor *node;
    size_t bytes;
} entry;

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->bytes != y->bytes)
        return (x->bytes < y->bytes) - (x->bytes > y->bytes);
    return (x->node->id > y->node->id) - (x->node->id < y->node->id);
}

#define MIB(bytes) ((double)(bytes) / 1048576)

/* Sorted, largest first; the caller frees the list. */
static entry *list_values(const ls_plan *plan, int *count)
{
    entry *entries = malloc(((size_t)plan->node_count + 1) * sizeof(*entries));
    *count = 0;
    for (int i = 0; entries && i < plan->node_count; i++) {
        const ls_operand *value = &plan->value_of[i];
        const ls_plan_node *node = &plan->nodes[i];
        bool own = node->group >= 0 && !plan->groups[node->group].alias && value->storage != LS_EXTERNAL;
        size_t times = value->storage != LS_KEPT          ? 1
                       : plan->kept[value->offset].framed ? (size_t)ls_plan_lane_samples(plan)
                                                          : (size_t)plan->batch;
        if (own)
            entries[(*count)++] = (entry){ node->node, value->unit * times };
    }
    if (entries)
        qsort(entries, (size_t)*count, sizeof(*entries), by_bytes);
    return entries;
}

#define SHOWN_VALUES 8

static void print_largest(const ls_plan *plan, ls_text *text)
{
    int count;
    entry *entries = list_values(plan, &count);
    for (int i = 0; i < count && i < SHOWN_VALUES; i++) {
        char label[LS_NODE_TEXT], shape[LS_SHAPE_TEXT];
        ls_text_add(text, "  %8.2f MiB %s %s %s\n", MIB(entries[i].bytes), ls_node_label(entries[i].node, label),
                    ls_tensor_op(entries[i].node), ls_shape_format(&entries[i].node->shape, shape));
    }
    free(entries);
}

void ls_plan_print_largest(const ls_plan *plan, ls_text *text, int most)
{
    int count;
    entry *entries = list_values(plan, &count);
    for (int i = 0; i < count && i < most; i++) {
        char label[LS_NODE_TEXT];
        ls_text_add(text, "%s %s (op %s) %.1f MiB", i ? "," : " largest:", ls_node_label(entries[i].node, label),
                    ls_tensor_op(entries[i].node), MIB(entries[i].bytes));
    }
    free(entries);
}

ls_status ls_plan_print_memory(const ls_plan *plan, ls_text *text)
{
    size_t weights = 0;
    for (int i = 0; i < plan->node_count; i++)
        if (plan->nodes[i].node->op == LS_OP_variable)
            weights += ls_plan_unit(plan, plan->nodes[i].node);
    size_t each = ls_plan_thread_bytes(plan);
    ls_text_add(text,
                "variables %.2f MiB, whole values %.2f, activations kept %.2f, frames %.2f and partials %.2f a lane, "
                "%.2f for each worker; a step "
                "moves %.2f GB through memory, %.3f a sample\n",
                MIB(weights), MIB(plan->whole_bytes), MIB(plan->kept_bytes), MIB(plan->frame_bytes),
                MIB(plan->slot_bytes), MIB(each), plan->traffic_bytes / 1e9,
                plan->batch > 0 ? plan->traffic_bytes / 1e9 / (double)plan->batch : 0.0);
    print_largest(plan, text);
    return text->failed ? ls_fail(LS_ERR_MEMORY, "no memory to print a plan") : LS_OK;
}
