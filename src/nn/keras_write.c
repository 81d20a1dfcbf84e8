/* Writes a .keras archive, with the tables of the reader; fails for what Keras cannot express. */
#include <string.h>

#include "base/status.h"
#include "data/hdf5.h"
#include "data/zip.h"
#include "nn/keras_keys.h"
#include "nn/layout.h"

/* Fixed date, so that equal models give equal files. */
#define METADATA "{\"keras_version\": \"3.0.0\", \"date_saved\": \"1980-01-01@00:00:00\"}"

/* ---- Values: NULL if out of memory ---- */

static json_t *real(double value)
{
    return json_real(value == LS_ZERO ? 0 : value);
}

static json_t *named_object(const char *module, const char *class_name, json_t *config)
{
    return json_pack("{s:s, s:s, s:o, s:n}", "module", module, "class_name", class_name, "config", config,
                     "registered_name");
}

static json_t *pair(const int64_t *values)
{
    return json_pack("[I, I]", (json_int_t)values[0], (json_int_t)values[1]);
}

static json_t *sides(const int64_t *values)
{
    return json_pack("[o, o]", pair(values), pair(values + 2));
}

static json_t *last_axes(int count)
{
    json_t *list = json_array();
    for (int i = -count; i < 0 && list; i++)
        json_array_append_new(list, json_integer(i));
    return list;
}

/* with_batch: after a null for the batch */
static json_t *sizes(const ls_shape *shape, bool with_batch)
{
    json_t *list = json_array();
    if (list && with_batch)
        json_array_append_new(list, json_null());
    for (int i = 1; i < shape->rank && list; i++)
        json_array_append_new(list, json_integer(shape->dims[i]));
    return list;
}

static json_t *constraint(const ls_constraint *c)
{
    static const char *const names[] = { NULL, "MaxNorm", "NonNeg", "UnitNorm", "MinMaxNorm" };
    if (c->kind == LS_CONSTRAINT_NONE)
        return json_null();
    json_t *config = json_object(), *axes = json_array();
    for (int i = 0; i < c->axis.count; i++)
        json_array_append_new(axes, json_integer(c->axis.axis[i]));
    if (c->axis.count > 0)
        json_object_set(config, "axis", c->axis.count == 1 ? json_array_get(axes, 0) : axes);
    json_decref(axes);
    if (c->max_value != 0)
        json_object_set_new(config, "max_value", real(c->max_value));
    if (c->min_value != 0)
        json_object_set_new(config, "min_value", real(c->min_value));
    if (c->rate != 0)
        json_object_set_new(config, "rate", real(c->rate));
    return named_object("keras.constraints", names[c->kind], config);
}

static json_t *regularizer(const ls_regularizer *r)
{
    if (r->orthogonal > 0)
        return named_object(
            "keras.regularizers", "OrthogonalRegularizer",
            json_pack("{s:o, s:s}", "factor", real(r->orthogonal), "mode", r->orthogonal_columns ? "columns" : "rows"));
    if (!(r->l1 > 0) && !(r->l2 > 0))
        return json_null();
    return named_object("keras.regularizers", "L1L2", json_pack("{s:o, s:o}", "l1", real(r->l1), "l2", real(r->l2)));
}

static json_t *initializer(const ls_initializer *i)
{
    static const char *const modes[] = { "fan_in", "fan_out", "fan_avg" };
    static const char *const distributions[] = { "uniform", "truncated_normal", "untruncated_normal" };
    const ls_keras_initializer *known = ls_keras_initializer_of(i->kind);
    json_t *config = json_object();
    if (known && known->a && i->a != 0)
        json_object_set_new(config, known->a, real(i->a));
    if (known && known->b && i->b != 0)
        json_object_set_new(config, known->b, real(i->b));
    if (!known) {
        int fan = (int)i->b;
        json_object_set_new(config, "scale", real(i->a != 0 ? i->a : 1));
        json_object_set_new(config, "mode", json_string(modes[fan >= 0 && fan < 3 ? fan : 0]));
        json_object_set_new(config, "distribution", json_string(distributions[i->kind - LS_INIT_VARIANCE_UNIFORM]));
    }
    if (i->seed != 0)
        json_object_set_new(config, "seed", json_integer((json_int_t)(i->seed & INT32_MAX)));
    return named_object("keras.initializers", known ? known->name : "VarianceScaling", config);
}

/* ---- Layers ---- */

static ls_status no_word(const ls_model_layer *layer, const char *what)
{
    return ls_fail(LS_ERR_UNSUPPORTED, "layer \"%s\" (%s): Keras has no %s; write the weights alone, as .weights.h5",
                   layer->name, ls_layer_info_of(layer->spec.kind)->class_name, what);
}

/* Leaves *out NULL if the key should be omitted. */
static ls_status key_value(const ls_model_layer *layer, const ls_keras_key *k, json_t **out)
{
    const void *field = (const char *)&layer->spec.options + k->offset;
    switch (k->rule) {
    case NAME:
        *out = json_string(layer->name);
        break;
    case DTYPE:
        *out = json_string("float32");
        break;
    case I64:
    case AXIS:
        *out = json_integer(*(const int64_t *)field ? *(const int64_t *)field : k->rule == AXIS ? -1 : 1);
        break;
    case ARGUMENT:
        *out = json_integer(*(const int64_t *)field);
        break;
    case PAIR:
    case PAIR_OR_NULL:
        *out = pair(field);
        break;
    case BOOL:
        *out = json_boolean(*(const bool *)field);
        break;
    case NOT:
        *out = json_boolean(!*(const bool *)field);
        break;
    case F64:
        *out = real(*(const double *)field);
        break;
    case F64_OR_NULL:
        *out = *(const double *)field == 0 ? json_null() : real(*(const double *)field);
        break;
    case PADDING:
        if (*(const ls_padding *)field == LS_EXPLICIT)
            return no_word(layer, "padding of each side in this layer");
        *out = json_string(*(const ls_padding *)field == LS_SAME ? "same" : "valid");
        break;
    case SIDES:
        *out = sides(field);
        break;
    case ACTIVATION:
        if (*(const ls_activation *)field == LS_GELU_TANH)
            return no_word(layer, "name for the approximate GELU");
        *out = json_string(ls_activation_name(*(const ls_activation *)field));
        break;
    case INITIALIZER:
        if (((const ls_initializer *)field)->kind != LS_INIT_DEFAULT)
            *out = initializer(field);
        break;
    case REGULARIZER:
        if (((const ls_regularizer *)field)->orthogonal > 0 &&
            (((const ls_regularizer *)field)->l1 > 0 || ((const ls_regularizer *)field)->l2 > 0))
            return no_word(layer, "regularizer that is both L1L2 and orthogonal");
        *out = regularizer(field);
        break;
    case CONSTRAINT:
        *out = constraint(field);
        break;
    case LAST_AXES:
        *out = last_axes(*(const int *)field > 0 ? *(const int *)field : 1);
        break;
    case SIZES:
        *out = sizes(&layer->output, false);
        break;
    case MUST_BE_LAST:
        *out = json_string("channels_last");
        break;
    case MUST_BE_NULL:
    case MUST_BE_FALSE:
    case ANY:
        break; /* Keras's defaults */
    }
    return LS_OK;
}

static ls_status layer_object(const ls_model_layer *layer, json_t **out)
{
    const ls_keras_class *class = ls_keras_class_of(layer->spec.kind);
    json_t *config = NULL;
    if (!class)
        return no_word(layer, "such layer");
    if (class->keys)
        config = json_object();
    else
        config = json_pack("{s:o, s:s, s:s}", "batch_shape", sizes(&layer->output, true), "dtype",
                           ls_dtype_name(layer->output_dtype), "name", layer->name);
    for (const ls_keras_key *k = class->keys; k && k->name; k++) {
        json_t *value = NULL;
        ls_status status = key_value(layer, k, &value);
        if (status != LS_OK) {
            json_decref(config);
            return status;
        }
        if (value && json_object_set_new(config, k->name, value) != 0) {
            json_decref(config);
            return ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
        }
    }
    *out = named_object("keras.layers", class->name, config);
    return *out ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
}

/* ---- Calls ---- */

static json_t *history(const ls_model *model, int call)
{
    return json_pack("[s, I, i]", model->calls[call].layer->name, (json_int_t)model->calls[call].number, 0);
}

static json_t *tensor(const ls_model *model, int call)
{
    const ls_model_layer *layer = model->calls[call].layer;
    return json_pack("{s:s, s:{s:o, s:s, s:o}}", "class_name", "__keras_tensor__", "config", "shape",
                     sizes(&layer->output, true), "dtype", ls_dtype_name(layer->output_dtype), "keras_history",
                     history(model, call));
}

static json_t *inbound_nodes(const ls_model *model, const ls_model_layer *layer)
{
    json_t *nodes = json_array();
    for (size_t i = 0; i < model->call_count && nodes; i++) {
        const ls_model_call *call = &model->calls[i];
        if (call->layer != layer || call->input_count == 0)
            continue;
        json_t *inputs = json_array();
        for (size_t k = 0; k < call->input_count; k++)
            json_array_append_new(inputs, tensor(model, call->inputs[k]));
        bool many = ls_layer_info_of(layer->spec.kind)->many;
        json_array_append_new(nodes,
                              json_pack("{s:o, s:{}}", "args", many ? json_pack("[o]", inputs) : inputs, "kwargs"));
    }
    return nodes;
}

static ls_status add_layers(const ls_model *model, const size_t *order, json_t *list)
{
    bool functional = model->kind == LS_MODEL_FUNCTIONAL;
    for (size_t i = 0; i < model->layer_count; i++) {
        const ls_model_layer *layer = model->layers[order[i]];
        json_t *object = NULL;
        LS_TRY(layer_object(layer, &object));
        if (functional) {
            json_object_set_new(object, "name", json_string(layer->name));
            json_object_set_new(object, "inbound_nodes", inbound_nodes(model, layer));
        }
        if (json_array_append_new(list, object) != 0)
            return ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
    }
    return LS_OK;
}

static json_t *input_layers(const ls_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->input_count && list; i++)
        json_array_append_new(list, json_pack("[s, i, i]", model->inputs[i]->name, 0, 0));
    return list;
}

static json_t *output_layers(const ls_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->output_count && list; i++)
        json_array_append_new(list, history(model, model->outputs[i]));
    return list;
}

static ls_status model_object(const ls_model *model, json_t **out)
{
    bool functional = model->kind == LS_MODEL_FUNCTIONAL;
    size_t *order = calloc(model->layer_count + 1, sizeof *order);
    json_t *layers = json_array();
    ls_status status =
        order && layers ? ls_keras_order(model, order) : ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
    if (status == LS_OK)
        status = add_layers(model, order, layers);
    free(order);
    if (status != LS_OK) {
        json_decref(layers);
        return status;
    }
    json_t *config = json_pack("{s:s, s:b, s:o}", "name", model->name, "trainable", 1, "layers", layers);
    if (config && functional) {
        json_object_set_new(config, "input_layers", input_layers(model));
        json_object_set_new(config, "output_layers", output_layers(model));
    }
    *out = functional ? named_object("keras.src.models.functional", "Functional", config)
                      : named_object("keras", "Sequential", config);
    return *out ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
}

/* ---- The archive ---- */

static ls_status write_archive(const ls_model *model, const char *path, const char *config,
                               const ls_safetensors_entry *entries, const ls_safetensors_pair *groups,
                               size_t group_count)
{
    ls_file_part *parts, texts[] = { { METADATA, strlen(METADATA) }, { config, strlen(config) } };
    size_t part_count;
    void *memory;
    LS_TRY(ls_hdf5_make(path, entries, model->variable_count, groups, group_count, &parts, &part_count, &memory));
    const ls_zip_new members[] = { { LS_KERAS_METADATA, &texts[0], 1 },
                                   { LS_KERAS_CONFIG, &texts[1], 1 },
                                   { LS_KERAS_WEIGHTS, parts, part_count } };
    ls_status status = ls_zip_write(path, members, sizeof members / sizeof *members);
    free(parts);
    free(memory);
    return status;
}

ls_status ls_keras_write(const ls_model *model, const char *path, const ls_safetensors_entry *entries,
                         const ls_safetensors_pair *groups, size_t group_count)
{
    json_t *object = NULL;
    LS_TRY(model_object(model, &object));
    char *config = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (!config)
        return ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
    ls_status status = write_archive(model, path, config, entries, groups, group_count);
    free(config);
    return status;
}
