/* Keras's names, and copies between orders of axes. */
#include "nn/layout.h"

#include <string.h>

#include "base/status.h"

bool ls_weight_style_ignores(ls_weight_style style, const char *name)
{
    static const char counter[] = ".num_batches_tracked";
    size_t length = strlen(name);
    switch (style) {
    case LS_STYLE_KERAS: /* also where no layout fits: the message names weights, not counters */
    case LS_STYLE_TORCH:
        return length >= sizeof counter - 1 && strcmp(name + length - (sizeof counter - 1), counter) == 0;
    case LS_STYLE_HDF5:
        return strncmp(name, "optimizer/", 10) == 0 || strstr(name, "/seed_generator/") != NULL;
    }
    return false;
}

static ls_status keras_weights(const ls_model *model, ls_stored_weight *stored)
{
    for (size_t i = 0; i < model->variable_count; i++) {
        stored[i].shape = ls_model_variable(model, i)->shape;
        stored[i].name = strdup(ls_model_variable_name(model, i));
        if (!stored[i].name)
            return ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu variables", model->variable_count);
    }
    return LS_OK;
}

ls_status ls_stored_weights_make(const ls_model *model, ls_weight_style style, ls_stored_weight **out)
{
    ls_stored_weight *stored = calloc(model->variable_count + 1, sizeof *stored);
    if (!stored)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu variables", model->variable_count);
    ls_status status = style == LS_STYLE_TORCH  ? ls_torch_weights(model, stored)
                       : style == LS_STYLE_HDF5 ? ls_hdf5_weights(model, stored)
                                                : keras_weights(model, stored);
    if (status != LS_OK) {
        ls_stored_weights_free(stored, model);
        return status;
    }
    *out = stored;
    return LS_OK;
}

void ls_stored_weights_free(ls_stored_weight *stored, const ls_model *model)
{
    for (size_t i = 0; stored && i < model->variable_count; i++)
        free(stored[i].name), free(stored[i].second);
    free(stored);
}

void ls_stored_weight_copy(const ls_stored_weight *stored, size_t item, const void *from, void *to, bool to_file)
{
    int64_t stride[LS_MAX_RANK], at[LS_MAX_RANK] = { 0 }, size[LS_MAX_RANK], count = 1, own = 0;
    int rank = stored->view.rank;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = count;
        count *= stored->view.dims[i];
    }
    for (int i = 0; i < rank; i++)
        size[i] = stored->view.dims[stored->axes[i]];
    int swapped = stored->swapped - 1;
    for (int64_t k = 0; k < count; k++) {
        bool swaps = swapped >= 0 && at[swapped] < 2;
        int64_t there = swaps ? own + (1 - 2 * at[swapped]) * stride[stored->axes[swapped]] : own;
        size_t in_file = (size_t)k * item, in_variable = (size_t)there * item;
        memcpy((char *)to + (to_file ? in_file : in_variable), (const char *)from + (to_file ? in_variable : in_file),
               item);
        for (int i = rank - 1; i >= 0; i--) {
            own += stride[stored->axes[i]];
            if (++at[i] < size[i])
                break;
            own -= at[i] * stride[stored->axes[i]];
            at[i] = 0;
        }
    }
}
