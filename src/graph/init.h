/* Initial values of variables: Keras's formulas with Philox random numbers, the same bits on every
 * machine. */
#ifndef LS_GRAPH_INIT_H
#define LS_GRAPH_INIT_H

#include "lockstep/graph.h"

/* Fills in omitted settings: the kind from `preset`, numbers from Keras's defaults. Messages begin
 * with `name`. */
ls_status ls_init_resolve(const char *name, ls_initializer *value, ls_initializer preset);

/* Checks that a resolved initializer suits type and shape. */
ls_status ls_init_check(ls_initializer initializer, ls_dtype dtype, const ls_shape *shape);

bool ls_init_draws(ls_initializer initializer);

/* Key of the random numbers: variable `number` of layer `layer` of a model. Variables outside of
 * layers have number LS_INIT_ALONE and a running count as `layer`. */
typedef struct ls_init_key {
    uint64_t seed;
    uint32_t layer, number;
} ls_init_key;
#define LS_INIT_ALONE UINT32_MAX

/* Fills `data` with every element of `shape`. The initializer must be resolved. */
ls_status ls_init_fill(ls_initializer initializer, ls_dtype dtype, const ls_shape *shape, ls_init_key key, void *data);

#endif
