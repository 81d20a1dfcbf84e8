#!/usr/bin/env python3
"""Prints math_tables.h, the constants of math.c: python3 src/base/math_tables.py > src/base/math_tables.h

Everything is computed here from its definition with 120 decimal digits and rounded once. A number that math.c needs
to more than 53 bits is a pair (hi, lo) whose sum it is."""
from decimal import Decimal, getcontext

getcontext().prec = 120
ONE = Decimal(1)


def near(x):
    """The double nearest to x."""
    return float(x).hex()


def pair(x, bits=None):
    """x as hi + lo; with `bits`, hi is a multiple of 2^-bits, so that sums of such numbers are exact."""
    if bits is None:
        hi = float(x)
    else:
        hi = float((x * 2**bits).to_integral_value()) / 2.0**bits
    return hi.hex(), near(x - Decimal(hi))


def arctan_inverse(n):
    """atan(1/n) by its series."""
    power, total, k = ONE / n, Decimal(0), 0
    while abs(power) > Decimal(10) ** -118:
        total += power / (2 * k + 1)
        power /= -n * n
        k += 1
    return total


PI = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
LN2 = Decimal(2).ln()


def erf(x):
    term, total, k = x, x, 0
    while abs(term) > Decimal(10) ** -100:
        k += 1
        term *= -x * x / k
        total += term / (2 * k + 1)
    return 2 / PI.sqrt() * total


def erf_taylor(center, terms):
    """Coefficients of d, d^2, ... in erf(center + d). exp(-2cd - d^2) = sum g[n] d^n; erf' is 2/sqrt(pi) exp(-c^2)
    times that, and (n + 1) g[n + 1] = -2 c g[n] - 2 g[n - 1]."""
    g = [ONE, -2 * center]
    while len(g) < terms:
        n = len(g) - 1
        g.append((-2 * center * g[n] - 2 * g[n - 1]) / (n + 1))
    scale = 2 / PI.sqrt() * (-center * center).exp()
    return [scale * g[n] / (n + 1) for n in range(terms)]


def tanh_taylor(terms):
    """Coefficients of x, x^3, ...: t' = 1 - t^2."""
    c = [Decimal(0)] * (2 * terms + 1)
    c[1] = ONE
    for n in range(2, 2 * terms):
        square = sum(c[i] * c[n - 1 - i] for i in range(n))
        c[n] = -square / n
    return c[1::2][:terms]


def rows(name, width, values):
    print(f"\nstatic const double {name}[{len(values)}][{width}] = {{")
    for row in values:
        print("    { " + ", ".join(row) + " },")
    print("};")


def line(name, values):
    print(f"\nstatic const double {name}[{len(values)}] = {{")
    for value in values:
        print(f"    {near(value)},")
    print("};")


def factorial(n):
    return ONE if n < 2 else n * factorial(n - 1)


def cut(x, bits):
    """x without all but its leading `bits` bits (x between 1/2^60 and 4)."""
    hi = float(x)
    mantissa, exponent = hi.hex().split("p")
    scale = Decimal(2) ** (bits - 1 - int(exponent))
    return float(int(x * scale) / scale)


print("/* Made by math_tables.py: the constants of math.c. Do not edit. */")
print("/* clang-format off */")

hi, lo = pair(LN2, 42)  # times a binary exponent: exact
print(f"\n#define LN2_HI {hi}\n#define LN2_LO {lo}")
hi = cut(LN2 / 128, 35)  # times up to 18 bits: exact
print(f"#define LN2_128_HI {hi.hex()}\n#define LN2_128_LO {near(LN2 / 128 - Decimal(hi))}")
print(f"#define INV_LN2_128 {near(128 / LN2)}")
first = cut(PI / 2, 33)  # times up to 20 bits: exact
second = cut(PI / 2 - Decimal(first), 33)
third = PI / 2 - Decimal(first) - Decimal(second)
print(f"#define HALF_PI_1 {first.hex()}\n#define HALF_PI_2 {second.hex()}\n#define HALF_PI_3 {near(third)}")
print(f"#define INV_HALF_PI {near(2 / PI)}")

print("\n/* 2^(j/128) as hi, lo. */")
rows("exp2_table", 2, [pair(Decimal(2) ** (Decimal(j) / 128)) for j in range(128)])

print("\n/* For the j-th of 128 parts of [1, 2): c near 1/m, and -log(c) as hi (a multiple of 2^-42), lo. From part 48 on")
print(" * m is halved, so that m lies in [0.6875, 1.375). Around m = 1, c is 1 and its logarithm 0. */")
table = []
for j in range(128):
    middle = (ONE + (Decimal(j) + Decimal("0.5")) / 128) / (2 if j >= 48 else 1)
    c = Decimal(round(512 / middle)) / 512
    if j in (0, 127):
        c = ONE
    table.append((near(c),) + pair(-c.ln(), 42))
rows("log_table", 3, table)

print("\n/* erf around (j + 1/2) / 8, j from 4 to 47: value as hi, lo, then the coefficients of d, d^2, ... */")
table = []
for j in range(4, 48):
    center = (Decimal(j) + Decimal("0.5")) / 8
    table.append(pair(erf(center)) + tuple(near(c) for c in erf_taylor(center, 12)))
rows("erf_table", 14, table)

print("\n/* (erf(x) - x) / x in powers of x^2, |x| < 1/2. */")
series = [2 / PI.sqrt() * (-1) ** n / (factorial(n) * (2 * n + 1)) for n in range(13)]
series[0] -= 1
line("erf_small", series)

print("\n/* (tanh(x) - x) / x^3 in powers of x^2, |x| < 1/4. */")
line("tanh_small", tanh_taylor(13)[1:])

print("\n/* (exp(x) - 1 - x - x^2/2) / x^3, |x| < 1/4. */")
line("expm1_small", [1 / factorial(n) for n in range(3, 15)])

print("\n/* (sin(x) - x) / x^3 and (cos(x) - 1 + x^2/2) / x^4 in powers of x^2, |x| <= pi/4. */")
line("sin_small", [(-1) ** n / factorial(2 * n + 1) for n in range(1, 10)])
line("cos_small", [(-1) ** n / factorial(2 * n) for n in range(2, 10)])
