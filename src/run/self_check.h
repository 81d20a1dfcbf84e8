/* The self-check: small computations that devices with faulty arithmetic get wrong. Unlike the
 * canary it covers subnormals, division, roots and math functions, and compares with the CPU's
 * reference kernels. The bit class uses it (canary.c). */
#ifndef LS_RUN_SELF_CHECK_H
#define LS_RUN_SELF_CHECK_H

#include "base/text.h"
#include "device/context.h"

/* Runs the self-check on every distinct device of the context. Devices that differ from the
 * reference kernels are logged as warnings and appended to the text: "; CUDA self-check
 * 0123456789abcdef (division)". */
ls_status ls_self_check(ls_context *ctx, ls_text *text);

#endif
