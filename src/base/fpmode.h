/* Floating-point mode of the library: round to nearest, subnormals kept, no traps. The mode affects
 * result bits, and programs may set another one (-ffast-math enables flush-to-zero before main;
 * fesetround; feenableexcept). Therefore every public function that computes starts with
 * LS_OWN_FP_MODE, and every thread of the library with ls_fp_begin_thread. User functions called
 * meanwhile (callbacks, maps, generators) run in the library's mode. */
#ifndef LS_BASE_FPMODE_H
#define LS_BASE_FPMODE_H

#include <fenv.h>
#include <stdbool.h>

typedef struct ls_fp_mode {
    fenv_t env; /* the caller's mode and exception flags */
    bool other; /* the caller's mode differs from the library's; ls_fp_leave restores it */
} ls_fp_mode;

/* Switches this thread to the library's mode and returns the previous one. Takes a few cycles if
 * the mode is already set. */
ls_fp_mode ls_fp_enter(void);
void ls_fp_leave(ls_fp_mode *before);

/* Sets the mode in a new thread, which inherits its creator's. */
void ls_fp_begin_thread(void);

/* Sets the library's mode until the end of the enclosing block, however control leaves it. */
#define LS_OWN_FP_MODE ls_fp_mode ls_fp_before_ __attribute__((cleanup(ls_fp_leave), unused)) = ls_fp_enter()

#endif
