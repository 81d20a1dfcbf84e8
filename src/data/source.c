/* Sources of elements: arrays in memory, given or loaded on first use, and generator functions. */
#include <string.h>

#include "base/size.h"
#include "data/dataset.h"
#include "data/stream.h"
#include "graph/shape.h"

/* ---- Arrays ---- */

static void free_arrays(ls_element *arrays)
{
    for (int i = 0; i < arrays->count; i++)
        free(arrays->component[i].data);
    arrays->count = 0;
}

static void destroy_arrays(ls_dataset *d)
{
    if (d->u.arrays.keep != LS_KEEP_BORROWED)
        free_arrays(&d->u.arrays.arrays);
    if (d->u.arrays.free_state)
        d->u.arrays.free_state(d->u.arrays.state);
}

static ls_status load(ls_dataset *d)
{
    ls_element loaded = { .count = 0 };
    if (!d->u.arrays.load)
        return LS_OK;
    LS_TRY(d->u.arrays.load(d->u.arrays.state, &loaded));
    d->u.arrays.arrays = loaded;
    d->u.arrays.load = NULL;
    return LS_OK;
}

static ls_status prepare_arrays(ls_dataset *d)
{
    char text[LS_SHAPE_TEXT], first[LS_SHAPE_TEXT];
    LS_TRY(load(d));
    const ls_element *arrays = &d->u.arrays.arrays;
    d->spec.count = arrays->count;
    for (int i = 0; i < arrays->count; i++) {
        const ls_array *array = &arrays->component[i];
        ls_spec *spec = &d->spec.component[i];
        if (array->shape.rank < 1)
            return ls_fail(LS_ERR_SHAPE, "%s: component %d is a scalar, without an axis of samples", d->type->name, i);
        if (array->shape.dims[0] != arrays->component[0].shape.dims[0])
            return ls_fail(LS_ERR_SHAPE,
                           "%s: component 0 of shape %s has %lld samples, component %d of shape %s has %lld",
                           d->type->name, ls_shape_format(&arrays->component[0].shape, first),
                           (long long)arrays->component[0].shape.dims[0], i, ls_shape_format(&array->shape, text),
                           (long long)array->shape.dims[0]);
        *spec = (ls_spec){ .dtype = array->dtype, .shape = { .rank = array->shape.rank - 1 } };
        memcpy(spec->shape.dims, array->shape.dims + 1, (size_t)spec->shape.rank * sizeof *spec->shape.dims);
    }
    LS_TRY(ls_element_spec_check(&d->spec, false, d->type->name));
    d->count = arrays->component[0].shape.dims[0];
    d->base = d->origin = arrays;
    return LS_OK;
}

static const ls_dataset_type type_slices = { .name = "ls_from_tensor_slices",
                                             .prepare = prepare_arrays,
                                             .destroy = destroy_arrays,
                                             .state_bytes = sizeof(int64_t),
                                             .index_of = ls_same_index,
                                             .next = ls_next_row };
static const ls_dataset_type type_tensors = { .name = "ls_from_tensors",
                                              .prepare = prepare_arrays,
                                              .destroy = destroy_arrays,
                                              .state_bytes = sizeof(int64_t),
                                              .index_of = ls_same_index,
                                              .next = ls_next_row };

ls_dataset *ls_dataset_from_loader(ls_loader load, void *state, void (*free_state)(void *state))
{
    ls_dataset *d = ls_dataset_node(&type_slices, NULL);
    if (ls_dataset_is_lost(d)) {
        if (free_state)
            free_state(state);
        return d;
    }
    d->u.arrays.load = load;
    d->u.arrays.state = state;
    d->u.arrays.free_state = free_state;
    return d;
}

/* ---- Arrays from the caller ---- */

typedef struct gathering {
    ls_element arrays;
    int features, labels, weights;
    bool too_many;
} gathering;

static int add(gathering *g, const ls_array *array)
{
    if (g->arrays.count == LS_MAX_COMPONENTS) {
        g->too_many = true;
        return 0;
    }
    g->arrays.component[g->arrays.count++] = *array;
    return 1;
}

static bool is_given(const ls_array *array)
{
    return array->data || array->shape.rank > 0;
}

static void gather(const ls_arrays_options *o, gathering *g)
{
    for (int i = 0; o->inputs && i < o->input_count; i++)
        g->features += add(g, &o->inputs[i]);
    if (is_given(&o->features))
        g->features += add(g, &o->features);
    for (int i = 0; o->targets && i < o->target_count; i++)
        g->labels += add(g, &o->targets[i]);
    if (is_given(&o->labels))
        g->labels += add(g, &o->labels);
    if (is_given(&o->weights))
        g->weights += add(g, &o->weights);
}

static ls_status check_array(const char *name, int index, const ls_array *array)
{
    char text[LS_SHAPE_TEXT];
    size_t bytes;
    if ((unsigned)array->dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_DTYPE, "%s: array %d has the unknown type %d", name, index, (int)array->dtype);
    if (array->shape.rank < 0 || array->shape.rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "%s: array %d has %d axes; at most %d are supported", name, index,
                       array->shape.rank, LS_MAX_RANK);
    if (!ls_data_bytes(array->dtype, &array->shape, &bytes))
        return ls_fail(LS_ERR_SHAPE, "%s: array %d cannot have the shape %s", name, index,
                       ls_shape_format(&array->shape, text));
    if (bytes > 0 && !array->data)
        return ls_fail(LS_ERR_INVALID, "%s: array %d of shape %s has no data", name, index,
                       ls_shape_format(&array->shape, text));
    return LS_OK;
}

static ls_status check_given(const char *name, const ls_arrays_options *o, const gathering *g)
{
    if (o->input_count < 0 || o->target_count < 0 || (o->input_count && !o->inputs) || (o->target_count && !o->targets))
        return ls_fail(LS_ERR_INVALID, "%s: input_count is %d and target_count is %d, but inputs or targets is NULL",
                       name, o->input_count, o->target_count);
    if (g->too_many)
        return ls_fail(LS_ERR_INVALID, "%s: more than %d arrays", name, LS_MAX_COMPONENTS);
    if (g->features == 0)
        return ls_fail(LS_ERR_INVALID, "%s: no features were given", name);
    if ((o->input_count && is_given(&o->features)) || (o->target_count && is_given(&o->labels)))
        return ls_fail(LS_ERR_INVALID, "%s: give `features` or `inputs`, `labels` or `targets`, not both", name);
    if ((unsigned)o->keep > LS_KEEP_OWNED)
        return ls_fail(LS_ERR_INVALID, "%s: keep has the unknown value %d", name, (int)o->keep);
    for (int i = 0; i < g->arrays.count; i++)
        LS_TRY(check_array(name, i, &g->arrays.component[i]));
    return LS_OK;
}

static ls_status copy_arrays(const ls_element *from, ls_element *to)
{
    for (int i = 0; i < from->count; i++) {
        const ls_array *array = &from->component[i];
        size_t bytes = 0;
        ls_data_bytes(array->dtype, &array->shape, &bytes);
        void *data = ls_data_alloc(bytes);
        if (!data)
            return ls_fail(LS_ERR_MEMORY, "no memory to copy an array of %zu bytes", bytes);
        if (bytes)
            memcpy(data, array->data, bytes);
        to->component[to->count] = *array;
        to->component[to->count++].data = data;
    }
    return LS_OK;
}

/* For ls_from_tensors: adds an axis 0 of size 1. */
static ls_status add_axes(const char *name, ls_element *arrays)
{
    for (int i = 0; i < arrays->count; i++) {
        ls_shape *shape = &arrays->component[i].shape;
        if (shape->rank == LS_MAX_RANK)
            return ls_fail(LS_ERR_SHAPE, "%s: array %d has %d axes; at most %d are supported", name, i, shape->rank,
                           LS_MAX_RANK - 1);
        memmove(shape->dims + 1, shape->dims, (size_t)shape->rank * sizeof *shape->dims);
        shape->dims[0] = 1;
        shape->rank++;
    }
    return LS_OK;
}

static ls_dataset *from_arrays(const ls_dataset_type *type, const ls_arrays_options *options)
{
    gathering g = { .features = 0 };
    gather(options, &g);
    bool owned = options->keep == LS_KEEP_OWNED;
    ls_dataset *d = ls_dataset_node(type, NULL);
    ls_status status = ls_dataset_is_lost(d) ? LS_ERR_MEMORY : check_given(type->name, options, &g);
    if (status == LS_OK && type == &type_tensors)
        status = add_axes(type->name, &g.arrays);
    if (status != LS_OK) {
        if (owned)
            free_arrays(&g.arrays);
        return ls_dataset_is_lost(d) ? d : ls_dataset_fail(d, status, "%s", ls_last_error());
    }
    d->u.arrays.keep = options->keep;
    d->spec.features = g.features;
    d->spec.labels = g.labels;
    d->spec.weights = g.weights;
    if (options->keep != LS_KEEP_COPY)
        d->u.arrays.arrays = g.arrays;
    else if ((status = copy_arrays(&g.arrays, &d->u.arrays.arrays)) != LS_OK)
        return ls_dataset_fail(d, status, "%s", ls_last_error());
    return d;
}

ls_dataset *ls_from_tensor_slices_with(ls_arrays_options options)
{
    return from_arrays(&type_slices, &options);
}

ls_dataset *ls_from_tensors_with(ls_arrays_options options)
{
    return from_arrays(&type_tensors, &options);
}

/* ---- Generators ---- */

static ls_status prepare_generator(ls_dataset *d)
{
    d->count = LS_UNKNOWN;
    return ls_element_spec_check(&d->spec, false, d->type->name);
}

static ls_status next_generated(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    const ls_dataset *d = cursor->dataset;
    int64_t *number = cursor->state;
    LS_TRY(ls_slot_make(slot, &d->spec, 0));
    slot->element.epoch = cursor->epoch;
    slot->element.number = *number;
    *end = false;
    /* A copy: the function may write to the arrays but not replace them. */
    ls_element given = slot->element;
    ls_clear_error();
    ls_status status = d->u.generator.function(d->u.generator.user, &given, end);
    if (status != LS_OK)
        return ls_fail_within(status, "the generator failed at element %lld of epoch %llu", (long long)*number,
                              (unsigned long long)cursor->epoch);
    *number += !*end;
    return LS_OK;
}

static const ls_dataset_type type_generator = {
    .name = "ls_from_generator", .prepare = prepare_generator, .state_bytes = sizeof(int64_t), .next = next_generated
};

ls_dataset *ls_from_generator(ls_generator generator, void *user, ls_element_spec spec)
{
    ls_dataset *d = ls_dataset_node(&type_generator, NULL);
    if (ls_dataset_is_lost(d))
        return d;
    if (!generator)
        return ls_dataset_fail(d, LS_ERR_INVALID, "ls_from_generator: the function is NULL");
    spec.batch = 0;
    d->u.generator.function = generator;
    d->u.generator.user = user;
    d->spec = spec;
    return d;
}
