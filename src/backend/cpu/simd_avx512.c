/* The kernels for AVX-512 (F, DQ, BW, VL): vectors of 16 floats. */
#if defined(__x86_64__) || defined(__i386__)
#define LS_SIMD_NAME  "avx512"
#define LS_SIMD_TABLE ls_simd_avx512
#define LS_SIMD_WIDTH 16
#include "backend/cpu/simd.inc"
#else
typedef int ls_simd_avx512_absent; /* a source file must not be empty */
#endif
