/* Whether a placed plan fits into the memory of its devices, and saying so. */
#ifndef LS_RUN_MEMORY_CHECK_H
#define LS_RUN_MEMORY_CHECK_H

#include "run/compile.h"

/* The first device whose memory is too small for a placed plan; -1: it fits everywhere. */
int ls_memory_check_too_small(const ls_placement *placement);

/* Fails with what the plan needs of that device, what there is, what is largest, and which batch would fit. Drops the
 * plan. */
ls_status ls_memory_check_refuse(ls_compilation *m, int device, int64_t batch);

/* What a run of these fetches would need of each device, what there is, and whether it fits. */
ls_status ls_memory_check_print(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                                size_t count, int64_t batch, bool *fits, ls_text *text);

#endif
