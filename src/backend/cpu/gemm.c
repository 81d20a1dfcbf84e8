/* Selects the table of matrix products. */
#include "backend/cpu/gemm.h"

#include <string.h>

const ls_gemm *ls_gemm_named(const char *name)
{
#if defined(__x86_64__) || defined(__i386__)
    if (strcmp(name, "avx512") == 0)
        return &ls_gemm_avx512;
    if (strcmp(name, "avx2") == 0)
        return &ls_gemm_avx2;
#endif
    (void)name;
    return &ls_gemm_base;
}
