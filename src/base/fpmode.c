/* Setting and putting back the floating-point mode. C's own FE_DFL_ENV is ours: it also clears flush-to-zero and
 * denormals-are-zero. Saving and loading a whole environment takes some 100 cycles; where the registers can be read
 * one by one, it is done only when they differ. */
#include "base/fpmode.h"

#include <stdint.h>
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

#if defined(__SSE__)
#define MXCSR_OURS  0x1f80u /* all exceptions masked, nearest, no FTZ, no DAZ */
#define MXCSR_FLAGS 0x003fu /* what happened so far */
#define X87_OURS    0x037fu /* all masked, nearest, 64 bits */
#define X87_UNUSED  0x1000u /* a bit that means nothing since the 80387 */

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
