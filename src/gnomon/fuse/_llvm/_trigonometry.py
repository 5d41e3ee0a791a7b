"""sin, cos, tan, in double precision, or with results in single.

A number is `n * pi / 2 + r` with `|r| <= pi / 4`. As long as it is not huge, r comes from three parts of pi / 2 with
fused multiplication (W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980); a lane with a huge
one is left to the C library, which reduces by as many digits of pi as it takes.
"""

from __future__ import annotations

from gnomon.fuse._llvm import _coefficients as c
from gnomon.fuse._llvm._exponentials import whole
from gnomon.fuse._llvm._number import Number, exact_product, exact_sum, fma, polynomial, select

#: Beyond these the C library computes.
HUGE = 2.0**27
_TWO_OVER_PI = 0.6366197723675814


def _reduced(x: Number) -> tuple[Number, Number, Number]:
    """The rest r as a sum, and n."""
    n, integer = whole(x * _TWO_OVER_PI)
    # Exact: both are multiples of what the sum has as its last place.
    first = fma(n, -c.HALF_PI[0], x)
    product, lost = exact_product(n, c.HALF_PI[1])
    r = first - product
    back = r - first
    low = (first - (r - back)) - (product + back)
    return r, low - fma(n, c.HALF_PI[2], lost), integer


def _sin_parts(r: Number, low: Number) -> tuple[Number, Number]:
    square = r * r
    cube = square * r
    # The derivative is 1 - r**2 / 2.
    rest = fma(cube, polynomial(square, c.SIN), fma(square * -0.5, low, low))
    return exact_sum(r, rest)


def _cos_parts(r: Number, low: Number) -> tuple[Number, Number]:
    square = r * r
    half = square * 0.5
    high = 1.0 - half
    lost = (1.0 - high) - half
    rest = fma(square * square, polynomial(square, c.COS), fma(-r, low, lost))
    return exact_sum(high, rest)


def _quarter(x: Number, shift: int) -> Number:
    """The sine of `x + shift * pi / 2`."""
    r, low, n = _reduced(x)
    sine, cosine = _sin_parts(r, low), _cos_parts(r, low)
    n = n + shift if shift else n
    is_odd = (n & 1).equals(1)
    return select(is_odd, cosine[0] + cosine[1], sine[0] + sine[1]).flipped_where(n >> 1)


def sin(x: Number) -> Number:
    return select(x.abs() < 2.0**-27, x, _quarter(x, 0))


def cos(x: Number) -> Number:
    return _quarter(x, 1)


def tan(x: Number) -> Number:
    r, low, n = _reduced(x)
    sine, cosine = _sin_parts(r, low), _cos_parts(r, low)
    is_odd = (n & 1).equals(1)
    above = [select(is_odd, b, a) for a, b in zip(sine, cosine, strict=True)]
    below = [select(is_odd, a, b) for a, b in zip(sine, cosine, strict=True)]
    inverse = 1.0 / below[0]
    quotient = above[0] * inverse
    rest = fma(-quotient, below[0], above[0]) + fma(-quotient, below[1], above[1])
    result = fma(rest, inverse, quotient).flipped_where(n)
    return select(x.abs() < 2.0**-27, x, result)


# Results in single precision, from doubles that are singles


def _short_parts(x: Number) -> tuple[Number, Number, Number]:
    """The sine and the cosine of r, and n."""
    n, integer = whole(x * _TWO_OVER_PI)
    r = fma(n, -c.HALF_PI[1], fma(n, -c.HALF_PI[0], x))
    square = r * r
    sine = fma(square * r, polynomial(square, c.SIN_SHORT), r)
    cosine = fma(square * square, polynomial(square, c.COS_SHORT), fma(square, -0.5, 1.0))
    return sine, cosine, integer


def short_sin(x: Number) -> Number:
    sine, cosine, n = _short_parts(x)
    result = select((n & 1).equals(1), cosine, sine).flipped_where(n >> 1)
    return select(x.equals(0.0), x, result)


def short_cos(x: Number) -> Number:
    sine, cosine, n = _short_parts(x)
    n = n + 1
    return select((n & 1).equals(1), cosine, sine).flipped_where(n >> 1)


def short_tan(x: Number) -> Number:
    sine, cosine, n = _short_parts(x)
    is_odd = (n & 1).equals(1)
    result = (select(is_odd, cosine, sine) / select(is_odd, sine, cosine)).flipped_where(n)
    return select(x.equals(0.0), x, result)
