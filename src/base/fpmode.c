/* The library's mode is C's FE_DFL_ENV, which also clears flush-to-zero and denormals-are-zero.
 * Saving and loading an environment takes about 100 cycles; it is skipped if the control registers
 * already match. */
#include "base/fpmode.h"

#include <stdint.h>
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

#if defined(__SSE__)
#define MXCSR_OURS  0x1f80u /* all exceptions masked, round to nearest, no FTZ, no DAZ */
#define MXCSR_FLAGS 0x003fu /* exception flags */
#define X87_OURS    0x037fu /* all masked, round to nearest, 64 bits */
#define X87_UNUSED  0x1000u /* a bit without meaning since the 80387 */

static bool is_ours(void)
{
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    return (_mm_getcsr() & ~MXCSR_FLAGS) == MXCSR_OURS && (control & ~X87_UNUSED) == X87_OURS;
}
#else
static bool is_ours(void)
{
    return false;
}
#endif

ls_fp_mode ls_fp_enter(void)
{
    ls_fp_mode before = { .other = !is_ours() };
    if (before.other) {
        fegetenv(&before.env);
        fesetenv(FE_DFL_ENV);
    }
    return before;
}

void ls_fp_leave(ls_fp_mode *before)
{
    if (before->other)
        fesetenv(&before->env);
}

void ls_fp_begin_thread(void)
{
    fesetenv(FE_DFL_ENV);
}
