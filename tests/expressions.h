/* One table of expressions for several tests: their gradients against differences (test_gradients.c) and the CPU device
 * against the reference (test_cpu.c). Every op with a gradient rule has rows here. How a row is written: support.h. */
#ifndef TESTS_EXPRESSIONS_H
#define TESTS_EXPRESSIONS_H

#include "support.h"

/* Adds all rows to the suite's cases. */
void test_expressions_add(void);

#endif
