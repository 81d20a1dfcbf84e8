/* Expressions of one op, or of a few that are fused, at random shapes: every choice is drawn from a
 * seed, so that several devices get the same. Leaves are made as in graph_cases.h. */
#ifndef TESTS_SHAPES_H
#define TESTS_SHAPES_H

#include "base/philox.h"
#include "graph_cases.h"

typedef struct test_draws {
    ls_philox_key key;
    uint32_t count;
} test_draws;

test_draws test_draws_of(uint32_t seed, uint32_t stream);
uint32_t test_draw(test_draws *d, uint32_t below);

/* A family of expressions. make: adds leaves to the graph and gives the result; an error or NULL
 * where the shapes drawn do not go together. */
typedef struct test_shapes {
    const char *name;
    ls_tensor *(*make)(test_graph *t, test_draws *d);
    int share; /* how many of a round's expressions are of this family */
} test_shapes;

extern const test_shapes test_shape_families[];
extern const size_t test_shape_family_count;

#endif
