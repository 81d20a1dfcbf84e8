/* Writes a .keras archive, with the tables of the reader; fails for what Keras cannot express. */
#include <stddef.h>
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

/* As read_extra reads it. */
static json_t *extra(const int64_t *values, int count)
{
    json_t *list = values[0] == 0 ? json_null() : json_array();
    for (int i = 0; i < count && json_is_array(list); i++)
        json_array_append_new(list, json_integer(values[i] > 0 ? values[i] : 0));
    return list;
}

/* As read_reals reads them: unset, one number or several. */
static json_t *reals(const double *values, int count)
{
    json_t *list = values[0] == 0 ? json_null() : values[1] == 0 ? real(values[0]) : json_array();
    for (int i = 0; i < count && json_is_array(list); i++)
        json_array_append_new(list, real(values[i]));
    return list;
}

static json_t *sides(const int64_t *values)
{
    return json_pack("[o, o]", pair(values), pair(values + 2));
}

static json_t *dims(const ls_shape *shape)
{
    json_t *list = json_array();
    for (int i = 0; i < shape->rank && list; i++)
        json_array_append_new(list, json_integer(shape->dims[i]));
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

static bool is_set(const ls_regularizer *r)
{
    return r->l1 > 0 || r->l2 > 0;
}

static json_t *regularizer(const ls_regularizer *r)
{
    if (!is_set(r))
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

static ls_status layer_object(const ls_model_layer *layer, json_t **out);

/* A layer inside another; NULL: there is none. */
static ls_status inner_object(const ls_layer *inner, json_t **out)
{
    ls_model_layer layer = { 0 };
    if (!inner)
        return LS_OK;
    LS_TRY(ls_layer_resolve(inner, &layer.spec));
    layer.name = inner->options.name;
    return layer_object(&layer, out);
}

/* Leaves *out NULL if the key should be omitted. */
static ls_status key_value(const ls_model_layer *layer, const ls_keras_key *k, json_t **out)
{
    static const char *const padding_names[] = { [LS_VALID] = "valid", [LS_SAME] = "same", [LS_CAUSAL] = "causal" };
    const void *field = (const char *)&layer->spec.options + k->offset;
    switch (k->rule) {
    case NAME:
        *out = json_string(ls_model_layer_own_name(layer));
        break;
    case DTYPE:
        *out = json_string("float32");
        break;
    case I64:
    case I64_OR_NULL:
    case AXIS:
        *out = json_integer(*(const int64_t *)field ? *(const int64_t *)field : k->rule == AXIS ? -1 : 1);
        break;
    case ARGUMENT:
        *out = json_integer(*(const int64_t *)field);
        break;
    case PAIR:
    case PAIR_OR_NULL:
    case ENDS:
        *out = pair(field);
        break;
    case EXTRA:
    case EXTRA_PAIR:
        *out = extra(field, k->rule == EXTRA ? 1 : 2);
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
    case CAUSAL_PADDING:
        if (*(const ls_padding *)field == LS_EXPLICIT)
            return no_word(layer, "padding of each side in this layer");
        *out = json_string(padding_names[*(const ls_padding *)field]);
        break;
    case INTERPOLATION:
        *out = json_string(*(const ls_interpolation *)field == LS_NEAREST ? "nearest" : "bilinear");
        break;
    case FILL_MODE:
        *out = json_string(ls_keras_fill_modes[*(const int *)field - 1]);
        break;
    case FLIP_MODE:
        *out = json_string(ls_keras_flip_modes[*(const int *)field - 1]);
        break;
    case FACTOR:
    case FACTOR_OR_NULL:
    case LIMITS:
        *out = reals(field, 2);
        break;
    case FILL_VALUES:
        *out = reals(field, 3);
        break;
    case SEED:
        *out = *(const int64_t *)field == 0 ? json_null()
                                            : json_integer(*(const int64_t *)field < 0 ? 0 : *(const int64_t *)field);
        break;
    case SIDES:
        *out = sides(field);
        break;
    case ACTIVATION:
        if (*(const ls_activation *)field == LS_GELU_TANH)
            return no_word(layer, "name for the approximate GELU");
        *out = json_string(ls_activation_name(*(const ls_activation *)field));
        break;
    case GATE: /* resolved: LS_LINEAR means linear */
        *out = json_string(ls_activation_name(*(const ls_activation *)field));
        break;
    case LAYER:
        return inner_object(*(const ls_layer *const *)field, out);
    case MERGE_MODE:
        *out = json_string(ls_keras_merge_modes[*(const ls_merge_mode *)field]);
        break;
    case INITIALIZER:
        if (((const ls_initializer *)field)->kind != LS_INIT_DEFAULT)
            *out = initializer(field);
        break;
    case REGULARIZER:
        *out = regularizer(field);
        break;
    case ACTIVITY:
        if (is_set(field))
            *out = regularizer(field);
        break;
    case AXES:
        *out = ls_keras_write_axes(field);
        break;
    case DOT_AXES:
        *out = ls_keras_write_dot_axes(&layer->spec.options);
        break;
    case NUMBERS:
        *out = ls_keras_write_numbers(field);
        break;
    case SIZES:
        *out = sizes(&layer->output, false);
        break;
    case NOISE_SHAPE:
        *out = ls_keras_write_noise_shape(field);
        break;
    case DIMS:
        *out = dims(field);
        break;
    case MUST_BE_LAST:
        *out = json_string("channels_last");
        break;
    case MUST_BE_CONSTANT:
    case MUST_BE_NULL:
    case MUST_BE_FALSE:
    case MUST_BE_ZERO:
    case ANY:
        break; /* Keras's defaults */
    }
    return LS_OK;
}

/* Module of classes that keras.applications has for itself. */
static const char *module_of(ls_layer_kind kind)
{
    switch (kind) {
    case LS_LAYER_LAYER_SCALE:
    case LS_LAYER_STOCHASTIC_DEPTH:
        return "keras.src.applications.convnext";
    case LS_LAYER_CUSTOM_SCALE:
        return "keras.src.applications.inception_resnet_v2";
    default:
        return "keras.layers";
    }
}

/* Some classes of Keras take no activity regularizer. */
static ls_status check_activity(const ls_model_layer *layer, const ls_keras_key *keys)
{
    if (!is_set(&layer->spec.options.activity_regularizer))
        return LS_OK;
    for (const ls_keras_key *k = keys; k && k->name; k++)
        if (k->offset == offsetof(ls_layer_options, activity_regularizer))
            return LS_OK;
    return no_word(layer, "activity_regularizer in this layer");
}

static ls_status model_object(const ls_model *model, bool trainable, json_t **out);

/* A layer that the program registered: the config that it was made with. */
static ls_status registered_object(const ls_model_layer *layer, json_t **out)
{
    json_t *config = NULL;
    const char *name = layer->spec.registered.class_name, *text = layer->spec.registered.config;
    LS_TRY(ls_json_read_buffer("config", text, strlen(text), &config));
    json_object_set_new(config, "name", json_string(ls_model_layer_own_name(layer)));
    json_object_set_new(config, "trainable", json_boolean(!layer->spec.options.frozen));
    *out = json_pack("{s:n, s:s, s:o, s:s}", "module", "class_name", ls_model_layer_class(layer), "config", config,
                     "registered_name", name);
    return *out ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
}

static ls_status layer_object(const ls_model_layer *layer, json_t **out)
{
    if (layer->inner)
        return model_object(layer->inner, !layer->spec.options.frozen, out);
    if (layer->spec.kind == LS_LAYER_REGISTERED)
        return registered_object(layer, out);
    const ls_keras_class *class = ls_keras_class_of(layer->spec.kind);
    json_t *config = NULL;
    if (!class)
        return no_word(layer, "such layer");
    LS_TRY(check_activity(layer, class->keys));
    if (class->keys)
        config = json_object();
    else
        config = json_pack("{s:o, s:s, s:s}", "batch_shape", sizes(&layer->output, true), "dtype",
                           ls_dtype_name(layer->output_dtype), "name", ls_model_layer_own_name(layer));
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
    *out = named_object(module_of(layer->spec.kind), class->name, config);
    return *out ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
}

/* ---- Calls ---- */

/* end: an output of the model, where Keras counts the calls of a Functional model from 1 */
static json_t *history(const ls_model *model, int call, bool end)
{
    const ls_model_call *at = &model->calls[call];
    int64_t first = end && at->layer->inner && at->layer->inner->kind == LS_MODEL_FUNCTIONAL;
    return json_pack("[s, I, i]", ls_model_layer_own_name(at->layer), (json_int_t)(at->number + first), at->output);
}

static json_t *tensor(const ls_model *model, int call)
{
    const ls_model_layer *layer = model->calls[call].layer;
    const ls_shape *shape = layer->inner ? &layer->inner->output_shapes[model->calls[call].output] : &layer->output;
    return json_pack("{s:s, s:{s:o, s:s, s:o}}", "class_name", "__keras_tensor__", "config", "shape",
                     sizes(shape, true), "dtype", ls_dtype_name(layer->output_dtype), "keras_history",
                     history(model, call, false));
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
        bool many = layer->inner ? call->input_count > 1 : ls_layer_info_of(layer->spec.kind)->many;
        json_array_append_new(nodes,
                              json_pack("{s:o, s:{}}", "args", many ? json_pack("[o]", inputs) : inputs, "kwargs"));
    }
    return nodes;
}

static ls_status add_layers(const ls_model *model, const size_t *order, size_t count, json_t *list)
{
    bool functional = model->kind == LS_MODEL_FUNCTIONAL;
    for (size_t i = 0; i < count; i++) {
        const ls_model_layer *layer = ls_model_root(model)->layers[order[i]];
        json_t *object = NULL;
        LS_TRY(layer_object(layer, &object));
        if (functional) {
            json_object_set_new(object, "name", json_string(ls_model_layer_own_name(layer)));
            json_object_set_new(object, "inbound_nodes", inbound_nodes(model, layer));
        }
        if (json_array_append_new(list, object) != 0)
            return ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
    }
    return LS_OK;
}

/* Keras calls a model with one input on a tensor, not on a list, and returns one output as such. */
static json_t *one_or_list(json_t *list)
{
    if (!list || json_array_size(list) != 1)
        return list;
    json_t *one = json_incref(json_array_get(list, 0));
    json_decref(list);
    return one;
}

static json_t *input_layers(const ls_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->input_count && list; i++)
        json_array_append_new(list, json_pack("[s, i, i]", ls_model_layer_own_name(model->inputs[i]), 0, 0));
    return one_or_list(list);
}

static json_t *output_layers(const ls_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->output_count && list; i++)
        json_array_append_new(list, history(model, model->outputs[i], true));
    return one_or_list(list);
}

static ls_status model_object(const ls_model *model, bool trainable, json_t **out)
{
    bool functional = model->kind == LS_MODEL_FUNCTIONAL;
    size_t count = 0, *order = calloc(ls_model_root(model)->layer_count + 1, sizeof *order);
    json_t *layers = json_array();
    ls_status status = order && layers ? ls_keras_order(model, order, &count)
                                       : ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
    if (status == LS_OK)
        status = add_layers(model, order, count, layers);
    free(order);
    if (status != LS_OK) {
        json_decref(layers);
        return status;
    }
    json_t *config = json_pack("{s:s, s:b, s:o}", "name", model->name, "trainable", trainable, "layers", layers);
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
    LS_TRY(model_object(model, true, &object));
    char *config = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (!config)
        return ls_fail(LS_ERR_MEMORY, "no memory for the model's JSON");
    ls_status status = write_archive(model, path, config, entries, groups, group_count);
    free(config);
    return status;
}
