/* Joins of partials in host memory. */
#ifndef LS_RUN_HOST_JOINS_H
#define LS_RUN_HOST_JOINS_H

#include "run/executor_private.h"

/* ls_host_join joins a range of elements of all lanes, own and received. ls_host_join_block
 * computes T of a block of lanes into the first that has partials. */
ls_status ls_host_join(ls_executor *e, int join, int thread, int64_t from, int64_t to);
void ls_host_join_block(ls_executor *e, int segment, int first, int count, int thread);

/* Records the range of some results of a join, from any thread. */
void ls_executor_note_range(ls_executor *e, int join, ls_range range);

#endif
