/* One table of expressions for several tests: their gradients against differences
 * (test_gradients.c) and the CPU device against the reference (test_cpu.c). Every op with a
 * gradient rule has rows here. How a row is written: graph_cases.h. / */
#ifndef TESTS_EXPRESSIONS_H
#define TESTS_EXPRESSIONS_H

#include "graph_cases.h"

/* Adds all rows to the suite's cases. */
void test_expressions_add(void);

/* Rows that aim at kernels of the CPU device; some have no gradient. */
void test_kernel_expressions_add(void);

/* Twice the block that residual networks are made of: the second norm's gradient goes back through
 * the first. in: x, kernel, gamma, beta; real: epsilon */
ls_tensor *test_residual_blocks(const test_case *c, ls_tensor *const *x);

#endif
