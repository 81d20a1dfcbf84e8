/* The kernels for AVX2: vectors of 8 floats. */
#if defined(__x86_64__) || defined(__i386__)
#define LS_SIMD_NAME  "avx2"
#define LS_SIMD_TABLE ls_simd_avx2
#define LS_SIMD_WIDTH 8
#include "backend/cpu/simd.inc"
#else
typedef int ls_simd_avx2_absent; /* a source file must not be empty */
#endif
