/* Layers of all kinds: checks a spec against the tables of the families, and calls their
 * functions. */
#include "nn/layer_family.h"

#include <string.h>

static const ls_layer_family *const families[] = {
    &ls_input_family,      &ls_nested_family,    &ls_dense_family,     &ls_conv_family,          &ls_pool_family,
    &ls_pad_family,        &ls_norm_family,      &ls_embedding_family, &ls_activation_family,    &ls_dropout_family,
    &ls_reshape_family,    &ls_merge_family,     &ls_rescaling_family, &ls_normalization_family, &ls_layer_scale_family,
    &ls_registered_family, &ls_recurrent_family, &ls_masking_family,   &ls_wrapper_family,       &ls_resize_family,
    &ls_augment_family,
};
#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

static const ls_layer_info *find_kind(ls_layer_kind kind, const ls_layer_family **family)
{
    for (size_t f = 0; f < FAMILY_COUNT; f++)
        for (size_t i = 0; i < families[f]->kind_count; i++)
            if (families[f]->kinds[i].kind == kind) {
                *family = families[f];
                return &families[f]->kinds[i];
            }
    return NULL;
}

const ls_layer_info *ls_layer_info_of(ls_layer_kind kind)
{
    static const ls_layer_info none = { .class_name = "?", .base = "layer", .function = "?" };
    const ls_layer_family *family;
    const ls_layer_info *info = find_kind(kind, &family);
    return info ? info : &none;
}

/* ---- Options ---- */

static bool has_option(const ls_layer_option *option, ls_layer_kind kind)
{
    if (option->only[0] == LS_LAYER_NONE)
        return true;
    for (size_t i = 0; i < sizeof(option->only) / sizeof(option->only[0]); i++)
        if (option->only[i] == kind)
            return true;
    return false;
}

static const void *value_of(const ls_layer_option *option, const ls_layer *layer)
{
    return (const char *)&layer->options + option->offset;
}

static bool is_set(const ls_layer_option *option, const ls_layer *layer)
{
    const void *at = value_of(option, layer);
    switch (option->type) {
    case LS_LAYER_OPTION_I64:
        for (size_t i = 0; i < option->bytes / sizeof(int64_t); i++)
            if (((const int64_t *)at)[i] != 0)
                return true;
        return false;
    case LS_LAYER_OPTION_INT:
        return *(const int *)at != 0;
    case LS_LAYER_OPTION_F64:
        for (size_t i = 0; i < option->bytes / sizeof(double); i++)
            if (((const double *)at)[i] != 0)
                return true;
        return false;
    case LS_LAYER_OPTION_FLAG:
        return *(const bool *)at;
    case LS_LAYER_OPTION_INITIALIZER:
        return ((const ls_initializer *)at)->kind != LS_INIT_DEFAULT;
    case LS_LAYER_OPTION_REGULARIZER:
        return ((const ls_regularizer *)at)->l1 != 0 || ((const ls_regularizer *)at)->l2 != 0;
    case LS_LAYER_OPTION_SHAPE:
        return ((const ls_shape *)at)->rank != 0;
    case LS_LAYER_OPTION_LAYER:
        return *(const ls_layer *const *)at != NULL;
    case LS_LAYER_OPTION_AXES:
        return ((const ls_axes *)at)->count != 0;
    case LS_LAYER_OPTION_NUMBERS:
        return ((const ls_numbers *)at)->count != 0;
    case LS_LAYER_OPTION_TEXT:
        return *(const char *const *)at != NULL;
    }
    return true;
}

static bool axes_are_equal(const ls_axes *a, const ls_axes *b)
{
    bool equal = a->count == b->count;
    for (int i = 0; i < a->count && equal; i++)
        equal = a->axis[i] == b->axis[i];
    return equal;
}

static bool numbers_are_equal(const ls_numbers *a, const ls_numbers *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->values, b->values, (size_t)a->count * sizeof(double)) == 0);
}

static bool is_equal(const ls_layer_option *option, const ls_layer *a, const ls_layer *b)
{
    const void *x = value_of(option, a), *y = value_of(option, b);
    switch (option->type) {
    case LS_LAYER_OPTION_I64:
    case LS_LAYER_OPTION_INT:
        return memcmp(x, y, option->bytes) == 0;
    case LS_LAYER_OPTION_F64:
        for (size_t i = 0; i < option->bytes / sizeof(double); i++)
            if (((const double *)x)[i] != ((const double *)y)[i])
                return false;
        return true;
    case LS_LAYER_OPTION_FLAG:
        return *(const bool *)x == *(const bool *)y;
    case LS_LAYER_OPTION_SHAPE:
        return ls_shape_equal(x, y);
    case LS_LAYER_OPTION_LAYER: { /* NULL: made from the other layer inside */
        const ls_layer *inner = *(const ls_layer *const *)x, *other = *(const ls_layer *const *)y;
        return !inner || !other || ls_layer_is_same(inner, other);
    }
    case LS_LAYER_OPTION_AXES:
        return axes_are_equal(x, y);
    case LS_LAYER_OPTION_NUMBERS:
        return numbers_are_equal(x, y);
    case LS_LAYER_OPTION_TEXT:
        return strcmp(*(const char *const *)x, *(const char *const *)y) == 0;
    case LS_LAYER_OPTION_INITIALIZER:
    case LS_LAYER_OPTION_REGULARIZER:
        return true;
    }
    return true;
}

bool ls_layer_is_same(const ls_layer *a, const ls_layer *b)
{
    const ls_layer_options *x = &a->options, *y = &b->options;
    const ls_layer_family *family;
    if (a->kind != b->kind || !find_kind(a->kind, &family))
        return false;
    if (x->first != y->first || x->second != y->second || x->third != y->third || x->fourth != y->fourth ||
        x->frozen != y->frozen)
        return false;
    for (size_t i = 0; i < family->option_count; i++)
        if (!is_equal(&family->options[i], a, b))
            return false;
    return true;
}

static ls_status check_positional(const ls_layer_info *info, const ls_layer_options *o)
{
    const int64_t argument[] = { o->first, o->second, o->third, o->fourth };
    int positional = 0;
    while (positional < 4 && info->positional[positional])
        positional++;
    for (int i = positional; i < 4; i++)
        if (argument[i] != 0)
            return ls_fail(LS_ERR_INVALID, "%s takes %d number%s before its options; number %d, %lld, is too many",
                           info->function, positional, positional == 1 ? "" : "s", i + 1, (long long)argument[i]);
    return LS_OK;
}

static ls_status check_options(const ls_layer_family *family, const ls_layer *spec)
{
    for (size_t i = 0; i < family->option_count; i++) {
        const ls_layer_option *option = &family->options[i];
        if (!has_option(option, spec->kind) && is_set(option, spec))
            return ls_fail(LS_ERR_INVALID, "this layer has no option %s; remove it", option->name);
    }
    return LS_OK;
}

ls_status ls_layer_resolve(const ls_layer *spec, ls_layer *out)
{
    const ls_layer_family *family;
    const ls_layer_info *info = find_kind(spec->kind, &family);
    if (!info)
        return ls_fail(LS_ERR_INVALID, "there is no layer of kind %d; use a constructor such as ls_dense",
                       (int)spec->kind);
    LS_TRY(check_positional(info, &spec->options));
    LS_TRY(check_options(family, spec));
    ls_layer layer = *spec;
    if (info->resolve)
        LS_TRY(info->resolve(&layer));
    LS_TRY(ls_check_regularizer("activity_regularizer", &layer.options.activity_regularizer));
    *out = layer;
    return LS_OK;
}

static ls_status keep_numbers(ls_numbers *numbers, ls_arena *arena)
{
    size_t bytes = (size_t)numbers->count * sizeof(double);
    double *copy = ls_arena_alloc(arena, bytes);
    if (!copy)
        return ls_fail(LS_ERR_MEMORY, "no memory for %lld numbers", (long long)numbers->count);
    memcpy(copy, numbers->values, bytes);
    numbers->values = copy;
    return LS_OK;
}

static ls_status keep_text(const char **text, ls_arena *arena)
{
    *text = ls_arena_strdup(arena, *text);
    return *text ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for an option");
}

ls_status ls_layer_keep_options(ls_layer *layer, ls_arena *arena)
{
    const ls_layer_family *family;
    if (!find_kind(layer->kind, &family))
        return LS_OK;
    for (size_t i = 0; i < family->option_count; i++) {
        void *at = (char *)&layer->options + family->options[i].offset;
        if (family->options[i].type == LS_LAYER_OPTION_NUMBERS && is_set(&family->options[i], layer))
            LS_TRY(keep_numbers(at, arena));
        if (family->options[i].type == LS_LAYER_OPTION_TEXT && is_set(&family->options[i], layer))
            LS_TRY(keep_text(at, arena));
    }
    return LS_OK;
}

/* ---- Variables and calls ---- */

ls_status ls_tensor_check(const ls_tensor *tensor)
{
    if (!tensor)
        return ls_fail(LS_ERR_INVALID, "a tensor is NULL");
    return tensor->op == LS_OP_ERROR ? ls_fail(tensor->status, "%s", tensor->message) : LS_OK;
}

ls_status ls_layer_weights(const ls_layer *layer, const ls_shape *x, ls_weight out[LS_MAX_WEIGHTS], size_t *count)
{
    const ls_layer_info *info = ls_layer_info_of(layer->kind);
    *count = 0;
    return info->weights ? info->weights(layer, x, out, count) : LS_OK;
}

static ls_tensor *add_scaled_sum(ls_tensor *sum, ls_tensor *terms, double factor)
{
    ls_tensor *term = ls_op_scale(ls_op_reduce_sum(terms, LS_ALL_AXES, false), factor);
    return sum ? ls_op_add(sum, term) : term;
}

ls_tensor *ls_penalty(const ls_regularizer *regularizer, ls_tensor *x, ls_tensor *sum)
{
    if (regularizer->l1 != 0)
        sum = add_scaled_sum(sum, ls_op_abs(x), regularizer->l1);
    return regularizer->l2 != 0 ? add_scaled_sum(sum, ls_op_square(x), regularizer->l2) : sum;
}

/* Checks that the variables of a shared layer fit the shape of this call. */
static ls_status check_fit(const ls_layer *layer, const ls_layer_pass *pass)
{
    ls_weight need[LS_MAX_WEIGHTS];
    size_t count;
    char want[LS_SHAPE_TEXT], have[LS_SHAPE_TEXT];
    LS_TRY(ls_layer_weights(layer, &pass->inputs[0]->shape, need, &count));
    for (size_t i = 0; i < count; i++)
        if (!ls_shape_equal(&need[i].shape, &pass->weights[i]->shape))
            return ls_fail(LS_ERR_SHAPE, "this input needs %s %s, the layer was made with %s", need[i].name,
                           ls_shape_format(&need[i].shape, want), ls_shape_format(&pass->weights[i]->shape, have));
    return LS_OK;
}

ls_status ls_layer_pass_make(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_layer_info *info = ls_layer_info_of(layer->kind);
    pass->updates[0] = pass->updates[1] = pass->mask = NULL;
    if (!info->call)
        return ls_fail(LS_ERR_INVALID, "a layer of kind %d cannot be called", (int)layer->kind);
    if (pass->input_count == 0)
        return ls_fail(LS_ERR_INVALID, "the layer is called without an input");
    if (!info->many && pass->input_count > 1)
        return ls_fail(LS_ERR_INVALID, "the layer takes one input; %zu were given", pass->input_count);
    for (size_t i = 0; i < pass->input_count; i++)
        if (pass->inputs[i]->shape.rank == 0)
            return ls_fail(LS_ERR_SHAPE, "input %zu is a scalar; axis 0 of an input is the batch axis", i);
    LS_TRY(check_fit(layer, pass));
    LS_TRY(ls_mask_check(info, pass));
    ls_tensor *y = NULL;
    LS_TRY(info->call(layer, pass, &y));
    LS_TRY(ls_tensor_check(y));
    LS_TRY(ls_mask_set(info, pass, &y));
    for (int i = 0; i < 2; i++)
        if (pass->updates[i])
            LS_TRY(ls_tensor_check(pass->updates[i]));
    pass->penalty = ls_penalty(&layer->options.activity_regularizer, y, NULL);
    if (pass->penalty) /* as in Keras, the mean of the samples */
        pass->penalty = ls_op_div(pass->penalty, ls_op_count(y->graph, y->dtype));
    if (pass->penalty)
        LS_TRY(ls_tensor_check(pass->penalty));
    *out = y;
    return LS_OK;
}
