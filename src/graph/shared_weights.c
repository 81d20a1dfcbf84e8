/* References to the memory of variables (shared_weights.h). One mutex per graph guards them; it is
 * held while references are counted and, in ls_writes_begin, while shared memory is copied. */
#include "graph/shared_weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "graph/context.h"

/* Memory of a variable that views refer to. */
typedef struct ls_shared_memory {
    struct ls_block *block;
    const void *data;
    int device;
    int references; /* the variable, if it still has this memory, and views */
} ls_shared_memory;

/* Belongs to a graph and its views; the last of them frees it. */
struct ls_shared_weights {
    ls_context *context;
    pthread_mutex_t mutex;
    int references;
    int writers;                /* nested ls_writes_begin */
    bool is_final;              /* the graph, or a variable of a view, is gone */
    _Atomic(uint64_t) finished; /* writes so far */
};

struct ls_weights_view {
    ls_shared_weights *from;
    ls_variable **variables;
    ls_shared_memory **memory;
    size_t count;
    uint64_t seen; /* `finished` at the last refresh */
};

/* ---- Memory; the mutex is held ---- */

static void release(ls_shared_weights *s, ls_shared_memory *memory)
{
    if (!memory || --memory->references > 0)
        return;
    ls_context_give(s->context, memory->device, memory->block);
    free(memory);
}

/* Returns the variable's memory with one more reference; NULL: no memory. */
static ls_shared_memory *refer(ls_variable *variable)
{
    if (!variable->shared) {
        ls_shared_memory *made = malloc(sizeof(*made));
        if (!made)
            return NULL;
        *made = (ls_shared_memory){ variable->block, variable->data, variable->device, 1 };
        variable->shared = made;
    }
    variable->shared->references++;
    return variable->shared;
}

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for a view of weights");
}

/* Gives the variable memory of its own, with the same bytes. */
static ls_status separate(ls_graph *graph, ls_variable *variable)
{
    ls_shared_memory *old = variable->shared;
    struct ls_block *block = NULL;
    if (!old)
        return LS_OK;
    if (old->references > 1) {
        char label[LS_NODE_TEXT];
        LS_TRY(ls_context_take(graph->context, variable->device, variable->bytes, ls_node_label(variable->node, label),
                               &block));
        void *data = ls_context_data(graph->context, block);
        memcpy(data, variable->data, variable->bytes);
        variable->data = data;
        variable->block = block;
        old->references--;
    } else {
        free(old);
    }
    variable->shared = NULL;
    return LS_OK;
}

static void drop_reference(ls_shared_weights *s)
{
    pthread_mutex_lock(&s->mutex);
    bool last = --s->references == 0;
    pthread_mutex_unlock(&s->mutex);
    if (last) {
        pthread_mutex_destroy(&s->mutex);
        free(s);
    }
}

/* ---- Writers ---- */

ls_status ls_writes_begin(ls_graph *graph, ls_variable *const *variables, size_t count)
{
    ls_shared_weights *s = graph->shared_weights;
    ls_status status = LS_OK;
    if (!s)
        return LS_OK;
    pthread_mutex_lock(&s->mutex);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = separate(graph, variables[i]);
    s->writers += status == LS_OK;
    pthread_mutex_unlock(&s->mutex);
    return status;
}

void ls_writes_end(ls_graph *graph)
{
    ls_shared_weights *s = graph->shared_weights;
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->writers--;
    atomic_fetch_add(&s->finished, 1);
    pthread_mutex_unlock(&s->mutex);
}

void ls_variable_drop_memory(ls_graph *graph, ls_variable *variable)
{
    ls_shared_weights *s = graph->shared_weights;
    if (s) {
        pthread_mutex_lock(&s->mutex);
        s->is_final = s->is_final || variable->is_viewed;
    }
    if (s && variable->shared)
        release(s, variable->shared);
    else
        ls_context_give(graph->context, variable->device, variable->block);
    variable->shared = NULL;
    variable->block = NULL;
    if (s)
        pthread_mutex_unlock(&s->mutex);
}

void ls_shared_weights_leave(ls_graph *graph)
{
    ls_shared_weights *s = graph->shared_weights;
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->is_final = true;
    pthread_mutex_unlock(&s->mutex);
    graph->shared_weights = NULL;
    drop_reference(s);
}

/* ---- Views ---- */

static ls_status make_shared(ls_graph *graph)
{
    if (graph->shared_weights)
        return LS_OK;
    ls_shared_weights *s = calloc(1, sizeof(*s));
    if (!s)
        return no_memory();
    s->context = graph->context;
    s->references = 1;
    pthread_mutex_init(&s->mutex, NULL);
    graph->shared_weights = s;
    return LS_OK;
}

/* Replaces all references, or none. The mutex is held. */
static ls_status refer_to_all(ls_weights_view *view)
{
    ls_shared_memory **old = view->memory, **new = calloc(view->count + 1, sizeof(ls_shared_memory *));
    ls_status status = new ? LS_OK : no_memory();
    for (size_t i = 0; i < view->count && status == LS_OK; i++) {
        new[i] = refer(view->variables[i]);
        status = new[i] ? LS_OK : no_memory();
    }
    ls_shared_memory **dropped = status == LS_OK ? old : new;
    for (size_t i = 0; dropped && i < view->count; i++)
        release(view->from, dropped[i]);
    free(dropped);
    if (status == LS_OK)
        view->memory = new;
    return status;
}

ls_status ls_weights_view_open(ls_graph *graph, ls_variable *const *variables, size_t count, ls_weights_view **out)
{
    LS_TRY(make_shared(graph));
    ls_weights_view *view = calloc(1, sizeof(*view));
    ls_variable **list = malloc((count + 1) * sizeof(ls_variable *));
    if (!view || !list) {
        free(view);
        free(list);
        return no_memory();
    }
    ls_shared_weights *s = graph->shared_weights;
    if (count)
        memcpy(list, variables, count * sizeof(ls_variable *));
    *view = (ls_weights_view){ .from = s, .variables = list, .count = count };
    pthread_mutex_lock(&s->mutex);
    s->references++;
    for (size_t i = 0; i < count; i++)
        variables[i]->is_viewed = true;
    view->seen = atomic_load(&s->finished);
    ls_status status = refer_to_all(view);
    pthread_mutex_unlock(&s->mutex);
    if (status != LS_OK) {
        ls_weights_view_close(view);
        return status;
    }
    *out = view;
    return LS_OK;
}

void ls_weights_view_close(ls_weights_view *view)
{
    if (!view)
        return;
    pthread_mutex_lock(&view->from->mutex);
    for (size_t i = 0; view->memory && i < view->count; i++)
        release(view->from, view->memory[i]);
    pthread_mutex_unlock(&view->from->mutex);
    drop_reference(view->from);
    free(view->memory);
    free(view->variables);
    free(view);
}

/* Whether no write is under way and the newest values are in host memory. */
static bool can_follow(const ls_weights_view *view)
{
    if (view->from->is_final || view->from->writers > 0)
        return false;
    for (size_t i = 0; i < view->count; i++)
        if (view->variables[i]->in_host != view->variables[i]->version)
            return false;
    return true;
}

ls_status ls_weights_view_refresh(ls_weights_view *view, bool *changed)
{
    ls_status status = LS_OK;
    *changed = false;
    if (atomic_load(&view->from->finished) == view->seen)
        return LS_OK;
    pthread_mutex_lock(&view->from->mutex);
    if (can_follow(view)) {
        uint64_t seen = atomic_load(&view->from->finished);
        status = refer_to_all(view);
        *changed = status == LS_OK;
        view->seen = status == LS_OK ? seen : view->seen;
    }
    pthread_mutex_unlock(&view->from->mutex);
    return status;
}

const void *ls_weights_view_data(const ls_weights_view *view, size_t index)
{
    return view->memory[index]->data;
}
