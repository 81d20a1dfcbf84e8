/* Variables that other threads read while the graph's user may write them (ls_model_share).
 *
 * A view is a list of variables and references to their memory after the last finished write, for
 * example a training step. It copies nothing. A writer calls ls_writes_begin
 * first: it gives memory of its own to each variable whose memory a view refers to,
 * so that views keep their values. A view follows at its next refresh, never in the middle of a
 * write. */
#ifndef LS_GRAPH_SHARED_WEIGHTS_H
#define LS_GRAPH_SHARED_WEIGHTS_H

#include "graph/node.h"

/* ---- Writers: the thread that has claimed the graph ---- */

/* Brackets writes to the memory of variables; calls nest. ls_writes_begin fails only if memory is
 * short, and then nothing may be written and ls_writes_end is not called. */
ls_status ls_writes_begin(ls_graph *graph, ls_variable *const *variables, size_t count);
void ls_writes_end(ls_graph *graph);

/* A variable is deleted: frees its memory, or leaves it to the views that refer to it. */
void ls_variable_drop_memory(ls_graph *graph, ls_variable *variable);

/* The graph is deleted: its views keep their values. */
void ls_shared_weights_leave(ls_graph *graph);

/* ---- Views ---- */

typedef struct ls_weights_view ls_weights_view;

/* Makes a view of variables that are in host memory. The caller has claimed the graph and closes
 * the view, also after the graph is gone. */
ls_status ls_weights_view_open(ls_graph *graph, ls_variable *const *variables, size_t count, ls_weights_view **out);
void ls_weights_view_close(ls_weights_view *view);

/* Follows the last finished write; *changed: there was one. For any thread, one at a time. */
ls_status ls_weights_view_refresh(ls_weights_view *view, bool *changed);
const void *ls_weights_view_data(const ls_weights_view *view, size_t index);

#endif
