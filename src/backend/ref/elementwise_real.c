/* Elementwise ops of real numbers. What takes more than one operation is computed in double and rounded once. */
#include "backend/ref/elementwise.h"

BINARY(div, a / b)
BINARY(pow, real_pow(a, b))

static double sigmoid(double x)
{
    double e = ls_exp(-fabs(x)); /* at most 1: never overflows */
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

static double softplus(double x)
{
    return (x > 0 ? x : 0) + ls_log1p(ls_exp(-fabs(x)));
}

UNARY(exp, real_exp(x))
UNARY(log, real_log(x))
UNARY(sqrt, real_sqrt(x))
UNARY(rsqrt, 1 / sqrt((double)x))
UNARY(erf, real_erf(x))
UNARY(tanh, real_tanh(x))
UNARY(relu, x <= 0 ? 0 : x) /* so written, NaN stays */
UNARY(sigmoid, sigmoid(x))
UNARY(softplus, softplus(x))
UNARY(silu, x *sigmoid(x))

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

static double gelu(double x)
{
    return 0.5 * x * (1 + ls_erf(x * 0x1.6a09e667f3bcdp-1)); /* sqrt(1/2) */
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + ls_tanh(0x1.9884533d43651p-1 * (x + 0.044715 * x * x * x))); /* sqrt(2/pi) */
}

ls_status LS_REF(gelu)(const ls_ref_call *call)
{
    const real *in = call->in[0].data;
    real *out = call->out.data;
    bool tanh_form = call->node->attr.gelu.tanh_form;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = (real)(tanh_form ? gelu_tanh(in[i]) : gelu(in[i]));
    return LS_OK;
}

ls_status LS_REF(elu)(const ls_ref_call *call)
{
    const real *in = call->in[0].data;
    real *out = call->out.data;
    double slope = call->node->attr.slope.slope;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = in[i] > 0 ? in[i] : (real)(slope * ls_expm1(in[i]));
    return LS_OK;
}
