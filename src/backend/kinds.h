/* The built-in device kinds besides the CPU. */
#ifndef LS_BACKEND_KINDS_H
#define LS_BACKEND_KINDS_H

#include "base/text.h"
#include "device/context.h"

void ls_context_add_own_kinds(ls_context *ctx);

/* For contexts with a vendor kind: check_vendor verifies after opening that it has devices with
 * equal bits; describe_vendor writes the entry of the bit class: "vendor: cuBLAS 13.0.2 and
 * ...". */
ls_status ls_context_check_vendor(const ls_context *ctx);
void ls_context_describe_vendor(const ls_context *ctx, ls_text *out);

#endif
