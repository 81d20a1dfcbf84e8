/* Ops of a program: C functions that compute values and gradients sample by sample. A node computes
 * the op; one node for each input computes its gradient. */
#include "graph/custom.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "graph/claim.h"
#include "graph/rules.h"

/* Input 0 of a gradient node is the gradient of the op's output. */
int ls_custom_first_input(const ls_tensor *node)
{
    return node->op == LS_OP_custom_grad ? 1 : 0;
}

ls_shape ls_custom_sample_shape(const ls_shape *shape, bool per_sample)
{
    ls_shape out = { .rank = per_sample ? shape->rank - 1 : shape->rank };
    for (int i = 0; i < out.rank; i++)
        out.dims[i] = shape->dims[per_sample ? i + 1 : i];
    return out;
}

ls_status ls_custom_failed(const ls_tensor *node, const char *function, ls_status status, const char *message,
                           int64_t sample)
{
    const ls_custom_functions *f = node->attr.custom.functions;
    char where[32] = "";
    if (status == LS_OK)
        return LS_OK;
    if (node->per_sample && sample >= 0)
        snprintf(where, sizeof(where), " at sample %lld", (long long)sample);
    if (strcmp(ls_status_name(status), "LS_ERR_(unknown)") == 0)
        return ls_fail(LS_ERR_INVALID, "the function %s of the op %s returned %d%s, which is not a status", function,
                       f->name, (int)status, where);
    return ls_fail(status, "the function %s of the op %s failed%s: %.*s", function, f->name, where,
                   LS_CUSTOM_MESSAGE_BYTES - 1, *message ? message : ls_status_name(status));
}

/* ---- Rules ---- */

static ls_status check_inputs(const ls_tensor *node)
{
    for (int i = 0; i < node->input_count; i++) {
        const ls_tensor *x = node->in[i];
        for (int a = x->per_sample ? 1 : 0; a < x->shape.rank; a++)
            if (x->shape.dims[a] == LS_BATCH)
                return ls_fail(LS_ERR_UNSUPPORTED,
                               "input %d is a gathered batch; the functions of a custom op take a sample of it, before "
                               "ls_op_gather_batch or after ls_op_scatter_batch, or a whole tensor of known size",
                               i);
    }
    return LS_OK;
}

static ls_status ask_shape(ls_tensor *node, ls_shape *sample)
{
    const ls_custom_op *op = &node->attr.custom.functions->op;
    ls_dtype dtypes[LS_MAX_CUSTOM_INPUTS];
    ls_shape shapes[LS_MAX_CUSTOM_INPUTS];
    char message[LS_CUSTOM_MESSAGE_BYTES] = "";
    for (int i = 0; i < node->input_count; i++) {
        dtypes[i] = node->in[i]->dtype;
        shapes[i] = ls_custom_sample_shape(&node->in[i]->shape, node->in[i]->per_sample);
    }
    ls_custom_sample given = {
        .input_count = node->input_count, .dtypes = dtypes, .shapes = shapes, .message = message
    };
    node->dtype = dtypes[0];
    *sample = shapes[0];
    if (!op->shape)
        return LS_OK;
    LS_TRY(ls_custom_failed(node, "shape", op->shape(&given, &node->dtype, sample, op->user), message, -1));
    int most = node->per_sample ? LS_MAX_RANK - 1 : LS_MAX_RANK;
    if (sample->rank < 0 || sample->rank > most)
        return ls_fail(LS_ERR_SHAPE, "the function shape set %d axes; an output has 0 to %d beside the batch axis",
                       sample->rank, most);
    for (int i = 0; i < sample->rank; i++)
        if (sample->dims[i] < 0)
            return ls_fail(LS_ERR_SHAPE, "the function shape set axis %d to size %lld", i, (long long)sample->dims[i]);
    return LS_OK;
}

static void set_shape(ls_tensor *node, const ls_shape *sample)
{
    node->shape = *sample;
    node->use = node->per_sample ? LS_USE_KEEPS : LS_USE_WHOLE;
    if (!node->per_sample)
        return;
    node->shape = (ls_shape){ .rank = sample->rank + 1, .dims = { LS_BATCH } };
    for (int i = 0; i < sample->rank; i++)
        node->shape.dims[i + 1] = sample->dims[i];
}

ls_status ls_shape_custom(ls_tensor *node)
{
    ls_shape sample;
    LS_TRY(check_inputs(node));
    node->per_sample = false;
    for (int i = 0; i < node->input_count; i++)
        node->per_sample = node->per_sample || node->in[i]->per_sample;
    LS_TRY(ask_shape(node, &sample));
    set_shape(node, &sample);
    return LS_OK;
}

/* A sample's part of the gradient: of an input without a batch axis too, which autodiff.c sums. */
ls_status ls_shape_custom_grad(ls_tensor *node)
{
    const ls_tensor *x = node->in[1 + node->attr.custom.input];
    ls_shape sample = ls_custom_sample_shape(&x->shape, x->per_sample);
    node->dtype = x->dtype;
    node->per_sample = node->in[0]->per_sample;
    if (node->per_sample && sample.rank == LS_MAX_RANK)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "input %lld has %d axes, so the gradients of the samples have no room for a batch axis; reshape "
                       "it to %d axes",
                       (long long)node->attr.custom.input, sample.rank, LS_MAX_RANK - 1);
    set_shape(node, &sample);
    return LS_OK;
}

double ls_flops_custom(const ls_tensor *node)
{
    double flops = node->attr.custom.functions->op.flops;
    return flops > 0 ? flops : ls_flops_each(node);
}

void ls_grad_custom(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    const ls_custom_functions *f = y->attr.custom.functions;
    ls_tensor *in[LS_MAX_CUSTOM_INPUTS + 1] = { dy };
    ls_tensor *error = NULL;
    if (!f->op.gradient)
        error = ls_node_error(y->graph,
                              ls_fail(LS_ERR_UNSUPPORTED,
                                      "the op %s has no function gradient; set .gradient of ls_op_custom, or put its "
                                      "inputs through ls_op_stop_gradient",
                                      f->name),
                              NULL);
    for (int i = 0; i < y->input_count; i++)
        in[i + 1] = y->in[i];
    for (int i = 0; i < y->input_count; i++) {
        ls_attrs attr = { .custom = { .functions = f, .input = i } };
        if (ls_dtype_is_real(y->in[i]->dtype))
            dx[i] = error ? error
                          : ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_custom_grad,
                                                                .in = in,
                                                                .input_count = y->input_count + 1,
                                                                .attr = attr });
    }
}

/* ---- The builder ---- */

static ls_status check_name(const char *name)
{
    bool good = name && *name && strlen(name) < 64;
    for (const char *c = name; good && *c; c++)
        good = isalnum((unsigned char)*c) || *c == '_';
    if (!good)
        return ls_fail(LS_ERR_INVALID,
                       "\"%s\" is not a valid name of an op; use 1 to 63 letters, digits and underscores",
                       name ? name : "(null)");
    for (int op = 0; op < LS_OP_COUNT; op++)
        if (!(ls_ops[op].traits & LS_TRAIT_CUSTOM) && strcmp(ls_ops[op].name, name) == 0)
            return ls_fail(LS_ERR_INVALID, "%s is an op of the library; choose another name", name);
    return LS_OK;
}

static ls_status check_options(const char *name, const ls_custom_op *options, int *count)
{
    LS_TRY(check_name(name));
    for (*count = 0; *count < LS_MAX_CUSTOM_INPUTS && options->inputs[*count]; ++*count) {
    }
    for (int i = *count; i < LS_MAX_CUSTOM_INPUTS; i++)
        if (options->inputs[i])
            return ls_fail(LS_ERR_INVALID, "%s: input %d is NULL, but input %d is not", name, *count, i);
    if (!options->forward)
        return ls_fail(LS_ERR_INVALID, "%s: the function forward is missing", name);
    if (!(options->flops >= 0))
        return ls_fail(LS_ERR_INVALID, "%s: flops is %g; it must be 0 (the default) or more", name, options->flops);
    return LS_OK;
}

static ls_status keep_functions(ls_graph *graph, const char *name, const ls_custom_op *options,
                                const ls_custom_functions **out)
{
    char gradient[80];
    snprintf(gradient, sizeof(gradient), "%s_grad", name);
    ls_custom_functions *f = ls_arena_alloc(&graph->arena, sizeof(*f));
    if (f)
        *f = (ls_custom_functions){ ls_arena_strdup(&graph->arena, name), ls_arena_strdup(&graph->arena, gradient),
                                    *options };
    if (!f || !f->name || !f->gradient_name)
        return ls_fail(LS_ERR_MEMORY, "no memory for the op %s", name);
    *out = f;
    return LS_OK;
}

ls_status ls_custom_functions_copy(ls_graph *graph, const ls_custom_functions *from, const ls_custom_functions **out)
{
    return keep_functions(graph, from->name, &from->op, out);
}

ls_tensor *ls_op_custom_with(const char *name, ls_custom_op options)
{
    ls_graph *graph = ls_graph_of(options.inputs, LS_MAX_CUSTOM_INPUTS);
    LS_CLAIM_TO_BUILD(graph);
    const ls_custom_functions *functions = NULL;
    int count = 0;
    if (!graph) /* no inputs, or error tensors without a graph */
        return options.inputs[0];
    ls_status status = check_options(name, &options, &count);
    if (status == LS_OK)
        status = keep_functions(graph, name, &options, &functions);
    if (status != LS_OK)
        return ls_node_error(graph, status, "ls_op_custom");
    ls_attrs attr = { .custom = { .functions = functions, .input = -1 } };
    return ls_node_make(
        graph, &(ls_node_spec){ .op = LS_OP_custom, .in = options.inputs, .input_count = count, .attr = attr });
}
