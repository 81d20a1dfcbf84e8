/* All-reduce alone between processes of this machine, a core each: bench_allreduce [WORKERS[,WORKERS] [ROUNDS]]. Every
 * worker has a vector, and all get the sum, as a join of a run has it: each worker gets and adds a part, and sends that
 * to all; a short vector goes to all at once, and each adds for itself. Then all commit. Prints a line of JSON for each
 * size: the best round's seconds. bench/workers.sh sets it beside gloo and Open MPI. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <lockstep.h>

#include "base/clock.h"
#include "device/context.h"
#include "run/peers.h"

#define SHORT (64 << 10) /* bytes */

static const int64_t sizes[] = { 12800, 5000000, 25000000 };

typedef struct vectors {
    ls_peers *peers;
    int64_t count;
    float *own;  /* this worker's vector, then the sum */
    float *came; /* of each worker: its vector, or its part of what this worker adds */
} vectors;

static int64_t part(const vectors *v, int rank)
{
    return v->count * rank / v->peers->size;
}

static void add(float *sum, const float *more, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += more[i];
}

/* In the order of ranks, as all must have the same bits. */
static void add_all(const vectors *v, float *own, int64_t count)
{
    float *rows = v->came;
    memcpy(rows + v->peers->rank * count, own, (size_t)count * sizeof *own);
    memcpy(own, rows, (size_t)count * sizeof *own);
    for (int r = 1; r < v->peers->size; r++)
        add(own, rows + r * count, count);
}

static ls_status reduce_short(vectors *v)
{
    ls_piece pieces[LS_MAX_CLUSTER];
    for (int r = 0; r < v->peers->size; r++)
        pieces[r] = (ls_piece){ r, LS_ALL_WORKERS, r == v->peers->rank ? v->own : v->came + r * v->count,
                                (size_t)v->count * sizeof(float) };
    ls_status status = v->peers->exchange(v->peers, 1, "vectors", pieces, (size_t)v->peers->size);
    if (status == LS_OK)
        add_all(v, v->own, v->count);
    return status;
}

static ls_status reduce_long(vectors *v)
{
    static ls_piece pieces[LS_MAX_CLUSTER * 2];
    size_t count = 0;
    int me = v->peers->rank;
    int64_t first = part(v, me), length = part(v, me + 1) - first;
    for (int r = 0; r < v->peers->size; r++) {
        if (r == me)
            continue;
        pieces[count++] =
            (ls_piece){ me, r, v->own + part(v, r), (size_t)(part(v, r + 1) - part(v, r)) * sizeof(float) };
        pieces[count++] = (ls_piece){ r, me, v->came + r * length, (size_t)length * sizeof(float) };
    }
    ls_status status = v->peers->exchange(v->peers, 2, "parts", pieces, count);
    if (status != LS_OK)
        return status;
    add_all(v, v->own + first, length);
    for (int r = 0; r < v->peers->size; r++)
        pieces[r] =
            (ls_piece){ r, LS_ALL_WORKERS, v->own + part(v, r), (size_t)(part(v, r + 1) - part(v, r)) * sizeof(float) };
    return v->peers->exchange(v->peers, 3, "sums", pieces, (size_t)v->peers->size);
}

static ls_status reduce(vectors *v)
{
    const uint64_t hash[2] = { (uint64_t)v->count, 0 };
    bool is_short = v->count * (int64_t)sizeof(float) <= SHORT;
    ls_status status = is_short ? reduce_short(v) : reduce_long(v);
    return status == LS_OK ? v->peers->commit(v->peers, hash, "vectors") : status;
}

/* The sum of vectors that are rank + 1 everywhere. */
static void check(const vectors *v)
{
    float wanted = (float)(v->peers->size * (v->peers->size + 1) / 2);
    for (int64_t i = 0; i < v->count; i++)
        if (!(v->own[i] == wanted)) {
            fprintf(stderr, "bench_allreduce: element %lld is %g, not %g\n", (long long)i, v->own[i], wanted);
            exit(1);
        }
}

static ls_status measure(ls_peers *peers, int64_t count, int rounds)
{
    vectors v = { .peers = peers, .count = count };
    size_t bytes = (size_t)count * sizeof(float);
    double best = 0;
    v.own = malloc(bytes);
    v.came = malloc(bytes <= SHORT ? bytes * (size_t)peers->size : bytes + 4096);
    if (!v.own || !v.came)
        return LS_ERR_MEMORY;
    memset(v.came, 0, bytes);
    if (bytes <= SHORT)
        rounds *= 100;
    for (int round = -1; round < rounds; round++) {
        for (int64_t i = 0; i < count; i++)
            v.own[i] = (float)(peers->rank + 1);
        double begun = ls_clock_now();
        LS_CHECK(reduce(&v));
        double seconds = ls_clock_now() - begun;
        if (round >= 0)
            best = best == 0 || seconds < best ? seconds : best;
    }
    check(&v);
    free(v.own);
    free(v.came);
    if (peers->rank == 0)
        printf(
            "{\"row\": \"allreduce\", \"framework\": \"ours\", \"workers\": %d, \"floats\": %lld, \"seconds\": %.6f}\n",
            peers->size, (long long)count, best);
    fflush(stdout);
    return LS_OK;
}

static void take_core(int rank)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (int core = 0, left = rank % CPU_COUNT(&all); core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && left-- == 0)
            CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static ls_status work(int rank, int count, void *user)
{
    ls_context *ctx;
    (void)count;
    take_core(rank);
    LS_CHECK(ls_context_open(NULL, &ctx));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        LS_CHECK(measure(ctx->peers, sizes[i], *(int *)user));
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
