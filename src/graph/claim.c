/* Claims on graphs (claim.h). */
#include "graph/claim.h"

#include <string.h>

#include "graph/context.h"

static _Thread_local char this_thread; /* its address identifies the thread */

static ls_tensor refused_tensor = { .op = LS_OP_ERROR,
                                    .status = LS_ERR_STATE,
                                    .message = "a tensor was built while another thread used the graph: one thread at "
                                               "a time uses a graph" };

ls_tensor *ls_claim_error(void)
{
    return &refused_tensor;
}

/* Messages omit the suffix: users call ls_fit, a macro for ls_fit_with. */
static int name_length(const char *call)
{
    size_t length = strlen(call);
    return (int)(length > 5 && strcmp(call + length - 5, "_with") == 0 ? length - 5 : length);
}

static void refuse(const ls_graph *graph, const char *call)
{
    const char *other = atomic_load_explicit(&graph->claim.call, memory_order_relaxed);
    other = other ? other : "another call";
    ls_fail(LS_ERR_STATE,
            "%.*s: %.*s is using %s%s%s on another thread; only one thread at a time may use a model or graph: wait "
            "until that "
            "call has returned, or give each thread a model of its own",
            name_length(call), call, name_length(other), other, graph->owner ? "model \"" : "the graph",
            graph->owner ? graph->owner : "", graph->owner ? "\"" : "");
}

ls_claim ls_claim_begin(const ls_graph *graph, const char *call)
{
    ls_graph *claimed = (ls_graph *)graph; /* a claim does not count as a change */
    const void *nobody = NULL;
    if (!graph)
        return (ls_claim){ NULL, false };
    if (atomic_load_explicit(&graph->claim.thread, memory_order_relaxed) == &this_thread) {
        claimed->claim.depth++;
        return (ls_claim){ claimed, false };
    }
    if (!atomic_compare_exchange_strong_explicit(&claimed->claim.thread, &nobody, (const void *)&this_thread,
                                                 memory_order_acquire, memory_order_relaxed)) {
        refuse(graph, call);
        return (ls_claim){ NULL, true };
    }
    atomic_store_explicit(&claimed->claim.call, call, memory_order_relaxed);
    claimed->claim.depth = 1;
    return (ls_claim){ claimed, false };
}

void ls_claim_end(ls_claim *claim)
{
    if (claim->graph && --claim->graph->claim.depth == 0)
        atomic_store_explicit(&claim->graph->claim.thread, NULL, memory_order_release);
}

bool ls_claim_is_refused(const ls_claim *claim, const ls_graph *graph)
{
    if (claim->refused)
        ls_context_refuse(graph->context, "%s", ls_last_error());
    return claim->refused;
}

bool ls_claim_to_destroy(const ls_graph *graph, const char *call)
{
    ls_claim claim = ls_claim_begin(graph, call);
    return !ls_claim_is_refused(&claim, graph);
}
