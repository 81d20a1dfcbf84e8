/* Copies formulas to another graph. */
#ifndef LS_GRAPH_COPY_H
#define LS_GRAPH_COPY_H

#include "graph/node.h"

typedef struct ls_graph_copy {
    ls_tensor **copies; /* by id of the original; NULL: not copied */
    /* The variables that were copied, and their originals. */
    ls_variable **from, **to;
    size_t variable_count;
} ls_graph_copy;

/* Copies the nodes that `roots` need to the graph `to`, whose nodes all run on the first CPU.
 * Variables have no memory there: the caller sets their `data` before a run. Refuses nodes that
 * write variables. The caller frees the lists with ls_graph_copy_free. */
ls_status ls_graph_copy_nodes(ls_tensor *const *roots, size_t count, ls_graph *to, ls_graph_copy *out);
void ls_graph_copy_free(ls_graph_copy *copy);

#endif
