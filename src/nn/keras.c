/* Models from Keras 3's JSON: Sequential, and Functional with its graph of calls; also nested. */
#include "nn/keras.h"

#include <string.h>

#include "base/fpmode.h"
#include "base/names.h"
#include "base/status.h"
#include "data/tensors.h"
#include "data/zip.h"
#include "device/context.h"
#include "nn/model.h"

/* ---- Layers ---- */

static ls_status read_model(ls_context *ctx, const ls_json_at *root, ls_model **out);

/* Reads a layer, or a model inside a model: *inner, which the caller destroys after the layer is
 * called. */
static ls_status read_layer(ls_context *ctx, const ls_json_at *at, ls_arena *arena, ls_layer *out, ls_model **inner)
{
    static const char *const models[] = { "Sequential", "Functional", "Model" };
    const char *class_name = "";
    bool trainable = true;
    ls_json_at config;
    if (json_is_object(at->value))
        LS_TRY(ls_json_opt_string(at, "class_name", &class_name));
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (strcmp(class_name, models[i]) == 0) {
            LS_TRY(read_model(ctx, at, inner));
            LS_TRY(ls_json_get_object(at, "config", &config));
            LS_TRY(ls_json_opt_bool(&config, "trainable", &trainable));
            *out = ls_nested(*inner, .name = ls_model_name(*inner), .frozen = !trainable);
            return LS_OK;
        }
    return ls_keras_layer(at, arena, out);
}

/* ---- Sequential ---- */

/* Uses the shape that the model was built with if it has no InputLayer. */
static ls_status built_shape(const ls_json_at *config, ls_layer *out)
{
    ls_json_at at, element;
    *out = ls_input();
    if (!ls_json_find(config, "build_input_shape", &at) || json_is_null(at.value))
        return ls_json_fail(config, LS_ERR_UNSUPPORTED,
                            "the model was not built: its first layer must be an InputLayer, so that "
                            "its shapes are known");
    LS_TRY(ls_json_is_array(&at));
    size_t rank = ls_json_count(&at);
    if (rank == 0 || rank > LS_MAX_RANK)
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "%zu axes; 1 to %d are supported", rank, LS_MAX_RANK);
    out->input.shape.rank = (int)rank - 1;
    for (size_t i = 1; i < rank; i++) {
        LS_TRY(ls_json_element(&at, i, &element));
        LS_TRY(ls_json_i64(&element, &out->input.shape.dims[i - 1]));
    }
    return LS_OK;
}

static void freeze(ls_layer *layer, bool trainable)
{
    if (!trainable)
        layer->options.frozen = true;
}

static ls_status read_sequential(ls_context *ctx, const ls_json_at *config, ls_model **out)
{
    static const char *const known[] = { "name", "trainable", "dtype", "layers", "build_input_shape" };
    const char *name = NULL;
    bool trainable = true;
    ls_json_at layers, at;
    LS_TRY(ls_json_known_keys(config, known, sizeof(known) / sizeof(known[0])));
    LS_TRY(ls_json_opt_string(config, "name", &name));
    LS_TRY(ls_json_opt_bool(config, "trainable", &trainable));
    LS_TRY(ls_json_get_array(config, "layers", &layers));
    size_t count = ls_json_count(&layers), first = 0;
    ls_arena arena = { 0 };
    ls_layer *specs = calloc(count + 1, sizeof(*specs));
    ls_model **inner = calloc(count + 1, sizeof(*inner));
    ls_status status = LS_OK;
    if (!specs || !inner)
        LS_TRY_GOTO(status, ls_fail(LS_ERR_MEMORY, "no memory for %zu layers", count), free_specs);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        LS_TRY_GOTO(status, ls_json_element(&layers, i, &at), free_specs);
        LS_TRY_GOTO(status, read_layer(ctx, &at, &arena, &specs[i + 1], &inner[i]), free_specs);
        freeze(&specs[i + 1], trainable);
    }
    if (count == 0)
        LS_TRY_GOTO(status, ls_json_fail(&layers, LS_ERR_DATA, "the model has no layers"), free_specs);
    if (specs[1].kind == LS_LAYER_INPUT)
        first = 1;
    else
        LS_TRY_GOTO(status, built_shape(config, &specs[0]), free_specs);
    status = ls_sequential_with(ctx, name, specs + first, count + 1 - first, out);
free_specs:
    for (size_t i = 0; inner && i < count; i++)
        ls_model_destroy(inner[i]);
    free(inner);
    free(specs);
    ls_arena_free(&arena);
    return status;
}

/* ---- Functional ---- */

typedef struct entry {
    ls_json_at at, nodes;
    const char *name;
    ls_layer spec;
    ls_model *inner; /* the nested model, if it is one */
    bool operation;  /* an operation between layers, such as x + y */
    size_t call_count, done;
    ls_symbol *calls;
    bool mask; /* an op with which Keras computes a mask, not a layer */
} entry;

typedef struct reader {
    ls_model *model;
    entry *entries;
    size_t count;
    ls_arena arena; /* layers inside layers */
} reader;

static entry *find_entry(const reader *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->entries[i].name, name) == 0)
            return &r->entries[i];
    return NULL;
}

static ls_status no_entry(const reader *r, const ls_json_at *at, const char *name)
{
    const char **names = malloc(r->count * sizeof(*names));
    if (!names)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu names", r->count);
    for (size_t i = 0; i < r->count; i++)
        names[i] = r->entries[i].name;
    ls_status status =
        ls_json_fail(at, LS_ERR_DATA, "there is no layer \"%s\"%s", name, ls_advise_name(name, names, r->count).text);
    free(names);
    return status;
}

/* Reads ["conv2d", 0, 0]: layer, index of its call, index of the output. At an end (an input or
 * output of the model) Keras counts the calls of a Functional model from 1. */
static ls_status read_history(const reader *r, const ls_json_at *at, bool end, entry **from, size_t *call,
                              size_t *output)
{
    ls_json_at part[3];
    const char *name;
    int64_t number, index;
    LS_TRY(ls_json_is_array(at));
    if (ls_json_count(at) != 3)
        return ls_json_fail(at, LS_ERR_DATA, "expected a layer's name, the number of its call and of its output");
    for (size_t i = 0; i < 3; i++)
        LS_TRY(ls_json_element(at, i, &part[i]));
    LS_TRY(ls_json_string(&part[0], &name));
    LS_TRY(ls_json_i64(&part[1], &number));
    LS_TRY(ls_json_i64(&part[2], &index));
    *from = find_entry(r, name);
    if (!*from)
        return no_entry(r, at, name);
    if (end && (*from)->inner && (*from)->inner->kind == LS_MODEL_FUNCTIONAL)
        number--;
    if (number < 0 || (size_t)number >= (*from)->call_count)
        return ls_json_fail(&part[1], LS_ERR_DATA, "layer \"%s\" has %zu calls; there is no call %lld", name,
                            (*from)->call_count, (long long)number);
    size_t outputs = (*from)->inner ? ls_model_output_count((*from)->inner) : 1;
    if (index < 0 || (size_t)index >= outputs)
        return ls_json_fail(&part[2], LS_ERR_DATA, "layer \"%s\" has %zu output%s; there is no output %lld", name,
                            outputs, outputs == 1 ? "" : "s", (long long)index);
    *call = (size_t)number;
    *output = (size_t)index;
    return LS_OK;
}

/* ---- Masks: Keras lists the ops that compute them; ours come with the layers' outputs ---- */

static bool is_mask_op(const ls_json_at *at)
{
    static const char *const classes[] = { "NotEqual", "Any", "LogicalOr" };
    const char *module = "", *class_name = "";
    if (!json_is_object(at->value) || ls_json_opt_string(at, "module", &module) != LS_OK ||
        ls_json_opt_string(at, "class_name", &class_name) != LS_OK || strncmp(module, "keras.src.ops.", 14) != 0)
        return false;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(class_name, classes[i]) == 0)
            return true;
    return false;
}

/* ["words", 0, 0] of argument 0 of a call; NULL: it is no tensor. */
static json_t *history_of(const json_t *node)
{
    json_t *tensor = json_array_get(json_object_get(node, "args"), 0);
    return json_object_get(json_object_get(tensor, "config"), "keras_history");
}

/* Whether the layer makes a mask by comparing this tensor with this value. */
static bool makes_mask(const entry *e, const json_t *history, double value)
{
    double own = e->spec.masking.mask_value == LS_ZERO ? 0 : e->spec.masking.mask_value;
    bool fits = e->spec.kind == LS_LAYER_EMBEDDING ? e->spec.embedding.mask_zero && value == 0
                                                   : e->spec.kind == LS_LAYER_MASKING && value == own;
    for (size_t i = 0; fits && i < json_array_size(e->nodes.value); i++)
        if (json_equal(history_of(json_array_get(e->nodes.value, i)), history))
            return true;
    return false;
}

/* Fails if a mask is not the one that an Embedding or a Masking of the model makes. */
static ls_status check_mask_op(const reader *r, const entry *e)
{
    const char *class_name = "";
    LS_TRY(ls_json_get_string(&e->at, "class_name", &class_name));
    for (size_t c = 0; strcmp(class_name, "NotEqual") == 0 && c < json_array_size(e->nodes.value); c++) {
        const json_t *node = json_array_get(e->nodes.value, c), *history = history_of(node);
        double value = json_number_value(json_array_get(json_object_get(node, "args"), 1));
        bool found = false;
        for (size_t i = 0; history && i < r->count && !found; i++)
            found = makes_mask(&r->entries[i], history, value);
        if (!found)
            return ls_json_fail(&e->at, LS_ERR_UNSUPPORTED,
                                "only the masks of Masking and of an Embedding with mask_zero are supported; \"%s\" is "
                                "another",
                                e->name);
    }
    return LS_OK;
}

/* A mask that a call is given must be one of Keras's own, which the layers pass on. */
static ls_status read_mask(const reader *r, const ls_json_at *at)
{
    const json_t *history = json_object_get(json_object_get(at->value, "config"), "keras_history");
    const char *name = json_string_value(json_array_get(history, 0));
    const entry *from = name ? find_entry(r, name) : NULL;
    return from && from->mask ? LS_OK
                              : ls_json_fail(at, LS_ERR_UNSUPPORTED,
                                             "a mask given by hand is not supported; use Masking, or an Embedding with "
                                             "mask_zero");
}

/* Reads the symbols of an argument: a tensor or a list. *ready: all of them exist. */
typedef struct inputs {
    ls_symbol *symbols;
    size_t count, room;
    bool ready;
} inputs;

static ls_status read_tensor(const reader *r, const ls_json_at *at, inputs *in)
{
    ls_json_at config, history;
    const char *class_name = "";
    entry *from;
    size_t call, output;
    if (json_is_object(at->value))
        LS_TRY(ls_json_opt_string(at, "class_name", &class_name));
    if (strcmp(class_name, "__keras_tensor__") != 0)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED,
                            "a layer is called on something that is not another layer's output");
    LS_TRY(ls_json_get_object(at, "config", &config));
    LS_TRY(ls_json_get(&config, "keras_history", &history));
    LS_TRY(read_history(r, &history, false, &from, &call, &output));
    if (from->mask)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "\"%s\" is a mask; it cannot be the input of a layer", from->name);
    if (call >= from->done) {
        in->ready = false;
        return LS_OK;
    }
    LS_TRY(ls_grow(&in->symbols, in->count, &in->room, sizeof(*in->symbols)));
    in->symbols[in->count++] = ls_symbol_output(from->calls[call], output);
    return LS_OK;
}

static ls_status read_argument(const reader *r, const ls_json_at *at, inputs *in)
{
    ls_json_at element;
    if (!json_is_array(at->value))
        return read_tensor(r, at, in);
    for (size_t i = 0; i < ls_json_count(at); i++) {
        LS_TRY(ls_json_element(at, i, &element));
        LS_TRY(read_tensor(r, &element, in));
    }
    return LS_OK;
}

static bool all_null(const json_t *value)
{
    size_t i;
    json_t *element;
    if (json_is_array(value))
        json_array_foreach(value, i, element) if (!json_is_null(element)) return false;
    return json_is_null(value) || json_is_array(value);
}

/* Ignores `training`, which the caller of the model sets. */
static ls_status read_keywords(const reader *r, const ls_json_at *node, inputs *in)
{
    static const char *const known[] = { "training", "mask", "inputs" };
    ls_json_at keywords, at;
    bool training;
    if (!ls_json_find(node, "kwargs", &keywords))
        return LS_OK;
    LS_TRY(ls_json_known_keys(&keywords, known, sizeof(known) / sizeof(known[0])));
    LS_TRY(ls_json_opt_bool(&keywords, "training", &training));
    if (ls_json_find(&keywords, "mask", &at) && !all_null(at.value))
        LS_TRY(read_mask(r, &at));
    return ls_json_find(&keywords, "inputs", &at) ? read_argument(r, &at, in) : LS_OK;
}

static ls_status read_node(const reader *r, const ls_json_at *node, bool operation, inputs *in)
{
    ls_json_at args, at;
    if (json_is_array(node->value))
        return ls_json_fail(node, LS_ERR_UNSUPPORTED,
                            "this is the JSON of Keras 2; write it with to_json() of Keras 3");
    LS_TRY(ls_json_get_array(node, "args", &args));
    for (size_t i = 0; i < ls_json_count(&args); i++) {
        LS_TRY(ls_json_element(&args, i, &at));
        if ((i > 0 && json_is_null(at.value)) || (operation && json_is_number(at.value)))
            continue;
        if (i > 0 && !operation)
            return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "a call with a second argument is not supported");
        LS_TRY(read_argument(r, &at, in));
    }
    LS_TRY(read_keywords(r, node, in));
    if (in->ready && in->count == 0)
        return ls_json_fail(node, LS_ERR_DATA, "a layer is called without an input");
    return LS_OK;
}

static ls_status make_call(reader *r, entry *e, bool *made)
{
    ls_json_at node;
    inputs in = { .ready = true };
    ls_symbol symbol;
    *made = false;
    LS_TRY(ls_json_element(&e->nodes, e->done, &node));
    ls_status status = read_node(r, &node, e->operation, &in);
    if (status == LS_OK && in.ready) {
        symbol = e->done == 0 ? ls_symbol_call_with(r->model, e->spec, in.symbols, in.count)
                              : ls_symbol_share_with(e->calls[0], in.symbols, in.count);
        if (symbol.index < 0)
            status = ls_functional_end_with(r->model, NULL, 0); /* returns the recorded error */
        else
            e->calls[e->done++] = symbol;
        *made = status == LS_OK;
    }
    free(in.symbols);
    return status;
}

static ls_status make_calls(reader *r)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < r->count; i++)
            for (bool made = !r->entries[i].mask; made && r->entries[i].done < r->entries[i].call_count;) {
                LS_TRY(make_call(r, &r->entries[i], &made));
                moved = moved || made;
            }
    }
    for (size_t i = 0; i < r->count; i++)
        if (!r->entries[i].mask && r->entries[i].done < r->entries[i].call_count)
            return ls_json_fail(&r->entries[i].nodes, LS_ERR_DATA,
                                "layer \"%s\" is called on a layer that depends on it", r->entries[i].name);
    return LS_OK;
}

/* ---- Operations ---- */

/* Keras writes x + y between layers as an operation of keras.ops, which has the names of layers. */
static bool is_operation(const ls_json_at *at)
{
    const char *module = json_string_value(json_object_get(at->value, "module"));
    return module && strncmp(module, "keras.src.ops.", 14) == 0;
}

/* Finds the number among the arguments of an operation; *left: it comes first. */
static ls_status find_number(const ls_json_at *nodes, bool *found, bool *left, double *number)
{
    ls_json_at node, args, at;
    LS_TRY(ls_json_element(nodes, 0, &node));
    LS_TRY(ls_json_get_array(&node, "args", &args));
    for (size_t i = 0; i < ls_json_count(&args); i++) {
        LS_TRY(ls_json_element(&args, i, &at));
        if (!json_is_number(at.value))
            continue;
        if (*found || ls_json_count(nodes) > 1)
            return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "an operation with several numbers or calls is not supported");
        LS_TRY(ls_json_f64(&at, number));
        *found = true;
        *left = i == 0;
    }
    return LS_OK;
}

/* x + 3, x - 3, 3 - x and x * 3 are Rescaling layers; operations on two tensors are merging
 * layers. */
static ls_status read_operation(entry *e)
{
    bool found = false, left = false;
    double number = 0, scale = 1, offset = 0;
    ls_layer_kind kind = e->spec.kind;
    if (kind != LS_LAYER_ADD && kind != LS_LAYER_SUBTRACT && kind != LS_LAYER_MULTIPLY && kind != LS_LAYER_MAXIMUM &&
        kind != LS_LAYER_MINIMUM)
        return ls_json_fail(&e->at, LS_ERR_UNSUPPORTED,
                            "the operation %s between layers is not supported; use a layer instead",
                            ls_layer_info_of(kind)->class_name);
    e->operation = true;
    LS_TRY(ls_json_get_array(&e->at, "inbound_nodes", &e->nodes));
    LS_TRY(find_number(&e->nodes, &found, &left, &number));
    if (!found)
        return LS_OK;
    if (kind == LS_LAYER_MAXIMUM || kind == LS_LAYER_MINIMUM)
        return ls_json_fail(&e->at, LS_ERR_UNSUPPORTED, "the operation %s with a number is not supported",
                            ls_layer_info_of(kind)->class_name);
    if (kind == LS_LAYER_MULTIPLY)
        scale = number;
    else
        offset = kind == LS_LAYER_SUBTRACT && !left ? -number : number;
    if (kind == LS_LAYER_SUBTRACT && left)
        scale = -1;
    e->spec = ls_rescaling(scale == 0 ? LS_ZERO : scale, .offset = offset, .name = e->spec.options.name);
    return LS_OK;
}

/* ---- Entries ---- */

static ls_status read_entry(ls_context *ctx, reader *r, entry *e, bool trainable)
{
    if (is_mask_op(&e->at)) {
        e->mask = true;
        LS_TRY(ls_json_get_string(&e->at, "name", &e->name));
        LS_TRY(ls_json_get_array(&e->at, "inbound_nodes", &e->nodes));
        e->call_count = ls_json_count(&e->nodes);
        return LS_OK;
    }
    LS_TRY(read_layer(ctx, &e->at, &r->arena, &e->spec, &e->inner));
    if (is_operation(&e->at))
        LS_TRY(read_operation(e));
    freeze(&e->spec, trainable);
    e->name = e->spec.options.name;
    LS_TRY(ls_json_opt_string(&e->at, "name", &e->name));
    if (!e->name || !e->spec.options.name || strcmp(e->name, e->spec.options.name) != 0)
        return ls_json_fail(&e->at, LS_ERR_DATA,
                            "a layer of a Functional model must have a name, equal to the one in its config");
    for (const entry *other = r->entries; other < e; other++)
        if (strcmp(other->name, e->name) == 0)
            return ls_json_fail(&e->at, LS_ERR_DATA, "there are two layers named \"%s\"", e->name);
    LS_TRY(ls_json_get_array(&e->at, "inbound_nodes", &e->nodes));
    bool input = e->spec.kind == LS_LAYER_INPUT;
    e->call_count = input ? 1 : ls_json_count(&e->nodes);
    if (input != (ls_json_count(&e->nodes) == 0))
        return ls_json_fail(&e->nodes, LS_ERR_DATA,
                            "layer \"%s\": an InputLayer must have no calls, and any other layer at least one",
                            e->name);
    e->calls = calloc(e->call_count, sizeof(*e->calls));
    return e->calls ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu calls", e->call_count);
}

/* Reads [["a", 0, 0], ["b", 0, 0]], or ["a", 0, 0] for a single one. */
static ls_status read_ends(const reader *r, const ls_json_at *config, const char *key, bool input, inputs *out)
{
    ls_json_at list, first, at;
    entry *from;
    size_t call, output;
    LS_TRY(ls_json_get(config, key, &list));
    if (json_is_object(list.value))
        return ls_json_fail(&list, LS_ERR_UNSUPPORTED, "inputs and outputs with keys (a dict) are not supported");
    LS_TRY(ls_json_is_array(&list));
    if (ls_json_count(&list) == 0)
        return ls_json_fail(&list, LS_ERR_DATA, "the list is empty");
    LS_TRY(ls_json_element(&list, 0, &first));
    bool single = json_is_string(first.value);
    for (size_t i = 0; i < (single ? 1 : ls_json_count(&list)); i++) {
        at = list;
        if (!single)
            LS_TRY(ls_json_element(&list, i, &at));
        LS_TRY(read_history(r, &at, true, &from, &call, &output));
        if (input != (from->spec.kind == LS_LAYER_INPUT) && input)
            return ls_json_fail(&at, LS_ERR_DATA, "layer \"%s\" is not an InputLayer", from->name);
        if (input) {
            if (from->done > 0)
                return ls_json_fail(&at, LS_ERR_DATA, "input \"%s\" is given twice", from->name);
            from->calls[from->done++] = ls_symbol_input(r->model, from->spec);
            if (from->calls[0].index < 0)
                return ls_functional_end_with(r->model, NULL, 0);
            continue;
        }
        LS_TRY(ls_grow(&out->symbols, out->count, &out->room, sizeof(*out->symbols)));
        out->symbols[out->count++] = ls_symbol_output(from->calls[call], output);
    }
    return LS_OK;
}

static ls_status make_functional(reader *r, const ls_json_at *config)
{
    inputs out = { .ready = true };
    LS_TRY(read_ends(r, config, "input_layers", true, NULL));
    for (size_t i = 0; i < r->count; i++)
        if (r->entries[i].spec.kind == LS_LAYER_INPUT && r->entries[i].done == 0)
            return ls_json_fail(&r->entries[i].at, LS_ERR_DATA, "input \"%s\" is not among input_layers",
                                r->entries[i].name);
    for (size_t i = 0; i < r->count; i++)
        if (r->entries[i].mask)
            LS_TRY(check_mask_op(r, &r->entries[i]));
    LS_TRY(make_calls(r));
    ls_status status = read_ends(r, config, "output_layers", false, &out);
    if (status == LS_OK)
        status = ls_functional_end_with(r->model, out.symbols, out.count);
    free(out.symbols);
    return status;
}

static ls_status read_functional(ls_context *ctx, const ls_json_at *config, ls_model **out)
{
    static const char *const known[] = { "name", "trainable", "dtype", "layers", "input_layers", "output_layers" };
    const char *name = NULL;
    bool trainable = true;
    reader r = { 0 };
    ls_json_at layers;
    LS_TRY(ls_json_known_keys(config, known, sizeof(known) / sizeof(known[0])));
    LS_TRY(ls_json_opt_string(config, "name", &name));
    LS_TRY(ls_json_opt_bool(config, "trainable", &trainable));
    LS_TRY(ls_json_get_array(config, "layers", &layers));
    size_t count = ls_json_count(&layers);
    r.entries = calloc(count ? count : 1, sizeof(*r.entries));
    ls_status status = r.entries ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu layers", count);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        r.count = i + 1;
        r.entries[i] = (entry){ .name = "" };
        status = ls_json_element(&layers, i, &r.entries[i].at);
        if (status == LS_OK)
            status = read_entry(ctx, &r, &r.entries[i], trainable);
    }
    if (status == LS_OK)
        status = ls_functional_begin(ctx, name, &r.model);
    if (status == LS_OK)
        status = make_functional(&r, config);
    for (size_t i = 0; i < r.count; i++) {
        free(r.entries[i].calls);
        ls_model_destroy(r.entries[i].inner);
    }
    free(r.entries);
    ls_arena_free(&r.arena);
    if (status != LS_OK) {
        ls_model_destroy(r.model);
        return status;
    }
    *out = r.model;
    return LS_OK;
}

/* ---- The file ---- */

static ls_status read_model(ls_context *ctx, const ls_json_at *root, ls_model **out)
{
    static const char *const known[] = { "module",       "class_name",     "config",        "registered_name",
                                         "build_config", "compile_config", "keras_version", "backend",
                                         "name",         "inbound_nodes" };
    const char *class_name;
    ls_json_at config;
    LS_TRY(ls_json_is_object(root));
    LS_TRY(ls_json_get_string(root, "class_name", &class_name));
    LS_TRY(ls_json_get_object(root, "config", &config));
    LS_TRY(ls_json_known_keys(root, known, sizeof(known) / sizeof(known[0])));
    LS_TRY(ls_keras_builtin(root, class_name));
    if (strcmp(class_name, "Sequential") == 0)
        return read_sequential(ctx, &config, out);
    if (strcmp(class_name, "Functional") == 0 || strcmp(class_name, "Model") == 0)
        return read_functional(ctx, &config, out);
    return ls_json_fail(root, LS_ERR_UNSUPPORTED,
                        "a model of class %s; only Sequential and Functional models can be read "
                        "from JSON",
                        class_name);
}

/* Takes ownership of the JSON. */
static ls_status make_model(ls_context *ctx, json_t *json, const char *path, ls_model **out)
{
    ls_json_at root = ls_json_root(json, path);
    ls_status status = read_model(ctx, &root, out);
    json_decref(json);
    return status;
}

ls_status ls_model_from_keras_json(ls_context *ctx, const char *path, ls_model **out)
{
    LS_OWN_FP_MODE;
    json_t *json;
    if (!ctx || !path || !out)
        return ls_fail(LS_ERR_INVALID,
                       "ls_model_from_keras_json: the context, the path or the model pointer (out) is NULL");
    LS_TRY(ls_context_check(ctx, "ls_model_from_keras_json"));
    LS_TRY(ls_json_read_file(path, &json));
    return make_model(ctx, json, path, out);
}

ls_status ls_model_from_keras(ls_context *ctx, const char *path, ls_model **out)
{
    LS_OWN_FP_MODE;
    json_t *json = NULL;
    char *text;
    size_t bytes;
    ls_tensor_format format;
    ls_model *model;
    if (!ctx || !path || !out)
        return ls_fail(LS_ERR_INVALID, "ls_model_from_keras: the context, the path or the model pointer (out) is NULL");
    LS_TRY(ls_context_check(ctx, "ls_model_from_keras"));
    LS_TRY(ls_tensors_format_in(path, &format));
    if (format != LS_TENSORS_KERAS)
        return ls_fail(LS_ERR_DATA, "'%s' is not a .keras archive; write it with model.save() of Keras 3", path);
    LS_TRY(ls_zip_read_from(path, LS_KERAS_CONFIG, LS_JSON_FILE_LIMIT, &text, &bytes));
    ls_status status = ls_json_read_buffer(path, text, bytes, &json);
    free(text);
    LS_TRY(status);
    LS_TRY(make_model(ctx, json, path, &model));
    status = ls_model_load_weights(model, path);
    if (status == LS_OK)
        *out = model;
    else
        ls_model_destroy(model);
    return status;
}
