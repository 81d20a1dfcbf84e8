/* A context and a graph for each test: WITH_GRAPH(test) in the list of tests. After cmocka.h. */
#ifndef TESTS_WITH_GRAPH_H
#define TESTS_WITH_GRAPH_H

#include "lockstep.h"

static ls_context *ctx;
static ls_graph *g;

static inline int open_graph(void **state)
{
    (void)state;
    return ls_context_open(NULL, &ctx) != LS_OK || ls_graph_create(ctx, &g, .seed = 7) != LS_OK;
}

static inline int close_graph(void **state)
{
    (void)state;
    ls_graph_destroy(g);
    ls_context_close(ctx);
    return 0;
}

#define WITH_GRAPH(test) cmocka_unit_test_setup_teardown(test, open_graph, close_graph)

#endif
