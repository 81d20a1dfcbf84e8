/* Calls the functions of a program's ops, sample by sample. */
#include "graph/custom.h"

#include <string.h>

#include "backend/ref/array.h"

/* Inputs of the op for one sample after another. */
typedef struct inputs {
    const void *at[LS_MAX_CUSTOM_INPUTS];
    size_t step[LS_MAX_CUSTOM_INPUTS]; /* bytes from one sample to the next; 0: all samples share it */
    ls_dtype dtypes[LS_MAX_CUSTOM_INPUTS];
    ls_shape shapes[LS_MAX_CUSTOM_INPUTS];
    char message[LS_CUSTOM_MESSAGE_BYTES];
    ls_custom_sample sample;
} inputs;

static size_t bytes_of(const ls_shape *shape, ls_dtype dtype)
{
    return (size_t)ls_ref_extent(shape, 0, shape->rank) * ls_dtype_bytes(dtype);
}

static void begin(inputs *x, const ls_ref_call *call)
{
    const ls_tensor *node = call->node;
    int first = ls_custom_first_input(node), count = node->input_count - first;
    for (int i = 0; i < count; i++) {
        const ls_ref_array *array = &call->in[first + i];
        bool per_sample = node->in[first + i]->per_sample;
        x->at[i] = array->data;
        x->dtypes[i] = array->dtype;
        x->shapes[i] = ls_custom_sample_shape(&array->shape, per_sample);
        x->step[i] = per_sample ? bytes_of(&x->shapes[i], array->dtype) : 0;
    }
    x->sample = (ls_custom_sample){ .input_count = count,
                                    .inputs = x->at,
                                    .dtypes = x->dtypes,
                                    .shapes = x->shapes,
                                    .index = node->per_sample ? call->first : 0,
                                    .message = x->message };
}

static void next(inputs *x)
{
    for (int i = 0; i < x->sample.input_count; i++)
        x->at[i] = (const char *)x->at[i] + x->step[i];
    x->sample.index++;
}

ls_status ls_ref_custom(const ls_ref_call *call)
{
    const ls_tensor *node = call->node;
    const ls_custom_op *op = &node->attr.custom.functions->op;
    inputs x;
    begin(&x, call);
    x.sample.output = ls_custom_sample_shape(&call->out.shape, node->per_sample);
    int64_t samples = node->per_sample ? call->out.shape.dims[0] : 1;
    size_t bytes = bytes_of(&x.sample.output, node->dtype);
    char *out = call->out.data;
    for (int64_t i = 0; i < samples; i++, next(&x)) {
        x.message[0] = '\0';
        memset(out, 0, bytes);
        ls_status status = op->forward(&x.sample, out, op->user);
        LS_TRY(ls_custom_failed(node, "forward", status, x.message, x.sample.index));
        out += bytes;
    }
    return LS_OK;
}

ls_status ls_ref_custom_grad(const ls_ref_call *call)
{
    const ls_tensor *node = call->node;
    const ls_custom_op *op = &node->attr.custom.functions->op;
    int input = (int)node->attr.custom.input;
    inputs x;
    begin(&x, call);
    x.sample.output = ls_custom_sample_shape(&call->in[0].shape, node->per_sample);
    int64_t samples = node->per_sample ? call->out.shape.dims[0] : 1;
    size_t step = bytes_of(&x.sample.output, call->in[0].dtype), bytes = bytes_of(&x.shapes[input], node->dtype);
    const char *given = call->in[0].data;
    char *out = call->out.data;
    for (int64_t i = 0; i < samples; i++, next(&x)) {
        x.message[0] = '\0';
        memset(out, 0, bytes);
        ls_status status = op->gradient(&x.sample, given, input, out, op->user);
        LS_TRY(ls_custom_failed(node, "gradient", status, x.message, x.sample.index));
        given += step;
        out += bytes;
    }
    return LS_OK;
}
