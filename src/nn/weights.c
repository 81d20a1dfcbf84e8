/* Weights in files of any format and layout (layout.h), and their hash. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "base/sha256.h"
#include "base/text.h"
#include "graph/claim.h"
#include "graph/shared_weights.h"
#include "nn/keras.h"
#include "nn/layout.h"
#include "nn/weights.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files and hashes are little-endian");

#define STEPS "training_steps" /* metadata key: restores the counter of random numbers */

static ls_variable *state_of(const ls_model *model, size_t index)
{
    return ls_model_variable(model, index)->attr.variable.variable;
}

/* ---- Saving ---- */

/* Whether the file has other bytes than the variable, and how many. */
static size_t moved_bytes(const ls_model *model, const ls_stored_weight *stored, size_t i)
{
    return stored[i].sums ? 2 * state_of(model, i)->bytes : stored[i].view.rank == 0 ? 0 : state_of(model, i)->bytes;
}

/* Buffer for variables whose element order differs in the file; NULL if there are none. */
typedef struct moved {
    char *data;
    size_t bytes;
} moved;

static ls_status move_all(const ls_model *model, const ls_stored_weight *stored, moved *out)
{
    size_t offset = 0;
    for (size_t i = 0; i < model->variable_count; i++)
        out->bytes += moved_bytes(model, stored, i);
    if (out->bytes == 0)
        return LS_OK;
    out->data = malloc(out->bytes);
    if (!out->data)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes of weights in another order", out->bytes);
    for (size_t i = 0; i < model->variable_count; i++) {
        const ls_variable *state = state_of(model, i);
        if (stored[i].sums) { /* the second term is 0 */
            memcpy(out->data + offset, state->data, state->bytes);
            memset(out->data + offset + state->bytes, 0, state->bytes);
        } else if (stored[i].view.rank > 0) {
            ls_stored_weight_copy(&stored[i], ls_dtype_bytes(ls_model_variable(model, i)->dtype), state->data,
                                  out->data + offset, true);
        }
        offset += moved_bytes(model, stored, i);
    }
    return LS_OK;
}

/* The root group has the model's name. */
static ls_status group_pairs(const ls_model *model, char **groups, ls_safetensors_pair *pairs, size_t *count)
{
    LS_TRY(ls_keras_groups(model, groups));
    *count = 0;
    pairs[(*count)++] = (ls_safetensors_pair){ "", model->name };
    for (size_t i = 0; i < model->layer_count; i++)
        if (groups[i])
            pairs[(*count)++] = (ls_safetensors_pair){ groups[i], ls_model_layer_own_name(model->layers[i]) };
    return LS_OK;
}

static ls_status write_hdf5(const ls_model *model, const char *path, ls_tensor_format format,
                            const ls_safetensors_entry *entries)
{
    size_t count = 0;
    char **groups = calloc(model->layer_count + 1, sizeof *groups);
    ls_safetensors_pair *pairs = calloc(model->layer_count + 1, sizeof *pairs);
    ls_status status = groups && pairs ? group_pairs(model, groups, pairs, &count)
                                       : ls_fail(LS_ERR_MEMORY, "no memory for %zu names", model->layer_count);
    if (status == LS_OK && format == LS_TENSORS_KERAS)
        status = ls_keras_write(model, path, entries, pairs, count);
    else if (status == LS_OK)
        status = ls_tensors_write(path, format, entries, model->variable_count, pairs, count);
    for (size_t i = 0; groups && i < model->layer_count; i++)
        free(groups[i]);
    free(groups);
    free(pairs);
    return status;
}

static ls_status write_entries(const ls_model *model, const char *path, ls_tensor_format format,
                               const ls_safetensors_entry *entries, size_t count)
{
    if (format == LS_TENSORS_HDF5 || format == LS_TENSORS_KERAS)
        return write_hdf5(model, path, format, entries);
    char steps[24];
    snprintf(steps, sizeof(steps), "%" PRIu64, model->graph->step);
    const ls_safetensors_pair metadata[] = { { "format", "lockstep" }, { "model", model->name }, { STEPS, steps } };
    return ls_tensors_write(path, format, entries, count, metadata, 3);
}

static ls_status save(const ls_model *model, const char *path, ls_tensor_format format, const ls_stored_weight *stored)
{
    size_t count = model->variable_count, offset = 0, made = 0;
    moved moved = { 0 };
    ls_safetensors_entry *entries = calloc(count ? 2 * count : 1, sizeof(*entries));
    ls_status status = entries ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu variables", count);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = ls_variable_sync_to_host(state_of(model, i));
    if (status == LS_OK)
        status = move_all(model, stored, &moved);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        size_t bytes = moved_bytes(model, stored, i);
        ls_safetensors_entry entry = { .name = stored[i].name,
                                       .dtype = ls_model_variable(model, i)->dtype,
                                       .shape = stored[i].shape,
                                       .data = bytes ? moved.data + offset : state_of(model, i)->data };
        entries[made++] = entry;
        if (stored[i].second) {
            entry.name = stored[i].second;
            entry.data = moved.data + offset + bytes / 2;
            entries[made++] = entry;
        }
        offset += bytes;
    }
    if (status == LS_OK)
        status = write_entries(model, path, format, entries, made);
    free(entries);
    free(moved.data);
    return status;
}

static ls_status check_layout(ls_layout layout, const char *call)
{
    if ((unsigned)layout > LS_LAYOUT_TORCH)
        return ls_fail(LS_ERR_INVALID, "%s: there is no layout %d; use LS_LAYOUT_AUTO, _KERAS or _TORCH", call,
                       (int)layout);
    return LS_OK;
}

static bool is_hdf5(ls_tensor_format format)
{
    return format == LS_TENSORS_HDF5 || format == LS_TENSORS_KERAS;
}

/* Keras's HDF5 files have a single layout. */
static ls_status find_style(const char *path, ls_tensor_format format, ls_layout layout, ls_weight_style *out)
{
    if (is_hdf5(format) && layout == LS_LAYOUT_TORCH)
        return ls_fail(LS_ERR_INVALID,
                       "'%s': Keras's files have Keras's layout; use .safetensors or .npz for PyTorch's", path);
    *out = is_hdf5(format) ? LS_STYLE_HDF5 : layout == LS_LAYOUT_TORCH ? LS_STYLE_TORCH : LS_STYLE_KERAS;
    return LS_OK;
}

static bool ends_in_weights_h5(const char *path)
{
    static const char ending[] = ".weights.h5";
    size_t length = strlen(path);
    return length >= sizeof ending - 1 && strcmp(path + length - (sizeof ending - 1), ending) == 0;
}

static ls_status format_to_write(const char *path, ls_tensor_format *out)
{
    LS_TRY(ls_tensors_format_of(path, LS_TENSORS_WRITE, out));
    if (*out == LS_TENSORS_NPY)
        return ls_fail(LS_ERR_INVALID, "'%s': an .npy file holds one array, but a model has several; write an .npz",
                       path);
    if (*out == LS_TENSORS_HDF5 && !ends_in_weights_h5(path))
        return ls_fail(LS_ERR_INVALID, "'%s': Keras reads only names that end in .weights.h5; use such a name", path);
    if (*out == LS_TENSORS_UNKNOWN)
        *out = LS_TENSORS_SAFETENSORS;
    return LS_OK;
}

ls_status ls_model_save_weights_with(const ls_model *model, const char *path, ls_weights_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    ls_tensor_format format;
    ls_weight_style style;
    ls_stored_weight *stored;
    LS_TRY(ls_model_need_ready(model, "ls_model_save_weights"));
    LS_TRY(ls_graph_fill(model->graph));
    if (!path)
        return ls_fail(LS_ERR_INVALID, "ls_model_save_weights: the path is NULL");
    LS_TRY(check_layout(options.layout, "ls_model_save_weights"));
    LS_TRY(format_to_write(path, &format));
    LS_TRY(find_style(path, format, options.layout, &style));
    LS_TRY(ls_stored_weights_make(model, style, &stored));
    ls_status status = save(model, options.dry_run ? "/dev/null" : path, format, stored);
    ls_stored_weights_free(stored, model);
    return status;
}

/* ---- Loading ---- */

/* Counters are int64 in files of Keras with TensorFlow, and int32 with other backends. */
static bool is_narrow(const ls_tensor *variable, const ls_safetensors_entry *entry)
{
    return entry && entry->dtype == LS_I32 && variable->dtype == LS_I64;
}

static ls_status check_entry(const ls_tensor *variable, const ls_stored_weight *stored,
                             const ls_safetensors_entry *entry, const char *path)
{
    char have[LS_SHAPE_TEXT], need[LS_SHAPE_TEXT];
    if (!ls_shape_equal(&stored->shape, &entry->shape))
        return ls_fail(LS_ERR_SHAPE, "%s: \"%s\" has shape %s; the model needs %s", path, entry->name,
                       ls_shape_format(&entry->shape, have), ls_shape_format(&stored->shape, need));
    if (variable->dtype != entry->dtype && !is_narrow(variable, entry))
        return ls_fail(LS_ERR_DTYPE, "%s: \"%s\" is %s; the model needs %s", path, entry->name,
                       ls_dtype_name(entry->dtype), ls_dtype_name(variable->dtype));
    return LS_OK;
}

#define NAMED 8 /* number of mismatched names to list */

static void list_name(ls_text *text, size_t found, const char *name)
{
    if (found < NAMED)
        ls_text_add(text, "%s\"%s\"", found ? ", " : "", name);
    else if (found == NAMED)
        ls_text_put(text, ", ...");
}

/* `entries` has the array of each variable, or NULL. */
typedef struct reading {
    const ls_model *model;
    const char *path;
    ls_tensors file;
    ls_weight_style style;
    ls_stored_weight *stored;
    const ls_safetensors_entry **entries, **second; /* second: of ls_stored_weight.second */
    char *joined;
    bool *wanted;     /* by array of the file: it belongs to a variable */
    bool partial;     /* load what fits */
    ls_text *skipped; /* partial: a line for each variable and array that is not loaded */
} reading;

static size_t match(reading *r)
{
    size_t found = 0;
    memset(r->wanted, 0, r->file.count * sizeof *r->wanted);
    for (size_t i = 0; i < r->model->variable_count; i++) {
        const char *second = r->stored[i].second;
        r->entries[i] = ls_tensors_find(&r->file, r->stored[i].name);
        r->second[i] = second ? ls_tensors_find(&r->file, second) : NULL;
        if (r->entries[i])
            r->wanted[r->entries[i] - r->file.entries] = true;
        if (r->second[i])
            r->wanted[r->second[i] - r->file.entries] = true;
        if (second && !r->second[i])
            r->entries[i] = NULL; /* one of two is not enough */
        found += r->entries[i] != NULL;
    }
    return found;
}

static ls_status check_names(const reading *r)
{
    const ls_model *model = r->model;
    ls_text missing = { 0 }, extra = { 0 }, message = { 0 };
    size_t missing_count = 0, extra_count = 0;
    for (size_t i = 0; i < model->variable_count; i++)
        if (!r->entries[i])
            list_name(&missing, missing_count++, r->stored[i].name);
    for (size_t i = 0; i < r->file.count; i++)
        if (!r->wanted[i] && !ls_weight_style_ignores(r->style, r->file.entries[i].name))
            list_name(&extra, extra_count++, r->file.entries[i].name);
    if (missing_count + extra_count == 0)
        return LS_OK;
    ls_text_add(&message, "%s: does not fit model \"%s\":", r->path, model->name);
    if (missing_count)
        ls_text_add(&message, " %zu of its %zu variables are not in the file: %s", missing_count, model->variable_count,
                    ls_text_get(&missing));
    if (extra_count)
        ls_text_add(&message, "%s %zu of the file's %zu tensors are not in the model: %s", missing_count ? ";" : "",
                    extra_count, r->file.count, ls_text_get(&extra));
    ls_status status = ls_fail(LS_ERR_NOT_FOUND, "%s", ls_text_get(&message));
    ls_text_free(&missing);
    ls_text_free(&extra);
    ls_text_free(&message);
    return status;
}

static ls_status use_style(reading *r, ls_weight_style style)
{
    ls_stored_weights_free(r->stored, r->model);
    r->stored = NULL;
    r->style = style;
    LS_TRY(ls_stored_weights_make(r->model, style, &r->stored));
    match(r);
    return LS_OK;
}

/* Uses Keras's names, unless more of PyTorch's match. */
static ls_status choose_style(reading *r, ls_layout layout)
{
    ls_weight_style style;
    LS_TRY(find_style(r->path, r->file.format, layout, &style));
    LS_TRY(use_style(r, style));
    size_t by_keras = match(r);
    if (layout != LS_LAYOUT_AUTO || style == LS_STYLE_HDF5 || by_keras == r->model->variable_count)
        return LS_OK;
    if (use_style(r, LS_STYLE_TORCH) == LS_OK && match(r) > by_keras)
        return LS_OK;
    return use_style(r, LS_STYLE_KERAS);
}

/* Permutes in the file's buffer. */
static ls_status move_back(const reading *r)
{
    size_t most = 0;
    for (size_t i = 0; i < r->model->variable_count; i++)
        if (r->entries[i] && r->stored[i].view.rank > 0 && !r->second[i] && r->entries[i]->bytes > most)
            most = r->entries[i]->bytes;
    if (most == 0)
        return LS_OK;
    void *room = malloc(most);
    if (!room)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes of weights in another order", most);
    for (size_t i = 0; i < r->model->variable_count; i++) {
        const ls_safetensors_entry *entry = r->entries[i];
        if (!entry || r->stored[i].view.rank == 0 || r->second[i])
            continue;
        ls_stored_weight_copy(&r->stored[i], ls_dtype_bytes(entry->dtype), entry->data, room, false);
        memcpy((void *)entry->data, room, entry->bytes);
    }
    free(room);
    return LS_OK;
}

static ls_status check_entries(const reading *r, size_t i)
{
    const ls_tensor *variable = ls_model_variable(r->model, i);
    LS_TRY(check_entry(variable, &r->stored[i], r->entries[i], r->path));
    return r->second[i] ? check_entry(variable, &r->stored[i], r->second[i], r->path) : LS_OK;
}

/* Forgets the arrays that do not fit, and lists them. */
static ls_status drop_mismatches(reading *r)
{
    const ls_model *model = r->model;
    size_t fitting = 0;
    for (size_t i = 0; i < model->variable_count; i++) {
        const char *name = ls_model_variable_name(model, i);
        bool found = r->entries[i] != NULL;
        if (found && check_entries(r, i) == LS_OK) {
            fitting++;
            continue;
        }
        ls_text_add(r->skipped, "%s: %s\n", name, found ? ls_last_error() : "not in the file");
        r->entries[i] = r->second[i] = NULL;
    }
    for (size_t i = 0; i < r->file.count; i++)
        if (!r->wanted[i] && !ls_weight_style_ignores(r->style, r->file.entries[i].name))
            ls_text_add(r->skipped, "%s: not in the model\n", r->file.entries[i].name);
    return fitting > 0
               ? LS_OK
               : ls_fail(LS_ERR_NOT_FOUND, "%s: no array fits model \"%s\" in name, shape and type: %.*s", r->path,
                         model->name, (int)strcspn(ls_text_get(r->skipped), "\n"), ls_text_get(r->skipped));
}

/* Makes one variable of two arrays of float32. */
static void join_pair(const ls_stored_weight *stored, const ls_safetensors_entry *a, const ls_safetensors_entry *b,
                      char *to, char *room)
{
    if (stored->sums) {
        for (size_t k = 0; k < a->bytes / sizeof(float); k++)
            ((float *)to)[k] = ((const float *)a->data)[k] + ((const float *)b->data)[k];
        return;
    }
    memcpy(room, a->data, a->bytes);
    memcpy(room + a->bytes, b->data, b->bytes);
    ls_stored_weight_copy(stored, sizeof(float), room, to, false);
}

static void widen(const ls_safetensors_entry *from, char *to)
{
    for (size_t k = 0; k < from->bytes / sizeof(int32_t); k++) {
        int32_t number;
        memcpy(&number, (const char *)from->data + k * sizeof number, sizeof number);
        memcpy(to + k * sizeof(int64_t), &(int64_t){ number }, sizeof(int64_t));
    }
}

/* Makes variables that are not in the file as they are: of pairs, and of narrow counters. */
static ls_status join_pairs(reading *r, ls_safetensors_entry *out)
{
    size_t bytes = 0, offset = 0;
    for (size_t i = 0; i < r->model->variable_count; i++)
        bytes +=
            r->second[i] || is_narrow(ls_model_variable(r->model, i), r->entries[i]) ? 2 * r->entries[i]->bytes : 0;
    if (bytes == 0)
        return LS_OK;
    char *room = malloc(bytes);
    r->joined = malloc(bytes);
    ls_status status = room && r->joined
                           ? LS_OK
                           : ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes of weights in another order", bytes);
    for (size_t i = 0; i < r->model->variable_count && status == LS_OK; i++) {
        bool narrow = is_narrow(ls_model_variable(r->model, i), r->entries[i]);
        if (!r->second[i] && !narrow)
            continue;
        if (narrow)
            widen(r->entries[i], r->joined + offset);
        else
            join_pair(&r->stored[i], r->entries[i], r->second[i], r->joined + offset, room);
        out[i].dtype = ls_model_variable(r->model, i)->dtype;
        out[i].data = r->joined + offset;
        out[i].bytes = state_of(r->model, i)->bytes;
        offset += out[i].bytes;
    }
    free(room);
    return status;
}

static ls_status read_variables(reading *r, ls_layout layout, ls_safetensors_entry *out)
{
    const ls_model *model = r->model;
    LS_TRY(choose_style(r, layout));
    if (r->partial) {
        LS_TRY(drop_mismatches(r));
    } else {
        LS_TRY(check_names(r));
        for (size_t i = 0; i < model->variable_count; i++)
            LS_TRY(check_entries(r, i));
    }
    LS_TRY(move_back(r));
    for (size_t i = 0; i < model->variable_count; i++) {
        out[i] = (ls_safetensors_entry){ .data = NULL };
        if (!r->entries[i])
            continue;
        out[i] = *r->entries[i];
        out[i].name = ls_model_variable_name(model, i);
        out[i].shape = ls_model_variable(model, i)->shape;
    }
    return join_pairs(r, out);
}

static ls_status open_weights(const ls_model *model, const char *path, ls_layout layout, ls_text *skipped,
                              ls_weights *out)
{
    reading r = { .model = model, .path = path, .partial = skipped != NULL, .skipped = skipped };
    LS_TRY(ls_tensors_open(path, &r.file));
    ls_safetensors_entry *variables = calloc(model->variable_count + 1, sizeof *variables);
    r.entries = calloc(model->variable_count + 1, sizeof *r.entries);
    r.second = calloc(model->variable_count + 1, sizeof *r.second);
    r.wanted = calloc(r.file.count + 1, sizeof *r.wanted);
    ls_status status = variables && r.entries && r.second && r.wanted
                           ? read_variables(&r, layout, variables)
                           : ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu variables", model->variable_count);
    ls_stored_weights_free(r.stored, model);
    free(r.entries);
    free(r.second);
    free(r.wanted);
    ls_weights weights = { .file = r.file, .entries = variables, .joined = r.joined };
    if (status == LS_OK)
        *out = weights;
    else
        ls_weights_close(&weights);
    return status;
}

ls_status ls_weights_open(const ls_model *model, const char *path, ls_layout layout, ls_weights *out)
{
    return open_weights(model, path, layout, NULL, out);
}

void ls_weights_close(ls_weights *weights)
{
    free(weights->entries);
    free(weights->joined);
    weights->entries = NULL;
    weights->joined = NULL;
    ls_tensors_close(&weights->file);
}

static ls_status load_arrays(ls_model *model, const char *path, ls_weights *weights)
{
    uint64_t steps = model->graph->step;
    const char *text = ls_tensors_text(&weights->file, STEPS);
    if (text && !ls_parse_u64(text, &steps))
        return ls_fail(LS_ERR_DATA, "%s: \"" STEPS "\" of its metadata is \"%.40s\", not a number of steps", path,
                       text);
    LS_TRY(ls_writes_begin(model->graph, model->graph->variables, model->graph->variable_count));
    for (size_t i = 0; i < model->variable_count; i++) {
        if (!weights->entries[i].name)
            continue; /* it does not fit */
        if (weights->entries[i].bytes)
            memcpy(state_of(model, i)->data, weights->entries[i].data, weights->entries[i].bytes);
        ls_variable_written(state_of(model, i), true);
    }
    ls_writes_end(model->graph);
    model->graph->step = steps;
    return LS_OK;
}

ls_status ls_model_load_weights_with(ls_model *model, const char *path, ls_weights_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    ls_weights weights;
    ls_text skipped = { 0 };
    LS_TRY(ls_model_need_ready(model, "ls_model_load_weights"));
    LS_TRY(ls_graph_fill(model->graph));
    if (!path)
        return ls_fail(LS_ERR_INVALID, "ls_model_load_weights: the path is NULL");
    LS_TRY(check_layout(options.layout, "ls_model_load_weights"));
    if (options.skipped)
        *options.skipped = NULL;
    ls_status status = open_weights(model, path, options.layout, options.skip_mismatch ? &skipped : NULL, &weights);
    if (status == LS_OK) {
        status = load_arrays(model, path, &weights);
        ls_weights_close(&weights);
    }
    if (status == LS_OK && options.skipped && *ls_text_get(&skipped))
        status = ls_text_take(&skipped, options.skipped);
    ls_text_free(&skipped);
    return status;
}

/* ---- Hash ---- */

ls_status ls_model_weights_sha256(const ls_model *model, char hex[65])
{
    LS_CLAIM(ls_model_claimed(model));
    ls_sha256 *hash;
    LS_TRY(ls_model_need_ready(model, "ls_model_weights_sha256"));
    LS_TRY(ls_graph_fill(model->graph));
    if (!hex)
        return ls_fail(LS_ERR_INVALID, "ls_model_weights_sha256: the hash pointer (hex) is NULL");
    LS_TRY(ls_sha256_begin(&hash));
    for (int trainable = 1; trainable >= 0; trainable--)
        for (size_t i = 0; i < model->variable_count; i++) {
            if (ls_model_variable_is_trainable(model, i) != (trainable == 1))
                continue;
            ls_status status = ls_variable_sync_to_host(state_of(model, i));
            if (status == LS_OK)
                status = ls_sha256_add(hash, state_of(model, i)->data, state_of(model, i)->bytes);
            if (status != LS_OK) {
                ls_sha256_destroy(hash);
                return status;
            }
        }
    return ls_sha256_end(hash, hex);
}
