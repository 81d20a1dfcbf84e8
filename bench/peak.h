/* Peak speed of the machine: a loop of fused multiply-adds on registers. */
#ifndef LS_BENCH_PEAK_H
#define LS_BENCH_PEAK_H

/* Returns the GFLOPS of `threads` threads together, with the instruction set of the library's
 * kernels (ls_simd_choose): the best of several tries, 0.1 s in total. 0 if the set has no fused
 * multiply-add. */
double ls_bench_peak(int threads);

#endif
