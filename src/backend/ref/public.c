/* The reference kernels, for backends from outside. */
#include <stdlib.h>

#include "backend/ref/ref.h"
#include "base/fpmode.h"
#include "lockstep/backend.h"

#define FEW 16

ls_status ls_reference_run(const ls_tensor *node, const void *const *in, void *out, const ls_program_run *run)
{
    LS_OWN_FP_MODE;
    ls_ref_array few[FEW], *arrays = few;
    if (ls_tensor_is_error(node) || !out || !run)
        return ls_fail(LS_ERR_INVALID, "ls_reference_run: a node, its arrays and a run are needed");
    if (ls_ops[node->op].kernel == LS_KERNEL_NONE || node->op == LS_OP_apply)
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_reference_run: %s is not computed", ls_tensor_op(node));
    if (node->input_count > FEW && !(arrays = calloc((size_t)node->input_count, sizeof(*arrays))))
        return ls_fail(LS_ERR_MEMORY, "ls_reference_run: no memory for %d inputs", node->input_count);
    for (int i = 0; i < node->input_count; i++)
        arrays[i] =
            (ls_ref_array){ (void *)in[i], node->in[i]->dtype, ls_ref_shape(node->in[i], run->batch, run->samples) };
    ls_ref_call call = { .node = node,
                         .in = arrays,
                         .out = { out, node->dtype, ls_ref_shape(node, run->batch, run->samples) },
                         .batch = run->batch < 0 ? 1 : run->batch,
                         .first = run->first,
                         .seed = run->seed,
                         .run = run->run };
    ls_status status = ls_ref_run(&call);
    if (arrays != few)
        free(arrays);
    return status;
}
