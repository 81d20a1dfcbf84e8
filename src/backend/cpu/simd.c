/* Selects the table of vectorized kernels. */
#include "backend/cpu/simd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/simd_tables.h"
#include "base/math.h"
#include "base/status.h"
#include "lockstep/device.h"

#if defined(__x86_64__) || defined(__i386__)
/* __builtin_cpu_supports also checks that the system saves the wide registers. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

const ls_simd *ls_simd_named(const char *name)
{
    if (!name)
        return NULL;
    if (strcmp(name, "base") == 0)
        return &ls_simd_base;
#if defined(__x86_64__) || defined(__i386__)
    if (strcmp(name, "avx2") == 0 && has_avx2())
        return &ls_simd_avx2;
    if (strcmp(name, "avx512") == 0 && has_avx512())
        return &ls_simd_avx512;
#endif
    return NULL;
}

const ls_simd *ls_simd_choose(void)
{
    const ls_simd *asked = ls_simd_named(getenv("LOCKSTEP_ISA"));
    if (asked)
        return asked;
    const ls_simd *best = ls_simd_named("avx512");
    best = best ? best : ls_simd_named("avx2");
    return best ? best : &ls_simd_base;
}

ls_status ls_check_environment(void)
{
    const char *name = getenv("LOCKSTEP_ISA");
    if (!name || name[0] == '\0' || ls_simd_named(name))
        return LS_OK;
    bool known = strcmp(name, "avx2") == 0 || strcmp(name, "avx512") == 0;
    return ls_fail(LS_ERR_INVALID, "LOCKSTEP_ISA=%s: %s; there are base, avx2 and avx512", name,
                   known ? "this CPU cannot run it" : "no such instruction set");
}
