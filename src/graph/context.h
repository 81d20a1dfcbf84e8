/* Calls that a graph makes to its context, which is defined one layer up. */
#ifndef LS_GRAPH_CONTEXT_H
#define LS_GRAPH_CONTEXT_H

#include "base/status.h"
#include "lockstep/graph.h"

struct ls_block;

/* A context begins with a pointer to this table, which is in src/device/context.c. */
typedef struct ls_context_calls {
    bool (*is_inherited)(const ls_context *ctx);
    ls_status (*add_graph)(ls_context *ctx, const char *call);
    void (*drop_graph)(ls_context *ctx);
    void (*refuse)(ls_context *ctx, const char *format, ...) LS_PRINTF(2, 3);
    ls_status (*take)(ls_context *ctx, int device, size_t bytes, const char *what, struct ls_block **out);
    void (*give)(ls_context *ctx, int device, struct ls_block *block);
    void *(*data)(const struct ls_block *block);
} ls_context_calls;

static inline const ls_context_calls *ls_context_calls_of(const ls_context *ctx)
{
    return *(const ls_context_calls *const *)(const void *)ctx;
}

/* Whether a forked child inherited it. A child lacks the context's threads; it may only destroy
 * inherited objects, which does nothing. */
static inline bool ls_context_is_inherited(const ls_context *ctx)
{
    return ls_context_calls_of(ctx)->is_inherited(ctx);
}

/* Count the context's graphs. A context that is closed while it has graphs is freed with the
 * last. */
static inline ls_status ls_context_add_graph(ls_context *ctx, const char *call) /* also opens the context */
{
    return ctx ? ls_context_calls_of(ctx)->add_graph(ctx, call)
               : ls_fail(LS_ERR_INVALID, "%s: the context is NULL", call);
}
static inline void ls_context_drop_graph(ls_context *ctx)
{
    ls_context_calls_of(ctx)->drop_graph(ctx);
}

/* Refuses a call that returns nothing: sets the last error (LS_ERR_STATE) and writes to the log. */
#define ls_context_refuse(ctx, ...) ls_context_calls_of(ctx)->refuse(ctx, __VA_ARGS__)

/* Allocates 64-byte aligned memory on CPU device `device`, or on the first CPU device if that is
 * none. what: for messages and reports. */
static inline ls_status ls_context_take(ls_context *ctx, int device, size_t bytes, const char *what,
                                        struct ls_block **out)
{
    return ls_context_calls_of(ctx)->take(ctx, device, bytes, what, out);
}
static inline void ls_context_give(ls_context *ctx, int device, struct ls_block *block) /* NULL is ignored */
{
    ls_context_calls_of(ctx)->give(ctx, device, block);
}
static inline void *ls_context_data(const ls_context *ctx, const struct ls_block *block)
{
    return ls_context_calls_of(ctx)->data(block);
}

#endif
