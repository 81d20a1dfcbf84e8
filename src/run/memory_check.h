/* Checks whether a placed plan fits in the memory of its devices, and reports it. */
#ifndef LS_RUN_MEMORY_CHECK_H
#define LS_RUN_MEMORY_CHECK_H

#include "run/compile.h"

/* Returns the first device with too little memory; -1: none. */
int ls_memory_check_too_small(const ls_placement *placement);

/* Adds a sentence if CPU devices need more than the machine or a control group allows; else
 * nothing. */
void ls_memory_check_describe_host(const ls_placement *placement, ls_text *text);

/* Fails with bytes needed and available, the largest values, and the batch that would fit. Drops
 * the plan. */
ls_status ls_memory_check_refuse(ls_compilation *m, int device, int64_t batch);

/* Prints for each device what a run needs and whether it fits. */
ls_status ls_memory_check_print(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                                size_t count, int64_t batch, bool *fits, ls_text *text);

#endif
