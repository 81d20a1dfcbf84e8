/* How much a test runs: `make test` takes a sample of what takes long, LS_TESTS=all everything. CI
 * sets it. */
#ifndef TESTS_AMOUNT_H
#define TESTS_AMOUNT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sanitized.h"

static inline bool test_is_sample(void)
{
    const char *amount = getenv("LS_TESTS");
    return SANITIZED || !amount || strcmp(amount, "all") != 0;
}

#endif
