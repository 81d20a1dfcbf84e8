/* The self-check: computations that devices with faulty arithmetic get wrong: subnormals, division,
 * roots and math functions, compared with the CPU's reference kernels. Part of the bit class
 * (canary.c). */
#ifndef LS_RUN_SELF_CHECK_H
#define LS_RUN_SELF_CHECK_H

#include "base/text.h"
#include "device/context.h"

/* Checks every distinct device. Those that differ are logged as warnings and appended to the text:
 * "; CUDA self-check 0123456789abcdef (division)". */
ls_status ls_self_check(ls_context *ctx, ls_text *text);

#endif
