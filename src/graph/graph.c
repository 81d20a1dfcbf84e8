/* Graphs: variables, names and scopes. node.c creates nodes. */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "graph/claim.h"
#include "graph/context.h"
#include "graph/node.h"
#include "graph/shared_weights.h"

/* A node from outside a scope that was named inside it: closing the scope removes only the name. */
typedef struct outer_name {
    struct outer_name *next;
    ls_tensor *node;
} outer_name;

/* Restored when a scope closes. */
struct ls_scope_entry {
    ls_scope_entry *below;
    uint64_t number; /* unique within the graph */
    ls_arena_mark mark;
    size_t node_count, variable_count;
    const char *prefix;
    outer_name *outer_names;
};

#define LS_FIRST_NAME_ROOM 64

ls_status ls_graph_create_with(ls_context *ctx, ls_graph_options options, ls_graph **out)
{
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_graph_create: out is NULL");
    LS_TRY(ls_context_add_graph(ctx, "ls_graph_create"));
    ls_graph *graph = calloc(1, sizeof(*graph));
    ls_tensor **names = calloc(LS_FIRST_NAME_ROOM, sizeof(*names));
    if (!graph || !names) {
        free(graph);
        free(names);
        ls_context_drop_graph(ctx);
        return ls_fail(LS_ERR_MEMORY, "ls_graph_create: no memory for a graph");
    }
    graph->context = ctx;
    graph->seed = options.seed;
    graph->names = names;
    graph->name_room = LS_FIRST_NAME_ROOM;
    graph->prefix = "";
    graph->device = LS_ANY_DEVICE;
    graph->origin = -1;
    *out = graph;
    return LS_OK;
}

static void drop_variables(ls_graph *graph, size_t keep)
{
    while (graph->variable_count > keep) {
        ls_variable_drop_memory(graph, graph->variables[--graph->variable_count]);
    }
}

static void drop_name(ls_graph *graph, ls_tensor *node);

/* The arena frees their memory. */
static void drop_nodes(ls_graph *graph, size_t keep)
{
    if (graph->runs && graph->node_count > keep && !ls_context_is_inherited(graph->context))
        graph->trim_runs(graph, keep);
    while (graph->node_count > keep) {
        ls_tensor *node = graph->nodes[--graph->node_count];
        ls_context_give(graph->context, node->device, node->held.block);
        if (node->name)
            drop_name(graph, node);
        if (graph->error == node)
            graph->error = NULL;
    }
}

void ls_graph_destroy(ls_graph *graph)
{
    if (!graph || ls_context_is_inherited(graph->context))
        return;
    if (!ls_claim_to_destroy(graph, __func__))
        return;
    if (graph->owner) {
        ls_claim_end(&(ls_claim){ .graph = graph });
        ls_context_refuse(graph->context,
                          "ls_graph_destroy: the graph belongs to model \"%s\"; ls_model_destroy destroys it",
                          graph->owner);
        return;
    }
    if (graph->runs)
        graph->drop_runs(graph);
    graph->runs = NULL;
    drop_nodes(graph, 0);
    drop_variables(graph, 0);
    ls_shared_weights_leave(graph);
    ls_arena_free(&graph->arena);
    free(graph->nodes);
    free(graph->variables);
    free(graph->names);
    ls_context_drop_graph(graph->context);
    free(graph);
}

ls_status ls_graph_status(ls_graph *graph)
{
    LS_CLAIM(graph);
    if (!graph)
        return ls_fail(LS_ERR_INVALID, "ls_graph_status: the graph is NULL");
    return graph->error ? ls_fail(graph->error->status, "%s", graph->error->message) : LS_OK;
}

size_t ls_graph_node_count(const ls_graph *graph)
{
    LS_CLAIM_OR(graph, 0);
    return graph ? graph->node_count : 0;
}

ls_status ls_graph_add_node(ls_graph *graph, ls_tensor *node)
{
    if (graph->node_count >= INT32_MAX ||
        ls_grow(&graph->nodes, graph->node_count, &graph->node_room, sizeof(*graph->nodes)) != LS_OK)
        return ls_fail(LS_ERR_MEMORY, "no memory for node %zu of the graph", graph->node_count);
    node->id = (uint32_t)graph->node_count;
    node->origin = graph->origin < 0 ? node->id : (uint32_t)graph->origin;
    graph->nodes[graph->node_count++] = node;
    return LS_OK;
}

ls_status ls_graph_add_variable(ls_graph *graph, ls_variable *variable)
{
    if (ls_grow(&graph->variables, graph->variable_count, &graph->variable_room, sizeof(*graph->variables)) != LS_OK)
        return ls_fail(LS_ERR_MEMORY, "no memory for variable %zu of the graph", graph->variable_count);
    variable->number = (uint32_t)graph->variable_count;
    graph->variables[graph->variable_count++] = variable;
    return LS_OK;
}

/* Returns a mark that no node carries. */
static uint32_t next_mark(ls_graph *graph)
{
    if (++graph->mark == 0) { /* old marks could match again */
        for (size_t i = 0; i < graph->node_count; i++)
            graph->nodes[i]->mark = 0;
        for (size_t i = 0; i < graph->variable_count; i++)
            graph->variables[i]->mark = 0;
        graph->mark = 1;
    }
    return graph->mark;
}

ls_scope ls_scope_open(ls_graph *graph)
{
    ls_scope scope = { .graph = graph, .open = false };
    LS_CLAIM_OR_REFUSE(graph, scope);
    if (!graph)
        return scope;
    ls_arena_mark mark = ls_arena_save(&graph->arena);
    ls_scope_entry *entry = ls_arena_alloc(&graph->arena, sizeof(*entry));
    if (!entry) {
        ls_node_error(graph, ls_fail(LS_ERR_MEMORY, "no memory for a scope"), "ls_scope_open");
        return scope;
    }
    *entry = (ls_scope_entry){
        .below = graph->scope,
        .number = ++graph->scopes,
        .mark = mark,
        .node_count = graph->node_count,
        .variable_count = graph->variable_count,
        .prefix = graph->prefix,
    };
    graph->scope = entry;
    scope.open = true;
    return scope;
}

void ls_scope_close(ls_scope *scope)
{
    if (!scope || !scope->open)
        return;
    scope->open = false;
    ls_graph *graph = scope->graph;
    LS_CLAIM_OR_REFUSE(graph, );
    if (!graph->scope)
        return;                           /* copy of a closed scope */
    ls_scope_entry entry = *graph->scope; /* the arena frees the entry */
    for (outer_name *named = entry.outer_names; named; named = named->next) {
        drop_name(graph, named->node);
        named->node->name = NULL;
    }
    drop_nodes(graph, entry.node_count);
    drop_variables(graph, entry.variable_count);
    graph->prefix = entry.prefix;
    graph->scope = entry.below;
    ls_arena_restore(&graph->arena, entry.mark);
}

void ls_scope_keep(ls_scope *scope)
{
    scope->graph->scope = scope->graph->scope->below;
    scope->open = false;
}

uint64_t ls_scope_number(const ls_graph *graph)
{
    return graph->scope ? graph->scope->number : 0;
}

bool ls_scope_is_open(const ls_graph *graph, uint64_t number)
{
    const ls_scope_entry *at = graph->scope;
    while (at && at->number != number)
        at = at->below;
    return at || number == 0;
}

static bool name_is_good(const char *name)
{
    if (!name || !*name || *name == '/' || name[strlen(name) - 1] == '/' || strstr(name, "//"))
        return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == ':' || *c == '"')
            return false;
    return true;
}

static ls_status check_name(const char *what, const char *name)
{
    if (name_is_good(name))
        return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "%s: \"%s\" is not a valid name: use letters, digits or signs, parts separated by single "
                   "slashes, and no space, colon or quote",
                   what, name ? name : "(null)");
}

/* An invalid name becomes the graph's error; the body is still built. */
ls_name_scope ls_name_scope_open(ls_graph *graph, const char *name)
{
    ls_name_scope scope = { .graph = graph };
    LS_CLAIM_OR_REFUSE(graph, scope);
    if (!graph)
        return scope;
    scope.outer = graph->prefix;
    scope.open = true;
    ls_status status = check_name("name scope", name);
    if (status == LS_OK) {
        size_t before = strlen(graph->prefix), length = strlen(name);
        char *prefix = ls_arena_alloc(&graph->arena, before + length + 2);
        if (prefix) {
            memcpy(prefix, graph->prefix, before);
            memcpy(prefix + before, name, length);
            prefix[before + length] = '/';
            graph->prefix = prefix;
            return scope;
        }
        status = ls_fail(LS_ERR_MEMORY, "name scope \"%s\": no memory", name);
    }
    ls_node_error(graph, status, NULL);
    return scope;
}

void ls_name_scope_close(ls_name_scope *scope)
{
    if (!scope || !scope->open)
        return;
    scope->open = false;
    LS_CLAIM_OR_REFUSE(scope->graph, );
    scope->graph->prefix = scope->outer;
}

static size_t name_hash(const char *name, size_t length)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    return (size_t)(hash ^ hash >> 32);
}

static ls_tensor *find_name(const ls_graph *graph, const char *name, size_t length)
{
    ls_tensor *node = graph->names[name_hash(name, length) & (graph->name_room - 1)];
    while (node && !(strncmp(node->name, name, length) == 0 && node->name[length] == '\0'))
        node = node->next_same_hash;
    return node;
}

static void add_name(ls_tensor **names, size_t room, ls_tensor *node)
{
    ls_tensor **chain = &names[name_hash(node->name, strlen(node->name)) & (room - 1)];
    node->next_same_hash = *chain;
    *chain = node;
}

static void drop_name(ls_graph *graph, ls_tensor *node)
{
    ls_tensor **link = &graph->names[name_hash(node->name, strlen(node->name)) & (graph->name_room - 1)];
    while (*link != node)
        link = &(*link)->next_same_hash;
    *link = node->next_same_hash;
}

/* Grows the table with the number of nodes, so that chains stay short. */
static void grow_names(ls_graph *graph)
{
    if (graph->node_count <= graph->name_room)
        return;
    size_t room = graph->name_room * 4;
    ls_tensor **names = calloc(room, sizeof(*names));
    if (!names)
        return; /* lookups are only slower */
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->name)
            add_name(names, room, graph->nodes[i]);
    free(graph->names);
    graph->names = names;
    graph->name_room = room;
}

ls_status ls_graph_name(ls_graph *graph, ls_tensor *node, const char *name)
{
    LS_TRY(check_name("name", name));
    if (node->name)
        return ls_fail(LS_ERR_STATE, "\"%s\" cannot also be named \"%s\": a tensor has one name", node->name, name);
    size_t before = strlen(graph->prefix), length = strlen(name);
    char *full = ls_arena_alloc(&graph->arena, before + length + 1);
    if (!full)
        return ls_fail(LS_ERR_MEMORY, "name \"%s\": no memory", name);
    memcpy(full, graph->prefix, before);
    memcpy(full + before, name, length);
    ls_tensor *owner = find_name(graph, full, before + length);
    if (owner)
        return ls_fail(LS_ERR_INVALID, "the name \"%s\" belongs to another tensor of the graph, the %s numbered %u",
                       full, ls_tensor_op(owner), owner->id);
    if (graph->scope && node->id < graph->scope->node_count) {
        outer_name *named = ls_arena_alloc(&graph->arena, sizeof(*named));
        if (!named)
            return ls_fail(LS_ERR_MEMORY, "name \"%s\": no memory", name);
        *named = (outer_name){ graph->scope->outer_names, node };
        graph->scope->outer_names = named;
    }
    grow_names(graph);
    node->name = full;
    add_name(graph->names, graph->name_room, node);
    return LS_OK;
}

ls_tensor *ls_named(ls_tensor *tensor, const char *name)
{
    LS_CLAIM_TENSORS(tensor);
    if (!tensor || ls_tensor_is_error(tensor))
        return tensor;
    ls_status status = ls_graph_name(tensor->graph, tensor, name);
    return status == LS_OK ? tensor : ls_node_error(tensor->graph, status, NULL);
}

ls_status ls_graph_find(ls_graph *graph, const char *name, ls_tensor **out)
{
    LS_CLAIM(graph);
    if (!graph || !name || !out)
        return ls_fail(LS_ERR_INVALID, "ls_graph_find: graph, name or out is NULL");
    size_t length = strlen(name);
    if (length > 2 && strcmp(name + length - 2, ":0") == 0)
        length -= 2;
    ls_tensor *node = find_name(graph, name, length);
    if (!node)
        return ls_fail(LS_ERR_NOT_FOUND, "the graph has no tensor named \"%.*s\"", (int)length, name);
    *out = node;
    return LS_OK;
}

typedef struct visit {
    ls_tensor *node;
    int next;
} visit;

static bool push(visit **stack, size_t *depth, size_t *room, ls_tensor *node)
{
    if (ls_grow(stack, *depth, room, sizeof(**stack)) != LS_OK)
        return false;
    (*stack)[(*depth)++] = (visit){ node, 0 };
    return true;
}

static int by_creation(const void *a, const void *b)
{
    uint32_t x = (*(ls_tensor *const *)a)->id, y = (*(ls_tensor *const *)b)->id;
    return (x > y) - (x < y);
}

ls_status ls_graph_order(ls_graph *graph, ls_tensor *const *roots, size_t count,
                         bool (*stop)(const ls_tensor *, void *), void *user, ls_tensor ***out, size_t *out_count)
{
    uint32_t mark = next_mark(graph);
    visit *stack = NULL;
    ls_tensor **order = NULL;
    size_t depth = 0, room = 0, found = 0, order_room = 0;
    bool fits = true;
    for (size_t r = 0; r < count && fits; r++) {
        if (roots[r]->mark == mark)
            continue;
        roots[r]->mark = mark;
        fits = push(&stack, &depth, &room, roots[r]);
        while (depth > 0 && fits) {
            visit *top = &stack[depth - 1];
            int inputs = stop && stop(top->node, user) ? 0 : top->node->input_count;
            if (top->next < inputs) {
                ls_tensor *input = top->node->in[top->next++];
                if (input->mark != mark) {
                    input->mark = mark;
                    fits = push(&stack, &depth, &room, input);
                }
            } else {
                fits = ls_grow(&order, found, &order_room, sizeof(*order)) == LS_OK;
                if (fits)
                    order[found++] = top->node;
                depth--;
            }
        }
    }
    free(stack);
    if (!fits) {
        free(order);
        return ls_fail(LS_ERR_MEMORY, "no memory to order %zu nodes", graph->node_count);
    }
    if (found > 1)
        qsort(order, found, sizeof(*order), by_creation);
    *out = order;
    *out_count = found;
    return LS_OK;
}
