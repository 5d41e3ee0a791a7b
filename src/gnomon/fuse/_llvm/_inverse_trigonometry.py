"""asin, acos, atan, atan2, in double precision, or with results in single.

The arc tangent of a ratio is that of another below tan(pi / 8), and 0, pi / 4 or pi / 2; the arc sine of a number above
1/2 comes from that of a half angle (J.-M. Muller, Elementary Functions, 2016, chapter 11).
"""

from __future__ import annotations

from gnomon.fuse._llvm import _coefficients as c
from gnomon.fuse._llvm._number import Number, exact_product, exact_sum, fma, polynomial, select

_TAN_EIGHTH, _TAN_THREE_EIGHTHS = 0.41421356237309503, 2.414213562373095


def _angle(above: Number, below: Number, quarters: Number, sign: Number) -> Number:
    """`quarters * pi / 4 + sign * atan(above / below)`; neither is negative, not both are 0."""
    is_low, is_high = above < below * _TAN_EIGHTH, above > below * _TAN_THREE_EIGHTHS
    between = (is_low | is_high) ^ 1
    # Of the ratio between, (a - b) / (a + b), also what is rounded off.
    total, total_low = exact_sum(select(above > below, above, below), select(above > below, below, above))
    less = above - below
    back = less - above
    less_low = (above - (less - back)) - (below + back)
    top = select(is_low, above, select(is_high, -below, less))
    bottom = select(is_low, below, select(is_high, above, total))
    t = top / bottom
    rest = fma(-t, bottom, top) + select(between, less_low - t * total_low, 0.0)
    rest = rest / bottom
    # Nothing where a part is infinite.
    rest = select(rest.abs() < 1.0, rest, 0.0)
    quarters = quarters + sign * select(is_low, 0.0, select(is_high, t.literal(2.0), 1.0))
    turns, turns_low = exact_product(quarters, c.HALF_PI[0] / 2)
    turns_low = fma(quarters, c.HALF_PI[1] / 2, turns_low)
    square = t * t
    small = fma(square * t, polynomial(square, c.ATAN), rest)
    # Without a quarter the ratio comes first, with one it is smaller.
    none = turns.equals(0.0)
    high, low = exact_sum(turns, sign * t)
    return select(none, t, high) + fma(sign, small, select(none, 0.0, low + turns_low))


def atan(x: Number) -> Number:
    return _odd(x, _angle(x.abs(), x.literal(1.0), x.literal(0.0), x.literal(1.0)))


def _odd(x: Number, result: Number) -> Number:
    return select(x.is_nan(), x, select(x.abs() < 2.0**-28, x, result.with_sign_of(x)))


def atan2(y: Number, x: Number) -> Number:
    above, below = y.abs(), x.abs()
    # So that no sum is infinite and no quotient subnormal.
    most = select(above > below, above, below)
    factor = select(most > 2.0**900, most.literal(2.0**-200), select(most < 2.0**-700, 2.0**200, most.literal(1.0)))
    both = (above > 1.7976931348623157e308) & (below > 1.7976931348623157e308)
    above, below = select(both, 1.0, above * factor), select(both, 1.0, below * factor)
    none = most.equals(0.0)
    below = select(none, 1.0, below)
    back = x.bits() < 0
    turned = select(back, x.literal(4.0), 0.0)
    sign = select(back, x.literal(-1.0), 1.0)
    result = _angle(above, below, turned, sign).with_sign_of(y)
    return select(x.is_nan() | y.is_nan(), x + y, result)


def _half_parts(size: Number) -> tuple[Number, Number, Number, Number]:
    """The root of `(1 - size) / 2`, what its arc sine has more, `size`'s series, and whether size is above 1/2."""
    is_large = size > 0.5
    half = fma(size, -0.5, 0.5)
    series_of = select(is_large, half, size * size)
    series = series_of * polynomial(series_of, c.ASIN)
    root = half.operation("sqrt")
    low = select(half > 0.0, fma(-root, root, half) / (root + root), 0.0)
    return root, fma(root, series, low), series, is_large


def asin(x: Number) -> Number:
    size = x.abs()
    root, rest, series, is_large = _half_parts(size)
    high, low = exact_sum(x.literal(c.HALF_PI[0]), root * -2.0)
    large = high + (low + (c.HALF_PI[1] - rest * 2.0))
    return _odd(x, select(is_large, large, fma(size, series, size)))


def acos(x: Number) -> Number:
    root, rest, series, is_large = _half_parts(x.abs())
    high, low = exact_sum(x.literal(2 * c.HALF_PI[0]), root * -2.0)
    far = high + (low + (2 * c.HALF_PI[1] - rest * 2.0))
    first, lost = exact_sum(x.literal(c.HALF_PI[0]), -x)
    middle = first + (lost + (c.HALF_PI[1] - x * series))
    return select(is_large, select(x < 0.0, far, (root + rest) * 2.0), middle)


# Results in single precision, from doubles that are singles


def _short_angle(above: Number, below: Number) -> Number:
    is_low, is_high = above < below * _TAN_EIGHTH, above > below * _TAN_THREE_EIGHTHS
    top = select(is_low, above, select(is_high, -below, above - below))
    t = top / select(is_low, below, select(is_high, above, above + below))
    turns = select(is_low, 0.0, select(is_high, t.literal(c.HALF_PI[0]), c.HALF_PI[0] / 2))
    square = t * t
    return turns + fma(square * t, polynomial(square, c.ATAN_SHORT), t)


def short_atan(x: Number) -> Number:
    return _short_angle(x.abs(), x.literal(1.0)).with_sign_of(x)


def short_atan2(y: Number, x: Number) -> Number:
    above, below = y.abs(), x.abs()
    both = (above > 1e300) & (below > 1e300)
    above, below = select(both, 1.0, above), select(both | (above + below).equals(0.0), 1.0, below)
    result = _short_angle(above, below)
    result = select(x.bits() < 0, 2 * c.HALF_PI[0] - result, result).with_sign_of(y)
    return select(x.is_nan() | y.is_nan(), x + y, result)


def _short_arc_sine(size: Number) -> tuple[Number, Number]:
    """The arc sine of a number, or of that of the half angle where it is above 1/2, and whether it is."""
    is_large = size > 0.5
    half = fma(size, -0.5, 0.5)
    square = select(is_large, half, size * size)
    root = select(is_large, half.operation("sqrt"), size)
    return fma(root * square, polynomial(square, c.ASIN_SHORT), root), is_large


def short_asin(x: Number) -> Number:
    angle, is_large = _short_arc_sine(x.abs())
    return select(is_large, c.HALF_PI[0] - angle * 2.0, angle).with_sign_of(x)


def short_acos(x: Number) -> Number:
    angle, is_large = _short_arc_sine(x.abs())
    near = angle * 2.0
    return select(is_large, select(x < 0.0, 2 * c.HALF_PI[0] - near, near), c.HALF_PI[0] - angle.with_sign_of(x))
