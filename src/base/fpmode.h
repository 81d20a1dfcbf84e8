/* Floating-point mode of the library: round to nearest, subnormals kept, no traps. It affects
 * result bits, and programs may set another (-ffast-math, fesetround, feenableexcept). So every
 * public function that computes starts with LS_OWN_FP_MODE, and every thread of the library with
 * ls_fp_begin_thread. User functions called meanwhile run in this mode. */
#ifndef LS_BASE_FPMODE_H
#define LS_BASE_FPMODE_H

#include <fenv.h>
#include <stdbool.h>

typedef struct ls_fp_mode {
    fenv_t env; /* the caller's mode and exception flags */
    bool other; /* the mode differs from the library's and must be restored */
} ls_fp_mode;

/* Takes a few cycles if the library's mode is already set. */
ls_fp_mode ls_fp_enter(void);
void ls_fp_leave(ls_fp_mode *before);

/* For a new thread, which inherits its creator's mode. */
void ls_fp_begin_thread(void);

/* Sets the mode until the end of the enclosing block, however control leaves it. */
#define LS_OWN_FP_MODE ls_fp_mode ls_fp_before_ __attribute__((cleanup(ls_fp_leave), unused)) = ls_fp_enter()

#endif
