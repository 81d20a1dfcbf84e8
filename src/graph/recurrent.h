/* Recurrent cells over whole sequences: what `recurrent` and `recurrent_grad` compute, and where
 * their values are. docs/bits.md has the formulas.
 *
 * p [N,T,G H] is the input's part of the G gates, kernel [H,G H] multiplies the state of the step
 * before. A step of the result has these parts of H numbers:
 *     SimpleRNN  h
 *     LSTM       h, c, gates i f g o, activation of c
 *     GRU        h, gates z r, s, candidate; s: the state's part of the candidate (reset_after), or
 *                r times the state
 * A step of the gradient has the gates of p; of a GRU with reset_after, then the gradient of s. */
#ifndef LS_GRAPH_RECURRENT_H
#define LS_GRAPH_RECURRENT_H

#include "graph/node.h"

typedef enum ls_cell { LS_CELL_SIMPLE, LS_CELL_LSTM, LS_CELL_GRU, LS_CELL_GRU_RESET_AFTER, LS_CELLS } ls_cell;

/* Activations whose derivative their value determines. */
typedef enum ls_gate {
    LS_GATE_LINEAR,
    LS_GATE_TANH,
    LS_GATE_SIGMOID,
    LS_GATE_RELU,
    LS_GATE_HARD_SIGMOID, /* x / 6 + 0.5, from 0 to 1 */
    LS_GATES
} ls_gate;

typedef struct ls_recurrent {
    ls_tensor *kernel;
    ls_cell cell;
    ls_gate activation, recurrent_activation;
    bool reverse;    /* from the last step to the first; results stay at their steps */
    ls_tensor *bias; /* [3 H], of the state's part; GRU with reset_after only; NULL: 0 */
    ls_tensor *mask; /* bool [N,T]; false: the step copies the state; NULL: all true */
} ls_recurrent;

/* Returns h of all steps, [N,T,H]. */
ls_tensor *ls_op_recurrent(ls_tensor *p, const ls_recurrent *options);

/* Parts of H numbers in a step of p, of the result and of the gradient. */
typedef struct ls_cell_parts {
    int gates, value, gradient;
} ls_cell_parts;
static inline ls_cell_parts ls_cell_parts_of(ls_cell cell)
{
    static const ls_cell_parts parts[LS_CELLS] = { { 1, 1, 1 }, { 4, 7, 4 }, { 3, 5, 3 }, { 3, 5, 4 } };
    return parts[cell];
}

#endif
