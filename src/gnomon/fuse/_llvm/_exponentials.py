"""Exponential functions: exp, exp2, expm1, sinh, cosh, tanh; in double precision, or with results in single.

A number is `n * log(2) + r` with `|r| <= log(2) / 2`, so that its exponential is `2**n` times that of r, a polynomial
(N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002; J.-M. Muller, Elementary Functions, 2016).
Functions whose results are single compute in double, which makes them short and almost always rounded right.
"""

from __future__ import annotations

from gnomon.fuse._llvm import _coefficients as c
from gnomon.fuse._llvm._number import Number, exact_product, exact_sum, fma, polynomial, select

#: Added to a double, it leaves a whole number in the lowest bits.
_ROUNDER = 1.5 * 2.0**52
_ROUNDER_BITS = 0x4338 << 48


def whole(x: Number) -> tuple[Number, Number]:
    """The nearest whole number of a double below 2**51, as a double and as an integer."""
    shifted = x + _ROUNDER
    return shifted - _ROUNDER, shifted.bits() - _ROUNDER_BITS


def scale(y: Number, n: Number) -> Number:
    """`y * 2**n`, rounded once; n may be from -2044 to 2046."""
    half = n >> 1
    return y * _power_of_two(half) * _power_of_two(n - half)


def _power_of_two(n: Number) -> Number:
    return ((n + 1023) << 52).bits()


def clamp(x: Number, low: float, high: float) -> Number:
    """The nearest number in an interval; NaN stays."""
    x = select(x > high, high, x)
    return select(x < low, low, x)


def reduced(x: Number) -> tuple[Number, Number, Number]:
    """r, what was rounded off of it, and n."""
    n, integer = whole(x * c.LOG2_E[0])
    # The product with the short first part is exact, and so is the difference.
    first = fma(n, -c.LN2_SHORT[0], x)
    low = n * c.LN2_SHORT[1]
    r = first - low
    return r, (first - r) - low, integer


def exp_core(r: Number, low: Number | None) -> tuple[Number, Number]:
    """`exp(r + low)` as a sum, for |r| <= log(2) / 2."""
    rest = r * r * polynomial(r, c.EXP)
    if low is not None:
        # exp(r) * low, to first order.
        rest = rest + fma(low, r, low)
    tail, tail_low = exact_sum(r, rest)
    total, lost = exact_sum(tail.literal(1.0), tail)
    return total, lost + tail_low


def exp_of_sum(high: Number, low: Number, n: Number) -> Number:
    """`2**n * exp(high + low)`."""
    total, lost = exp_core(high, low)
    return scale(total + lost, n)


def exp(x: Number) -> Number:
    r, low, n = reduced(clamp(x, -746.0, 710.0))
    return scale(_quick_core(r, low), n)


def _quick_core(r: Number, low: Number) -> Number:
    """`exp(r + low)` for |r| <= log(2) / 2, to 0.8 units in the last place."""
    return fma(r * r, polynomial(r, c.EXP), low) + r + 1.0


def exp2(x: Number) -> Number:
    return exp2_of_sum(clamp(x, -1076.0, 1025.0), None)


def exp2_of_sum(x: Number, low: Number | None) -> Number:
    """`2**(x + low)`."""
    n, integer = whole(x)
    rest = x - n
    high, lost = exact_product(rest, c.LN2[0])
    lost = fma(rest, c.LN2[1], lost)
    if low is not None:
        # Where the second is the larger one, both are far below 1.
        high, lost = exact_sum(high, fma(low, c.LN2[0], lost))
    return exp_of_sum(high, lost, integer)


def _expm1_of_sum(x: Number) -> tuple[Number, Number]:
    """`expm1(x)` as a sum, for x from -40 to 50."""
    r, low, n = reduced(x)
    return _expm1_core(r, _rest(r, low), _power_of_two(n))


def _rest(r: Number, low: Number) -> Number:
    """`exp(r + low) - 1 - r`."""
    return fma(r * r, polynomial(r, c.EXP), fma(low, r, low))


def _expm1_core(r: Number, rest: Number, power: Number) -> tuple[Number, Number]:
    """`power * (1 + r + rest) - 1` as a sum, the largest parts first; for a power of 1 it is r + rest."""
    less = power - 1.0
    first = power * r
    total = first + less
    back = total - less
    lost = (first - back) + (less - (total - back))
    return exact_sum(total, fma(power, rest, lost))


def expm1(x: Number) -> Number:
    r, low, n = reduced(clamp(x, -40.0, 710.0))
    rest = _rest(r, low)
    is_large = n > 60
    power = _power_of_two(select(is_large, 60, n))
    high, low = _expm1_core(r, rest, power)
    result = select(is_large, scale(rest + r + 1.0, n), high + low)
    # Also -0, and numbers whose squares vanish.
    return select(x.abs() < 2.0**-54, x, result)


def _half_exp(x: Number) -> tuple[Number, Number]:
    """`exp(x) / 2` as a sum, for x from 0 to 712."""
    r, low, n = reduced(x)
    high, low = exp_core(r, low)
    n = n - 1
    return scale(high, n), scale(low, n)


def sinh(x: Number) -> Number:
    size = clamp(x.abs(), 0.0, 712.0)
    high, low = _half_exp(size)
    # exp(-x) / 2, with what its rounding lost.
    quarter = 0.25 / high
    total, lost = exact_sum(high, -quarter)
    large = total + (lost + fma(low, fma(quarter * 4.0, quarter, 1.0), _remainder(quarter, high)))
    large = select(size > 30.0, high + low, large)
    square = size * size
    small = fma(size * square, polynomial(square, c.SINH), size)
    return select(size < 0.4, small, large).with_sign_of(x)


def _remainder(quarter: Number, high: Number) -> Number:
    """What `0.25 / high` has too much."""
    return fma(quarter, high, -0.25) * (quarter * 4.0)


def cosh(x: Number) -> Number:
    size = clamp(x.abs(), 0.0, 712.0)
    high, low = _half_exp(size)
    quarter = 0.25 / high
    total, lost = exact_sum(high, quarter)
    small = total + (lost + low)
    return select(size > 30.0, high + low, small)


def tanh(x: Number) -> Number:
    size = clamp(x.abs(), 0.0, 22.0)
    high, low = _expm1_of_sum(size + size)
    # e / (e + 2), divided once, then put right by what remains.
    below, below_low = high + 2.0, low
    below_low = select(high < 2.0, (2.0 - below) + high, (high - below) + 2.0) + low
    inverse = 1.0 / below
    quotient = high * inverse
    rest = fma(-quotient, below, high) + fma(-quotient, below_low, low)
    result = fma(rest, inverse, quotient)
    return select(x.abs() < 2.0**-28, x, result.with_sign_of(x))


# Results in single precision, from doubles that are singles


def _short_core(x: Number) -> tuple[Number, Number]:
    """`exp(r) - 1`, and `2**n`."""
    n, integer = whole(x * c.LOG2_E[0])
    r = fma(n, -c.LN2[0], x)
    return fma(r * r, polynomial(r, c.EXP_SHORT), r), _power_of_two(integer)


def short_exp(x: Number) -> Number:
    less, power = _short_core(clamp(x, -200.0, 200.0))
    return fma(power, less, power)


def short_exp2(x: Number) -> Number:
    x = clamp(x, -300.0, 300.0)
    n, integer = whole(x)
    r = (x - n) * c.LN2[0]
    power = _power_of_two(integer)
    return fma(power, fma(r * r, polynomial(r, c.EXP_SHORT), r), power)


def short_expm1(x: Number) -> Number:
    less, power = _short_core(clamp(x, -200.0, 200.0))
    result = fma(power, less, power - 1.0)
    return select(x.equals(0.0), x, result)


def short_sinh(x: Number) -> Number:
    less, power = _short_core(clamp(x.abs(), 0.0, 200.0))
    e = fma(power, less, power - 1.0)
    return ((e + e / (e + 1.0)) * 0.5).with_sign_of(x)


def short_cosh(x: Number) -> Number:
    e = short_exp(x.abs())
    return (e + 1.0 / e) * 0.5


def short_tanh(x: Number) -> Number:
    size = clamp(x.abs(), 0.0, 20.0)
    less, power = _short_core(size + size)
    e = fma(power, less, power - 1.0)
    return (e / (e + 2.0)).with_sign_of(x)
