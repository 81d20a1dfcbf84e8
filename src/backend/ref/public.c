/* The reference kernels for external backends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "base/fpmode.h"
#include "lockstep/backend.h"

#define FEW 16

/* Places of an update's variable and slots, old and new. */
static ls_status place_state(ls_ref_call *call, const void *const *state, void *const *new_state)
{
    ls_variable *const *slot = call->node->attr.apply.slot;
    int count = 1 + (slot[0] != NULL) + (slot[1] != NULL);
    for (int i = 0; i < count; i++) {
        if (!state || !new_state || !state[i] || !new_state[i])
            return ls_fail(LS_ERR_INVALID, "ls_reference_run: apply needs %d arrays of old state and %d of new", count,
                           count);
        call->state[i] = state[i];
        if (i > 0)
            call->slots[i - 1] = new_state[i];
    }
    if (call->out.data != new_state[0])
        return ls_fail(LS_ERR_INVALID, "ls_reference_run: the output of apply must be new_state[0]");
    return LS_OK;
}

ls_status ls_reference_run(const ls_tensor *node, const ls_program_run *run, const void *const *in,
                           const void *const *state, void *out, void *const *new_state)
{
    LS_OWN_FP_MODE;
    ls_ref_array few[FEW], *arrays = few;
    if (ls_tensor_is_error(node) || !out || !run || (node->input_count > 0 && !in))
        return ls_fail(LS_ERR_INVALID, "ls_reference_run: the node, its arrays or the run are NULL");
    if (ls_node_is_given(node))
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_reference_run: %s has no kernel; the run supplies its value",
                       ls_tensor_op(node));
    if (node->input_count > FEW && !(arrays = calloc((size_t)node->input_count, sizeof(*arrays))))
        return ls_fail(LS_ERR_MEMORY, "ls_reference_run: no memory for %d inputs", node->input_count);
    for (int i = 0; i < node->input_count; i++)
        arrays[i] =
            (ls_ref_array){ (void *)in[i], node->in[i]->dtype, ls_ref_shape(node->in[i], run->batch, run->samples) };
    ls_ref_call call = { .node = node,
                         .in = arrays,
                         .out = { out, node->dtype, ls_ref_shape(node, run->batch, run->samples) },
                         .batch = run->batch < 0 ? 1 : run->batch,
                         .lane = run->samples,
                         .first = run->first,
                         .seed = run->seed,
                         .run = run->run };
    ls_status status = ls_node_is(node, LS_TRAIT_UPDATES) ? place_state(&call, state, new_state) : LS_OK;
    if (status == LS_OK)
        status = ls_ref_run(&call);
    if (arrays != few)
        free(arrays);
    return status;
}

/* `wide`: an unsigned type for integers, so that sums wrap around. is_nan: one of the two is NaN;
 * for maximum and minimum. */
#define JOIN(type, wide, is_nan, nan)                                                                                  \
    static void join_##type(ls_join_kind kind, type *to, const type *left, const type *right, int64_t count)           \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            type a = left[i], b = right[i];                                                                            \
            if (kind == LS_JOIN_SUM)                                                                                   \
                to[i] = (type)((wide)a + (wide)b);                                                                     \
            else if (is_nan)                                                                                           \
                to[i] = nan;                                                                                           \
            else                                                                                                       \
                to[i] = (kind == LS_JOIN_MAX ? b > a : b < a) ? b : a;                                                 \
        }                                                                                                              \
    }
JOIN(float, float, isnan(a) || isnan(b), NAN)
JOIN(double, double, isnan(a) || isnan(b), (double)NAN)
JOIN(int32_t, uint32_t, false, 0)
JOIN(int64_t, uint64_t, false, 0)

void ls_reference_join(ls_join_kind kind, ls_dtype dtype, const void *left, const void *right, int64_t count, void *to)
{
    LS_OWN_FP_MODE;
    if (!to || !left)
        return;
    if (!right) {
        memmove(to, left, (size_t)count * ls_dtype_bytes(dtype));
        return;
    }
    switch (dtype) {
    case LS_F32:
        join_float(kind, to, left, right, count);
        break;
    case LS_F64:
        join_double(kind, to, left, right, count);
        break;
    case LS_I32:
        join_int32_t(kind, to, left, right, count);
        break;
    case LS_I64:
        join_int64_t(kind, to, left, right, count);
        break;
    default: /* no other type can be summed or compared */
        break;
    }
}
