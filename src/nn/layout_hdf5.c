/* Keras's HDF5 files: a layer's variables are at layers/CLASS/vars/0, 1, ..., where CLASS is the
 * class name in lower case with a counter in the order of model.layers, and those of a nested model
 * at layers/functional/layers/... In a Functional model, layers far from the outputs come first. */
#include "nn/layout.h"

#include <string.h>

#include "base/status.h"
#include "base/text.h"

/* ---- The order of a Functional model's layers ---- */

typedef struct walk {
    const ls_model *model;
    int *finished; /* calls, each after the calls it needs */
    size_t finished_count;
    int *stack;    /* calls being visited */
    size_t *next;  /* by call: next input to visit */
    bool *seen;    /* by call */
    size_t *index; /* by layer of the root: when it was first visited, from 1; 0: never */
    size_t met;
    int64_t *depth, *layer_depth; /* steps to the farthest output, by call and by layer */
} walk;

static void meet(walk *w, int call, size_t *height)
{
    size_t *index = &w->index[w->model->calls[call].layer->number];
    w->seen[call] = true;
    w->stack[(*height)++] = call;
    if (*index == 0)
        *index = ++w->met;
}

/* Depth first; iterative because models may be deep. */
static void walk_from(walk *w, int output)
{
    size_t height = 0;
    output -= w->model->calls[output].output; /* the row of the call itself */
    if (w->seen[output])
        return;
    meet(w, output, &height);
    while (height > 0) {
        int call = w->stack[height - 1];
        const ls_model_call *c = &w->model->calls[call];
        if (w->next[call] == c->input_count) {
            w->finished[w->finished_count++] = call;
            height--;
            continue;
        }
        int input = c->inputs[w->next[call]++];
        input -= w->model->calls[input].output;
        if (!w->seen[input])
            meet(w, input, &height);
    }
}

static void find_depths(walk *w)
{
    for (size_t i = w->finished_count; i-- > 0;) {
        int call = w->finished[i];
        const ls_model_call *c = &w->model->calls[call];
        int64_t *layer = &w->layer_depth[c->layer->number];
        if (w->depth[call] > *layer)
            *layer = w->depth[call];
        w->depth[call] = *layer;
        for (size_t k = 0; k < c->input_count; k++) {
            int input = c->inputs[k] - w->model->calls[c->inputs[k]].output;
            if (w->depth[input] < *layer + 1)
                w->depth[input] = *layer + 1;
        }
    }
}

/* Layers that no output needs come last, in creation order. */
static bool is_before(const walk *w, size_t a, size_t b)
{
    if (!w->index[a] || !w->index[b])
        return w->index[a] ? true : !w->index[b] && a < b;
    if (w->layer_depth[a] != w->layer_depth[b])
        return w->layer_depth[a] > w->layer_depth[b];
    return w->index[a] < w->index[b];
}

static void sort_layers(const walk *w, size_t *order, size_t *count)
{
    const ls_model *root = ls_model_root(w->model);
    for (size_t i = 0; i < root->layer_count; i++) { /* insertion sort */
        if (!ls_model_owns(w->model, root->layers[i]))
            continue;
        size_t k = (*count)++;
        for (; k > 0 && is_before(w, i, order[k - 1]); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

static ls_status order_functional(const ls_model *model, size_t *order, size_t *count)
{
    size_t calls = model->call_count + 1, layers = ls_model_root(model)->layer_count + 1;
    walk w = { .model = model,
               .finished = calloc(calls, sizeof(int)),
               .stack = calloc(calls, sizeof(int)),
               .next = calloc(calls, sizeof(size_t)),
               .seen = calloc(calls, sizeof(bool)),
               .index = calloc(layers, sizeof(size_t)),
               .depth = calloc(calls, sizeof(int64_t)),
               .layer_depth = calloc(layers, sizeof(int64_t)) };
    ls_status status = LS_OK;
    if (!w.finished || !w.stack || !w.next || !w.seen || !w.index || !w.depth || !w.layer_depth)
        status = ls_fail(LS_ERR_MEMORY, "no memory for the order of %zu layers", layers - 1);
    if (status == LS_OK) {
        for (size_t i = 0; i < model->output_count; i++)
            walk_from(&w, model->outputs[i]);
        find_depths(&w);
        sort_layers(&w, order, count);
    }
    free(w.finished);
    free(w.stack);
    free(w.next);
    free(w.seen);
    free(w.index);
    free(w.depth);
    free(w.layer_depth);
    return status;
}

/* ---- Names ---- */

ls_status ls_keras_order(const ls_model *model, size_t *order, size_t *count)
{
    const ls_model *root = ls_model_root(model);
    *count = 0;
    if (model->kind == LS_MODEL_FUNCTIONAL)
        return order_functional(model, order, count);
    for (size_t i = 0; i < root->layer_count; i++)
        if (ls_model_owns(model, root->layers[i]))
            order[(*count)++] = i;
    return LS_OK;
}

/* Classes are equal if their default names are. */
static size_t count_same(const ls_model *root, const size_t *order, size_t before)
{
    const char *base = ls_model_layer_base(root->layers[order[before]]);
    size_t count = 0;
    for (size_t i = 0; i < before; i++)
        count += strcmp(ls_model_layer_base(root->layers[order[i]]), base) == 0;
    return count;
}

/* prefix: the group of the model itself, with a slash at its end */
static ls_status name_groups(const ls_model *model, const char *prefix, char **groups)
{
    const ls_model *root = ls_model_root(model);
    size_t count, *order = calloc(root->layer_count + 1, sizeof *order);
    ls_status status = order ? ls_keras_order(model, order, &count)
                             : ls_fail(LS_ERR_MEMORY, "no memory for the order of %zu layers", root->layer_count);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        const ls_model_layer *layer = root->layers[order[i]];
        size_t same = count_same(root, order, i);
        ls_text text = { 0 };
        if (layer->spec.kind == LS_LAYER_INPUT && model->kind == LS_MODEL_SEQUENTIAL)
            continue;
        ls_text_add(&text, "%slayers/%s", prefix, ls_model_layer_base(layer));
        if (same > 0)
            ls_text_add(&text, "_%zu", same);
        status = ls_text_take(&text, &groups[order[i]]);
        if (status != LS_OK || !layer->inner)
            continue;
        ls_text_add(&text, "%s/", groups[order[i]]);
        status = name_groups(layer->inner, ls_text_get(&text), groups);
        ls_text_free(&text);
    }
    free(order);
    return status;
}

ls_status ls_keras_groups(const ls_model *model, char **groups)
{
    if (model->kind == LS_MODEL_CUSTOM)
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "model \"%s\" is a custom model; Keras's HDF5 files hold only Sequential and Functional ones; use "
            ".safetensors or .npz",
            model->name);
    return name_groups(model, "", groups);
}

/* Index of a weight among those of the same place in its layer. */
static size_t index_in_place(const ls_model_layer *layer, size_t index)
{
    size_t before = 0;
    for (size_t i = 0; i < index; i++)
        before += layer->weight[i].slot == layer->weight[index].slot;
    return before;
}

ls_status ls_hdf5_weights(const ls_model *model, ls_stored_weight *stored)
{
    char **groups = calloc(model->layer_count + 1, sizeof *groups);
    ls_status status =
        groups ? ls_keras_groups(model, groups) : ls_fail(LS_ERR_MEMORY, "no memory for %zu names", model->layer_count);
    for (size_t i = 0; i < model->variable_count && status == LS_OK; i++) {
        ls_text text = { 0 };
        stored[i].shape = ls_model_variable(model, i)->shape;
        const ls_model_layer *layer = model->variables[i].layer;
        const ls_weight *weight = &layer->weight[model->variables[i].index];
        ls_text_put(&text, groups[layer->number]);
        if (weight->slot)
            ls_text_add(&text, "/%s", weight->slot);
        ls_text_add(&text, "%s/vars/%zu", weight->cell ? "/cell" : "",
                    index_in_place(layer, model->variables[i].index));
        status = ls_text_take(&text, &stored[i].name);
    }
    for (size_t i = 0; groups && i < model->layer_count; i++)
        free(groups[i]);
    free(groups);
    return status;
}
