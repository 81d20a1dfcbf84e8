/* Sizes and names of element types. */
#include "lockstep/base.h"

static const struct {
    size_t bytes;
    const char *name;
} dtypes[LS_DTYPE_COUNT] = {
    [LS_F32] = { 4, "float32" }, [LS_F64] = { 8, "float64" }, [LS_I32] = { 4, "int32" },
    [LS_I64] = { 8, "int64" },   [LS_U8] = { 1, "uint8" },    [LS_BOOL] = { 1, "bool" },
};

size_t ls_dtype_bytes(ls_dtype dtype)
{
    return (unsigned)dtype < LS_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *ls_dtype_name(ls_dtype dtype)
{
    return (unsigned)dtype < LS_DTYPE_COUNT ? dtypes[dtype].name : "(unknown dtype)";
}
