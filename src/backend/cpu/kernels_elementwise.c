/* Float32 ops by vector kernels: elementwise (one input, two of the same shape, a scalar, one row
 * for all rows or for a sample's), casts, dropout, softmax and cross-entropy over the last axis.
 * Other broadcasts use the reference kernels. */
#include "backend/cpu/cpu.h"

typedef enum pattern { SAME, SCALAR_RIGHT, SCALAR_LEFT, ROW_RIGHT, ROW_LEFT, OWN_ROW_RIGHT, OWN_ROW_LEFT } pattern;

typedef struct elementwise {
    ls_cpu_kernel base;
    int64_t elements; /* elements of a sample, or of the whole tensor */
    int64_t row;
    pattern pattern;
    ls_simd_unary *unary;
    ls_simd_binary *binary;
    ls_simd_with_scalar *with_scalar;
    float scalar;
} elementwise;

static size_t count(const elementwise *e, const ls_kernel_call *call)
{
    return (size_t)(e->elements * call->samples);
}

/* A tile of a whole value, or all elements of per-sample values. */
static void range(const elementwise *e, const ls_kernel_call *call, size_t *from, size_t *n)
{
    bool tile = call->to > 0;
    *from = tile ? (size_t)call->from : 0;
    *n = tile ? (size_t)(call->to - call->from) : count(e, call);
}

static ls_status run_unary(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    size_t from, n;
    range(e, call, &from, &n);
    e->unary((float *)call->out + from, (const float *)call->in[0] + from, n);
    return LS_OK;
}

static ls_status run_with_scalar(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    size_t from, n;
    range(e, call, &from, &n);
    e->with_scalar((float *)call->out + from, (const float *)call->in[0] + from, e->scalar, n);
    return LS_OK;
}

static ls_status run_clip(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    const ls_attrs *attr = &e->base.group->root->attr;
    size_t from, n;
    range(e, call, &from, &n);
    ls_simd_of(kernel)->clip((float *)call->out + from, (const float *)call->in[0] + from, (float)attr->range.low,
                             (float)attr->range.high, n);
    return LS_OK;
}

static ls_status run_relu_grad(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    size_t from, n;
    range(e, call, &from, &n);
    ls_simd_of(kernel)->relu_grad((float *)call->out + from, (const float *)call->in[0] + from,
                                  (const float *)call->in[1] + from, e->scalar, n);
    return LS_OK;
}

static ls_status run_capped_relu_grad(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    size_t from, n;
    range(e, call, &from, &n);
    ls_simd_of(kernel)->capped_relu_grad((float *)call->out + from, (const float *)call->in[0] + from,
                                         (const float *)call->in[1] + from, e->scalar, n);
    return LS_OK;
}

/* The second operand: same shape, one element, one row for all rows, or one for a sample's. */
static ls_status run_binary(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    const ls_simd *simd = ls_simd_of(kernel);
    ls_op op = e->base.group->root->op;
    bool left = e->pattern == SCALAR_LEFT || e->pattern == ROW_LEFT || e->pattern == OWN_ROW_LEFT;
    ls_simd_with_row *with_row = op == LS_OP_mul ? simd->mul_row : simd->add_row;
    size_t row = (size_t)e->row, rows = row > 0 ? (size_t)e->elements / row : 0;
    const float *x = call->in[left ? 1 : 0], *other = call->in[left ? 0 : 1];
    float *out = call->out;
    size_t from, n;
    range(e, call, &from, &n);
    if (e->pattern == SAME)
        e->binary(out + from, x + from, other + from, n);
    else if (op == LS_OP_div)
        simd->div_scalar(out + from, x + from, *other, n);
    else if (e->pattern == SCALAR_RIGHT || e->pattern == SCALAR_LEFT)
        (op == LS_OP_mul ? simd->scale : simd->add_scalar)(out + from, x + from, op == LS_OP_sub ? -*other : *other, n);
    else if (e->pattern == ROW_RIGHT || e->pattern == ROW_LEFT)
        with_row(out, x, other, n / row, row);
    else
        for (int64_t i = 0; i < call->samples; i++, out += e->elements, x += e->elements, other += row)
            with_row(out, x, other, rows, row);
    return LS_OK;
}

static ls_status run_cast(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    const ls_simd *simd = ls_simd_of(kernel);
    size_t n = count(e, call);
    switch (e->base.group->root->in[0]->dtype) {
    case LS_U8:
        simd->u8_to_f32(call->out, call->in[0], 1, n);
        break;
    case LS_I32:
        simd->i32_to_f32(call->out, call->in[0], n);
        break;
    case LS_F64:
        simd->f64_to_f32(call->out, call->in[0], n);
        break;
    default:
        simd->f32_to_f64(call->out, call->in[0], n);
        break;
    }
    return LS_OK;
}

static ls_status run_dropout(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    const ls_tensor *node = e->base.group->root;
    float rate = *(const float *)call->in[1];
    if (!(rate >= 0 && rate < 1))
        return ls_fail(LS_ERR_DATA, "a dropout rate of %g is outside [0, 1)", (double)rate);
    ls_philox_key key = ls_random_key(call->seed, LS_RANDOM_DROPOUT, (uint32_t)node->attr.random.layer,
                                      (uint32_t)node->attr.random.call);
    uint32_t first = node->per_sample ? (uint32_t)call->first : 0;
    ls_simd_of(kernel)->dropout(call->out, call->in[0], key, call->run, first, (size_t)call->samples,
                                (size_t)e->elements, rate);
    return LS_OK;
}

static ls_status run_softmax(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    const ls_simd *simd = ls_simd_of(kernel);
    size_t from, n;
    range(e, call, &from, &n);
    (e->base.group->root->op == LS_OP_softmax ? simd->softmax_rows : simd->log_softmax_rows)(
        (float *)call->out + from, (const float *)call->in[0] + from, n / (size_t)e->row, (size_t)e->row);
    return LS_OK;
}

/* in: dy, y, other */
static ls_status run_masked_add(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    ls_simd_of(kernel)->relu_grad_add(call->out, call->in[0], call->in[1], call->in[2], count(e, call));
    return LS_OK;
}

/* in: logits, labels; for the gradient also dy */
static ls_status run_cross_entropy(ls_kernel *kernel, const ls_kernel_call *call)
{
    const elementwise *e = (const elementwise *)kernel;
    const ls_tensor *node = e->base.group->root, *labels = node->in[1];
    bool gradient = node->op == LS_OP_sparse_cross_entropy_grad;
    int64_t rows = e->elements * call->samples / (gradient ? e->row : 1);
    int64_t bad = ls_simd_of(kernel)->sparse_cross_entropy(gradient ? NULL : call->out, gradient ? call->out : NULL,
                                                           call->in[0], call->in[1], labels->dtype,
                                                           gradient ? call->in[2] : NULL, (size_t)rows, (size_t)e->row);
    if (bad < 0)
        return LS_OK;
    int64_t label = labels->dtype == LS_U8    ? ((const uint8_t *)call->in[1])[bad]
                    : labels->dtype == LS_I32 ? ((const int32_t *)call->in[1])[bad]
                                              : ((const int64_t *)call->in[1])[bad];
    int64_t samples = labels->per_sample ? call->samples : labels->shape.rank > 0 ? labels->shape.dims[0] : 1;
    int64_t sample = call->first + bad / (rows / samples);
    return ls_fail(LS_ERR_DATA, "label %lld of sample %lld is outside 0..%lld", (long long)label, (long long)sample,
                   (long long)e->row - 1);
}

static ls_simd_unary *unary_for(const ls_simd *simd, const ls_tensor *node)
{
    switch (node->op) {
    case LS_OP_relu:
        return simd->relu;
    case LS_OP_neg:
        return simd->neg;
    case LS_OP_abs:
        return simd->abs;
    case LS_OP_square:
        return simd->square;
    case LS_OP_sqrt:
        return simd->sqrt;
    case LS_OP_rsqrt:
        return simd->rsqrt;
    case LS_OP_exp:
        return simd->exp;
    case LS_OP_log:
        return simd->log;
    case LS_OP_tanh:
        return simd->tanh;
    case LS_OP_erf:
        return simd->erf;
    case LS_OP_sigmoid:
        return simd->sigmoid;
    case LS_OP_silu:
        return simd->silu;
    case LS_OP_softplus:
        return simd->softplus;
    case LS_OP_gelu:
        return node->attr.gelu.tanh_form ? simd->gelu_tanh : simd->gelu;
    default:
        return NULL;
    }
}

static ls_simd_binary *binary_for(const ls_simd *simd, ls_op op)
{
    switch (op) {
    case LS_OP_add:
        return simd->add;
    case LS_OP_sub:
        return simd->sub;
    case LS_OP_mul:
        return simd->mul;
    case LS_OP_div:
        return simd->div;
    case LS_OP_maximum:
        return simd->maximum;
    case LS_OP_minimum:
        return simd->minimum;
    case LS_OP_silu_grad:
        return simd->silu_grad;
    default:
        return NULL;
    }
}

/* Elements of `small` if it is whole and repeats along the last axes of `large`, else 0. */
static int64_t repeats(const ls_tensor *small, const ls_tensor *large)
{
    int64_t n = 1;
    if (small->per_sample || small->shape.rank > large->shape.rank)
        return 0;
    int skip = large->shape.rank - small->shape.rank, leading = 1;
    for (int i = 0; i < small->shape.rank; i++) {
        int64_t size = small->shape.dims[i];
        if (size == LS_BATCH || (size != large->shape.dims[i + skip] && !(leading && size == 1)))
            return 0;
        leading = leading && size == 1;
        n *= size;
    }
    return n;
}

/* Elements of a sample of `small` if it repeats along the last axes of one of `large`, else 0. */
static int64_t repeats_in_samples(const ls_tensor *small, const ls_tensor *large)
{
    int64_t n = 1;
    if (!small->per_sample || small->shape.rank != large->shape.rank)
        return 0;
    for (int i = 1, leading = 1; i < small->shape.rank; i++) {
        int64_t size = small->shape.dims[i];
        if (size != large->shape.dims[i] && !(leading && size == 1))
            return 0;
        leading = leading && size == 1;
        n *= size;
    }
    return n > 1 ? n : 0; /* single numbers are not vectors */
}

static bool find_pattern(elementwise *e, const ls_tensor *node)
{
    const ls_tensor *a = node->in[0], *b = node->in[1];
    ls_op op = node->op;
    bool like_a = ls_shape_equal(&a->shape, &node->shape) && a->per_sample == node->per_sample;
    bool like_b = ls_shape_equal(&b->shape, &node->shape) && b->per_sample == node->per_sample;
    if (like_a && like_b) {
        e->pattern = SAME;
        return true;
    }
    bool commutes = op == LS_OP_add || op == LS_OP_mul;
    if (!((op == LS_OP_sub || op == LS_OP_div) && like_a) && !commutes)
        return false;
    int64_t own = !commutes ? 0 : like_a ? repeats_in_samples(b, a) : like_b ? repeats_in_samples(a, b) : 0;
    if (own > 0) {
        e->row = own;
        e->pattern = like_a ? OWN_ROW_RIGHT : OWN_ROW_LEFT;
        return true;
    }
    int64_t row = like_a ? repeats(b, a) : like_b ? repeats(a, b) : 0;
    if (row == 0 || (row > 1 && !commutes))
        return false;
    e->row = row;
    e->pattern = row == 1 ? (like_a ? SCALAR_RIGHT : SCALAR_LEFT) : (like_a ? ROW_RIGHT : ROW_LEFT);
    return true;
}

static bool casts(ls_dtype from, ls_dtype to)
{
    return (to == LS_F32 && (from == LS_U8 || from == LS_I32 || from == LS_F64)) || (to == LS_F64 && from == LS_F32);
}

/* Returns the run function for a node and sets what it needs; NULL: unsupported. */
static ls_status (*choose(elementwise *e, const ls_simd *simd, const ls_tensor *node))(ls_kernel *,
                                                                                       const ls_kernel_call *)
{
    bool real = node->dtype == LS_F32, last_axis = false;
    e->row =
        node->input_count > 0 && node->in[0]->shape.rank > 0 ? node->in[0]->shape.dims[node->in[0]->shape.rank - 1] : 1;
    switch (node->op) {
    case LS_OP_cast:
        return casts(node->in[0]->dtype, node->dtype) ? run_cast : NULL;
    case LS_OP_clip:
        return real ? run_clip : NULL;
    case LS_OP_relu_grad:
        e->scalar = (float)node->attr.slope.slope;
        return real ? run_relu_grad : NULL;
    case LS_OP_capped_relu:
        e->scalar = (float)node->attr.number.value;
        e->with_scalar = simd->capped_relu;
        return real ? run_with_scalar : NULL;
    case LS_OP_capped_relu_grad:
        e->scalar = (float)node->attr.number.value;
        return real ? run_capped_relu_grad : NULL;
    case LS_OP_leaky_relu:
    case LS_OP_elu:
        e->scalar = (float)node->attr.slope.slope;
        e->with_scalar = node->op == LS_OP_elu ? simd->elu : simd->leaky_relu;
        return real ? run_with_scalar : NULL;
    case LS_OP_dropout:
        return real ? run_dropout : NULL;
    case LS_OP_softmax:
    case LS_OP_log_softmax:
        last_axis = node->attr.axis.axis == node->shape.rank - 1 && e->row > 0;
        return real && last_axis ? run_softmax : NULL;
    case LS_OP_sparse_cross_entropy:
    case LS_OP_sparse_cross_entropy_grad:
        /* The size of a gathered batch is known only in the run. */
        return real && e->row > 0 ? run_cross_entropy : NULL;
    default:
        break;
    }
    e->unary = unary_for(simd, node);
    e->binary = binary_for(simd, node->op);
    if (!real)
        return NULL;
    return e->unary ? run_unary : e->binary && find_pattern(e, node) ? run_binary : NULL;
}

ls_status ls_cpu_make_elementwise(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                  ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->root;
    elementwise probe = { .pattern = SAME };
    bool masked_add = group->fusion == LS_FUSE_MASKED_ADD;
    if ((group->node_count != 1 && !masked_add) || node->op == LS_OP_apply)
        return ls_cpu_pass();
    ls_status (*run)(ls_kernel *, const ls_kernel_call *) =
        masked_add ? run_masked_add : choose(&probe, cpu->simd, node);
    if (!run)
        return ls_cpu_pass();
    elementwise *e = ls_cpu_kernel_new(cpu, group, sizeof(*e), "simd", run);
    if (!e)
        return LS_ERR_MEMORY;
    probe.base = e->base;
    *e = probe;
    e->elements = ls_cpu_elements(group->plan, node);
    bool each = run == run_unary || run == run_with_scalar || run == run_clip || run == run_relu_grad ||
                run == run_capped_relu_grad;
    bool ranges = each || (run == run_binary && e->pattern <= SCALAR_LEFT);
    e->base.base.tiled = !group->per_sample && (ranges || run == run_softmax);
    if (run == run_softmax) /* tiles are whole rows */
        e->base.base.tile = e->row * (LS_TILE / e->row > 1 ? LS_TILE / e->row : 1);
    e->base.base.in_place = each || run == run_dropout || masked_add ||
                            (run == run_binary && (e->pattern == SAME || e->pattern == SCALAR_RIGHT ||
                                                   e->pattern == ROW_RIGHT || e->pattern == OWN_ROW_RIGHT));
    *out = &e->base.base;
    return LS_OK;
}
