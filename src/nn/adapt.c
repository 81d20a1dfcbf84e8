/* ls_model_adapt: statistics of a dataset for the Normalization layers of a model. Each sum is a
 * float64 that adds the elements in the order of the data, so the results have the same bits
 * everywhere (docs/bits.md). */
#include <math.h>
#include <stdlib.h>

#include "base/fpmode.h"
#include "base/status.h"
#include "graph/claim.h"
#include "lockstep/data.h"
#include "nn/layer_family.h"
#include "nn/model.h"

/* One layer that is adapted. Values are taken relative to the first one of their position, so that
 * large means do not hide small variances. */
typedef struct adapted {
    const ls_model_layer *layer;
    size_t input;          /* the model's input, which is the index of the dataset's component */
    int64_t each;          /* elements of a sample */
    int64_t *position;     /* which statistics each element of a sample belongs to */
    int64_t positions;     /* number of means */
    double *first;         /* first value of each position */
    double *sum, *squares; /* sums of the differences to it */
    int64_t samples;
} adapted;

typedef struct adapting {
    ls_model *model;
    bool batches; /* elements of the dataset are batches, not samples */
    adapted *layers;
    size_t count;
} adapting;

/* ---- Layers ---- */

static bool is_adaptable(const ls_model_layer *layer)
{
    return layer->spec.kind == LS_LAYER_NORMALIZATION && layer->weight_count > 0;
}

/* Finds the input that a layer is called on. */
static ls_status find_input(const ls_model *model, const ls_model_layer *layer, size_t *out)
{
    for (size_t c = 0; c < model->call_count; c++) {
        if (model->calls[c].layer != layer)
            continue;
        const ls_model_layer *from = model->calls[model->calls[c].inputs[0]].layer;
        for (size_t i = 0; i < model->input_count; i++)
            if (model->inputs[i] == from) {
                *out = i;
                return LS_OK;
            }
    }
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "layer \"%s\" (Normalization) is not called on an input of model \"%s\", so its statistics are not "
                   "those of the data; set its weights with ls_variable_set",
                   layer->name, model->name);
}

/* Numbers the positions of the kept axes, and finds that of each element of a sample. */
static void find_positions(adapted *a, const ls_shape *shape, const ls_axes *axes)
{
    int64_t index[LS_MAX_RANK] = { 0 };
    for (int64_t e = 0; e < a->each; e++) {
        for (int i = 0; i < axes->count; i++)
            a->position[e] = a->position[e] * shape->dims[axes->axis[i]] + index[axes->axis[i]];
        for (int i = shape->rank - 1; i > 0 && ++index[i] == shape->dims[i]; i--)
            index[i] = 0;
    }
}

static ls_status add_layer(adapting *all, const ls_model_layer *layer)
{
    adapted *a = &all->layers[all->count];
    ls_axes axes;
    *a = (adapted){ .layer = layer };
    LS_TRY(find_input(all->model, layer, &a->input));
    const ls_shape *shape = &all->model->inputs[a->input]->output;
    LS_TRY(ls_check_axes(&layer->spec.normalization.axes, shape, &axes));
    if (!ls_shape_count(shape, 1, &a->each) || !ls_shape_count(&layer->weight[0].shape, 1, &a->positions))
        return ls_fail(LS_ERR_SHAPE, "layer \"%s\" has too many elements", layer->name);
    all->count++;
    a->position = calloc((size_t)a->each + 1, sizeof(*a->position));
    a->first = calloc(3 * (size_t)a->positions + 1, sizeof(*a->first));
    if (!a->position || !a->first)
        return ls_fail(LS_ERR_MEMORY, "no memory for the statistics of layer \"%s\"", layer->name);
    a->sum = a->first + a->positions;
    a->squares = a->sum + a->positions;
    find_positions(a, shape, &axes);
    return LS_OK;
}

static ls_status add_layers(adapting *all)
{
    const ls_model *model = all->model;
    if (model->kind == LS_MODEL_CUSTOM)
        return ls_fail(LS_ERR_UNSUPPORTED, "model \"%s\" is a custom model; set the weights with ls_variable_set",
                       model->name);
    all->layers = calloc(model->layer_count + 1, sizeof(*all->layers));
    if (!all->layers)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu layers", model->layer_count);
    for (size_t i = 0; i < model->layer_count; i++)
        if (is_adaptable(model->layers[i]))
            LS_TRY(add_layer(all, model->layers[i]));
    return all->count > 0
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "model \"%s\" has no Normalization layer without a given mean", model->name);
}

/* ---- Data ---- */

static double value_at(const ls_array *array, int64_t i)
{
    switch (array->dtype) {
    case LS_F32:
        return (double)((const float *)array->data)[i];
    case LS_F64:
        return ((const double *)array->data)[i];
    case LS_I32:
        return (double)((const int32_t *)array->data)[i];
    case LS_I64:
        return (double)((const int64_t *)array->data)[i];
    default: /* uint8, bool */
        return (double)((const uint8_t *)array->data)[i];
    }
}

/* Returns the number of samples in an array: of one sample, or of a batch. */
static ls_status count_samples(const adapting *all, const adapted *a, const ls_array *array, int64_t *out)
{
    char have[LS_SHAPE_TEXT], need[LS_SHAPE_TEXT];
    const ls_shape *input = &all->model->inputs[a->input]->output, *shape = &array->shape;
    int first = all->batches ? 1 : 0;
    bool fits = shape->rank == input->rank - 1 + first;
    for (int i = 1; i < input->rank && fits; i++)
        fits = shape->dims[i - 1 + first] == input->dims[i];
    if (!fits)
        return ls_fail(LS_ERR_SHAPE, "an element of the dataset has shape %s; input \"%s\" takes %s",
                       ls_shape_format(shape, have), all->model->inputs[a->input]->name, ls_shape_format(input, need));
    *out = all->batches ? shape->dims[0] : 1;
    return LS_OK;
}

static void add_sample(adapted *a, const ls_array *array, int64_t sample)
{
    if (a->samples++ == 0)
        for (int64_t e = a->each; e-- > 0;)
            a->first[a->position[e]] = value_at(array, sample * a->each + e);
    for (int64_t e = 0; e < a->each; e++) {
        int64_t p = a->position[e];
        double difference = value_at(array, sample * a->each + e) - a->first[p];
        a->sum[p] += difference;
        a->squares[p] += difference * difference;
    }
}

static ls_status add_element(adapting *all, const ls_element *element)
{
    for (size_t i = 0; i < all->count; i++) {
        adapted *a = &all->layers[i];
        int64_t samples;
        if ((int)a->input >= element->count)
            return ls_fail(LS_ERR_DATA, "the dataset has %d components; input %zu of model \"%s\" has none",
                           element->count, a->input, all->model->name);
        const ls_array *array = &element->component[a->input];
        LS_TRY(count_samples(all, a, array, &samples));
        for (int64_t s = 0; s < samples; s++)
            add_sample(a, array, s);
    }
    return LS_OK;
}

static ls_status add_data(adapting *all, ls_dataset *data)
{
    int64_t count;
    ls_iterator *iterator;
    const ls_element *element;
    ls_element_spec spec;
    LS_TRY(ls_dataset_status(data));
    LS_TRY(ls_dataset_spec(data, &spec));
    LS_TRY(ls_dataset_count(data, &count));
    all->batches = spec.batch > 0;
    if (count == LS_INFINITE)
        return ls_fail(LS_ERR_INVALID, "the dataset is endless; pass it without ls_repeat, or use ls_take");
    LS_TRY(ls_iterator_create(data, 0, &iterator));
    ls_status status = ls_iterator_next(iterator, &element);
    while (status == LS_OK && element) {
        status = add_element(all, element);
        if (status == LS_OK)
            status = ls_iterator_next(iterator, &element);
    }
    ls_iterator_destroy(iterator);
    return status;
}

/* ---- Weights ---- */

static ls_status find_statistics(const adapted *a, float *mean, float *variance)
{
    double count = (double)a->samples * ((double)a->each / (double)a->positions);
    for (int64_t p = 0; p < a->positions; p++) {
        double offset = a->sum[p] / count, spread = a->squares[p] / count - offset * offset;
        mean[p] = (float)(a->first[p] + offset);
        variance[p] = (float)(spread > 0 ? spread : 0);
        if (!isfinite(mean[p]) || !isfinite(spread) || !isfinite(variance[p]))
            return ls_fail(LS_ERR_DATA,
                           "layer \"%s\": mean %lld is %g and variance %g; the data must be finite float32 numbers",
                           a->layer->name, (long long)p, (double)mean[p], spread);
    }
    return LS_OK;
}

static ls_status set_weights(const adapting *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const adapted *a = &all->layers[i];
        size_t bytes = (size_t)a->positions * sizeof(float);
        if (a->samples == 0)
            return ls_fail(LS_ERR_DATA, "the dataset has no samples");
        float *values = malloc(2 * bytes);
        if (!values)
            return ls_fail(LS_ERR_MEMORY, "no memory for the statistics of layer \"%s\"", a->layer->name);
        ls_status status = find_statistics(a, values, values + a->positions);
        if (status == LS_OK)
            status = ls_variable_set(a->layer->variable[0], values, bytes);
        if (status == LS_OK)
            status = ls_variable_set(a->layer->variable[1], values + a->positions, bytes);
        free(values);
        LS_TRY(status);
    }
    return LS_OK;
}

ls_status ls_model_adapt(ls_model *model, ls_dataset *data)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    LS_TRY(ls_model_need_ready(model, "ls_model_adapt"));
    if (!data)
        return ls_fail(LS_ERR_INVALID, "ls_model_adapt: the dataset is NULL");
    adapting all = { .model = model };
    ls_status status = add_layers(&all);
    if (status == LS_OK)
        status = add_data(&all, data);
    if (status == LS_OK)
        status = set_weights(&all);
    for (size_t i = 0; i < all.count; i++) {
        free(all.layers[i].position);
        free(all.layers[i].first);
    }
    free(all.layers);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "ls_model_adapt");
}
