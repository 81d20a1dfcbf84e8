/* Bidirectional and TimeDistributed: layers around another layer, which the model copies. The layer
 * inside is kept as it was given and resolved for each use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/layer_family.h"

const ls_layer *ls_wrapper_inner(const ls_layer *layer)
{
    bool wraps = layer->kind == LS_LAYER_BIDIRECTIONAL || layer->kind == LS_LAYER_TIME_DISTRIBUTED;
    return wraps ? layer->wrapper.layer : NULL;
}

static ls_status resolve_inner(const ls_layer *layer, const ls_layer *inner, ls_layer *out)
{
    const ls_layer_info *info = ls_layer_info_of(inner->kind);
    if (inner->options.device)
        return ls_fail(LS_ERR_INVALID, "the %s inside has a device; give it to the layer around it", info->class_name);
    LS_TRY(ls_fail_within(ls_layer_resolve(inner, out), "the %s inside", info->class_name));
    out->options.frozen = out->options.frozen || layer->options.frozen;
    return LS_OK;
}

/* ---- Copies ---- */

static ls_layer *copy_inner(const ls_layer *inner, const char *prefix, const char *name, ls_arena *arena)
{
    size_t length = strlen(prefix) + strlen(name) + 1;
    ls_layer *copy = ls_arena_alloc(arena, sizeof(*copy));
    char *full = ls_arena_alloc(arena, length);
    if (!copy || !full)
        return NULL;
    snprintf(full, length, "%s%s", strncmp(name, prefix, strlen(prefix)) == 0 ? "" : prefix, name);
    *copy = *inner;
    copy->options.name = full;
    return ls_layer_keep_options(copy, arena) == LS_OK ? copy : NULL;
}

ls_status ls_wrapper_own(ls_layer *layer, const char *inner_name, ls_arena *arena)
{
    ls_wrapper_options *o = &layer->wrapper;
    const ls_layer *inner = ls_wrapper_inner(layer), *backward = o->backward_layer;
    if (!inner)
        return LS_OK;
    const char *name = inner->options.name ? inner->options.name : inner_name;
    bool both = layer->kind == LS_LAYER_BIDIRECTIONAL, given = both && backward;
    o->layer = copy_inner(inner, both ? "forward_" : "", name, arena);
    if (both) {
        ls_layer *copy = given && backward->options.name
                             ? copy_inner(backward, "", backward->options.name, arena)
                             : copy_inner(given ? backward : inner, "backward_", name, arena);
        if (copy && !given)
            copy->recurrent.go_backwards = !inner->recurrent.go_backwards;
        o->backward_layer = copy;
    }
    return o->layer && (!both || o->backward_layer) ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a layer");
}

/* ---- Bidirectional ---- */

static ls_status resolve_direction(const ls_layer *layer, const ls_layer *inner, ls_layer *out)
{
    if (!ls_layer_is_recurrent(inner))
        return ls_fail(LS_ERR_INVALID, "the layer inside is a %s; it must be a SimpleRNN, an LSTM or a GRU",
                       ls_layer_info_of(inner->kind)->class_name);
    LS_TRY(resolve_inner(layer, inner, out));
    out->recurrent.zero_output_for_mask = out->recurrent.return_sequences;
    return LS_OK;
}

static ls_status resolve_bidirectional(ls_layer *layer)
{
    const ls_wrapper_options *o = &layer->wrapper;
    ls_layer forward, backward;
    if (!o->layer)
        return ls_fail(LS_ERR_INVALID, "there is no layer inside; write ls_bidirectional(ls_lstm(64))");
    if ((unsigned)o->merge_mode > LS_MERGE_AVE)
        return ls_fail(LS_ERR_INVALID, "merge_mode is %d; it must be LS_MERGE_CONCAT, _SUM, _MUL or _AVE",
                       (int)o->merge_mode);
    LS_TRY(resolve_direction(layer, o->layer, &forward));
    if (!o->backward_layer)
        return LS_OK;
    LS_TRY(ls_fail_within(resolve_direction(layer, o->backward_layer, &backward), "backward_layer"));
    if (forward.recurrent.go_backwards == backward.recurrent.go_backwards)
        return ls_fail(LS_ERR_INVALID, "layer and backward_layer have the same go_backwards; one of them must be true");
    if (forward.recurrent.return_sequences != backward.recurrent.return_sequences)
        return ls_fail(LS_ERR_INVALID, "layer and backward_layer must have the same return_sequences");
    return LS_OK;
}

static ls_status add_weights(const ls_layer *inner, const char *slot, const ls_shape *x, ls_weight *out, size_t *count)
{
    ls_weight some[LS_MAX_WEIGHTS];
    size_t more = 0;
    LS_TRY(ls_layer_weights(inner, x, some, &more));
    if (*count + more > LS_MAX_WEIGHTS)
        return ls_fail(LS_ERR_UNSUPPORTED, "the layers inside have %zu weights; %d are possible", *count + more,
                       LS_MAX_WEIGHTS);
    for (size_t i = 0; i < more; i++) {
        some[i].inner = inner->options.name;
        some[i].slot = slot;
        out[(*count)++] = some[i];
    }
    return LS_OK;
}

static ls_status bidirectional_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    ls_layer forward, backward;
    LS_TRY(resolve_direction(layer, layer->wrapper.layer, &forward));
    LS_TRY(resolve_direction(layer, layer->wrapper.backward_layer, &backward));
    LS_TRY(add_weights(&forward, "forward_layer", x, out, count));
    return add_weights(&backward, "backward_layer", x, out, count);
}

static ls_tensor *merge(ls_merge_mode mode, ls_tensor *a, ls_tensor *b)
{
    switch (mode) {
    case LS_MERGE_SUM:
        return ls_op_add(a, b);
    case LS_MERGE_MUL:
        return ls_op_mul(a, b);
    case LS_MERGE_AVE:
        return ls_op_scale(ls_op_add(a, b), 0.5);
    case LS_MERGE_CONCAT:
        break;
    }
    return ls_op_concat((ls_tensor *[]){ a, b }, 2, -1);
}

static ls_status call_bidirectional(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_layer inner[2];
    ls_tensor *y[2];
    size_t first = 0;
    LS_TRY(resolve_direction(layer, layer->wrapper.layer, &inner[0]));
    LS_TRY(resolve_direction(layer, layer->wrapper.backward_layer, &inner[1]));
    bool sequences = inner[0].recurrent.return_sequences;
    for (int i = 0; i < 2; i++) {
        ls_layer_pass one = *pass;
        one.weights = pass->weights + first;
        one.random_call = 2 * pass->random_call + i;
        LS_TRY(ls_recurrent_call(&inner[i], &one, &y[i]));
        if (!sequences)
            y[i] = ls_recurrent_last(&inner[i], y[i]);
        first += inner[i].recurrent.no_bias ? 2 : 3;
    }
    *out = merge(layer->wrapper.merge_mode, y[0], y[1]);
    if (sequences && inner[0].recurrent.go_backwards)
        *out = ls_recurrent_turn(*out);
    pass->mask = sequences ? pass->inputs[0]->mask : NULL;
    return LS_OK;
}

/* ---- TimeDistributed ---- */

/* Layers that treat all axes before the last alike, so that steps are one more of them. */
static bool takes_steps(const ls_layer *inner)
{
    switch (inner->kind) {
    case LS_LAYER_DENSE:
    case LS_LAYER_EMBEDDING:
    case LS_LAYER_LAYER_NORMALIZATION:
        return true;
    case LS_LAYER_SOFTMAX:
        return inner->activation.axis < 0;
    default:
        return ls_layer_info_of(inner->kind)->elementwise;
    }
}

static ls_status resolve_time_distributed(ls_layer *layer)
{
    const ls_layer *inner = layer->wrapper.layer;
    ls_layer resolved;
    if (!inner)
        return ls_fail(LS_ERR_INVALID, "there is no layer inside; write ls_time_distributed(ls_dense(10))");
    const ls_layer_info *info = ls_layer_info_of(inner->kind);
    if (!info->call || info->many || ls_wrapper_inner(inner) || inner->kind == LS_LAYER_BATCH_NORMALIZATION)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "a %s cannot be inside a TimeDistributed; use one layer with one input that "
                       "keeps no statistics",
                       info->class_name);
    return resolve_inner(layer, inner, &resolved);
}

/* Shape of one step of x. */
static ls_shape step_shape(const ls_shape *x)
{
    ls_shape shape = { .rank = x->rank - 1, .dims = { x->dims[0] } };
    for (int i = 1; i < shape.rank; i++)
        shape.dims[i] = x->dims[i + 1];
    return shape;
}

static ls_status time_distributed_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    ls_layer inner;
    LS_TRY(ls_check_rank(x, 3, LS_MAX_RANK, "an input of at least 3 axes (batch, steps, ...)"));
    LS_TRY(resolve_inner(layer, layer->wrapper.layer, &inner));
    ls_shape step = step_shape(x);
    return add_weights(&inner, "layer", &step, out, count);
}

static ls_tensor *take_step(ls_tensor *x, int64_t step)
{
    ls_axes begin = { .count = x->shape.rank }, size = { .count = x->shape.rank };
    for (int i = 0; i < x->shape.rank; i++)
        size.axis[i] = -1;
    begin.axis[1] = step, size.axis[1] = 1;
    return ls_op_reshape(ls_op_slice(x, begin, size), step_shape(&x->shape));
}

static ls_status call_steps(const ls_layer *inner, const ls_layer_pass *pass, ls_tensor *x, ls_tensor **parts)
{
    int64_t steps = x->shape.dims[1];
    for (int64_t t = 0; t < steps; t++) {
        ls_tensor *step = take_step(x, t), *y;
        LS_TRY(ls_tensor_check(step));
        ls_layer_pass one = *pass;
        one.inputs = &step;
        one.random_call = pass->random_call * steps + t;
        LS_TRY(ls_layer_pass_make(inner, &one, &y));
        ls_shape sizes = { .rank = y->shape.rank, .dims = { 1 } };
        for (int i = 1; i < y->shape.rank; i++)
            sizes.dims[i] = y->shape.dims[i];
        parts[t] = ls_reshape_samples(y, &sizes);
    }
    return LS_OK;
}

static ls_status call_time_distributed(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_layer inner;
    ls_tensor *x = pass->inputs[0];
    LS_TRY(ls_check_rank(&x->shape, 3, LS_MAX_RANK, "an input of at least 3 axes (batch, steps, ...)"));
    LS_TRY(resolve_inner(layer, layer->wrapper.layer, &inner));
    if (x->mask && ls_layer_is_recurrent(&inner))
        return ls_fail(LS_ERR_UNSUPPORTED, "the input has a mask of its steps, which the %s inside cannot use",
                       ls_layer_info_of(inner.kind)->class_name);
    if (takes_steps(&inner)) {
        ls_layer_pass whole = *pass;
        return ls_layer_info_of(inner.kind)->call(&inner, &whole, out);
    }
    int64_t steps = x->shape.dims[1];
    ls_tensor **parts = malloc((size_t)steps * sizeof(*parts));
    ls_status status = parts ? call_steps(&inner, pass, x, parts)
                             : ls_fail(LS_ERR_MEMORY, "no memory for %lld steps", (long long)steps);
    if (status == LS_OK)
        *out = ls_op_concat(parts, (size_t)steps, 1);
    free(parts);
    return status;
}

/* ---- Tables ---- */

static const ls_layer_option options[] = {
    LS_OPTION(wrapper, LAYER, layer),
    LS_OPTION_OF(wrapper, LAYER, backward_layer, LS_LAYER_BIDIRECTIONAL),
    LS_OPTION_OF(wrapper, INT, merge_mode, LS_LAYER_BIDIRECTIONAL),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_BIDIRECTIONAL,
      .class_name = "Bidirectional",
      .base = "bidirectional",
      .function = "ls_bidirectional",
      .resolve = resolve_bidirectional,
      .weights = bidirectional_weights,
      .call = call_bidirectional,
      .random = true,
      .mask = LS_MASK_OWN },
    { .kind = LS_LAYER_TIME_DISTRIBUTED,
      .class_name = "TimeDistributed",
      .base = "time_distributed",
      .function = "ls_time_distributed",
      .resolve = resolve_time_distributed,
      .weights = time_distributed_weights,
      .call = call_time_distributed,
      .random = true,
      .mask = LS_MASK_PASSES },
};

const ls_layer_family ls_wrapper_family = LS_LAYER_FAMILY(options, kinds);
