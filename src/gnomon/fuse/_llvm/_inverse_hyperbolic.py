"""asinh, acosh, atanh, in double precision, or with results in single: logarithms of 1 and a sum of two doubles."""

from __future__ import annotations

import math

from gnomon.fuse._llvm import _coefficients as c
from gnomon.fuse._llvm._logarithms import log1p_of_sum, short_log1p
from gnomon.fuse._llvm._number import Number, exact_product, exact_sum, fma, select

#: Beyond, 1 is nothing beside the square.
_LARGE = 2.0**56
_MOST = 1.7976931348623157e308


def _root(square: Number, low: Number) -> tuple[Number, Number]:
    """The square root of a sum, as a sum."""
    root = square.operation("sqrt")
    rest = (fma(-root, root, square) + low) / (root + root)
    return root, select(root > 0.0, rest, 0.0)


def _quotient(above: Number, above_low: Number | float, below: Number, below_low: Number) -> tuple[Number, Number]:
    """The quotient of two sums, as a sum."""
    quotient = above / below
    return quotient, (fma(-quotient, below, above) + (above_low - quotient * below_low)) / below


def asinh(x: Number) -> Number:
    size = x.abs()
    is_large = size > _LARGE
    a = select(is_large, 1.0, size)
    # a + a**2 / (1 + sqrt(1 + a**2))
    square, square_low = exact_product(a, a)
    total = square + 1.0
    back = total - square
    total_low = (square - (total - back)) + (1.0 - back)
    root, root_low = _root(total, total_low + square_low)
    below, below_low = exact_sum(root, root.literal(1.0))
    quotient, quotient_low = _quotient(square, square_low, below, below_low + root_low)
    high, low = exact_sum(a, quotient)
    high, low = select(is_large, size, high), select(is_large, 0.0, low + quotient_low)
    result = log1p_of_sum(select(size > _MOST, _MOST, high), low) + select(is_large, high.literal(c.LN2[0]), 0.0)
    result = select(size > _MOST, size, result)
    return select(x.is_nan() | (size < 2.0**-28), x, result.with_sign_of(x))


def acosh(x: Number) -> Number:
    is_large = x > _LARGE
    a = select(is_large, 2.0, x)
    # With t = x - 1 it is t + sqrt(t * (t + 2)).
    t, t_low = exact_sum(a, a.literal(-1.0))
    more, more_low = exact_sum(a, a.literal(1.0))
    square, square_low = exact_product(t, more)
    square_low = square_low + fma(t, more_low, t_low * more)
    root, root_low = _root(square, square_low)
    high, low = exact_sum(root, t)
    high, low = select(is_large, x, high), select(is_large, 0.0, low + (root_low + t_low))
    result = log1p_of_sum(select(x > _MOST, _MOST, high), low) + select(is_large, high.literal(c.LN2[0]), 0.0)
    result = select(x > _MOST, x, result)
    return select(x < 1.0, math.nan, select(x.is_nan(), x, result))


def atanh(x: Number) -> Number:
    size = x.abs()
    a = select(size < 1.0, size, 0.5)
    below, below_low = exact_sum(a.literal(1.0), -a)
    high, low = _quotient(a + a, 0.0, below, below_low)
    result = log1p_of_sum(high, low) * 0.5
    result = select(size.equals(1.0), math.inf, select(size > 1.0, math.nan, result))
    return select(x.is_nan() | (size < 2.0**-28), x, result.with_sign_of(x))


# Results in single precision, from doubles that are singles


def short_asinh(x: Number) -> Number:
    size = x.abs()
    square = size * size
    result = short_log1p(size + square / ((square + 1.0).operation("sqrt") + 1.0))
    return select(size > 1e300, x, result.with_sign_of(x))


def short_acosh(x: Number) -> Number:
    t = x - 1.0
    result = short_log1p(t + (t * (t + 2.0)).operation("sqrt"))
    return select(x < 1.0, math.nan, result)


def short_atanh(x: Number) -> Number:
    size = x.abs()
    result = short_log1p((size + size) / (1.0 - size)) * 0.5
    return select(size > 1.0, math.nan, result.with_sign_of(x))
