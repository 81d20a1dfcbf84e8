/* Initial values of variables, by Keras's formulas, from Philox: the same key gives the same bits anywhere. */
#ifndef LS_NN_INIT_H
#define LS_NN_INIT_H

#include "base/philox.h"
#include "lockstep/nn.h"

/* Fills `out`, which holds every element of `shape`. The initializer is settled. */
ls_status ls_init_fill(ls_initializer initializer, const ls_shape *shape, ls_philox_key key, float *out);

#endif
