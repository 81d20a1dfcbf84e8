/* Connectionist temporal classification: the states of a sample. docs/bits.md has the formulas.
 *
 * Inputs of `ctc`: logits [N,T,C] and labels [N,L]. Class 0 is the blank. A sample's labels are its
 * first `length`, the number of labels that are not 0. State 2i is a blank, state 2i+1 is label i;
 * a path moves on by one state, or by two from a label to a different one. `ctc_grad` has the
 * gradient of the loss as a third input. */
#ifndef LS_GRAPH_CTC_H
#define LS_GRAPH_CTC_H

/* The logarithm that Keras takes for an impossible start or end of a path: log(1e-307), rounded to
 * float32. It decides the loss of a sample whose labels do not fit into its frames. */
#define LS_CTC_IMPOSSIBLE (-706.8936157226562)

#endif
