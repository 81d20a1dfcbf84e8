#include "allreduce.h"

#include <sched.h>
#include <stdlib.h>

#include "backend/cpu/simd.h"
#include "base/clock.h"

typedef struct vectors {
    ls_peers *peers;
    const ls_simd *simd;
    int64_t count;
    float *own;  /* this worker's vector, then the sum */
    float *came; /* of each worker: its vector, or its part of what this worker adds */
} vectors;

static int64_t part(const vectors *v, int rank)
{
    return v->count * rank / v->peers->size;
}

/* By the kernel that joins lanes. */
static void add_all(const vectors *v, float *own, int64_t count)
{
    const float *rows[LS_MAX_CLUSTER];
    for (int r = 0; r < v->peers->size; r++)
        rows[r] = r == v->peers->rank ? own : v->came + r * count;
    v->simd->join_f32(own, rows, v->peers->size, 0, (size_t)count);
}

static ls_status reduce_at_once(vectors *v)
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

static ls_status reduce_by_parts(vectors *v)
{
    ls_piece pieces[LS_MAX_CLUSTER * 2];
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

static bool goes_at_once(const vectors *v)
{
    return v->count * (int64_t)sizeof(float) <= BENCH_SHORT;
}

static ls_status reduce(vectors *v)
{
    const uint64_t hash[2] = { (uint64_t)v->count, 0 };
    ls_status status = goes_at_once(v) ? reduce_at_once(v) : reduce_by_parts(v);
    return status == LS_OK ? v->peers->commit(v->peers, hash, "vectors") : status;
}

/* The sum of vectors that are rank + 1 everywhere. */
static void check(const vectors *v)
{
    float wanted = (float)(v->peers->size * (v->peers->size + 1) / 2);
    for (int64_t i = 0; i < v->count; i++)
        if (!(v->own[i] == wanted)) {
            fprintf(stderr, "all-reduce: element %lld is %g, not %g\n", (long long)i, v->own[i], wanted);
            exit(1);
        }
}

double bench_all_reduce(ls_peers *peers, int64_t count, int rounds)
{
    vectors v = { .peers = peers, .simd = ls_simd_choose(), .count = count };
    size_t bytes = (size_t)count * sizeof(float);
    size_t room = goes_at_once(&v) ? bytes * (size_t)peers->size : bytes + sizeof(float) * LS_MAX_CLUSTER;
    double best = 0;
    v.own = malloc(bytes);
    v.came = calloc(1, room);
    if (!v.own || !v.came) {
        fprintf(stderr, "all-reduce: no memory\n");
        exit(1);
    }
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
    return best;
}

void bench_take_core(int rank)
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
