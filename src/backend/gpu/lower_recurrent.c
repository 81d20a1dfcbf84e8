/* Lowers recurrent cells: one launch for each step of the sequences, or two. */
#include "backend/gpu/lower.h"
#include "graph/recurrent.h"

_Static_assert((int)LS_GPU_SIMPLE == LS_CELL_SIMPLE && (int)LS_GPU_LSTM == LS_CELL_LSTM &&
                   (int)LS_GPU_GRU == LS_CELL_GRU && (int)LS_GPU_GRU_RESET_AFTER == LS_CELL_GRU_RESET_AFTER,
               "cells of calls.h");
_Static_assert((int)LS_GPU_TANH == LS_GATE_TANH && (int)LS_GPU_SIGMOID == LS_GATE_SIGMOID &&
                   (int)LS_GPU_RELU == LS_GATE_RELU && (int)LS_GPU_HARD_SIGMOID == LS_GATE_HARD_SIGMOID,
               "activations of calls.h");

static ls_gpu_recurrent numbers_of(const lowering *x)
{
    const ls_tensor *node = x->node;
    ls_cell_parts parts = ls_cell_parts_of((ls_cell)node->attr.recurrent.cell);
    ls_shape kernel = ls_gpu_in_shape(x, 1);
    return (ls_gpu_recurrent){ .samples = x->out_shape.dims[0],
                               .steps = x->out_shape.dims[1],
                               .units = kernel.dims[0],
                               .columns = kernel.dims[1],
                               .value = kernel.dims[0] * parts.value,
                               .gradient = kernel.dims[0] * parts.gradient,
                               .cell = node->attr.recurrent.cell,
                               .activation = node->attr.recurrent.activation,
                               .inner = node->attr.recurrent.recurrent_activation,
                               .masked = node->attr.recurrent.masked,
                               .biased = node->attr.recurrent.biased };
}

/* Sets the step that comes i-th, and the ones before and after it. */
static void set_step(ls_gpu_recurrent *p, bool reverse, int64_t i)
{
    int64_t by = reverse ? -1 : 1;
    p->step = reverse ? p->steps - 1 - i : i;
    p->last = i > 0 ? p->step - by : -1;
    p->next = i < p->steps - 1 ? p->step + by : -1;
}

/* Inputs that the node lacks are the first, which kernels then do not read. */
static ls_memory_place mask_of(const lowering *x)
{
    return ls_gpu_in(x, x->node->attr.recurrent.masked ? x->node->input_count - 1 : 0);
}

ls_status ls_gpu_recurrent_op(lowering *x)
{
    ls_gpu_recurrent p = numbers_of(x);
    ls_memory_place in = ls_gpu_in(x, 0), kernel = ls_gpu_in(x, 1), mask = mask_of(x);
    ls_memory_place bias = ls_gpu_in(x, p.biased ? 2 : 0);
    for (int64_t i = 0; i < p.steps; i++) {
        set_step(&p, x->node->attr.recurrent.reverse, i);
        LS_TRY(LAUNCH(x, LS_GPU_RECURRENT, "recurrent_step", &p, p.units, p.samples, in, kernel, bias, mask, x->out));
        if (p.cell == LS_GPU_GRU)
            LS_TRY(
                LAUNCH(x, LS_GPU_RECURRENT, "recurrent_candidate", &p, p.units, p.samples, in, kernel, mask, x->out));
    }
    return LS_OK;
}

ls_status ls_gpu_recurrent_grad(lowering *x)
{
    ls_gpu_recurrent p = numbers_of(x);
    ls_memory_place dy = ls_gpu_in(x, 0), y = ls_gpu_in(x, 2), mask = mask_of(x), kernel;
    LS_TRY(ls_gpu_swap_last(x, 1, 1, p.units, p.columns, &kernel));
    ls_memory_place states = ls_gpu_scratch(x, (size_t)(2 * p.samples * p.units) * sizeof(float));
    for (int64_t i = p.steps; i-- > 0;) {
        set_step(&p, x->node->attr.recurrent.reverse, i);
        LS_TRY(
            LAUNCH(x, LS_GPU_RECURRENT, "recurrent_back", &p, p.units, p.samples, dy, kernel, y, mask, states, x->out));
        if (p.cell == LS_GPU_GRU)
            LS_TRY(LAUNCH(x, LS_GPU_RECURRENT, "recurrent_back_reset", &p, p.units, p.samples, kernel, y, mask, states,
                          x->out));
    }
    return LS_OK;
}
