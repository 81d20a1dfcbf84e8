/* Matrix products for AVX-512: vectors of 16 floats, 32 registers. */
#if defined(__x86_64__) || defined(__i386__)
#define LS_GEMM_ISA   avx512
#define LS_GEMM_WIDTH 16
#include "backend/cpu/gemm.inc"
#else
typedef int ls_gemm_avx512_absent; /* a source file must not be empty */
#endif
