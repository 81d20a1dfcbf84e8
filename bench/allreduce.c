#include "allreduce.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "backend/cpu/simd.h"
#include "base/clock.h"

typedef struct vectors {
    ls_peers *peers;
    const ls_simd *simd;
    int64_t count;
    int64_t slice; /* floats of a worker's part in transit at once, as in runs */
    float *own;    /* this worker's vector, then the sum */
    float *came;   /* received: the vector of each worker, or the part that this worker adds */
} vectors;

static int64_t part(const vectors *v, int rank)
{
    return v->count * rank / v->peers->size;
}

/* Uses the kernel that joins lanes. */
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

#define HUGE_PAGE ((size_t)2 << 20)

/* Number of elements of a worker's part in a slice. */
static void slice_of(const vectors *v, int rank, int64_t slice, int64_t *from, int64_t *to)
{
    int64_t first = part(v, rank), end = part(v, rank + 1);
    *from = first + slice * v->slice < end ? first + slice * v->slice : end;
    *to = *from + v->slice < end ? *from + v->slice : end;
}

static size_t add_slice(const vectors *v, int64_t slice, bool sums, ls_piece *pieces, size_t count)
{
    int me = v->peers->rank;
    int64_t from, to;
    for (int r = 0; r < v->peers->size; r++) {
        slice_of(v, r, slice, &from, &to);
        size_t bytes = (size_t)(to - from) * sizeof(float);
        if (bytes == 0)
            continue;
        if (sums)
            pieces[count++] = (ls_piece){ r, LS_ALL_WORKERS, v->own + from, bytes };
        else if (r != me)
            pieces[count++] = (ls_piece){ me, r, v->own + from, bytes };
    }
    slice_of(v, me, slice, &from, &to);
    for (int r = 0; r < v->peers->size && !sums; r++)
        if (r != me && to > from)
            pieces[count++] =
                (ls_piece){ r, me, v->came + (r * 2 + slice % 2) * v->slice, (size_t)(to - from) * sizeof(float) };
    return count;
}

static void add_rows(const vectors *v, int64_t slice)
{
    const float *rows[LS_MAX_CLUSTER];
    int64_t from, to;
    slice_of(v, v->peers->rank, slice, &from, &to);
    for (int r = 0; r < v->peers->size; r++)
        rows[r] = r == v->peers->rank ? v->own + from : v->came + (r * 2 + slice % 2) * v->slice;
    v->simd->join_f32(v->own + from, rows, v->peers->size, 0, (size_t)(to - from));
}

/* As in runs (src/run/slices.c): sends the parts of a slice to their owners while those of the last
 * slice are added; sums go with the parts of the next. */
static ls_status reduce_by_parts(vectors *v)
{
    ls_piece pieces[LS_MAX_CLUSTER * 4];
    int64_t most = 0, rounds;
    for (int r = 0; r < v->peers->size; r++)
        most = part(v, r + 1) - part(v, r) > most ? part(v, r + 1) - part(v, r) : most;
    rounds = (most + v->slice - 1) / v->slice;
    for (int64_t k = 0; k <= rounds + 1; k++) { /* round k: parts of slice k, sums of k - 2 */
        size_t count = k < rounds ? add_slice(v, k, false, pieces, 0) : 0;
        if (k >= 2)
            count = add_slice(v, k - 2, true, pieces, count);
        ls_status status = v->peers->post(v->peers, 2, "parts", pieces, count);
        if (status == LS_OK && k >= 1 && k <= rounds)
            add_rows(v, k - 1);
        if (status == LS_OK)
            status = v->peers->settle(v->peers);
        if (status != LS_OK)
            return status;
    }
    return LS_OK;
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

/* Checks the sum of vectors whose elements are rank + 1. */
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
    v.slice = (int64_t)(peers->slice / sizeof(float));
    size_t bytes = (size_t)count * sizeof(float);
    size_t room = goes_at_once(&v) ? bytes * (size_t)peers->size : peers->slice * 2 * (size_t)peers->size;
    double best = 0;
    v.own = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    v.came = calloc(1, room);
    if (!v.own || !v.came) {
        fprintf(stderr, "all-reduce: no memory\n");
        exit(1);
    }
    madvise(v.own, bytes, MADV_HUGEPAGE); /* as in runs and in NumPy */
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
