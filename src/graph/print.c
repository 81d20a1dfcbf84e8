/* Prints a graph: one line per node, or Graphviz. */
#include <stdlib.h>

#include "base/text.h"
#include "graph/claim.h"
#include "graph/node.h"

static void print_attr(ls_text *text, const ls_tensor *node, const ls_attr_field *field)
{
    const char *at = (const char *)&node->attr + field->offset;
    int count = ls_attr_count(node, field);
    ls_text_add(text, " %s=", field->name);
    for (int i = 0; i < count; i++) {
        ls_text_put(text, i ? "," : "");
        switch (field->type) {
        case LS_ATTR_i64:
            ls_text_add(text, "%lld", (long long)((const int64_t *)at)[i]);
            break;
        case LS_ATTR_f64:
            ls_text_put_f64(text, ((const double *)at)[i]);
            break;
        case LS_ATTR_flag:
            ls_text_put(text, ((const bool *)at)[i] ? "yes" : "no");
            break;
        case LS_ATTR_data:
            ls_text_add(text, "%zu bytes", ((const ls_constant_data *)at)[i].count);
            break;
        case LS_ATTR_variable: {
            const ls_variable *variable = ((ls_variable *const *)at)[i];
            char label[LS_NODE_TEXT];
            ls_text_put(text, variable && variable->node ? ls_node_label(variable->node, label) : "none");
            break;
        }
        case LS_ATTR_custom:
            ls_text_put(text, ((const ls_custom_functions *const *)at)[i]->name);
            break;
        }
    }
}

static const char *use_name(const ls_tensor *node)
{
    return node->use == LS_USE_REDUCES ? "reduces" : node->per_sample ? "per-sample" : "whole";
}

/* Format: "%12 matmul (batch, 10) float32 per-sample <- %3 %7 transpose_a=no ... \"logits\"" */
static void print_line(ls_text *text, const ls_tensor *node)
{
    char shape[LS_SHAPE_TEXT];
    ls_text_add(text, "%%%u %s", node->id, ls_tensor_op(node));
    if (node->op == LS_OP_ERROR) {
        ls_text_add(text, ": %s\n", node->message);
        return;
    }
    ls_text_add(text, " %s %s %s", ls_dtype_name(node->dtype), ls_shape_format(&node->shape, shape), use_name(node));
    for (int i = 0; i < node->input_count; i++)
        ls_text_add(text, "%s %%%u", i ? "" : " <-", node->in[i]->id);
    for (int i = 0; i < ls_ops[node->op].field_count; i++)
        print_attr(text, node, &ls_ops[node->op].fields[i]);
    if (node->name)
        ls_text_add(text, " \"%s\"", node->name);
    ls_text_put(text, "\n");
}

static const char *graphviz_style(const ls_tensor *node)
{
    if (node->op == LS_OP_ERROR)
        return "shape=box,color=red";
    if (node->op == LS_OP_variable)
        return "shape=cylinder";
    if (node->input_count == 0)
        return "shape=oval";
    return node->use == LS_USE_REDUCES ? "shape=invtrapezium"
           : node->per_sample          ? "shape=box"
                                       : "shape=box,style=rounded";
}

/* The colour shows the device where the node ran or will run. */
static void print_colour(ls_text *text, const ls_tensor *node)
{
    static const char *const colours[] = { "#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#fce5cd" };
    int device = node->placed != LS_ANY_DEVICE ? node->placed : node->device;
    if (node->op != LS_OP_ERROR && device != LS_ANY_DEVICE)
        ls_text_add(text, ",style=\"filled%s\",fillcolor=\"%s\"", node->per_sample ? "" : ",rounded",
                    colours[(size_t)device % (sizeof(colours) / sizeof(colours[0]))]);
}

static void print_graphviz(ls_text *text, const ls_tensor *node)
{
    char shape[LS_SHAPE_TEXT];
    ls_text_add(text, "  n%u [%s", node->id, graphviz_style(node));
    print_colour(text, node);
    ls_text_add(text, ",label=\"%s", ls_tensor_op(node));
    if (node->name)
        ls_text_add(text, "\\n%s", node->name);
    if (node->op != LS_OP_ERROR)
        ls_text_add(text, "\\n%s %s", ls_dtype_name(node->dtype), ls_shape_format(&node->shape, shape));
    ls_text_put(text, "\"];\n");
    for (int i = 0; i < node->input_count; i++)
        ls_text_add(text, "  n%u -> n%u;\n", node->in[i]->id, node->id);
}

ls_status ls_graph_dump(const ls_graph *graph, ls_dump_format format, char **out)
{
    LS_CLAIM(graph);
    if (!graph || !out)
        return ls_fail(LS_ERR_INVALID, "ls_graph_dump: graph or out is NULL");
    if (format != LS_DUMP_TEXT && format != LS_DUMP_GRAPHVIZ)
        return ls_fail(LS_ERR_INVALID, "ls_graph_dump: unknown format %d", (int)format);
    ls_text text = { 0 };
    bool graphviz = format == LS_DUMP_GRAPHVIZ;
    ls_text_put(&text, graphviz ? "digraph lockstep {\n  rankdir=TB;\n" : "");
    for (size_t i = 0; i < graph->node_count; i++)
        (graphviz ? print_graphviz : print_line)(&text, graph->nodes[i]);
    ls_text_put(&text, graphviz ? "}\n" : "");
    return ls_text_take(&text, out);
}
