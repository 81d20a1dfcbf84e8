/* Matrix products for any CPU: vectors of 4 floats. Without a hardware fused multiply-add they are
 * slow, because base/fma.h needs about twenty instructions. */
#define LS_GEMM_ISA   base
#define LS_GEMM_WIDTH 4
#include "backend/cpu/gemm.inc"
