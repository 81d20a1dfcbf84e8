/* One table per instruction set. ls_simd_named checks what this CPU can run. */
#ifndef LS_BACKEND_CPU_SIMD_TABLES_H
#define LS_BACKEND_CPU_SIMD_TABLES_H

#include "backend/cpu/simd.h"

extern const ls_simd ls_simd_base;
#if defined(__x86_64__) || defined(__i386__)
extern const ls_simd ls_simd_avx2;
extern const ls_simd ls_simd_avx512;
#endif

#endif
