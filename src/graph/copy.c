/* Copies nodes from one graph to another (copy.h). */
#include "graph/copy.h"

#include <stdlib.h>

#include "graph/custom.h"

void ls_graph_copy_free(ls_graph_copy *copy)
{
    free(copy->copies);
    free(copy->from);
    free(copy->to);
    *copy = (ls_graph_copy){ .copies = NULL };
}

static ls_tensor *copy_variable(ls_graph_copy *c, const ls_tensor *node, ls_graph *to)
{
    ls_tensor *copy = ls_variable_later(to, node->name, node->dtype, node->shape, false);
    if (ls_tensor_is_error(copy))
        return copy;
    c->from[c->variable_count] = node->attr.variable.variable;
    c->to[c->variable_count++] = copy->attr.variable.variable;
    return copy;
}

static ls_tensor *copy_node(ls_graph_copy *c, const ls_tensor *node, ls_tensor **in, ls_graph *to)
{
    if (node->op == LS_OP_variable)
        return copy_variable(c, node, to);
    if (node->op == LS_OP_constant)
        return ls_op_constant(to, node->dtype, node->shape, node->attr.data.data.bytes);
    ls_attrs attr = node->attr;
    if (ls_node_is(node, LS_TRAIT_CUSTOM)) {
        ls_status status = ls_custom_functions_copy(to, node->attr.custom.functions, &attr.custom.functions);
        if (status != LS_OK)
            return ls_node_error(to, status, "custom");
    }
    for (int i = 0; i < node->input_count; i++)
        in[i] = c->copies[node->in[i]->id];
    return ls_node_make(to, &(ls_node_spec){ .op = node->op,
                                             .in = in,
                                             .input_count = node->input_count,
                                             .dtype = node->dtype,
                                             .shape = node->shape,
                                             .per_sample = node->per_sample,
                                             .attr = attr });
}

static ls_status copy_all(ls_graph_copy *c, ls_tensor *const *order, size_t count, ls_tensor **in, ls_graph *to)
{
    char label[LS_NODE_TEXT];
    to->device = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_tensor *node = order[i];
        if (ls_node_is(node, LS_TRAIT_WRITES) || ls_node_is(node, LS_TRAIT_UPDATES))
            return ls_fail(LS_ERR_UNSUPPORTED, "%s (op %s) writes a variable; only formulas without writes are shared",
                           ls_node_label(node, label), ls_tensor_op(node));
        ls_tensor *copy = copy_node(c, node, in, to);
        if (ls_tensor_is_error(copy))
            return copy ? ls_fail(copy->status, "%s", copy->message) : LS_ERR_STATE;
        c->copies[node->id] = copy;
    }
    return LS_OK;
}

ls_status ls_graph_copy_nodes(ls_tensor *const *roots, size_t count, ls_graph *to, ls_graph_copy *out)
{
    ls_graph *from = roots[0]->graph;
    ls_tensor **order = NULL;
    size_t nodes = 0;
    int inputs = 1;
    LS_TRY(ls_graph_order(from, roots, count, NULL, NULL, &order, &nodes));
    for (size_t i = 0; i < nodes; i++)
        inputs = order[i]->input_count > inputs ? order[i]->input_count : inputs;
    ls_graph_copy c = { .copies = calloc(from->node_count + 1, sizeof(ls_tensor *)),
                        .from = calloc(nodes + 1, sizeof(ls_variable *)),
                        .to = calloc(nodes + 1, sizeof(ls_variable *)) };
    ls_tensor **in = calloc((size_t)inputs, sizeof(*in));
    ls_status status = c.copies && c.from && c.to && in
                           ? copy_all(&c, order, nodes, in, to)
                           : ls_fail(LS_ERR_MEMORY, "no memory to copy %zu nodes of a graph", nodes);
    free(in);
    free(order);
    if (status != LS_OK) {
        ls_graph_copy_free(&c);
        return status;
    }
    *out = c;
    return LS_OK;
}
