/* Elementary functions with the same result bits on every system; libm's differ. Doubles are
 * accurate to about one unit in the last place; floats are computed in double and rounded once.
 * Subnormals are kept; infinities and NaN follow IEEE 754. sqrt is the C library's: hardware rounds
 * it correctly. */
#ifndef LS_BASE_MATH_H
#define LS_BASE_MATH_H

double ls_exp(double x);
double ls_expm1(double x);
double ls_log(double x);
double ls_log1p(double x);
double ls_tanh(double x);
double ls_erf(double x);
double ls_pow(double x, double y);
double ls_sin(double x); /* NaN beyond |x| <= 1e5 */
double ls_cos(double x); /* NaN beyond |x| <= 1e5 */

static inline float ls_powf(float x, float y)
{
    return (float)ls_pow(x, y);
}

#endif
