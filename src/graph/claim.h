/* Claims: one thread at a time uses a graph and the model that owns it. Every public call that
 * reads or changes mutable state holds a claim until it returns; calls of the same thread nest. A
 * call from another thread fails with LS_ERR_STATE and names both calls.
 * tests/whole/claimed_calls.def lists the calls that need no claim. */
#ifndef LS_GRAPH_CLAIM_H
#define LS_GRAPH_CLAIM_H

#include "graph/node.h"

typedef struct ls_claim {
    ls_graph *graph; /* NULL: none */
    bool refused;
} ls_claim;

/* call: the public function; messages omit a trailing "_with". */
ls_claim ls_claim_begin(const ls_graph *graph, const char *call);
void ls_claim_end(ls_claim *claim);

/* Claims the graph until the end of the block. */
#define LS_CLAIM_OR(graph, refused_value)                                                                              \
    ls_claim ls_claim_ __attribute__((cleanup(ls_claim_end))) = ls_claim_begin(graph, __func__);                       \
    if (ls_claim_.refused)                                                                                             \
    return refused_value

/* For functions that return a status. */
#define LS_CLAIM(graph) LS_CLAIM_OR(graph, LS_ERR_STATE)

/* For builders. */
#define LS_CLAIM_TO_BUILD(graph) LS_CLAIM_OR(graph, ls_claim_error())
#define LS_CLAIM_TENSORS(...)                                                                                          \
    LS_CLAIM_TO_BUILD(ls_graph_of((ls_tensor *const[]){ __VA_ARGS__ },                                                 \
                                  (int)(sizeof((ls_tensor *const[]){ __VA_ARGS__ }) / sizeof(ls_tensor *))))

/* The error tensor of a refused builder. It belongs to no graph; runs report it. */
ls_tensor *ls_claim_error(void);

/* For functions whose result cannot express failure: logs the refusal. */
#define LS_CLAIM_OR_REFUSE(graph, refused_value)                                                                       \
    ls_claim ls_claim_ __attribute__((cleanup(ls_claim_end))) = ls_claim_begin(graph, __func__);                       \
    if (ls_claim_is_refused(&ls_claim_, graph))                                                                        \
    return refused_value
bool ls_claim_is_refused(const ls_claim *claim, const ls_graph *graph);

/* Claims a graph forever, to destroy it. Returns false, and logs why, if another thread uses it. */
bool ls_claim_to_destroy(const ls_graph *graph, const char *call);

#endif
