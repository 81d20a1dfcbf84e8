/* State and checks of tests on the stand-in for CUDA (cuda.h). After cmocka.h. */
#ifndef TESTS_CUDA_FIXTURE_H
#define TESTS_CUDA_FIXTURE_H

#include "cuda.h"
#include "skip.h"

static bool there;
static cuda_controls standin;

#define NEED_STAND_IN                                                                                                  \
    if (!there)                                                                                                        \
    SKIP("no stand-in for CUDA: make test builds it")

/* After every test. */
static inline int nothing_is_left(void **state)
{
    (void)state;
    if (there && (standin.held() != 0 || standin.misuses() != 0)) {
        print_error("%d things of CUDA's are still held, %d calls were wrong\n", standin.held(), standin.misuses());
        return -1;
    }
    return 0;
}

#endif
