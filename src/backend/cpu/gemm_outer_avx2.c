/* Outer products for AVX2. */
#if defined(__x86_64__) || defined(__i386__)
#define LS_GEMM_ISA   avx2
#define LS_GEMM_WIDTH 8
#include "backend/cpu/gemm_outer.inc"
#else
typedef int ls_gemm_outer_avx2_absent; /* a source file must not be empty */
#endif
