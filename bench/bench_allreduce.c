/* All-reduce between processes of this machine, one core each:
 *     bench_allreduce [WORKERS[,WORKERS] [ROUNDS]]
 * Prints a line of JSON for each size, with the seconds of the best round. bench/workers.sh
 * compares it with gloo and Open MPI. */
#include <stdlib.h>

#include "allreduce.h"
#include "device/context.h"

static const int64_t sizes[] = { 12800, 5000000, 25000000 };

static ls_status work(int rank, int count, void *user)
{
    ls_context *ctx;
    int rounds = *(int *)user;
    bench_take_core(rank);
    LS_CHECK(ls_context_open(NULL, &ctx));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double seconds = bench_all_reduce(ctx->peers, sizes[i], sizes[i] < 100000 ? 100 * rounds : rounds);
        if (rank == 0)
            printf("{\"row\": \"allreduce\", \"framework\": \"ours\", \"workers\": %d, \"floats\": %lld, \"seconds\": "
                   "%.6f}\n",
                   count, (long long)sizes[i], seconds);
    }
    ls_context_close(ctx);
    return LS_OK;
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    char *list = argc > 1 ? argv[1] : "2,4";
    for (char *at = list; *at; at += *at == ',') {
        int workers = (int)strtol(at, &at, 10);
        if (workers < 2 || workers > LS_MAX_CLUSTER) {
            fprintf(stderr, "bench_allreduce: %s: expected numbers of workers from 2 to %d\n", list, LS_MAX_CLUSTER);
            return 2;
        }
        LS_CHECK(ls_spawn(workers, work, &rounds));
    }
    return 0;
}
