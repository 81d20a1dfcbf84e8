/* Ops of a program (ls_op_custom): what their rules and kernels share. */
#ifndef LS_GRAPH_CUSTOM_H
#define LS_GRAPH_CUSTOM_H

#include "graph/node.h"

/* Number of the op's first input among the inputs of a node. */
int ls_custom_first_input(const ls_tensor *node);

/* Shape of one sample: without the batch axis. */
ls_shape ls_custom_sample_shape(const ls_shape *shape, bool per_sample);

/* Returns a failure of a function with its message; LS_OK stays. sample: -1 if there is none. */
ls_status ls_custom_failed(const ls_tensor *node, const char *function, ls_status status, const char *message,
                           int64_t sample);

/* Copies the functions of an op to the memory of another graph. */
ls_status ls_custom_functions_copy(ls_graph *graph, const ls_custom_functions *from, const ls_custom_functions **out);

#endif
