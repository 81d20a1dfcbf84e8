/* SimpleRNN, LSTM and GRU. The input's part of all steps is one product; the op `recurrent` does
 * the rest (graph/recurrent.h). */
#include <stdlib.h>

#include "graph/recurrent.h"
#include "graph/rules.h"
#include "nn/layer_family.h"

static ls_cell cell_of(const ls_layer *layer)
{
    switch (layer->kind) {
    case LS_LAYER_LSTM:
        return LS_CELL_LSTM;
    case LS_LAYER_GRU:
        return layer->recurrent.reset_before ? LS_CELL_GRU : LS_CELL_GRU_RESET_AFTER;
    default:
        return LS_CELL_SIMPLE;
    }
}

bool ls_layer_is_recurrent(const ls_layer *layer)
{
    return layer->kind == LS_LAYER_SIMPLE_RNN || layer->kind == LS_LAYER_LSTM || layer->kind == LS_LAYER_GRU;
}

/* ---- Options ---- */

static const struct {
    ls_activation activation;
    ls_gate gate;
} gates[] = { { LS_LINEAR, LS_GATE_LINEAR },
              { LS_TANH, LS_GATE_TANH },
              { LS_SIGMOID, LS_GATE_SIGMOID },
              { LS_RELU, LS_GATE_RELU },
              { LS_HARD_SIGMOID, LS_GATE_HARD_SIGMOID } };
#define GATE_COUNT (sizeof(gates) / sizeof(gates[0]))

static ls_gate gate_of(ls_activation activation)
{
    size_t i = 0;
    while (i + 1 < GATE_COUNT && gates[i].activation != activation)
        i++;
    return gates[i].gate;
}

static ls_status resolve_gate(const char *name, ls_activation *value, ls_activation preset)
{
    *value = *value == LS_LINEAR ? preset : *value == LS_NO_ACTIVATION ? LS_LINEAR : *value;
    LS_TRY(ls_resolve_activation(*value));
    for (size_t i = 0; i < GATE_COUNT; i++)
        if (gates[i].activation == *value)
            return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED, "%s is %s; recurrent layers have tanh, sigmoid, relu, hard_sigmoid and linear",
                   name, ls_activation_name(*value));
}

static ls_status resolve_recurrent(ls_layer *layer)
{
    static const ls_initializer glorot = { .kind = LS_INIT_GLOROT_UNIFORM },
                                orthogonal = { .kind = LS_INIT_ORTHOGONAL };
    ls_recurrent_options *o = &layer->recurrent;
    LS_TRY(ls_check_positive("units", o->first));
    LS_TRY(resolve_gate("activation", &o->activation, LS_TANH));
    LS_TRY(resolve_gate("recurrent_activation", &o->recurrent_activation, LS_SIGMOID));
    ls_resolve_number(&o->dropout, 0);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return ls_fail(LS_ERR_INVALID, "dropout is %g; it must be at least 0 and less than 1", o->dropout);
    LS_TRY(ls_init_resolve("kernel_initializer", &o->kernel_initializer, glorot));
    LS_TRY(ls_init_resolve("recurrent_initializer", &o->recurrent_initializer, orthogonal));
    LS_TRY(ls_init_resolve("bias_initializer", &o->bias_initializer, ls_zeros));
    LS_TRY(ls_check_regularizer("kernel_regularizer", &o->kernel_regularizer));
    LS_TRY(ls_check_regularizer("recurrent_regularizer", &o->recurrent_regularizer));
    return ls_check_regularizer("bias_regularizer", &o->bias_regularizer);
}

/* ---- Weights ---- */

static ls_status recurrent_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_recurrent_options *o = &layer->recurrent;
    static const char *const cells[] = { "simple_rnn_cell", "lstm_cell", "gru_cell" };
    ls_cell cell = cell_of(layer);
    int64_t units = o->first, width = units * ls_cell_parts_of(cell).gates;
    size_t first = *count;
    LS_TRY(ls_check_rank(x, 3, 3, "an input of 3 axes (batch, steps, numbers)"));
    ls_add_weight(layer, "kernel", LS_SHAPE(x->dims[2], width), o->kernel_initializer, o->kernel_regularizer, out,
                  count);
    ls_add_weight(layer, "recurrent_kernel", LS_SHAPE(units, width), o->recurrent_initializer, o->recurrent_regularizer,
                  out, count);
    if (!o->no_bias) {
        ls_shape bias = cell == LS_CELL_GRU_RESET_AFTER ? LS_SHAPE(2, width) : LS_SHAPE(width);
        ls_add_weight(layer, "bias", bias, o->bias_initializer, o->bias_regularizer, out, count);
        if (cell == LS_CELL_LSTM && !o->no_unit_forget_bias)
            out[*count - 1].ones_from = out[*count - 1].ones = units;
    }
    for (size_t i = first; i < *count; i++)
        out[i].cell = cells[layer->kind - LS_LAYER_SIMPLE_RNN];
    return LS_OK;
}

/* ---- Calls ---- */

/* The same numbers of a sample are dropped in all steps. */
static ls_tensor *drop_inputs(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor *x)
{
    double rate = layer->recurrent.dropout;
    if (!pass->training || rate == 0)
        return x;
    ls_tensor *ones = ls_op_fill(x->graph, LS_F32, LS_SHAPE(x->shape.dims[0], 1, x->shape.dims[2]), 1);
    return ls_op_mul(x, ls_op_dropout_keyed(ones, ls_scalar_like(x, rate), pass->random_layer, pass->random_call));
}

/* Row 0 or 1 of a GRU's bias [2,n]. */
static ls_tensor *bias_row(ls_tensor *bias, int row)
{
    int64_t n = bias->shape.dims[1];
    return ls_op_reshape(ls_op_slice(bias, LS_AXES(row, 0), LS_AXES(1, n)), LS_SHAPE(n));
}

ls_status ls_recurrent_call(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **y)
{
    const ls_recurrent_options *o = &layer->recurrent;
    ls_tensor *mask = pass->inputs[0]->mask, *x = drop_inputs(layer, pass, ls_layer_real(pass->inputs[0]));
    ls_tensor *bias = o->no_bias ? NULL : pass->weights[2];
    ls_recurrent cell = { .kernel = pass->weights[1],
                          .cell = cell_of(layer),
                          .activation = gate_of(o->activation),
                          .recurrent_activation = gate_of(o->recurrent_activation),
                          .reverse = o->go_backwards,
                          .mask = mask };
    ls_tensor *p = ls_op_matmul(x, pass->weights[0]);
    bool two = bias && cell.cell == LS_CELL_GRU_RESET_AFTER;
    if (two)
        cell.bias = bias_row(bias, 1);
    if (bias)
        p = ls_op_add(p, two ? bias_row(bias, 0) : bias);
    *y = ls_op_recurrent(p, &cell);
    if (mask && o->zero_output_for_mask)
        *y = ls_op_select(ls_op_with_last_axis(mask), *y, ls_scalar_like(*y, 0));
    return ls_tensor_check(*y);
}

ls_tensor *ls_recurrent_last(const ls_layer *layer, ls_tensor *y)
{
    int64_t steps = y->shape.dims[1], units = y->shape.dims[2];
    ls_tensor *last = ls_op_slice(y, LS_AXES(0, layer->recurrent.go_backwards ? 0 : steps - 1, 0), LS_AXES(-1, 1, -1));
    return ls_op_reshape(last, LS_SHAPE(y->shape.dims[0], units));
}

ls_tensor *ls_recurrent_turn(ls_tensor *y)
{
    int64_t steps = y->shape.dims[1], *index = malloc((size_t)steps * sizeof(*index));
    if (!index)
        return ls_node_error(y->graph, ls_fail(LS_ERR_MEMORY, "no memory for %lld indices", (long long)steps), NULL);
    for (int64_t i = 0; i < steps; i++)
        index[i] = steps - 1 - i;
    ls_tensor *turned = ls_op_gather(y, ls_op_constant(y->graph, LS_I64, LS_SHAPE(steps), index), 1);
    free(index);
    return turned;
}

static ls_status call_recurrent(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_recurrent_options *o = &layer->recurrent;
    ls_tensor *y;
    LS_TRY(ls_recurrent_call(layer, pass, &y));
    pass->mask = o->return_sequences ? pass->inputs[0]->mask : NULL;
    *out = !o->return_sequences ? ls_recurrent_last(layer, y) : o->go_backwards ? ls_recurrent_turn(y) : y;
    return LS_OK;
}

/* ---- Tables ---- */

static const ls_layer_option options[] = {
    LS_OPTION(recurrent, INT, activation),
    LS_OPTION_OF(recurrent, INT, recurrent_activation, LS_LAYER_LSTM, LS_LAYER_GRU),
    LS_OPTION(recurrent, FLAG, no_bias),
    LS_OPTION(recurrent, FLAG, return_sequences),
    LS_OPTION(recurrent, FLAG, go_backwards),
    LS_OPTION(recurrent, FLAG, unroll),
    LS_OPTION(recurrent, FLAG, zero_output_for_mask),
    LS_OPTION_OF(recurrent, FLAG, no_unit_forget_bias, LS_LAYER_LSTM),
    LS_OPTION_OF(recurrent, FLAG, reset_before, LS_LAYER_GRU),
    LS_OPTION(recurrent, F64, dropout),
    LS_OPTION(recurrent, INITIALIZER, kernel_initializer),
    LS_OPTION(recurrent, INITIALIZER, recurrent_initializer),
    LS_OPTION(recurrent, INITIALIZER, bias_initializer),
    LS_OPTION(recurrent, REGULARIZER, kernel_regularizer),
    LS_OPTION(recurrent, REGULARIZER, recurrent_regularizer),
    LS_OPTION(recurrent, REGULARIZER, bias_regularizer),
};

#define RECURRENT(KIND, keras, snake)                                                                                  \
    {                                                                                                                  \
        .kind = LS_LAYER_##KIND, .class_name = keras, .base = snake, .function = "ls_" snake,                          \
        .positional = { "units" }, .resolve = resolve_recurrent, .weights = recurrent_weights, .call = call_recurrent, \
        .random = true, .mask = LS_MASK_OWN                                                                            \
    }

static const ls_layer_info kinds[] = {
    RECURRENT(SIMPLE_RNN, "SimpleRNN", "simple_rnn"),
    RECURRENT(LSTM, "LSTM", "lstm"),
    RECURRENT(GRU, "GRU", "gru"),
};

const ls_layer_family ls_recurrent_family = LS_LAYER_FAMILY(options, kinds);
