/* Converts strategies to task maps. */
#ifndef LS_RUN_STRATEGY_H
#define LS_RUN_STRATEGY_H

#include "lockstep/strategy.h"
#include "plan/map.h"

/* Makes the map of a strategy. *lists: its arrays, to free() with the map. */
ls_status ls_strategy_map(ls_context *ctx, const ls_strategy *strategy, int **lists, ls_task_map *out);

/* Copies a map with its arrays. *lists as above. */
ls_status ls_task_map_copy(const ls_task_map *map, int **lists, ls_task_map *out);

#endif
