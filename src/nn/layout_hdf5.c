/* Keras's HDF5 files: a layer's variables are at layers/CLASS/vars/0, 1, ..., where CLASS is the
 * class name in lower case with a counter in the order of model.layers. In a Functional model,
 * layers far from the outputs come first. */
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
    size_t *index; /* by layer: when it was first visited, from 1; 0: never */
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
        for (size_t k = 0; k < c->input_count; k++)
            if (w->depth[c->inputs[k]] < *layer + 1)
                w->depth[c->inputs[k]] = *layer + 1;
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

static void sort_layers(const walk *w, size_t *order)
{
    for (size_t i = 0; i < w->model->layer_count; i++) { /* insertion sort */
        size_t k = i;
        for (; k > 0 && is_before(w, i, order[k - 1]); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

static ls_status order_functional(const ls_model *model, size_t *order)
{
    size_t calls = model->call_count + 1, layers = model->layer_count + 1;
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
        status = ls_fail(LS_ERR_MEMORY, "no memory for the order of %zu layers", model->layer_count);
    if (status == LS_OK) {
        for (size_t i = 0; i < model->output_count; i++)
            walk_from(&w, model->outputs[i]);
        find_depths(&w);
        sort_layers(&w, order);
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

ls_status ls_keras_order(const ls_model *model, size_t *order)
{
    if (model->kind == LS_MODEL_FUNCTIONAL)
        return order_functional(model, order);
    for (size_t i = 0; i < model->layer_count; i++)
        order[i] = i;
    return LS_OK;
}

ls_status ls_keras_groups(const ls_model *model, char **groups)
{
    size_t counts[LS_LAYER_KINDS] = { 0 };
    size_t *order = calloc(model->layer_count + 1, sizeof *order);
    ls_status status = LS_OK;
    if (model->kind == LS_MODEL_CUSTOM)
        status =
            ls_fail(LS_ERR_UNSUPPORTED,
                    "model \"%s\" is a custom model; Keras's HDF5 files hold only Sequential and Functional ones; use "
                    ".safetensors or .npz",
                    model->name);
    else if (!order)
        status = ls_fail(LS_ERR_MEMORY, "no memory for the order of %zu layers", model->layer_count);
    else
        status = ls_keras_order(model, order);
    for (size_t i = 0; i < model->layer_count && status == LS_OK; i++) {
        const ls_model_layer *layer = model->layers[order[i]];
        size_t count = counts[layer->spec.kind]++;
        ls_text text = { 0 };
        if (layer->spec.kind == LS_LAYER_INPUT && model->kind == LS_MODEL_SEQUENTIAL)
            continue;
        ls_text_add(&text, "layers/%s", ls_layer_info_of(layer->spec.kind)->base);
        if (count > 0)
            ls_text_add(&text, "_%zu", count);
        status = ls_text_take(&text, &groups[order[i]]);
    }
    free(order);
    return status;
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
