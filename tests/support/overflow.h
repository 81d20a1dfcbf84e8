/* An update that would overflow in a variable or in a slot, for tests of any devices. Linked into
 * every test program. / */
#ifndef TESTS_OVERFLOW_H
#define TESTS_OVERFLOW_H

#include "lockstep/strategy.h"

/* By every rule of optimizers: good steps, one that overflows in one element, good steps again. The
 * bad step fails with the name of what would not be finite, changes no variable and no slot, and
 * leaves no trace in the steps after it. Fails the running test otherwise. */
void overflow_changes_nothing(ls_context *ctx, ls_strategy strategy);

#endif
