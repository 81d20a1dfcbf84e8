/* Outer products for AVX-512. */
#if defined(__x86_64__) || defined(__i386__)
#define LS_GEMM_ISA   avx512
#define LS_GEMM_WIDTH 16
#include "backend/cpu/gemm_outer.inc"
#else
typedef int ls_gemm_outer_avx512_absent; /* a source file must not be empty */
#endif
