/* What a graph asks of its context. The answers are above this layer, in src/device/graphs.c. */
#ifndef LS_GRAPH_CONTEXT_H
#define LS_GRAPH_CONTEXT_H

#include "base/status.h"
#include "lockstep/graph.h"

struct ls_block;

/* Opens the context if it is not open yet; `call` is what needs it. */
ls_status ls_context_begin(ls_context *ctx, const char *call);

/* LS_OK where `call` may use the context: it is not NULL, was not closed, and was made by this process, which alone has
 * its threads. A child that was forked may only destroy what it got from its parent, and that does nothing. */
ls_status ls_context_check(const ls_context *ctx, const char *call);
bool ls_context_is_inherited(const ls_context *ctx); /* by a forked child */

/* A graph of the context begins and ends. A context that is closed while it has graphs goes with the last of them. */
ls_status ls_context_add_graph(ls_context *ctx, const char *call); /* opens the context, too */
void ls_context_drop_graph(ls_context *ctx);

/* A call is at work that must end before the context is closed. outer: the call it was made in, or NULL. */
void ls_context_enter(ls_context *ctx, const char *call);
void ls_context_leave(ls_context *ctx, const char *outer);

/* What a call that returns nothing says when it is refused: the last error (LS_ERR_STATE), and a line in the log. */
void ls_context_refuse(ls_context *ctx, const char *format, ...) LS_PRINTF(2, 3);

/* Memory for a variable or a held value, 64-byte aligned, on the CPU device `device` (of another kind, or -1: the
 * first). what: for messages and reports. */
ls_status ls_context_take(ls_context *ctx, int device, size_t bytes, const char *what, struct ls_block **out);
void ls_context_give(ls_context *ctx, int device, struct ls_block *block); /* NULL: nothing */
void *ls_context_data(const struct ls_block *block);

#endif
