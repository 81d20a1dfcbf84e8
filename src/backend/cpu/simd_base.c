/* The kernels for any CPU: vectors of 4 floats (SSE2, NEON, or emulated by the compiler). */
#define LS_SIMD_NAME  "base"
#define LS_SIMD_TABLE ls_simd_base
#define LS_SIMD_WIDTH 4
#include "backend/cpu/simd.inc"
