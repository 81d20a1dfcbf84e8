/* Creates nodes: checks of every op, error messages, and the table built from ops.def. */
#include "graph/node.h"

#include <stdio.h>
#include <string.h>

#include "graph/rules.h"

#define FAMILY_BEGIN(family)               static const ls_attr_field fields_##family[] = {
#define FIELD(family, type, field)         { #field, LS_ATTR_##type, 1, offsetof(ls_attrs, family.field) },
#define FIELDS(family, type, field, count) { #field, LS_ATTR_##type, count, offsetof(ls_attrs, family.field) },
#define FAMILY_END(family)                                                                                             \
    { NULL, LS_ATTR_i64, 0, 0 },                                                                                       \
    }                                                                                                                  \
    ;
#include "graph/attrs.def"
#undef FAMILY_BEGIN
#undef FIELD
#undef FIELDS
#undef FAMILY_END

#define ANY   LS_ANY
#define IS(x) LS_TRAIT_##x
const ls_op_info ls_ops[LS_OP_COUNT] = {
#define OP(id, inputs, attributes, batch, kernel, shape, gradient, flops, traits)                                      \
    [LS_OP_##id] = { #id,                                                                                              \
                     inputs,                                                                                           \
                     fields_##attributes,                                                                              \
                     (int)(sizeof(fields_##attributes) / sizeof(fields_##attributes[0])) - 1,                          \
                     LS_BATCH_##batch,                                                                                 \
                     LS_KERNEL_##kernel,                                                                               \
                     ls_shape_##shape,                                                                                 \
                     ls_grad_##gradient,                                                                               \
                     ls_flops_##flops,                                                                                 \
                     traits },
#include "graph/ops.def"
#undef OP
};
#undef ANY
#undef IS

const char *ls_node_label(const ls_tensor *node, char text[LS_NODE_TEXT])
{
    if (node->name)
        snprintf(text, LS_NODE_TEXT, "%s", node->name);
    else
        snprintf(text, LS_NODE_TEXT, "%.90s%s%s:%u", node->layer ? node->layer : "", node->layer ? "/" : "",
                 ls_tensor_op(node), node->id);
    return text;
}

/* "matmul(x: float32 (batch, 3), matmul:4: float32 (4, 5))" */
static const char *describe(ls_op op, ls_tensor *const *in, int count, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "%s(", ls_ops[op].name);
    for (int i = 0; i < count && used < room; i++) {
        char label[LS_NODE_TEXT], shape[LS_SHAPE_TEXT];
        used += (size_t)snprintf(text + used, room - used, "%s%s: %s %s", i ? ", " : "", ls_node_label(in[i], label),
                                 ls_dtype_name(in[i]->dtype), ls_shape_format(&in[i]->shape, shape));
    }
    if (used < room)
        snprintf(text + used, room - used, ")");
    return text;
}

/* Returned if there is no memory for an error tensor. Belongs to no graph, is never written; runs
 * report it. */
static ls_tensor no_memory = { .op = LS_OP_ERROR, .status = LS_ERR_MEMORY, .message = "no memory for a node" };

ls_tensor *ls_node_error(ls_graph *graph, ls_status status, const char *what)
{
    char message[1024];
    snprintf(message, sizeof(message), "%s%s%s", what ? what : "", what ? ": " : "", ls_last_error());
    ls_tensor *node = ls_arena_alloc(&graph->arena, sizeof(*node));
    char *kept = ls_arena_strdup(&graph->arena, message);
    if (!node || !kept)
        return &no_memory;
    *node = (ls_tensor){ .graph = graph, .op = LS_OP_ERROR, .status = status, .message = kept };
    if (ls_graph_add_node(graph, node) != LS_OK)
        return &no_memory;
    if (!graph->error)
        graph->error = node;
    return node;
}

ls_graph *ls_graph_of(ls_tensor *const *in, int count)
{
    for (int i = 0; i < count; i++)
        if (in[i] && in[i]->graph)
            return in[i]->graph;
    return NULL;
}

/* Returns an error tensor if an input is one or invalid, else NULL. */
static ls_tensor *check_inputs(ls_graph *graph, const ls_node_spec *spec)
{
    const ls_op_info *info = &ls_ops[spec->op];
    for (int i = 0; i < spec->input_count; i++)
        if (spec->in[i] && spec->in[i]->op == LS_OP_ERROR)
            return spec->in[i];
    for (int i = 0; i < spec->input_count; i++) {
        if (!spec->in[i])
            return ls_node_error(graph, ls_fail(LS_ERR_INVALID, "input %d is NULL", i), info->name);
        if (spec->in[i]->graph != graph)
            return ls_node_error(graph, ls_fail(LS_ERR_INVALID, "input %d belongs to another graph", i), info->name);
    }
    if (info->inputs == LS_ANY ? spec->input_count < 1 : spec->input_count != info->inputs)
        return ls_node_error(
            graph, ls_fail(LS_ERR_INVALID, "got %d inputs, expected %d", spec->input_count, info->inputs), info->name);
    return NULL;
}

/* Checks of every op, after its shape rule. */
static ls_status check_result(const ls_tensor *node)
{
    char text[LS_SHAPE_TEXT];
    int64_t count;
    size_t bytes;
    if ((unsigned)node->dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_DTYPE, "unknown type %d", (int)node->dtype);
    if (node->shape.rank < 0 || node->shape.rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "the result has rank %d; ranks must be from 0 to %d", node->shape.rank,
                       LS_MAX_RANK);
    for (int i = 0; i < node->shape.rank; i++)
        if (node->shape.dims[i] < 0 && node->shape.dims[i] != LS_BATCH)
            return ls_fail(LS_ERR_SHAPE, "axis %d has size %lld", i, (long long)node->shape.dims[i]);
    if (!ls_shape_count(&node->shape, 1, &count) ||
        __builtin_mul_overflow((size_t)count, ls_dtype_bytes(node->dtype), &bytes) || bytes > (size_t)1 << 56)
        return ls_fail(LS_ERR_OVERFLOW, "the size of a result of shape %s overflows",
                       ls_shape_format(&node->shape, text));
    if (node->per_sample && (node->shape.rank == 0 || node->shape.dims[0] != LS_BATCH))
        return ls_fail(LS_ERR_INTERNAL, "a per-sample result has shape %s, whose axis 0 is not the batch",
                       ls_shape_format(&node->shape, text));
    return LS_OK;
}

static ls_tensor *allocate(ls_graph *graph, const ls_node_spec *spec)
{
    size_t inputs = (size_t)spec->input_count;
    ls_tensor *node = ls_arena_alloc(&graph->arena, sizeof(*node) + inputs * sizeof(ls_tensor *));
    if (!node)
        return NULL;
    *node = (ls_tensor){ .graph = graph,
                         .op = spec->op,
                         .dtype = spec->dtype,
                         .shape = spec->shape,
                         .per_sample = spec->per_sample,
                         .device = graph->device,
                         .layer = graph->layer,
                         .placed = LS_ANY_DEVICE,
                         .input_count = spec->input_count,
                         .in = (ls_tensor **)(node + 1),
                         .attr = spec->attr };
    if (inputs)
        memcpy(node->in, spec->in, inputs * sizeof(ls_tensor *));
    return node;
}

ls_tensor *ls_node_make(ls_graph *graph, const ls_node_spec *spec)
{
    if (!graph)
        graph = ls_graph_of(spec->in, spec->input_count);
    if (!graph) /* inputs are NULL or error tensors without a graph */
        return spec->input_count > 0 ? spec->in[0] : NULL;
    ls_tensor *error = check_inputs(graph, spec);
    if (error)
        return error;
    ls_arena_mark mark = ls_arena_save(&graph->arena);
    ls_tensor *node = allocate(graph, spec);
    ls_status status = node ? ls_ops[spec->op].shape(node) : ls_fail(LS_ERR_MEMORY, "no memory for a node");
    if (status == LS_OK)
        status = check_result(node);
    if (status == LS_OK)
        status = ls_graph_add_node(graph, node);
    if (status == LS_OK)
        return node;
    ls_arena_restore(&graph->arena, mark);
    char what[640];
    return ls_node_error(graph, status, describe(spec->op, spec->in, spec->input_count, what, sizeof(what)));
}

ls_tensor *ls_node_make1(ls_op op, ls_tensor *x, ls_attrs attr)
{
    return ls_node_make(NULL, &(ls_node_spec){ .op = op, .in = &x, .input_count = 1, .attr = attr });
}

ls_tensor *ls_node_make2(ls_op op, ls_tensor *a, ls_tensor *b, ls_attrs attr)
{
    ls_tensor *in[] = { a, b };
    return ls_node_make(NULL, &(ls_node_spec){ .op = op, .in = in, .input_count = 2, .attr = attr });
}

ls_dtype ls_tensor_dtype(const ls_tensor *tensor)
{
    return tensor ? tensor->dtype : LS_F32;
}

ls_shape ls_tensor_shape(const ls_tensor *tensor)
{
    return tensor ? tensor->shape : LS_SCALAR;
}

bool ls_tensor_is_per_sample(const ls_tensor *tensor)
{
    return tensor && tensor->per_sample;
}

bool ls_tensor_is_error(const ls_tensor *tensor)
{
    return !tensor || tensor->op == LS_OP_ERROR;
}

const char *ls_tensor_op(const ls_tensor *tensor)
{
    if (ls_tensor_is_error(tensor))
        return "error";
    if (!ls_node_is(tensor, LS_TRAIT_CUSTOM))
        return ls_ops[tensor->op].name;
    const ls_custom_functions *functions = tensor->attr.custom.functions;
    return tensor->op == LS_OP_custom ? functions->name : functions->gradient_name;
}

const char *ls_tensor_name(const ls_tensor *tensor)
{
    return tensor && tensor->name ? tensor->name : "";
}

ls_graph *ls_tensor_graph(const ls_tensor *tensor)
{
    return tensor ? tensor->graph : NULL;
}

int ls_tensor_input_count(const ls_tensor *tensor)
{
    return tensor ? tensor->input_count : 0;
}

const ls_tensor *ls_tensor_input(const ls_tensor *tensor, int i)
{
    return tensor && i >= 0 && i < tensor->input_count ? tensor->in[i] : NULL;
}

bool ls_tensor_reduces(const ls_tensor *tensor)
{
    return tensor && tensor->use == LS_USE_REDUCES;
}

ls_status ls_tensor_attribute(const ls_tensor *tensor, const char *name, int room, double *values, int *count)
{
    if (ls_tensor_is_error(tensor) || !name || !count || (room > 0 && !values))
        return ls_fail(LS_ERR_INVALID, "ls_tensor_attribute: the tensor, name, values or count is NULL");
    for (int f = 0; f < ls_ops[tensor->op].field_count; f++) {
        const ls_attr_field *field = &ls_ops[tensor->op].fields[f];
        const char *at = (const char *)&tensor->attr + field->offset;
        bool number = field->type == LS_ATTR_i64 || field->type == LS_ATTR_f64 || field->type == LS_ATTR_flag;
        if (strcmp(field->name, name) != 0 || !number)
            continue;
        *count = ls_attr_count(tensor, field);
        for (int i = 0; i < *count && i < room; i++)
            values[i] = field->type == LS_ATTR_i64   ? (double)((const int64_t *)at)[i]
                        : field->type == LS_ATTR_f64 ? ((const double *)at)[i]
                                                     : (double)((const bool *)at)[i];
        return LS_OK;
    }
    char label[LS_NODE_TEXT];
    return ls_fail(LS_ERR_NOT_FOUND, "ls_tensor_attribute: %s (op %s) has no number \"%s\"",
                   ls_node_label(tensor, label), ls_tensor_op(tensor), name);
}

int ls_attr_count(const ls_tensor *node, const ls_attr_field *field)
{
    return field->count == LS_MAX_RANK ? node->in[0]->shape.rank : field->count;
}

int ls_node_writes(const ls_tensor *node, ls_variable *out[LS_MAX_WRITES])
{
    int count = 0;
    if (node->op == LS_OP_assign || node->op == LS_OP_assign_add) {
        out[count++] = node->attr.variable.variable;
    } else if (node->op == LS_OP_apply) {
        out[count++] = node->attr.apply.variable;
        for (int i = 0; i < 2; i++)
            if (node->attr.apply.slot[i])
                out[count++] = node->attr.apply.slot[i];
    }
    return count;
}

const ls_tensor *ls_node_weights(const ls_tensor *node)
{
    if (ls_node_is(node, LS_TRAIT_WEIGHTS_OUT))
        return node;
    if (!ls_node_is(node, LS_TRAIT_WEIGHTS_0 | LS_TRAIT_WEIGHTS_1))
        return NULL;
    const ls_tensor *weights = node->in[ls_node_is(node, LS_TRAIT_WEIGHTS_1) ? 1 : 0];
    return node->use == LS_USE_REDUCES ? node : weights->per_sample ? NULL : weights;
}

double ls_node_flops(const ls_tensor *node)
{
    return node->op == LS_OP_ERROR ? 0 : ls_ops[node->op].flops(node);
}
