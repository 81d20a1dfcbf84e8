/* Checks that the copies of variables on different devices are equal. */
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "graph/claim.h"
#include "lockstep/strategy.h"
#include "run/runs.h"

/* A copy of a variable, and its location. */
typedef struct copy {
    const char *where;
    char hex[65];
} copy;

static ls_status compare(const ls_variable *variable, copy *first, const copy *found, int64_t *copies)
{
    char label[LS_NODE_TEXT];
    (*copies)++;
    if (!first->where)
        *first = *found;
    if (strcmp(first->hex, found->hex) != 0)
        return ls_fail(LS_ERR_DEVICE,
                       "ls_strategy_check: %s differs between devices: SHA-256 %.16s... on %s, %.16s... on %s",
                       ls_node_label(variable->node, label), found->hex, found->where, first->hex, first->where);
    return LS_OK;
}

/* Compares every up-to-date copy. `room` has space for the largest variable. */
static ls_status check_variable(const ls_graph *graph, const ls_variable *variable, void *room, int64_t *copies)
{
    const ls_runs *runs = graph->runs;
    const ls_context *ctx = graph->context;
    copy first = { .where = NULL };
    if (variable->in_host == variable->version && variable->data) {
        copy host = { .where = "the host" };
        LS_TRY(ls_sha256_of(variable->data, variable->bytes, host.hex));
        LS_TRY(compare(variable, &first, &host, copies));
    }
    for (int d = 0; runs && runs->states && d < ctx->device_count; d++) {
        copy here = { .where = ctx->devices[d].name };
        if (!runs->states[d] || !ls_state_has(runs->states[d], variable))
            continue;
        LS_TRY(ls_state_get(runs->states[d], variable, room));
        LS_TRY(ls_sha256_of(room, variable->bytes, here.hex));
        LS_TRY(compare(variable, &first, &here, copies));
    }
    return LS_OK;
}

ls_status ls_strategy_check(ls_graph *graph, int64_t *copies)
{
    LS_CLAIM(graph);
    int64_t compared = 0;
    size_t most = 1;
    if (!graph)
        return ls_fail(LS_ERR_INVALID, "ls_strategy_check: the graph is NULL");
    LS_TRY(ls_context_check(graph->context, "ls_strategy_check"));
    LS_TRY(ls_graph_fill(graph));
    for (size_t i = 0; i < graph->variable_count; i++)
        most = graph->variables[i]->bytes > most ? graph->variables[i]->bytes : most;
    void *room = malloc(most);
    if (!room)
        return ls_fail(LS_ERR_MEMORY, "ls_strategy_check: no memory for %zu bytes", most);
    ls_status status = LS_OK;
    for (size_t i = 0; i < graph->variable_count && status == LS_OK; i++)
        status = check_variable(graph, graph->variables[i], room, &compared);
    free(room);
    if (status == LS_OK && copies)
        *copies = compared;
    return status;
}
