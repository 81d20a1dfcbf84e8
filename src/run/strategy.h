/* Strategies as maps. */
#ifndef LS_RUN_STRATEGY_H
#define LS_RUN_STRATEGY_H

#include "lockstep/strategy.h"
#include "plan/map.h"

/* The map of a strategy; its lists are in *lists, one piece of memory to free() when the map is not used any more. */
ls_status ls_strategy_map(ls_context *ctx, const ls_strategy *strategy, int **lists, ls_task_map *out);

/* A copy of a map with lists of its own, likewise. */
ls_status ls_task_map_copy(const ls_task_map *map, int **lists, ls_task_map *out);

#endif
