/* Leaves and state: constants, inputs, variables, counts, random numbers; assignments and
 * updates. */
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/size.h"
#include "graph/claim.h"
#include "graph/context.h"
#include "graph/init.h"
#include "graph/rules.h"
#include "graph/shared_weights.h"

static bool asks_for_batch(const ls_shape *shape)
{
    return shape->rank > 0 && shape->dims[0] == LS_BATCH;
}

ls_status ls_shape_given(ls_tensor *node)
{
    for (int i = 1; i < node->shape.rank && node->shape.rank <= LS_MAX_RANK; i++)
        if (node->shape.dims[i] == LS_BATCH)
            return ls_fail(LS_ERR_SHAPE, "the batch axis must be axis 0, not axis %d", i);
    node->per_sample = asks_for_batch(&node->shape);
    node->use = LS_USE_WHOLE;
    return LS_OK;
}

static ls_tensor *leaf(ls_graph *graph, ls_op op, ls_dtype dtype, ls_shape shape, ls_attrs attr)
{
    if (!graph)
        return NULL;
    if ((unsigned)dtype >= LS_DTYPE_COUNT)
        return ls_node_error(graph, ls_fail(LS_ERR_DTYPE, "unknown type %d", (int)dtype), ls_ops[op].name);
    return ls_node_make(graph, &(ls_node_spec){ .op = op, .dtype = dtype, .shape = shape, .attr = attr });
}

/* Fails on a batch axis, an invalid shape or type, and overflow. */
static ls_status whole_bytes(ls_dtype dtype, const ls_shape *shape, size_t *bytes)
{
    char text[LS_SHAPE_TEXT];
    int64_t count;
    if (shape->rank < 0 || shape->rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "rank %d: must be from 0 to %d", shape->rank, LS_MAX_RANK);
    if (asks_for_batch(shape))
        return ls_fail(LS_ERR_SHAPE, "shape %s must not have a batch axis", ls_shape_format(shape, text));
    if ((unsigned)dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_DTYPE, "unknown type %d", (int)dtype);
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0)
            return ls_fail(LS_ERR_SHAPE, "axis %d has size %lld", i, (long long)shape->dims[i]);
    if (!ls_shape_count(shape, 0, &count) || !ls_size_mul((size_t)count, ls_dtype_bytes(dtype), bytes))
        return ls_fail(LS_ERR_OVERFLOW, "the size of shape %s overflows", ls_shape_format(shape, text));
    return LS_OK;
}

ls_tensor *ls_op_constant(ls_graph *graph, ls_dtype dtype, ls_shape shape, const void *data)
{
    LS_CLAIM_TO_BUILD(graph);
    size_t bytes = 0;
    if (!graph)
        return NULL;
    ls_status status = whole_bytes(dtype, &shape, &bytes);
    if (status == LS_OK && !data && bytes > 0)
        status = ls_fail(LS_ERR_INVALID, "data is NULL");
    void *copy = status == LS_OK ? ls_arena_alloc(&graph->arena, bytes ? bytes : 1) : NULL;
    if (status == LS_OK && !copy)
        status = ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes", bytes);
    if (status != LS_OK)
        return ls_node_error(graph, status, "constant");
    if (bytes)
        memcpy(copy, data, bytes);
    return leaf(graph, LS_OP_constant, dtype, shape, (ls_attrs){ .data = { .data = { copy, bytes } } });
}

ls_tensor *ls_op_fill(ls_graph *graph, ls_dtype dtype, ls_shape shape, double value)
{
    LS_CLAIM_TO_BUILD(graph);
    return leaf(graph, LS_OP_fill, dtype, shape, (ls_attrs){ .number = { .value = value } });
}

ls_tensor *ls_op_scalar(ls_graph *graph, ls_dtype dtype, double value)
{
    LS_CLAIM_TO_BUILD(graph);
    LS_OWN_FP_MODE;
    return ls_op_fill(graph, dtype, LS_SCALAR, value);
}

ls_tensor *ls_op_input(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape)
{
    LS_CLAIM_TO_BUILD(graph);
    ls_tensor *node = leaf(graph, LS_OP_input, dtype, shape, ls_no_attrs());
    return name ? ls_named(node, name) : node;
}

ls_tensor *ls_op_count(ls_graph *graph, ls_dtype dtype)
{
    LS_CLAIM_TO_BUILD(graph);
    return leaf(graph, LS_OP_count, dtype, LS_SCALAR, ls_no_attrs());
}

ls_tensor *ls_op_random_keyed(ls_graph *graph, ls_op op, ls_shape shape, double a, double b, int64_t layer,
                              int64_t call)
{
    ls_attrs attr = { .random = { .a = a, .b = b, .layer = layer, .call = call } };
    return leaf(graph, op, LS_F32, shape, attr);
}

static ls_tensor *random_leaf(ls_graph *graph, ls_op op, ls_dtype dtype, ls_shape shape, double a, double b)
{
    if (!graph)
        return NULL;
    if (!ls_dtype_is_real(dtype))
        return ls_node_error(graph, ls_fail(LS_ERR_DTYPE, "random numbers must be float32 or float64"),
                             ls_ops[op].name);
    ls_attrs attr = { .random = { .a = a, .b = b, .layer = graph->random_count++ } };
    return leaf(graph, op, dtype, shape, attr);
}

ls_tensor *ls_op_random_uniform(ls_graph *graph, ls_dtype dtype, ls_shape shape, double low, double high)
{
    LS_CLAIM_TO_BUILD(graph);
    return random_leaf(graph, LS_OP_random_uniform, dtype, shape, low, high);
}

ls_tensor *ls_op_random_normal(ls_graph *graph, ls_dtype dtype, ls_shape shape, double mean, double deviation)
{
    LS_CLAIM_TO_BUILD(graph);
    return random_leaf(graph, LS_OP_random_normal, dtype, shape, mean, deviation);
}

ls_tensor *ls_op_random_normal_keyed(ls_graph *graph, ls_shape shape, double mean, double deviation, int64_t layer,
                                     int64_t call)
{
    ls_attrs attr = { .random = { .a = mean, .b = deviation, .layer = layer, .call = call } };
    return leaf(graph, LS_OP_random_normal, LS_F32, shape, attr);
}

/* Allocates aligned memory, which the graph frees; data is not NULL even for 0 bytes. */
ls_status ls_variable_take(ls_graph *graph, ls_variable *variable, const char *name)
{
    LS_TRY(ls_context_take(graph->context, variable->device, variable->bytes, name, &variable->block));
    variable->data = ls_context_data(graph->context, variable->block);
    return LS_OK;
}

static ls_status begin(ls_graph *graph, ls_variable *variable, ls_dtype dtype, const ls_variable_op *options)
{
    LS_OWN_FP_MODE;
    ls_initializer initializer = options->initializer;
    if (options->data && variable->bytes)
        memcpy(variable->data, options->data, variable->bytes);
    if (options->data)
        return initializer.kind == LS_INIT_DEFAULT
                   ? LS_OK
                   : ls_fail(LS_ERR_INVALID, "both data and an initializer are set; set one of them");
    LS_TRY(ls_init_resolve("initializer", &initializer, (ls_initializer){ .kind = LS_INIT_ZEROS }));
    LS_TRY(ls_init_check(initializer, dtype, &options->shape));
    const ls_init_key key = { .seed = graph->seed, .layer = graph->random_count, .number = LS_INIT_ALONE };
    graph->random_count += ls_init_draws(initializer);
    return ls_init_fill(initializer, dtype, &options->shape, key, variable->data);
}

static ls_status make_variable(ls_graph *graph, const char *name, ls_dtype dtype, const ls_variable_op *options,
                               bool later, ls_variable **out)
{
    size_t bytes, room;
    LS_TRY(whole_bytes(dtype, &options->shape, &bytes));
    if (!ls_size_add(bytes, 64, &room))
        return ls_fail(LS_ERR_OVERFLOW, "%zu bytes are too many", bytes);
    ls_variable *variable = ls_arena_alloc(&graph->arena, sizeof(*variable));
    if (!variable)
        return ls_fail(LS_ERR_MEMORY, "no memory for a variable");
    *variable = (ls_variable){
        .device = graph->device, .bytes = bytes, .trainable = !options->frozen, .constraint = options->constraint
    };
    variable->version = variable->in_host = ++graph->writes;
    ls_status status = LS_OK;
    if (!later) {
        LS_TRY(ls_variable_take(graph, variable, name ? name : "variable"));
        status = begin(graph, variable, dtype, options);
    }
    if (status == LS_OK)
        status = ls_graph_add_variable(graph, variable);
    if (status != LS_OK) {
        ls_context_give(graph->context, variable->device, variable->block);
        return status;
    }
    *out = variable;
    return LS_OK;
}

static ls_tensor *variable_node(ls_graph *graph, const char *name, ls_dtype dtype, const ls_variable_op *options,
                                bool later)
{
    ls_variable *variable = NULL;
    ls_status status = make_variable(graph, name, dtype, options, later, &variable);
    if (status != LS_OK)
        return ls_node_error(graph, status, name ? name : "variable");
    ls_attrs attr = { .variable = { .variable = variable } };
    ls_tensor *node = leaf(graph, LS_OP_variable, dtype, options->shape, attr);
    if (name)
        node = ls_named(node, name);
    if (!ls_tensor_is_error(node)) {
        variable->node = node;
    } else { /* invalid name */
        ls_context_give(graph->context, variable->device, variable->block);
        graph->variable_count--;
    }
    return node;
}

ls_tensor *ls_op_variable_with(ls_graph *graph, const char *name, ls_dtype dtype, ls_variable_op options)
{
    LS_CLAIM_TO_BUILD(graph);
    return graph ? variable_node(graph, name, dtype, &options, false) : NULL;
}

ls_tensor *ls_variable_later(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape, bool trainable)
{
    ls_variable_op options = { .shape = shape, .frozen = !trainable };
    return variable_node(graph, name, dtype, &options, true);
}

ls_status ls_variable_sync_to_host(ls_variable *variable)
{
    LS_TRY(ls_graph_fill(variable->node->graph));
    return variable->in_host == variable->version ? LS_OK : variable->node->graph->bring(variable);
}

void ls_variable_written(ls_variable *variable, bool in_host)
{
    variable->version = ++variable->node->graph->writes;
    if (in_host)
        variable->in_host = variable->version;
}

static ls_status check_variable(const ls_tensor *variable, const char *what, const void *data, size_t bytes)
{
    char label[LS_NODE_TEXT];
    if (!variable)
        return ls_fail(LS_ERR_INVALID, "%s: the variable is NULL", what);
    if (variable->op == LS_OP_ERROR)
        return ls_fail(variable->status, "%s", variable->message);
    if (variable->op != LS_OP_variable)
        return ls_fail(LS_ERR_INVALID, "%s: %s is not a variable", what, ls_node_label(variable, label));
    if (variable->attr.variable.variable->bytes != bytes)
        return ls_fail(LS_ERR_SHAPE, "%s: %s has %zu bytes, got %zu", what, ls_node_label(variable, label),
                       variable->attr.variable.variable->bytes, bytes);
    if (!data && bytes > 0)
        return ls_fail(LS_ERR_INVALID, "%s: %s has %zu bytes, but data is NULL", what, ls_node_label(variable, label),
                       bytes);
    return LS_OK;
}

ls_status ls_variable_set(ls_tensor *variable, const void *data, size_t bytes)
{
    LS_CLAIM(variable ? variable->graph : NULL);
    LS_TRY(check_variable(variable, "ls_variable_set", data, bytes));
    LS_TRY(ls_graph_fill(variable->graph));
    ls_variable *written = variable->attr.variable.variable;
    LS_TRY(ls_writes_begin(variable->graph, &written, 1));
    if (bytes)
        memcpy(written->data, data, bytes);
    ls_variable_written(written, true);
    ls_writes_end(variable->graph);
    return LS_OK;
}

ls_status ls_variable_get(const ls_tensor *variable, void *data, size_t bytes)
{
    LS_CLAIM(variable ? variable->graph : NULL);
    LS_TRY(check_variable(variable, "ls_variable_get", data, bytes));
    LS_TRY(ls_variable_sync_to_host(variable->attr.variable.variable));
    if (bytes)
        memcpy(data, variable->attr.variable.variable->data, bytes);
    return LS_OK;
}

static ls_status check_write(const ls_tensor *node, int input, const ls_tensor *variable)
{
    char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT], label[LS_NODE_TEXT];
    const ls_tensor *value = node->in[input];
    LS_TRY(ls_need_whole(node, input, "the value of a variable"));
    if (value->dtype != variable->dtype)
        return ls_fail(LS_ERR_DTYPE, "%s is %s, the value is %s", ls_node_label(variable, label),
                       ls_dtype_name(variable->dtype), ls_dtype_name(value->dtype));
    if (!ls_shape_equal(&value->shape, &variable->shape))
        return ls_fail(LS_ERR_SHAPE, "%s has shape %s, the value %s", ls_node_label(variable, label),
                       ls_shape_format(&variable->shape, a), ls_shape_format(&value->shape, b));
    return LS_OK;
}

ls_status ls_shape_assign(ls_tensor *node)
{
    LS_TRY(check_write(node, 0, node->attr.variable.variable->node));
    ls_rule_like_first(node);
    return LS_OK;
}

/* Returns NULL, and the builder's result in *error, if the tensor is not a variable. */
static ls_variable *target(ls_op op, ls_tensor *variable, ls_graph *graph, ls_tensor **error)
{
    char label[LS_NODE_TEXT];
    *error = NULL;
    if (variable && variable->op == LS_OP_ERROR)
        *error = variable;
    else if (!variable)
        *error = graph ? ls_node_error(graph, ls_fail(LS_ERR_INVALID, "the variable is NULL"), ls_ops[op].name) : NULL;
    else if (variable->op != LS_OP_variable)
        *error = ls_node_error(variable->graph,
                               ls_fail(LS_ERR_INVALID, "%s is not a variable", ls_node_label(variable, label)),
                               ls_ops[op].name);
    else
        return variable->attr.variable.variable;
    return NULL;
}

static ls_tensor *write_node(ls_op op, ls_tensor *variable, ls_tensor *value)
{
    ls_tensor *error;
    ls_variable *to = target(op, variable, ls_graph_of(&value, 1), &error);
    if (!to)
        return error;
    ls_attrs attr = { .variable = { .variable = to } };
    return ls_node_make(variable->graph, &(ls_node_spec){ .op = op, .in = &value, .input_count = 1, .attr = attr });
}

ls_tensor *ls_op_assign(ls_tensor *variable, ls_tensor *value)
{
    LS_CLAIM_TENSORS(variable, value);
    return write_node(LS_OP_assign, variable, value);
}

ls_tensor *ls_op_assign_add(ls_tensor *variable, ls_tensor *delta)
{
    LS_CLAIM_TENSORS(variable, delta);
    return write_node(LS_OP_assign_add, variable, delta);
}

#define RULE(id, slots, step, ...)                                                                                     \
    case LS_APPLY_##id:                                                                                                \
        return (slots);
int ls_apply_slots(ls_apply_rule rule, bool momentum)
{
    switch (rule) {
#include "graph/apply.def"
    }
    return -1;
}
#undef RULE

#define NO_STEP                    false
#define STEP                       true
#define RULE(id, slots, step, ...) [LS_APPLY_##id] = { #id, step },
static const struct rule {
    const char *name;
    bool step;
} rules[] = {
#include "graph/apply.def"
};
#undef RULE
#undef STEP
#undef NO_STEP

int ls_apply_step(const ls_tensor *node)
{
    return rules[node->attr.apply.rule].step ? 2 : -1;
}

int ls_apply_when(const ls_tensor *node)
{
    int next = ls_apply_step(node) >= 0 ? 3 : 2;
    return node->input_count > next ? next : -1;
}

/* Inputs: gradient, learning rate, step if the rule needs one, predicate if given. */
bool ls_apply_is_left_out(const ls_tensor *node, const void *const *in)
{
    int when = ls_apply_when(node);
    return when >= 0 && !*(const bool *)in[when];
}

ls_status ls_shape_apply(ls_tensor *node)
{
    const ls_tensor *variable = node->attr.apply.variable->node;
    if (!ls_dtype_is_real(variable->dtype))
        return ls_fail(LS_ERR_DTYPE, "only float32 and float64 variables can be trained");
    LS_TRY(check_write(node, 0, variable));
    for (int i = 1; i < node->input_count; i++) {
        bool when = i == ls_apply_when(node);
        ls_dtype dtype = when ? LS_BOOL : variable->dtype;
        if (node->in[i]->shape.rank != 0 || node->in[i]->dtype != dtype)
            return ls_fail(LS_ERR_SHAPE, "input %d, the %s, must be a scalar of type %s", i,
                           i == 1 ? "learning rate"
                           : when ? "predicate"
                                  : "step",
                           ls_dtype_name(dtype));
    }
    ls_rule_like_first(node);
    return LS_OK;
}

/* Slots must be distinct variables of the variable's shape and type. */
static ls_status check_slots(const ls_tensor *variable, const ls_apply_op *options, ls_attrs *attr)
{
    int slots = ls_apply_slots(options->rule, options->momentum != 0);
    if (slots < 0)
        return ls_fail(LS_ERR_INVALID, "unknown rule %d", (int)options->rule);
    for (int i = 0; i < slots; i++) {
        const ls_tensor *slot = options->slots[i];
        if (!slot || slot->op != LS_OP_variable || slot->graph != variable->graph)
            return ls_fail(LS_ERR_INVALID, "slot %d must be a variable of the same graph", i);
        if (slot->dtype != variable->dtype || !ls_shape_equal(&slot->shape, &variable->shape))
            return ls_fail(LS_ERR_SHAPE, "slot %d must have the variable's shape and type", i);
        if (slot == variable || (i == 1 && slot == options->slots[0]))
            return ls_fail(LS_ERR_INVALID, "slot %d is used twice", i);
        attr->apply.slot[i] = slot->attr.variable.variable;
    }
    if (!options->learning_rate)
        return ls_fail(LS_ERR_INVALID, "the learning rate is missing");
    if (rules[options->rule].step && !options->step)
        return ls_fail(LS_ERR_INVALID, "the rule %s needs the step", rules[options->rule].name);
    return LS_OK;
}

ls_tensor *ls_op_apply_with(ls_tensor *variable, ls_tensor *gradient, ls_apply_op options)
{
    LS_CLAIM_TENSORS(variable, gradient);
    ls_tensor *error;
    ls_variable *to = target(LS_OP_apply, variable, ls_graph_of(&gradient, 1), &error);
    if (!to)
        return error;
    ls_tensor *given[] = { gradient, options.slots[0], options.slots[1] }; /* an input's error comes first */
    for (int i = 0; i < 3; i++)
        if (given[i] && ls_tensor_is_error(given[i]))
            return given[i];
    ls_attrs attr = { .apply = { .rule = options.rule,
                                 .variable = to,
                                 .momentum = options.momentum,
                                 .beta_1 = options.beta_1,
                                 .beta_2 = options.beta_2,
                                 .rho = options.rho,
                                 .epsilon = options.epsilon,
                                 .weight_decay = options.weight_decay,
                                 .l1 = options.l1,
                                 .l2 = options.l2,
                                 .shrinkage = options.shrinkage,
                                 .beta = options.beta } };
    ls_status status = check_slots(variable, &options, &attr);
    if (status != LS_OK)
        return ls_node_error(variable->graph, status, "apply");
    ls_tensor *in[4] = { gradient, options.learning_rate };
    int inputs = 2;
    if (rules[options.rule].step)
        in[inputs++] = options.step;
    if (options.when)
        in[inputs++] = options.when;
    return ls_node_make(variable->graph,
                        &(ls_node_spec){ .op = LS_OP_apply, .in = in, .input_count = inputs, .attr = attr });
}

/* ---- Groups ---- */

ls_status ls_shape_group(ls_tensor *node)
{
    for (int i = 0; i < node->input_count; i++)
        LS_TRY(ls_need_whole(node, i, "a part of a group"));
    node->dtype = LS_I64;
    node->shape = LS_SCALAR;
    node->use = LS_USE_WHOLE;
    return LS_OK;
}

ls_tensor *ls_op_group(ls_tensor *const *parts, size_t count)
{
    LS_CLAIM_TO_BUILD(parts ? ls_graph_of(parts, (int)count) : NULL);
    if (!parts || count == 0)
        return NULL;
    if (count > 65535) {
        ls_graph *graph = ls_graph_of(parts, 65535);
        return graph ? ls_node_error(graph, ls_fail(LS_ERR_INVALID, "%zu parts are too many", count), "group") : NULL;
    }
    return ls_node_make(NULL, &(ls_node_spec){ .op = LS_OP_group, .in = parts, .input_count = (int)count });
}
