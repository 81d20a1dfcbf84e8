/* Layers that a program registers by Keras's class name (ls_register_layer): the registry,
 * access to their configs, and the layer that calls them. A spec holds the config as JSON text. */
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "nn/keras_keys.h"
#include "nn/layer_family.h"

/* ---- Registry ---- */

typedef struct registered {
    char *name; /* "MyPackage>Scale", or "Scale" */
    char *base; /* "scale" */
    ls_layer_definition definition;
    struct registered *next;
} registered;

static registered *all; /* grows only, so entries may be used without the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const registered *find(const char *name)
{
    pthread_mutex_lock(&lock);
    const registered *r = all;
    while (r && strcmp(r->name, name) != 0)
        r = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

static const char *class_in(const char *name)
{
    const char *end = strchr(name, '>');
    return end ? end + 1 : name;
}

/* Keras's rule: "MyScale" becomes "my_scale". */
static char *snake_case(const char *class_name)
{
    char *text = calloc(2 * strlen(class_name) + 1, 1), *out = text;
    for (const char *c = class_name; text && *c; c++) {
        bool upper = isupper((unsigned char)*c), before = c > class_name;
        bool word = before && upper && (!isupper((unsigned char)c[-1]) || islower((unsigned char)c[1]));
        if (word && c[-1] != '_')
            *out++ = '_';
        *out++ = (char)tolower((unsigned char)*c);
    }
    return text;
}

ls_status ls_register_layer(const char *class_name, ls_layer_definition definition)
{
    if (!class_name || !*class_in(class_name) || !definition.call)
        return ls_fail(LS_ERR_INVALID, "ls_register_layer: the class name or the function call is missing");
    for (size_t i = 0; i < ls_keras_class_count; i++)
        if (strcmp(ls_keras_classes[i].name, class_name) == 0)
            return ls_fail(LS_ERR_INVALID, "ls_register_layer: %s is a class of the library; choose another name",
                           class_name);
    if (find(class_name))
        return ls_fail(LS_ERR_INVALID, "ls_register_layer: %s is registered already", class_name);
    registered *r = calloc(1, sizeof(*r));
    if (r)
        *r = (registered){ strdup(class_name), snake_case(class_in(class_name)), definition, NULL };
    if (!r || !r->name || !r->base)
        return ls_fail(LS_ERR_MEMORY, "ls_register_layer: no memory for %s", class_name);
    pthread_mutex_lock(&lock);
    r->next = all;
    all = r;
    pthread_mutex_unlock(&lock);
    return LS_OK;
}

bool ls_registered_find(const char *name, const char **class_name, const char **base)
{
    const registered *r = name ? find(name) : NULL;
    if (r && class_name)
        *class_name = class_in(r->name);
    if (r && base)
        *base = r->base;
    return r != NULL;
}

/* ---- Configs ---- */

struct ls_layer_config {
    json_t *json;
    ls_json_at at;
};

static ls_status open_config(const char *text, ls_layer_config *out)
{
    LS_TRY(ls_json_read_buffer("config", text, strlen(text), &out->json));
    out->at = ls_json_root(out->json, "config");
    return LS_OK;
}

#define GETTER(name, type, read)                                                                                       \
    ls_status name(const ls_layer_config *config, const char *key, type *out)                                          \
    {                                                                                                                  \
        if (!config || !key || !out)                                                                                   \
            return ls_fail(LS_ERR_INVALID, #name ": config, key or out is NULL");                                      \
        return read(&config->at, key, out);                                                                            \
    }
GETTER(ls_config_number, double, ls_json_get_f64)
GETTER(ls_config_integer, int64_t, ls_json_get_i64)
GETTER(ls_config_bool, bool, ls_json_get_bool)
GETTER(ls_config_string, const char *, ls_json_get_string)

/* ---- The layer ---- */

static ls_status check_keys(const registered *r, const ls_layer_config *config)
{
    const char *known[64] = { "name", "trainable", "dtype" };
    size_t count = 3;
    for (size_t i = 0; r->definition.keys && r->definition.keys[i] && count < 64; i++)
        known[count++] = r->definition.keys[i];
    return ls_json_known_keys(&config->at, known, count);
}

static ls_status resolve_registered(ls_layer *layer)
{
    ls_registered_options *o = &layer->registered;
    ls_layer_config config;
    const registered *r = o->class_name ? find(o->class_name) : NULL;
    if (!r)
        return ls_fail(LS_ERR_NOT_FOUND, "no layer of class %s is registered; register it with ls_register_layer",
                       o->class_name ? o->class_name : "NULL");
    o->config = o->config ? o->config : "{}";
    LS_TRY(open_config(o->config, &config));
    ls_status status = check_keys(r, &config);
    json_decref(config.json);
    return status;
}

static ls_status add_weights(const ls_layer *layer, const ls_layer_weight *from, size_t count, ls_weight *out)
{
    if (count > LS_MAX_WEIGHTS)
        return ls_fail(LS_ERR_UNSUPPORTED, "the layer has %zu weights; it can have %d", count, LS_MAX_WEIGHTS);
    for (size_t i = 0; i < count; i++) {
        const ls_weight_options *o = &from[i].options;
        if (!from[i].name)
            return ls_fail(LS_ERR_INVALID, "weight %zu has no name", i);
        out[i] = (ls_weight){ .name = from[i].name,
                              .shape = o->shape,
                              .initializer = o->initializer,
                              .regularizer = o->regularizer,
                              .trainable = !o->frozen && !layer->options.frozen };
        LS_TRY(ls_init_resolve("initializer", &out[i].initializer, (ls_initializer){ .kind = LS_INIT_GLOROT_UNIFORM }));
        LS_TRY(ls_weight_check(&out[i]));
    }
    return LS_OK;
}

static ls_status registered_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_layer_definition *d = &find(layer->registered.class_name)->definition;
    ls_layer_weight list[LS_MAX_WEIGHTS];
    ls_layer_config config;
    if (!d->weights)
        return LS_OK;
    memset(list, 0, sizeof(list));
    LS_TRY(open_config(layer->registered.config, &config));
    ls_status status = d->weights(&config, x, list, count, d->user);
    if (status == LS_OK)
        status = add_weights(layer, list, *count, out);
    json_decref(config.json);
    return status;
}

static ls_status call_registered(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_layer_definition *d = &find(layer->registered.class_name)->definition;
    ls_layer_config config;
    if (!d->many_inputs && pass->input_count > 1)
        return ls_fail(LS_ERR_INVALID, "the layer takes one input; %zu were given", pass->input_count);
    LS_TRY(open_config(layer->registered.config, &config));
    *out = d->call(&config, pass->inputs, pass->input_count, pass->weights, pass->training, d->user);
    json_decref(config.json);
    return *out ? LS_OK
                : ls_fail(LS_ERR_INVALID, "the function of class %s returned NULL", layer->registered.class_name);
}

static const ls_layer_option options[] = {
    LS_OPTION(registered, TEXT, class_name),
    LS_OPTION(registered, TEXT, config),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_REGISTERED,
      .class_name = "a registered class",
      .base = "registered",
      .function = "ls_registered",
      .resolve = resolve_registered,
      .weights = registered_weights,
      .call = call_registered,
      .many = true },
};

const ls_layer_family ls_registered_family = LS_LAYER_FAMILY(options, kinds);
