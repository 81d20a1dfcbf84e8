/* The floating-point mode the library computes in: round to nearest, subnormals kept, no traps. A program may have
 * another one (-ffast-math sets flush-to-zero before main, fesetround, feenableexcept), and it decides bits; so every
 * public call that computes begins with LS_OWN_FP_MODE, and every thread of ours with ls_fp_begin_thread. Functions of
 * the user that are called meanwhile (callbacks, maps, generators) run in our mode. */
#ifndef LS_BASE_FPMODE_H
#define LS_BASE_FPMODE_H

#include <fenv.h>
#include <stdbool.h>

typedef struct ls_fp_mode {
    fenv_t env; /* the caller's, exception flags included */
    bool other; /* than ours: to be put back */
} ls_fp_mode;

/* Our mode from here on; gives what was before. Costs a few cycles where it is ours already. */
ls_fp_mode ls_fp_enter(void);
void ls_fp_leave(ls_fp_mode *before);

/* A new thread has its maker's mode. */
void ls_fp_begin_thread(void);

/* For the rest of the block, left on any way out. */
#define LS_OWN_FP_MODE ls_fp_mode ls_fp_before_ __attribute__((cleanup(ls_fp_leave), unused)) = ls_fp_enter()

#endif
