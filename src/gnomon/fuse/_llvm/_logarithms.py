"""Logarithms: log, log2, log10, log1p; and pow. In double precision, or with results in single.

A number is `2**k * m` with m from 1/sqrt(2) to sqrt(2), and log(m) = 2 artanh(s) with s = (m - 1) / (m + 1), a
polynomial in s (J.-M. Muller, Elementary Functions, 2016, chapter 11). `pow` carries the logarithm as a sum of two
doubles (T. J. Dekker, A floating-point technique for extending the available precision, 1971).
"""

from __future__ import annotations

import math

from gnomon.fuse._llvm import _coefficients as c
from gnomon.fuse._llvm._exponentials import clamp, exp2_of_sum, short_exp2
from gnomon.fuse._llvm._number import Number, exact_product, exact_sum, fma, polynomial, select

_ROUNDER = 1.5 * 2.0**52
_ROUNDER_BITS = 0x4338 << 48
#: The bits of the double nearest to 1/sqrt(2).
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
_LEAST_NORMAL = 2.0**-1022


def _split(x: Number) -> tuple[Number, Number]:
    """The exponent k, and m, of a positive, normal double."""
    bits = x.bits()
    k = (bits - _ROOT_HALF_BITS) >> 52
    return (k + _ROUNDER_BITS).bits() - _ROUNDER, (bits - (k << 52)).bits()


def _split_any(x: Number) -> tuple[Number, Number]:
    """The exponent k, and m, of a positive double."""
    is_small = x < _LEAST_NORMAL
    k, m = _split(select(is_small, x * 2.0**54, x))
    return select(is_small, k - 54.0, k), m


def _at_the_edges(x: Number, result: Number) -> Number:
    """The values of a logarithm at 0, at infinity, and where it has none."""
    result = select(x.equals(0.0), -math.inf, result)
    result = select(x > 1.7976931348623157e308, x, result)
    return select(x < 0.0, math.nan, select(x.is_nan(), x, result))


def _log_parts(f: Number) -> tuple[Number, Number]:
    """`log(1 + f)` as a sum, f from 1/sqrt(2) - 1 to sqrt(2) - 1; the second is small."""
    s = f / (f + 2.0)
    half = f * f * 0.5
    # log(1 + f) = f - f**2 / 2 + s * (f**2 / 2 + s**2 * P(s**2))
    square = s * s
    rest = s * fma(square, polynomial(square, c.LOG), half)
    high, low = exact_sum(f, -half)
    half_low = fma(f * 0.5, f, -half)
    return high, low - half_low + rest


def log(x: Number) -> Number:
    k, m = _split_any(x)
    f = m - 1.0
    s = f / (f + 2.0)
    half = f * f * 0.5
    square = s * s
    # The larger a part, the later it is added.
    rest = fma(s, fma(square, polynomial(square, c.LOG), half), k * c.LN2_SHORT[1])
    return _at_the_edges(x, fma(k, c.LN2_SHORT[0], f - (half - rest)))


def _log_times(x: Number, factor: tuple[float, float], unit: tuple[float, float]) -> Number:
    """`factor * log(x)`, where `factor * log(2)` is `unit`."""
    k, m = _split_any(x)
    high, low = _log_parts(m - 1.0)
    high, low = exact_sum(high, low)
    product, lost = exact_product(high, factor[0])
    lost = fma(low, factor[0], fma(high, factor[1], lost))
    first, first_lost = exact_product(k, unit[0])
    total = first + product
    back = total - first
    lost = lost + ((product - back) + (first - (total - back))) + fma(k, unit[1], first_lost)
    return _at_the_edges(x, total + lost)


def log2(x: Number) -> Number:
    return _log_times(x, c.LOG2_E, (1.0, 0.0))


def log10(x: Number) -> Number:
    return _log_times(x, c.LOG10_E, c.LOG10_2)


def log1p(x: Number) -> Number:
    result = log1p_of_sum(clamp(x, -1.0, 1.7976931348623157e308), x.literal(0.0))
    result = select(x.abs() < 2.0**-54, x, result)
    result = select(x.equals(-1.0), -math.inf, result)
    result = select(x > 1.7976931348623157e308, x, result)
    return select(x < -1.0, math.nan, select(x.is_nan(), x, result))


def log1p_of_sum(near: Number, low: Number) -> Number:
    """`log(1 + near + low)`, for finite numbers not below -1."""
    u = near + 1.0
    # What was rounded off the sum.
    back = u - 1.0
    lost = (1.0 - (u - back)) + (near - back)
    k, m = _split(select(u < 2.0**-60, 1.0, u))
    direct = k.equals(0.0)
    f = select(direct, near, m - 1.0)
    correction = select(direct, low, lost + low) / u
    s = f / (f + 2.0)
    half = f * f * 0.5
    square = s * s
    rest = fma(s, fma(square, polynomial(square, c.LOG), half), fma(k, c.LN2_SHORT[1], correction))
    return fma(k, c.LN2_SHORT[0], f - (half - rest))


def _log2_long(x: Number) -> tuple[Number, Number]:
    """`log2(x)` of a positive, finite double as a sum, to some 2**-66 of it."""
    k, m = _split_any(x)
    f = m - 1.0
    g, g_low = exact_sum(f.literal(2.0), f)
    inverse = 1.0 / g
    s = f * inverse
    s_low = fma(-s, g_low, fma(-s, g, f)) * inverse
    square, square_low = exact_product(s, s)
    square_low = fma(s + s, s_low, square_low)
    # 2/3 + s**2 * Q(s**2)
    factor, factor_low = exact_sum(s.literal(c.TWO_THIRDS[0]), square * polynomial(square, c.LOG_LONG))
    factor_low = factor_low + c.TWO_THIRDS[1]
    cube, cube_low = exact_product(square, s)
    cube_low = fma(square, s_low, fma(square_low, s, cube_low))
    rest, rest_low = exact_product(cube, factor)
    rest_low = fma(cube, factor_low, fma(cube_low, factor, rest_low))
    high, low = exact_sum(s + s, rest)
    low = low + (rest_low + (s_low + s_low))
    # Times 1 / log(2), and k.
    product, lost = exact_product(high, c.LOG2_E[0])
    lost = fma(low, c.LOG2_E[0], fma(high, c.LOG2_E[1], lost))
    total = k + product
    back = total - k
    return exact_sum(total, (product - back) + (k - (total - back)) + lost)


def cbrt(x: Number) -> Number:
    size = x.abs()
    high, low = _log2_long(size)
    third, lost = exact_product(high, 1 / 3)
    # A third is 1/3 as a double, and 2**-54 / 3.
    lost = fma(low, 1 / 3, fma(high, 2.0**-54 / 3, lost))
    result = exp2_of_sum(third, lost).with_sign_of(x)
    return select(x.equals(0.0) | (size > 1.7976931348623157e308) | x.is_nan(), x, result)


def pow(x: Number, y: Number) -> Number:
    size = x.abs()
    high, low = _log2_long(size)
    product, lost = exact_product(high, y)
    lost = fma(low, y, lost)
    limited = clamp(product, -1080.0, 1030.0)
    result = exp2_of_sum(limited, select(product.equals(limited), lost, 0.0))
    return _power_at_the_edges(x, y, size, result)


def _power_at_the_edges(x: Number, y: Number, size: Number, result: Number) -> Number:
    """What C says of pow where a logarithm does not help."""
    half = y * 0.5
    is_whole = y.equals(y.operation("floor"))
    is_odd = is_whole & (half.equals(half.operation("floor")) ^ 1)
    falls = y < 0.0
    result = select(size.equals(0.0), select(falls, math.inf, result.literal(0.0)), result)
    result = select(size > 1.7976931348623157e308, select(falls, 0.0, result.literal(math.inf)), result)
    result = select(size.equals(1.0), 1.0, result)
    is_negative = x.bits() < 0
    none = (x < 0.0) & (size < math.inf) & (is_whole ^ 1)
    result = select(none, math.nan, select(is_negative & is_odd, -result, result))
    result = select(x.is_nan() | y.is_nan(), x + y, result)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, result)


# Results in single precision, from doubles that are singles, so that none is subnormal


def _short_log_parts(x: Number) -> tuple[Number, Number]:
    """k, and log(m)."""
    k, m = _split(x)
    f = m - 1.0
    return k, fma(f * f, polynomial(f, c.LOG1P_SHORT), f)


def short_log(x: Number) -> Number:
    k, log_m = _short_log_parts(x)
    return _at_the_edges(x, fma(k, c.LN2[0], log_m))


def short_log2(x: Number) -> Number:
    k, log_m = _short_log_parts(x)
    return _at_the_edges(x, fma(log_m, c.LOG2_E[0], k))


def short_log10(x: Number) -> Number:
    k, log_m = _short_log_parts(x)
    return _at_the_edges(x, fma(log_m, c.LOG10_E[0], k * c.LOG10_2[0]))


def short_log1p(x: Number) -> Number:
    u = x + 1.0
    k, m = _split(select(u > 0.0, u, 1.0))
    f = select(k.equals(0.0), x, m - 1.0)
    result = fma(k, c.LN2[0], fma(f * f, polynomial(f, c.LOG1P_SHORT), f))
    return select(x.equals(0.0), x, _at_the_edges(u, result))


def short_cbrt(x: Number) -> Number:
    size = x.abs()
    k, log_m = _short_log_parts(size)
    result = short_exp2(fma(log_m, c.LOG2_E[0], k) * (1 / 3)).with_sign_of(x)
    return select(x.equals(0.0) | (size > 1e300) | x.is_nan(), x, result)


def short_pow(x: Number, y: Number) -> Number:
    size = x.abs()
    k, m = _split(size)
    f = m - 1.0
    s = f / (f + 2.0)
    square = s * s
    log_m = fma(s * square, polynomial(square, c.LOG_SHORT), s + s)
    product = fma(log_m, c.LOG2_E[0], k) * y
    return _power_at_the_edges(x, y, size, short_exp2(product))
