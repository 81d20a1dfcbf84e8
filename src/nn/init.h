/* Initial values of variables, by Keras's formulas, from Philox: the same key gives the same bits anywhere. */
#ifndef LS_NN_INIT_H
#define LS_NN_INIT_H

#include "lockstep/nn.h"

/* What can be said before there are values: that the shape suits the initializer. */
ls_status ls_init_check(ls_initializer initializer, const ls_shape *shape);

/* Fills `out`, which holds every element of `shape`, for variable `number` of layer `layer`. The initializer is
 * settled. */
ls_status ls_init_fill(ls_initializer initializer, const ls_shape *shape, uint64_t seed, int64_t layer, size_t number,
                       float *out);

#endif
