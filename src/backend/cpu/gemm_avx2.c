/* Matrix products for AVX2 and FMA: vectors of 8 floats, 16 registers. */
#if defined(__x86_64__) || defined(__i386__)
#define LS_GEMM_ISA   avx2
#define LS_GEMM_WIDTH 8
#include "backend/cpu/gemm.inc"
#else
typedef int ls_gemm_avx2_absent; /* a source file must not be empty */
#endif
