/* The products for any CPU: vectors of 4 floats. Without a fused multiply-add they are slow: it takes some twenty
 * instructions (base/fma.h), a tenth of the speed or less. */
#define LS_GEMM_NAME  "base"
#define LS_GEMM_TABLE ls_gemm_base
#define LS_GEMM_WIDTH 4
#include "backend/cpu/gemm.inc"
