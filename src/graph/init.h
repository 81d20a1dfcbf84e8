/* Initial values of variables, by Keras's formulas, from Philox: the same key gives the same bits anywhere. */
#ifndef LS_GRAPH_INIT_H
#define LS_GRAPH_INIT_H

#include "lockstep/graph.h"

/* Fills in what was left out: the kind by `preset`, numbers by Keras's. The message begins with `name`. */
ls_status ls_init_settle(const char *name, ls_initializer *value, ls_initializer preset);

/* Whether a settled initializer suits the type and the shape: what can be said before there are values. */
ls_status ls_init_check(ls_initializer initializer, ls_dtype dtype, const ls_shape *shape);

bool ls_init_draws(ls_initializer initializer); /* random numbers */

/* Which numbers are drawn: variable `number` of layer `layer` of a model. Variables that belong to no layer count
 * themselves, as LS_INIT_ALONE of "layer" 0, 1, ... */
typedef struct ls_init_key {
    uint64_t seed;
    uint32_t layer, number;
} ls_init_key;
#define LS_INIT_ALONE UINT32_MAX

/* Fills `data`, which holds every element of `shape`. The initializer is settled. */
ls_status ls_init_fill(ls_initializer initializer, ls_dtype dtype, const ls_shape *shape, ls_init_key key, void *data);

#endif
