/* Pass 1: lists the nodes that a plan needs. In this list, inputs may be replaced by equal
 * values. */
#include "plan/plan.h"

/* relu'(x) depends only on the sign of x, which relu(x) has too. With the output in place of x, a
 * convolution can end in its ReLU without keeping its own result. The bits are the same. */
static void use_relu_outputs(ls_plan *plan)
{
    int *relu_of = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*relu_of));
    if (!relu_of)
        return; /* Only slower. */
    for (int i = 0; i < plan->node_count; i++)
        relu_of[i] = -1;
    for (int i = 0; i < plan->node_count; i++)
        if (plan->nodes[i].node->op == LS_OP_relu && plan->nodes[i].in && relu_of[plan->nodes[i].in[0]] < 0)
            relu_of[plan->nodes[i].in[0]] = i;
    for (int i = 0; i < plan->node_count; i++) {
        ls_plan_node *p = &plan->nodes[i];
        if (p->node->op != LS_OP_relu_grad || !p->in || p->node->attr.slope.slope != 0)
            continue;
        int relu = relu_of[p->in[1]];
        if (relu >= 0 && relu < i) /* A ReLU created later would be computed too late. */
            p->in[1] = relu;
    }
}

static void count_users(ls_plan *plan)
{
    for (int i = 0; i < plan->node_count; i++)
        plan->nodes[i].users = 0;
    for (int i = 0; i < plan->node_count; i++)
        for (int k = 0; plan->nodes[i].in && k < plan->nodes[i].node->input_count; k++)
            plan->nodes[plan->nodes[i].in[k]].users++;
}

/* Nodes that only metrics need are aside: no other fetched value needs them. If all nodes are
 * aside, none is. */
static void find_aside(ls_plan *plan)
{
    bool all = true;
    for (int i = 0; i < plan->node_count; i++)
        plan->nodes[i].aside = !plan->nodes[i].fetched || plan->nodes[i].node->aside;
    for (int i = plan->node_count; i-- > 0;) {
        const ls_plan_node *p = &plan->nodes[i];
        all = all && p->aside;
        for (int k = 0; !p->aside && p->in && k < p->node->input_count; k++)
            plan->nodes[p->in[k]].aside = plan->nodes[p->in[k]].node->aside;
    }
    for (int i = 0; all && i < plan->node_count; i++)
        plan->nodes[i].aside = false;
}

ls_status ls_plan_nodes(ls_plan *plan, ls_tensor *const *order, size_t count, ls_tensor *const *fetches,
                        size_t fetch_count, bool (*stop)(const ls_tensor *, void *), void *user)
{
    plan->nodes = ls_plan_alloc(plan, count, sizeof(*plan->nodes));
    plan->fetches = ls_plan_alloc(plan, fetch_count, sizeof(*plan->fetches));
    if (!plan->nodes || !plan->fetches)
        return LS_ERR_MEMORY;
    plan->node_count = (int)count;
    for (int i = 0; i < plan->node_count; i++)
        order[i]->position = i;
    for (int i = 0; i < plan->node_count; i++) {
        ls_tensor *node = order[i];
        ls_plan_node *p = &plan->nodes[i];
        *p = (ls_plan_node){ .node = node, .group = -1 };
        plan->newest = node->id > plan->newest ? node->id : plan->newest;
        if (ls_plan_is_leaf(node) || (stop && stop(node, user)))
            continue;
        p->in = ls_plan_alloc(plan, (size_t)node->input_count, sizeof(*p->in));
        if (!p->in)
            return LS_ERR_MEMORY;
        for (int k = 0; k < node->input_count; k++)
            p->in[k] = node->in[k]->position;
        if (node->input_count > plan->max_inputs)
            plan->max_inputs = node->input_count;
    }
    plan->fetch_count = (int)fetch_count;
    for (size_t i = 0; i < fetch_count; i++) {
        plan->fetches[i] = fetches[i]->position;
        plan->nodes[fetches[i]->position].fetched = true;
    }
    if (!plan->options.unfused)
        use_relu_outputs(plan);
    count_users(plan);
    find_aside(plan);
    return LS_OK;
}
