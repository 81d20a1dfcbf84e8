/* All-reduce between the workers of a cluster, as in the joins of a run, with its time. */
#ifndef LS_BENCH_ALLREDUCE_H
#define LS_BENCH_ALLREDUCE_H

#include <lockstep.h>

#include "run/peers.h"

/* For longer vectors each worker adds one part and sends the sum to all. Shorter ones are sent to
 * all, and each worker adds them itself. */
#define BENCH_SHORT (64 << 10) /* bytes */

/* Returns the best time of `rounds` all-reduces of `count` floats, with their commits. All workers
 * call it. A wrong sum ends the process. */
double bench_all_reduce(ls_peers *peers, int64_t count, int rounds);

/* Binds this process to one core, by its rank. */
void bench_take_core(int rank);

#endif
