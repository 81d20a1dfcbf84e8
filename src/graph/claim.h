/* The claim on a graph: one thread at a time uses a graph, and the model that it belongs to. Every public call that
 * reads or changes what can change begins with LS_CLAIM or one of its forms; the thread has the graph until the call
 * returns. Calls within calls are free. Another thread's call fails with LS_ERR_STATE and a message that names both.
 * Calls that read only what never changes (a tensor's shape, a model's name) need no claim; tests/claimed_calls.def
 * lists them. */
#ifndef LS_GRAPH_CLAIM_H
#define LS_GRAPH_CLAIM_H

#include "graph/node.h"

typedef struct ls_claim {
    ls_graph *graph; /* NULL: there was none to claim */
    bool refused;
} ls_claim;

/* call: the name of the public function; "_with" at its end is left out in messages. */
ls_claim ls_claim_begin(const ls_graph *graph, const char *call);
void ls_claim_end(ls_claim *claim);

/* For the rest of the block, left on any way out. */
#define LS_CLAIM_OR(graph, refused_value)                                                                              \
    ls_claim ls_claim_ __attribute__((cleanup(ls_claim_end))) = ls_claim_begin(graph, __func__);                       \
    if (ls_claim_.refused)                                                                                             \
    return refused_value

/* For calls that return a status. */
#define LS_CLAIM(graph) LS_CLAIM_OR(graph, LS_ERR_STATE)

/* For builders: of a graph, or of the graph of these tensors. */
#define LS_CLAIM_TO_BUILD(graph) LS_CLAIM_OR(graph, ls_claim_error())
#define LS_CLAIM_TENSORS(...)                                                                                          \
    LS_CLAIM_TO_BUILD(ls_graph_of((ls_tensor *const[]){ __VA_ARGS__ },                                                 \
                                  (int)(sizeof((ls_tensor *const[]){ __VA_ARGS__ }) / sizeof(ls_tensor *))))

/* The error tensor of a builder that was refused: it belongs to no graph, since no thread may add to one that another
 * uses. Runs report it. */
ls_tensor *ls_claim_error(void);

/* For calls whose result cannot say that they were refused: the log says it. */
#define LS_CLAIM_OR_REFUSE(graph, refused_value)                                                                       \
    ls_claim ls_claim_ __attribute__((cleanup(ls_claim_end))) = ls_claim_begin(graph, __func__);                       \
    if (ls_claim_is_refused(&ls_claim_, graph))                                                                        \
    return refused_value
bool ls_claim_is_refused(const ls_claim *claim, const ls_graph *graph);

/* Claims a graph that is to be destroyed, for ever; false: another thread uses it, and the log says so. */
bool ls_claim_to_destroy(const ls_graph *graph, const char *call);

#endif
