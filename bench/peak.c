/* Twelve chains of fused multiply-adds, which fill both units of a core. */
#include "peak.h"

#include <pthread.h>
#include <string.h>

#include "backend/cpu/simd.h"
#include "base/clock.h"

#define TRIES  5
#define ROUNDS 150000
#define MOST   256 /* threads */

#if defined(__x86_64__) || defined(__i386__)
#define EACH(do)                                                                                                       \
    do                                                                                                                 \
    (0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11)
#define START(i)        wide s##i = (wide){ 0 } + i;
#define MULTIPLY_ADD(i) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+v"(s##i) : "v"(a), "v"(b));
#define CHAINS          12
#define LOOP(name, bytes, set)                                                                                         \
    __attribute__((target(set))) static void name(void)                                                                \
    {                                                                                                                  \
        typedef float wide __attribute__((vector_size(bytes)));                                                        \
        wide a = (wide){ 0 } + 0.5f, b = (wide){ 0 } + 1.0f;                                                           \
        EACH(START)                                                                                                    \
        for (int i = 0; i < ROUNDS; i++) {                                                                             \
            EACH(MULTIPLY_ADD)                                                                                         \
        }                                                                                                              \
    }
LOOP(loop_avx2, 32, "avx2,fma")
LOOP(loop_avx512, 64, "avx512f")
#endif

typedef struct job {
    void (*loop)(void);
    pthread_barrier_t *start;
} job;

static void *run(void *argument)
{
    job *j = argument;
    pthread_barrier_wait(j->start);
    j->loop();
    return NULL;
}

/* Returns the seconds of all threads; negative: they could not be started. */
static double measure(void (*loop)(void), int threads)
{
    pthread_t thread[MOST];
    pthread_barrier_t start;
    job j = { .loop = loop, .start = &start };
    if (threads > MOST || pthread_barrier_init(&start, NULL, (unsigned)threads + 1) != 0)
        return -1;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, run, &j) != 0)
            return -1; /* the others wait until the program ends, which is soon */
    double begin = ls_clock_now();
    pthread_barrier_wait(&start);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    double seconds = ls_clock_now() - begin;
    pthread_barrier_destroy(&start);
    return seconds;
}

double ls_bench_peak(int threads)
{
    double best = 0;
#if defined(__x86_64__) || defined(__i386__)
    const char *name = ls_simd_choose()->name;
    bool wide = strcmp(name, "avx512") == 0;
    double gflop = 2.0 * (wide ? 16 : 8) * CHAINS * ROUNDS * threads * 1e-9;
    for (int i = 0; i < TRIES && strcmp(name, "base") != 0; i++) {
        double seconds = measure(wide ? loop_avx512 : loop_avx2, threads);
        best = seconds > 0 && gflop / seconds > best ? gflop / seconds : best;
    }
#endif
    (void)threads;
    return best;
}
