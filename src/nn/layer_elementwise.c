/* Layers that compute each element by itself: Dropout and Rescaling. */
#include <math.h>

#include "graph/rules.h"
#include "nn/layer_family.h"

/* ---- Dropout ---- */

static ls_status resolve_dropout(ls_layer *layer)
{
    double *rate = &layer->dropout.rate;
    ls_resolve_number(rate, 0);
    if (!(*rate >= 0 && *rate < 1))
        return ls_fail(LS_ERR_INVALID, "rate is %g; it must be at least 0 and less than 1", *rate);
    return LS_OK;
}

static ls_status call_dropout(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    double rate = layer->dropout.rate;
    bool drops = pass->training && rate != 0;
    *out = drops ? ls_op_dropout_keyed(x, ls_scalar_like(x, rate), pass->random_layer, pass->random_call) : x;
    return LS_OK;
}

static const ls_layer_option dropout_options[] = { LS_OPTION(dropout, F64, rate) };

static const ls_layer_info dropout_kinds[] = {
    { .kind = LS_LAYER_DROPOUT,
      .class_name = "Dropout",
      .base = "dropout",
      .function = "ls_dropout",
      .resolve = resolve_dropout,
      .call = call_dropout,
      .elementwise = true,
      .random = true },
};

const ls_layer_family ls_dropout_family = LS_LAYER_FAMILY(dropout_options, dropout_kinds);

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

static const ls_layer_option rescaling_options[] = {
    LS_OPTION(rescaling, F64, scale_by),
    LS_OPTION(rescaling, F64, offset),
};

static const ls_layer_info rescaling_kinds[] = {
    { .kind = LS_LAYER_RESCALING,
      .class_name = "Rescaling",
      .base = "rescaling",
      .function = "ls_rescaling",
      .resolve = resolve_rescaling,
      .call = call_rescaling,
      .elementwise = true },
};

const ls_layer_family ls_rescaling_family = LS_LAYER_FAMILY(rescaling_options, rescaling_kinds);
