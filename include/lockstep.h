/* lockstep.h: everything a program needs. Includes one header per layer, lowest first; each may
 * also be included alone. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include "lockstep/base.h"
#include "lockstep/graph.h"
#include "lockstep/device.h"
#include "lockstep/run.h"
#include "lockstep/strategy.h"
#include "lockstep/cluster.h"
#include "lockstep/data.h"
#include "lockstep/text.h"
#include "lockstep/nn.h"
#include "lockstep/train.h"
#include "lockstep/cplusplus.h" /* empty in C */

#endif
