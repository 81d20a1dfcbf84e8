/* Functions that a graph needs from its context; defined one layer up, in src/device/graphs.c. */
#ifndef LS_GRAPH_CONTEXT_H
#define LS_GRAPH_CONTEXT_H

#include "base/status.h"
#include "lockstep/graph.h"

struct ls_block;

/* Opens the context if necessary, for the public function `call`. */
ls_status ls_context_begin(ls_context *ctx, const char *call);

/* Returns LS_OK if the context is not NULL, not closed, and created by this process. A forked child
 * lacks the context's threads; it may only destroy inherited objects, which does nothing. */
ls_status ls_context_check(const ls_context *ctx, const char *call);
bool ls_context_is_inherited(const ls_context *ctx); /* whether a forked child inherited it */

/* Count the context's graphs. A context that is closed while it has graphs is freed with the
 * last. */
ls_status ls_context_add_graph(ls_context *ctx, const char *call); /* also opens the context */
void ls_context_drop_graph(ls_context *ctx);

/* Marks a call that must end before the context can be closed. outer: the enclosing call, or
 * NULL. */
void ls_context_enter(ls_context *ctx, const char *call);
void ls_context_leave(ls_context *ctx, const char *outer);

/* Refuses a call that returns nothing: sets the last error (LS_ERR_STATE) and writes to the log. */
void ls_context_refuse(ls_context *ctx, const char *format, ...) LS_PRINTF(2, 3);

/* Allocates 64-byte aligned memory on CPU device `device`, or on the first CPU device if that is
 * none. what: for messages and reports. */
ls_status ls_context_take(ls_context *ctx, int device, size_t bytes, const char *what, struct ls_block **out);
void ls_context_give(ls_context *ctx, int device, struct ls_block *block); /* NULL is ignored */
void *ls_context_data(const struct ls_block *block);

#endif
