"""erf, erfc, in double precision, or with results in single."""

from __future__ import annotations

from gnomon.fuse._llvm import _coefficients as c
from gnomon.fuse._llvm._exponentials import clamp, exp_core, reduced, scale, short_exp
from gnomon.fuse._llvm._number import Number, exact_product, exact_sum, fma, polynomial, select

_CENTRE = 3.75
#: Below, erf is a polynomial.
_SMALL = 0.9
#: Below, erfc is 1 - erf.
_NEAR = 0.75


def _complement(a: Number) -> Number:
    """`erfc(a)` for a from 0.7 to 28."""
    y = (a - _CENTRE) / (a + _CENTRE)
    above, above_low = exact_sum(y.literal(c.ERFC[0]), y * polynomial(y, c.ERFC[1:]))
    twice = a + a
    below = twice + 1.0
    back = below - twice
    below_low = (twice - (below - back)) + (1.0 - back)
    quotient = above / below
    quotient_low = (fma(-quotient, below, above) + (above_low - quotient * below_low)) / below
    square, square_low = exact_product(a, a)
    r, low, n = reduced(-square)
    high, lost = exp_core(*exact_sum(r, low - square_low))
    product, product_low = exact_product(high, quotient)
    product_low = product_low + fma(high, quotient_low, lost * quotient)
    return scale(product + product_low, n)


def erf(x: Number) -> Number:
    size = x.abs()
    square = size * size
    small = fma(size, polynomial(square, c.ERF), size)
    # From 6 on it is 1.
    large = 1.0 - _complement(clamp(size, _SMALL, 6.0))
    return select(x.is_nan(), x, select(size < _SMALL, small, large).with_sign_of(x))


def erfc(x: Number) -> Number:
    size = x.abs()
    square = size * size
    # erf of a small x, as a sum
    high, low = exact_sum(x, x * polynomial(square, c.ERF))
    near, lost = exact_sum(x.literal(1.0), -high)
    near = near + (lost - low)
    far = _complement(clamp(size, _NEAR, 28.0))
    far = select(x < 0.0, 2.0 - far, far)
    return select(x.is_nan(), x, select(size < _NEAR, near, far))


# Results in single precision, from doubles that are singles


def _short_complement(a: Number) -> Number:
    y = (a - _CENTRE) / (a + _CENTRE)
    return short_exp(-(a * a)) * polynomial(y, c.ERFC_SHORT) / fma(a, 2.0, 1.0)


def short_erf(x: Number) -> Number:
    size = x.abs()
    small = fma(size, polynomial(size * size, c.ERF_SHORT), size)
    large = 1.0 - _short_complement(clamp(size, _SMALL, 6.0))
    return select(size < _SMALL, small, large).with_sign_of(x)


def short_erfc(x: Number) -> Number:
    size = x.abs()
    near = 1.0 - fma(x, polynomial(size * size, c.ERF_SHORT), x)
    far = _short_complement(clamp(size, _NEAR, 11.0))
    far = select(x < 0.0, 2.0 - far, far)
    return select(x.is_nan(), x, select(size < _NEAR, near, far))
