/* Weights in files, and their hash. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/safetensors.h"
#include "nn/model.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files and hashes are little-endian");

#define STEPS "training_steps" /* key of the metadata: the counter of random numbers goes on where it was */

static ls_variable *state_of(const ls_model *model, size_t index)
{
    return ls_model_variable(model, index)->attr.variable.variable;
}

ls_status ls_model_save_weights(const ls_model *model, const char *path)
{
    LS_TRY(ls_model_need_ready(model, "ls_model_save_weights"));
    LS_TRY(ls_graph_fill(model->graph));
    if (!path)
        return ls_fail(LS_ERR_INVALID, "ls_model_save_weights: the path is NULL");
    size_t count = model->variable_count;
    ls_safetensors_entry *entries = calloc(count ? count : 1, sizeof(*entries));
    if (!entries)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of %zu variables", count);
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = ls_variable_bring(state_of(model, i));
    for (size_t i = 0; i < count; i++)
        entries[i] = (ls_safetensors_entry){ .name = ls_model_variable_name(model, i),
                                             .dtype = ls_model_variable(model, i)->dtype,
                                             .shape = ls_model_variable(model, i)->shape,
                                             .data = state_of(model, i)->data };
    char steps[24];
    snprintf(steps, sizeof(steps), "%" PRIu64, model->graph->step);
    const ls_safetensors_pair metadata[] = { { "format", "lockstep" }, { "model", model->name }, { STEPS, steps } };
    if (status == LS_OK)
        status = ls_safetensors_write(path, entries, count, metadata, 3);
    free(entries);
    return status;
}

/* ---- Loading ---- */

static ls_status check_entry(const ls_tensor *variable, const ls_safetensors_entry *entry, const char *path)
{
    char have[LS_SHAPE_TEXT], need[LS_SHAPE_TEXT];
    if (!ls_shape_equal(&variable->shape, &entry->shape))
        return ls_fail(LS_ERR_SHAPE, "%s: \"%s\" has shape %s, the model needs %s", path, entry->name,
                       ls_shape_format(&entry->shape, have), ls_shape_format(&variable->shape, need));
    if (variable->dtype != entry->dtype)
        return ls_fail(LS_ERR_DTYPE, "%s: \"%s\" is %s, the model needs %s", path, entry->name,
                       ls_dtype_name(entry->dtype), ls_dtype_name(variable->dtype));
    return LS_OK;
}

#define NAMED 8 /* of names that do not match, this many are listed */

static void list_name(ls_text *text, size_t found, const char *name)
{
    if (found < NAMED)
        ls_text_add(text, "%s\"%s\"", found ? ", " : "", name);
    else if (found == NAMED)
        ls_text_put(text, ", ...");
}

static bool is_variable(const ls_model *model, const char *name)
{
    ls_tensor *found;
    return ls_graph_find(model->graph, name, &found) == LS_OK && found->op == LS_OP_variable;
}

/* Names on one side only. */
static ls_status check_names(const ls_model *model, const ls_safetensors *file, const char *path)
{
    ls_text missing = { 0 }, extra = { 0 }, message = { 0 };
    size_t missing_count = 0, extra_count = 0;
    for (size_t i = 0; i < model->variable_count; i++) {
        const char *name = ls_model_variable_name(model, i);
        if (ls_safetensors_find(file, name))
            continue;
        list_name(&missing, missing_count++, name);
    }
    for (size_t i = 0; i < ls_safetensors_count(file); i++)
        if (!is_variable(model, ls_safetensors_at(file, i)->name))
            list_name(&extra, extra_count++, ls_safetensors_at(file, i)->name);
    if (missing_count + extra_count == 0)
        return LS_OK;
    ls_text_add(&message, "%s: does not fit model \"%s\":", path, model->name);
    if (missing_count)
        ls_text_add(&message, " %zu of its %zu variables are not in the file: %s", missing_count, model->variable_count,
                    ls_text_get(&missing));
    if (extra_count)
        ls_text_add(&message, "%s %zu of the file's %zu tensors are not in the model: %s", missing_count ? ";" : "",
                    extra_count, ls_safetensors_count(file), ls_text_get(&extra));
    ls_status status = ls_fail(LS_ERR_NOT_FOUND, "%s", ls_text_get(&message));
    ls_text_free(&missing);
    ls_text_free(&extra);
    ls_text_free(&message);
    return status;
}

static ls_status load(ls_model *model, const ls_safetensors *file, const char *path)
{
    uint64_t steps = model->graph->step;
    const char *text = ls_safetensors_metadata_find(file, STEPS);
    if (text && !ls_parse_u64(text, &steps))
        return ls_fail(LS_ERR_DATA, "%s: \"" STEPS "\" of its metadata is \"%.40s\", not a number of steps", path,
                       text);
    LS_TRY(check_names(model, file, path));
    for (size_t i = 0; i < model->variable_count; i++)
        LS_TRY(check_entry(ls_model_variable(model, i), ls_safetensors_find(file, ls_model_variable_name(model, i)),
                           path));
    for (size_t i = 0; i < model->variable_count; i++) { /* nothing can fail from here */
        const ls_safetensors_entry *entry = ls_safetensors_find(file, ls_model_variable_name(model, i));
        if (entry->bytes)
            memcpy(state_of(model, i)->data, entry->data, entry->bytes);
        ls_variable_written(state_of(model, i), true);
    }
    model->graph->step = steps;
    return LS_OK;
}

ls_status ls_model_load_weights(ls_model *model, const char *path)
{
    ls_safetensors *file;
    LS_TRY(ls_model_need_ready(model, "ls_model_load_weights"));
    LS_TRY(ls_graph_fill(model->graph));
    if (!path)
        return ls_fail(LS_ERR_INVALID, "ls_model_load_weights: the path is NULL");
    LS_TRY(ls_safetensors_open(path, &file));
    ls_status status = load(model, file, path);
    ls_safetensors_close(file);
    return status;
}

/* ---- Hash ---- */

ls_status ls_model_weights_sha256(const ls_model *model, char hex[65])
{
    ls_sha256 *hash;
    LS_TRY(ls_model_need_ready(model, "ls_model_weights_sha256"));
    LS_TRY(ls_graph_fill(model->graph));
    if (!hex)
        return ls_fail(LS_ERR_INVALID, "ls_model_weights_sha256: no place for the hash was given");
    LS_TRY(ls_sha256_begin(&hash));
    for (int trainable = 1; trainable >= 0; trainable--)
        for (size_t i = 0; i < model->variable_count; i++) {
            if (ls_model_variable_is_trainable(model, i) != (trainable == 1))
                continue;
            ls_status status = ls_variable_bring(state_of(model, i));
            if (status == LS_OK)
                status = ls_sha256_add(hash, state_of(model, i)->data, state_of(model, i)->bytes);
            if (status != LS_OK) {
                ls_sha256_destroy(hash);
                return status;
            }
        }
    return ls_sha256_end(hash, hex);
}
