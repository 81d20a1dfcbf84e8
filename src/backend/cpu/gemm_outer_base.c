/* Outer products for any CPU. */
#define LS_GEMM_ISA   base
#define LS_GEMM_WIDTH 4
#include "backend/cpu/gemm_outer.inc"
