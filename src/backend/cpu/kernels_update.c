/* Optimizer updates in place, in tiles, and whether one would overflow. in: inputs as in
 * graph/ops_leaf.c; out: the variable. */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"

static ls_ref_update_f32 scalars_of(const ls_tensor *node, const void *const *in)
{
    int step = ls_apply_step(node);
    return ls_ref_update_scalars_f32(node, *(const float *)in[1], step >= 0 ? *(const float *)in[step] : 0);
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const ls_cpu_kernel *k = (const ls_cpu_kernel *)kernel;
    const ls_tensor *node = k->group->root;
    if (ls_apply_is_left_out(node, call->in))
        return LS_OK;
    ls_ref_update_f32 params = scalars_of(node, call->in);
    if (!k->cpu->simd->update((ls_apply_rule)node->attr.apply.rule, call->out, call->in[0], call->slots[0],
                              call->slots[1], (size_t)call->from, (size_t)call->to, &params) &&
        call->large)
        *call->large = true;
    return LS_OK;
}

#define MOST 0x1p20f /* maximum of a factor */
/* Minimum of epsilon. Divisors are at least as large: epsilon plus a root, which is not
 * negative. */
#define LEAST 0x1p-60f

static bool is_fraction(float x)
{
    return x >= 0 && x <= 1;
}

/* With numbers below 2^40 and these scalars, no intermediate result of apply.def reaches 2^128. The
 * largest is Adam's a * alpha / (root(b) + epsilon): 2^42 2^20 / 2^-60. NaN fails the
 * comparisons. */
bool ls_cpu_update_is_safe(void *backend, const ls_tensor *node, const void *const *in)
{
    (void)backend;
    if (node->dtype != LS_F32)
        return false;
    ls_ref_update_f32 u = scalars_of(node, in);
    if (!(fabsf(u.rate) <= MOST && fabsf(u.decay) <= MOST && fabsf(u.momentum) <= MOST))
        return false;
    switch ((ls_apply_rule)node->attr.apply.rule) {
    case LS_APPLY_SGD:
    case LS_APPLY_MOMENTUM:
    case LS_APPLY_NESTEROV:
        return true;
    case LS_APPLY_SUM:
        return fabsf(u.step) <= MOST;
    case LS_APPLY_ADAM:
        return fabsf(u.alpha) <= MOST && u.epsilon >= LEAST && is_fraction(u.one_minus_beta_1) &&
               is_fraction(u.one_minus_beta_2);
    case LS_APPLY_RMSPROP:
    case LS_APPLY_RMSPROP_TF1:
        return u.epsilon >= LEAST && is_fraction(u.rho) && is_fraction(u.one_minus_rho);
    case LS_APPLY_ADAGRAD:
        return u.epsilon >= LEAST;
    case LS_APPLY_ADADELTA: /* the new a is at least one_minus_rho g^2, so d stays below 2^40 */
        return u.epsilon >= LEAST && u.epsilon <= MOST && is_fraction(u.rho) && u.one_minus_rho >= 1 / MOST &&
               u.one_minus_rho <= 1;
    case LS_APPLY_ADAMAX:
        return fabsf(u.alpha) <= MOST && u.epsilon >= LEAST && is_fraction(u.one_minus_beta_1) && is_fraction(u.beta_2);
    case LS_APPLY_NADAM:
        return fabsf(u.alpha) <= MOST && fabsf(u.alpha_g) <= MOST && u.correction >= 0x1p-30f && u.epsilon >= LEAST &&
               is_fraction(u.one_minus_beta_1) && is_fraction(u.one_minus_beta_2);
    case LS_APPLY_FTRL: /* without ftrl, the divisor may be close to 0 */
        return u.rate >= 1 / MOST && u.ftrl >= 1 / MOST && u.ftrl <= MOST && fabsf(u.decay) <= 1 &&
               fabsf(u.l1) <= MOST && fabsf(u.twice_shrinkage) <= MOST;
    case LS_APPLY_LION:
        return is_fraction(u.beta_1) && is_fraction(u.beta_2) && is_fraction(u.one_minus_beta_1) &&
               is_fraction(u.one_minus_beta_2);
    }
    return false;
}

#define TRIED 512 /* elements that are tried at once */

static void *at(const void *data, int64_t element, ls_dtype dtype)
{
    return data ? (char *)data + (size_t)element * ls_dtype_bytes(dtype) : NULL;
}

/* Updates a temporary buffer by the reference kernel, which has the same bits. */
static int try_some(const ls_cpu *cpu, const ls_tensor *node, const void *const *in, int64_t from, int64_t count)
{
    double buffer[LS_MAX_WRITES][TRIED]; /* large enough for any element type */
    ls_ref_array inputs[4];
    ls_variable *written[LS_MAX_WRITES];
    int writes = ls_node_writes(node, written);
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = (ls_ref_array){ (void *)in[i], node->in[i]->dtype, LS_SCALAR };
    inputs[0] = (ls_ref_array){ at(in[0], from, node->dtype), node->dtype, LS_SHAPE(count) };
    ls_ref_call call = { .node = node, .in = inputs, .out = { buffer[0], node->dtype, LS_SHAPE(count) }, .batch = 1 };
    call.state[0] = at(node->attr.apply.variable->data, from, node->dtype);
    for (int i = 0; i < 2; i++) {
        const ls_variable *slot = node->attr.apply.slot[i];
        call.state[1 + i] = slot ? at(slot->data, from, node->dtype) : NULL;
        call.slots[i] = buffer[1 + i];
    }
    if (ls_ref_run(&call) != LS_OK)
        return 0;
    for (int k = 0; k < writes; k++)
        if (ls_cpu_range(cpu->simd, node->dtype, buffer[k], (size_t)count) == LS_RANGE_INFINITE)
            return k;
    return -1;
}

int ls_cpu_try_update(void *backend, const ls_tensor *node, const void *const *in, int64_t from, int64_t to)
{
    int broken = -1;
    for (int64_t first = from; first < to && broken < 0; first += TRIED)
        broken = try_some(backend, node, in, first, to - first < TRIED ? to - first : TRIED);
    return broken;
}

ls_status ls_cpu_make_update(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    if (group->root->op != LS_OP_apply || group->root->dtype != LS_F32 || !group->in_place)
        return ls_cpu_pass();
    ls_cpu_kernel *k = ls_cpu_kernel_new(cpu, group, sizeof(*k), "simd update", run);
    if (!k)
        return LS_ERR_MEMORY;
    k->base.tiled = true;
    *out = &k->base;
    return LS_OK;
}
