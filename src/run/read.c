/* Reads tensors: views, copies, scalars and text. */
#include "run/read.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/status.h"
#include "base/text.h"
#include "graph/claim.h"
#include "run/eval.h"

ls_status ls_value(ls_tensor *tensor, ls_array *out)
{
    LS_CLAIM(tensor ? tensor->graph : NULL);
    LS_OWN_FP_MODE;
    if (!tensor || !out)
        return ls_fail(LS_ERR_INVALID, "reading a tensor: the tensor or the output pointer is NULL");
    if (tensor->op == LS_OP_ERROR)
        return ls_fail(tensor->status, "%s", tensor->message);
    if (tensor->op == LS_OP_variable) {
        LS_TRY(ls_variable_sync_to_host(tensor->attr.variable.variable));
        *out = (ls_array){ tensor->attr.variable.variable->data, tensor->dtype, tensor->shape };
        return LS_OK;
    }
    LS_TRY(ls_run_eagerly(tensor));
    *out = (ls_array){ tensor->held.data, tensor->dtype, ls_shape_at(&tensor->shape, tensor->held.batch) };
    return LS_OK;
}

ls_status ls_read(ls_tensor *tensor, void *data, size_t bytes)
{
    LS_CLAIM(tensor ? tensor->graph : NULL);
    LS_OWN_FP_MODE;
    ls_array value;
    int64_t count = 0;
    LS_TRY(ls_value(tensor, &value));
    ls_shape_count(&value.shape, 0, &count);
    size_t held = (size_t)count * ls_dtype_bytes(value.dtype);
    if (held != bytes) {
        char label[LS_NODE_TEXT], text[LS_SHAPE_TEXT];
        return ls_fail(LS_ERR_SHAPE, "%s of shape %s has %zu bytes, but the buffer has %zu",
                       ls_node_label(tensor, label), ls_shape_format(&value.shape, text), held, bytes);
    }
    if (bytes && !data)
        return ls_fail(LS_ERR_INVALID, "the buffer is NULL but its size is %zu bytes", bytes);
    if (bytes)
        memcpy(data, value.data, bytes);
    return LS_OK;
}

static double element(const ls_array *value, int64_t i)
{
    switch (value->dtype) {
    case LS_F32:
        return ((const float *)value->data)[i];
    case LS_F64:
        return ((const double *)value->data)[i];
    case LS_I32:
        return ((const int32_t *)value->data)[i];
    case LS_I64:
        return (double)((const int64_t *)value->data)[i];
    default:
        return ((const uint8_t *)value->data)[i];
    }
}

ls_status ls_read_scalar(ls_tensor *tensor, double *out)
{
    LS_CLAIM(tensor ? tensor->graph : NULL);
    LS_OWN_FP_MODE;
    ls_array value;
    int64_t count = 0;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_read_scalar: the output pointer is NULL");
    LS_TRY(ls_value(tensor, &value));
    ls_shape_count(&value.shape, 0, &count);
    if (count != 1) {
        char label[LS_NODE_TEXT];
        return ls_fail(LS_ERR_SHAPE, "ls_read_scalar: %s has %lld elements, but must have 1",
                       ls_node_label(tensor, label), (long long)count);
    }
    *out = element(&value, 0);
    return LS_OK;
}

/* ---- Text ---- */

/* NumPy's format: floats without a fraction end in a point, others have up to 8 digits (float64:
 * 16). */
static void put_element(ls_text *text, const ls_array *value, int64_t i)
{
    double x = element(value, i);
    if (value->dtype == LS_BOOL)
        ls_text_put(text, x != 0 ? "True" : "False");
    else if (value->dtype == LS_I64)
        ls_text_add(text, "%" PRId64, ((const int64_t *)value->data)[i]);
    else if (value->dtype != LS_F32 && value->dtype != LS_F64)
        ls_text_add(text, "%d", (int)x);
    else if (isfinite(x) && x == floor(x) && fabs(x) < 1e15)
        ls_text_add(text, "%.0f.", x);
    else
        ls_text_add(text, "%.*g", value->dtype == LS_F32 ? 8 : 16, x);
}

#define SHOWN       3    /* Elements shown at each end of a long axis. */
#define SHOWN_WHOLE 1000 /* Arrays of up to this many elements are shown completely. */

static void put_axis(ls_text *text, const ls_array *value, int axis, int64_t offset, const int64_t *strides, bool all)
{
    if (axis == value->shape.rank) {
        put_element(text, value, offset);
        return;
    }
    int64_t size = value->shape.dims[axis];
    bool cut = !all && size > 2 * SHOWN, last = axis + 1 == value->shape.rank;
    ls_text_put(text, "[");
    for (int64_t i = 0; i < size; i++) {
        if (i > 0 && last)
            ls_text_put(text, " ");
        if (i > 0 && !last) {
            for (int blank = axis + 1; blank < value->shape.rank; blank++)
                ls_text_put(text, "\n");
            ls_text_pad(text, (size_t)axis + 1);
        }
        if (cut && i == SHOWN) {
            ls_text_put(text, "...");
            i = size - SHOWN - 1;
            continue;
        }
        put_axis(text, value, axis + 1, offset + i * strides[axis], strides, all);
    }
    ls_text_put(text, "]");
}

/* Example: "[22. 28.], shape=(2,), dtype=float32". */
static void put_value(ls_text *text, const ls_array *value)
{
    int64_t strides[LS_MAX_RANK], count = 0;
    char shape[LS_SHAPE_TEXT];
    ls_shape_strides(&value->shape, strides);
    ls_shape_count(&value->shape, 0, &count);
    put_axis(text, value, 0, 0, strides, count <= SHOWN_WHOLE);
    ls_text_add(text, ", shape=%s, dtype=%s", ls_shape_format(&value->shape, shape), ls_dtype_name(value->dtype));
}

void ls_put_tensor(ls_text *text, const ls_array *value)
{
    ls_text inner = { 0 };
    put_value(&inner, value);
    bool lines = strchr(ls_text_get(&inner), '\n') != NULL;
    ls_text_add(text, "tf.Tensor(%s%s)", lines ? "\n" : "", ls_text_get(&inner));
    text->failed = text->failed || inner.failed;
    ls_text_free(&inner);
}

ls_status ls_format(ls_tensor *tensor, char **out)
{
    LS_CLAIM(tensor ? tensor->graph : NULL);
    LS_OWN_FP_MODE;
    ls_array value;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_format: the output pointer is NULL");
    LS_TRY(ls_value(tensor, &value));
    ls_text text = { 0 };
    put_value(&text, &value);
    return ls_text_take(&text, out);
}

ls_status ls_print(ls_tensor *tensor, FILE *out)
{
    LS_CLAIM(tensor ? tensor->graph : NULL);
    LS_OWN_FP_MODE;
    char *text = NULL;
    ls_array value;
    ls_text line = { 0 };
    LS_TRY(ls_value(tensor, &value));
    ls_put_tensor(&line, &value);
    LS_TRY(ls_text_take(&line, &text));
    int printed = fprintf(out ? out : stdout, "%s\n", text);
    free(text);
    return printed < 0 ? ls_fail(LS_ERR_IO, "ls_print: writing to the stream failed") : LS_OK;
}
