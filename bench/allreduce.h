/* All-reduce alone between the workers of a cluster, as a join of a run has it, and how long it takes; for the
 * benchmarks that measure it. */
#ifndef LS_BENCH_ALLREDUCE_H
#define LS_BENCH_ALLREDUCE_H

#include <lockstep.h>

#include "run/peers.h"

/* Of vectors that are longer than this, each worker gets and adds a part, and sends that to all. Shorter ones go to
 * all, and each adds for itself. */
#define BENCH_SHORT (64 << 10) /* bytes */

/* The best of `rounds` all-reduces of `count` floats, with their commits. Called by all workers. A wrong sum ends the
 * process. */
double bench_all_reduce(ls_peers *peers, int64_t count, int rounds);

/* This process on one core: that of its rank, round and round. */
void bench_take_core(int rank);

#endif
