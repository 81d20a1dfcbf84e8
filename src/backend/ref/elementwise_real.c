/* Elementwise ops of real numbers. Formulas of more than one operation are computed in double and
 * rounded once. */
#include "backend/ref/elementwise.h"
#include "backend/ref/functions.h"

BINARY(div, a / b)
BINARY(pow, real_pow(a, b))

UNARY(exp, wide_exp(x))
UNARY(log, wide_log(x))
UNARY(sqrt, real_sqrt(x))
UNARY(rsqrt, 1 / sqrt((double)x))
UNARY(erf, wide_erf(x))
UNARY(tanh, wide_tanh(x))
UNARY(relu, x <= 0 ? 0 : x) /* written such that NaN is kept */
UNARY(sigmoid, wide_sigmoid(x))
UNARY(softplus, (x > 0 ? x : 0) + wide_log1p(wide_exp(-fabs(x))))
UNARY(silu, x *wide_sigmoid(x))

ls_status LS_REF(leaky_relu)(const ls_ref_call *call)
{
    const real *in = call->in[0].data;
    real *out = call->out.data;
    real slope = (real)call->node->attr.slope.slope;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = in[i] > 0 ? in[i] : slope * in[i];
    return LS_OK;
}

/* in: dy, x */
ls_status LS_REF(relu_grad)(const ls_ref_call *call)
{
    const real *dy = call->in[0].data, *x = call->in[1].data;
    real *out = call->out.data;
    real slope = (real)call->node->attr.slope.slope;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = x[i] > 0 ? dy[i] : slope == 0 ? 0 : slope * dy[i];
    return LS_OK;
}

ls_status LS_REF(capped_relu)(const ls_ref_call *call)
{
    const real *in = call->in[0].data;
    real *out = call->out.data;
    real limit = (real)call->node->attr.number.value;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = in[i] <= 0 ? 0 : in[i] > limit ? limit : in[i];
    return LS_OK;
}

/* in: dy, x */
ls_status LS_REF(capped_relu_grad)(const ls_ref_call *call)
{
    const real *dy = call->in[0].data, *x = call->in[1].data;
    real *out = call->out.data;
    real limit = (real)call->node->attr.number.value;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = x[i] > 0 && x[i] <= limit ? dy[i] : 0;
    return LS_OK;
}

/* in: dy, x. Each operation is rounded. */
ls_status LS_REF(silu_grad)(const ls_ref_call *call)
{
    const real *dy = call->in[0].data, *x = call->in[1].data;
    real *out = call->out.data;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++) {
        real s = slope_sigmoid(x[i]), rest = 1 - s, product = x[i] * s;
        real curve = product * rest, slope = s + curve;
        out[i] = dy[i] * slope;
    }
    return LS_OK;
}

ls_status LS_REF(gelu)(const ls_ref_call *call)
{
    const real *in = call->in[0].data;
    real *out = call->out.data;
    bool tanh_form = call->node->attr.gelu.tanh_form;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = (real)(tanh_form ? wide_gelu_tanh(in[i]) : wide_gelu(in[i]));
    return LS_OK;
}

ls_status LS_REF(elu)(const ls_ref_call *call)
{
    const real *in = call->in[0].data;
    real *out = call->out.data;
    double slope = (real)call->node->attr.slope.slope;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = in[i] > 0 ? in[i] : (real)(slope * wide_expm1(in[i]));
    return LS_OK;
}
