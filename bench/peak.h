/* What the machine could do at most: a loop of fused multiply-adds on registers, nothing else. */
#ifndef LS_BENCH_PEAK_H
#define LS_BENCH_PEAK_H

/* GFLOPS of `threads` threads together, with the instruction set that the library's kernels use (ls_simd_choose); the
 * best of several short tries, 0.1 s in all. 0 where that set has no fused multiply-add. */
double ls_bench_peak(int threads);

#endif
