/* Layers that compute each element by itself: Rescaling, ActivityRegularization and LayerScale. */
#include <math.h>

#include "graph/rules.h"
#include "nn/layer_family.h"

/* ---- Rescaling ---- */

static ls_status resolve_rescaling(ls_layer *layer)
{
    ls_rescaling_options *o = &layer->rescaling;
    if (o->scale_by == 0) /* an explicit 0 is LS_ZERO */
        return ls_fail(LS_ERR_INVALID, "scale is 0, which makes every input the same number. 1/255 is 0 in C, a "
                                       "division of integers: write 1.0/255. Write LS_ZERO if you mean 0");
    ls_resolve_number(&o->scale_by, 0);
    ls_resolve_number(&o->offset, 0);
    if (!isfinite(o->scale_by) || !isfinite(o->offset))
        return ls_fail(LS_ERR_INVALID, "scale is %g and offset is %g; both must be finite", o->scale_by, o->offset);
    return LS_OK;
}

static ls_status call_rescaling(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_op_scale(ls_layer_real(pass->inputs[0]), layer->rescaling.scale_by);
    *out = layer->rescaling.offset != 0 ? ls_op_shift(x, layer->rescaling.offset) : x;
    return LS_OK;
}

/* ---- ActivityRegularization ---- */

/* From JSON, 0 is LS_ZERO. */
static ls_status resolve_activity(ls_layer *layer)
{
    ls_resolve_number(&layer->options.activity_regularizer.l1, 0);
    ls_resolve_number(&layer->options.activity_regularizer.l2, 0);
    return LS_OK;
}

static ls_status call_activity(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    (void)layer;
    *out = ls_layer_real(pass->inputs[0]);
    return LS_OK;
}

static const ls_layer_option rescaling_options[] = {
    LS_OPTION_OF(rescaling, F64, scale_by, LS_LAYER_RESCALING),
    LS_OPTION_OF(rescaling, F64, offset, LS_LAYER_RESCALING),
};

static const ls_layer_info rescaling_kinds[] = {
    { .kind = LS_LAYER_RESCALING,
      .class_name = "Rescaling",
      .base = "rescaling",
      .function = "ls_rescaling",
      .resolve = resolve_rescaling,
      .call = call_rescaling,
      .elementwise = true },
    { .kind = LS_LAYER_ACTIVITY_REGULARIZATION,
      .class_name = "ActivityRegularization",
      .base = "activity_regularization",
      .function = "ls_activity_regularization",
      .resolve = resolve_activity,
      .call = call_activity,
      .elementwise = true },
};

const ls_layer_family ls_rescaling_family = LS_LAYER_FAMILY(rescaling_options, rescaling_kinds);

/* ---- LayerScale ---- */

static ls_status resolve_layer_scale(ls_layer *layer)
{
    ls_layer_scale_options *o = &layer->layer_scale;
    ls_resolve_number(&o->init_values, 1e-6);
    if (!isfinite(o->init_values))
        return ls_fail(LS_ERR_INVALID, "init_values is %g; it must be finite", o->init_values);
    return ls_check_positive("projection_dim", o->first);
}

/* Keras gives the weight no name. */
static ls_status layer_scale_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    (void)x;
    double factor = layer->layer_scale.init_values;
    ls_initializer initializer = { .kind = LS_INIT_CONSTANT, .a = factor == 0 ? LS_ZERO : factor };
    ls_add_weight(layer, "variable", LS_SHAPE(layer->layer_scale.first), initializer, (ls_regularizer){ 0 }, out,
                  count);
    return LS_OK;
}

static ls_status call_layer_scale(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    (void)layer;
    *out = ls_op_mul(ls_layer_real(pass->inputs[0]), pass->weights[0]);
    return LS_OK;
}

static const ls_layer_option layer_scale_options[] = { LS_OPTION(layer_scale, F64, init_values) };

static const ls_layer_info layer_scale_kinds[] = {
    { .kind = LS_LAYER_LAYER_SCALE,
      .class_name = "LayerScale",
      .base = "layer_scale",
      .function = "ls_layer_scale",
      .positional = { "projection_dim" },
      .resolve = resolve_layer_scale,
      .weights = layer_scale_weights,
      .call = call_layer_scale },
};

const ls_layer_family ls_layer_scale_family = LS_LAYER_FAMILY(layer_scale_options, layer_scale_kinds);
