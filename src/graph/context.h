/* What a graph asks of its context. The answers are above this layer, in src/device/graphs.c. */
#ifndef LS_GRAPH_CONTEXT_H
#define LS_GRAPH_CONTEXT_H

#include "lockstep/graph.h"

struct ls_block;

/* Opens the context if it is not open yet; `call` is what needs it. */
ls_status ls_context_begin(ls_context *ctx, const char *call);

/* Memory for a variable or a held value, 64-byte aligned, on the CPU device `device` (of another kind, or -1: the
 * first). what: for messages and reports. */
ls_status ls_context_take(ls_context *ctx, int device, size_t bytes, const char *what, struct ls_block **out);
void ls_context_give(ls_context *ctx, int device, struct ls_block *block); /* NULL: nothing */
void *ls_context_data(const struct ls_block *block);

#endif
