/* The type a kernel file is compiled for: `real` in *_real.c and *_number.c, and the names of its kernels and functions. */
#ifndef LS_BACKEND_REF_REAL_H
#define LS_BACKEND_REF_REAL_H

#include <math.h>
#include <stdint.h>

#include "base/math.h"

#if defined(LS_REAL_F32)
typedef float real;
#define LS_REF(op) ls_ref_##op##_f32
#define real_exp ls_expf
#define real_expm1 ls_expm1f
#define real_log ls_logf
#define real_log1p ls_log1pf
#define real_tanh ls_tanhf
#define real_erf ls_erff
#define real_pow ls_powf
#define real_sqrt sqrtf
#elif defined(LS_REAL_F64)
typedef double real;
#define LS_REF(op) ls_ref_##op##_f64
#define real_exp ls_exp
#define real_expm1 ls_expm1
#define real_log ls_log
#define real_log1p ls_log1p
#define real_tanh ls_tanh
#define real_erf ls_erf
#define real_pow ls_pow
#define real_sqrt sqrt
#elif defined(LS_REAL_I32)
typedef int32_t real;
#define LS_REF(op) ls_ref_##op##_i32
#elif defined(LS_REAL_I64)
typedef int64_t real;
#define LS_REF(op) ls_ref_##op##_i64
#else
#error "compiled once for each type: define one of LS_REAL_F32, LS_REAL_F64, LS_REAL_I32, LS_REAL_I64"
#endif

#endif
