/* Variables in files: Keras's names, and copies between orders of axes. The other styles are in
 * layout_torch.c and layout_hdf5.c. */
#include "nn/layout.h"

#include <string.h>

#include "base/status.h"

bool ls_weight_style_ignores(ls_weight_style style, const char *name)
{
    static const char counter[] = ".num_batches_tracked";
    size_t length = strlen(name);
    switch (style) {
    case LS_STYLE_TORCH:
        return length >= sizeof counter - 1 && strcmp(name + length - (sizeof counter - 1), counter) == 0;
    case LS_STYLE_HDF5:
        return strncmp(name, "optimizer/", 10) == 0 || strstr(name, "/seed_generator/") != NULL;
    case LS_STYLE_KERAS:
        break;
    }
    return false;
}

static ls_status keras_places(const ls_model *model, ls_weight_place *places)
{
    for (size_t i = 0; i < model->variable_count; i++) {
        places[i].shape = ls_model_variable(model, i)->shape;
        places[i].name = strdup(ls_model_variable_name(model, i));
        if (!places[i].name)
            return ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu variables", model->variable_count);
    }
    return LS_OK;
}

ls_status ls_places_make(const ls_model *model, ls_weight_style style, ls_weight_place **out)
{
    ls_weight_place *places = calloc(model->variable_count + 1, sizeof *places);
    if (!places)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu variables", model->variable_count);
    ls_status status = style == LS_STYLE_TORCH  ? ls_torch_places(model, places)
                       : style == LS_STYLE_HDF5 ? ls_hdf5_places(model, places)
                                                : keras_places(model, places);
    if (status != LS_OK) {
        ls_places_free(places, model);
        return status;
    }
    *out = places;
    return LS_OK;
}

void ls_places_free(ls_weight_place *places, const ls_model *model)
{
    for (size_t i = 0; places && i < model->variable_count; i++)
        free(places[i].name);
    free(places);
}

/* Iterates over the file's elements in order and computes the index of each in the variable. */
void ls_place_copy(const ls_weight_place *place, size_t item, const void *from, void *to, bool to_file)
{
    int64_t stride[LS_MAX_RANK], at[LS_MAX_RANK] = { 0 }, size[LS_MAX_RANK], count = 1, own = 0;
    int rank = place->view.rank;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = count;
        count *= place->view.dims[i];
    }
    for (int i = 0; i < rank; i++)
        size[i] = place->view.dims[place->axes[i]];
    for (int64_t k = 0; k < count; k++) {
        size_t in_file = (size_t)k * item, in_variable = (size_t)own * item;
        memcpy((char *)to + (to_file ? in_file : in_variable), (const char *)from + (to_file ? in_variable : in_file),
               item);
        for (int i = rank - 1; i >= 0; i--) { /* advances the index, last axis first */
            own += stride[place->axes[i]];
            if (++at[i] < size[i])
                break;
            own -= at[i] * stride[place->axes[i]];
            at[i] = 0;
        }
    }
}
