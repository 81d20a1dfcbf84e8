/* Leaves, copies and casts. */
#include "backend/ref/array.h"

ls_status ls_ref_fill(const ls_ref_call *call)
{
    ls_ref_set(&call->out, call->node->attr.number.value);
    return LS_OK;
}

ls_status ls_ref_count(const ls_ref_call *call)
{
    ls_ref_set(&call->out, (double)call->batch);
    return LS_OK;
}

ls_status ls_ref_assign(const ls_ref_call *call)
{
    return ls_ref_copy(call, 0);
}

ls_status ls_ref_stop_gradient(const ls_ref_call *call)
{
    return ls_ref_copy(call, 0);
}

/* The run concatenates the slices' rows. */
ls_status ls_ref_gather_batch(const ls_ref_call *call)
{
    return ls_ref_copy(call, 0);
}

/* The input is whole. */
ls_status ls_ref_scatter_batch(const ls_ref_call *call)
{
    return ls_ref_copy(call, call->first * ls_ref_extent(&call->in[0].shape, 1, call->in[0].shape.rank));
}

/* ---- Cast: integers to narrower integers wrap, reals to integers saturate ---- */

#define LOOP(to_type, expression)                                                                                      \
    {                                                                                                                  \
        to_type *to = out->data;                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                                                \
            to[i] = (to_type)(expression);                                                                             \
        return;                                                                                                        \
    }

#define CAST_FROM(name, type, i32, i64, u8)                                                                            \
    static void cast_from_##name(const ls_ref_array *out, const type *in)                                              \
    {                                                                                                                  \
        int64_t n = ls_ref_elements(out);                                                                              \
        switch (out->dtype) {                                                                                          \
        case LS_F32:                                                                                                   \
            LOOP(float, in[i])                                                                                         \
        case LS_F64:                                                                                                   \
            LOOP(double, in[i])                                                                                        \
        case LS_I32:                                                                                                   \
            LOOP(int32_t, i32)                                                                                         \
        case LS_I64:                                                                                                   \
            LOOP(int64_t, i64)                                                                                         \
        case LS_U8:                                                                                                    \
            LOOP(uint8_t, u8)                                                                                          \
        case LS_BOOL:                                                                                                  \
            LOOP(uint8_t, in[i] != 0)                                                                                  \
        case LS_DTYPE_COUNT:                                                                                           \
            return;                                                                                                    \
        }                                                                                                              \
    }

#define CAST_FROM_REAL(name, type)                                                                                     \
    CAST_FROM(name, type, ls_ref_to_integer(in[i], INT32_MIN, INT32_MAX),                                              \
              ls_ref_to_integer(in[i], INT64_MIN, INT64_MAX), ls_ref_to_integer(in[i], 0, UINT8_MAX))
#define CAST_FROM_INTEGER(name, type) CAST_FROM(name, type, in[i], in[i], in[i])

CAST_FROM_REAL(f32, float)
CAST_FROM_REAL(f64, double)
CAST_FROM_INTEGER(i32, int32_t)
CAST_FROM_INTEGER(i64, int64_t)
CAST_FROM_INTEGER(u8, uint8_t)

ls_status ls_ref_cast(const ls_ref_call *call)
{
    const void *in = call->in[0].data;
    switch (call->in[0].dtype) {
    case LS_F32:
        cast_from_f32(&call->out, in);
        break;
    case LS_F64:
        cast_from_f64(&call->out, in);
        break;
    case LS_I32:
        cast_from_i32(&call->out, in);
        break;
    case LS_I64:
        cast_from_i64(&call->out, in);
        break;
    case LS_U8:
    case LS_BOOL: /* 0 or 1 */
        cast_from_u8(&call->out, in);
        break;
    case LS_DTYPE_COUNT:
        break;
    }
    return LS_OK;
}

/* The value of a group is not used. */
ls_status ls_ref_group(const ls_ref_call *call)
{
    *(int64_t *)call->out.data = 0;
    return LS_OK;
}
