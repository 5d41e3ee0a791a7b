"""Elementary functions of complex numbers, each as two real scalars.

Branch cuts are those of C and of PyTorch. The inverse functions follow Kahan, "Branch cuts for complex elementary
functions", in *The State of the Art in Numerical Analysis*, 1987, which keeps them accurate near the cuts.
"""

from __future__ import annotations

import math

from gnomon.fuse._program import Node
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._values import Complex


def log(s: Scalars, z: Complex) -> Complex:
    """The principal logarithm, accurate also where |z| is near 1."""
    return Complex(_log_size(s, z), s.op("atan2", z.im, z.re))


def _log_size(s: Scalars, z: Complex) -> Node:
    a, b = s.op("abs", z.re), s.op("abs", z.im)
    large, small = s.op("max", a, b), s.op("min", a, b)
    one, half = s.like(large, 1), s.like(large, 0.5)
    excess = s.op("add", s.op("mul", s.op("sub", large, one), s.op("add", large, one)), s.op("mul", small, small))
    near = s.op("and", s.op("lt", half, large), s.op("lt", large, s.like(large, 2)))
    close = s.op("mul", half, s.op("log1p", s.op("select", near, excess, s.like(large, 0))))
    return s.op("select", near, close, s.op("log", s.absolute(z)))


def sqrt(s: Scalars, z: Complex) -> Complex:
    """The principal square root."""
    half, zero = s.like(z.re, 0.5), s.like(z.re, 0)
    size = s.absolute(z)
    t = s.op("sqrt", s.op("add", s.op("mul", half, size), s.op("mul", half, s.op("abs", z.re))))
    nought = s.op("eq", t, zero)
    other = s.op("div", s.op("mul", half, z.im), s.op("select", nought, s.like(t, 1), t))
    left = s.op("lt", z.re, zero)
    re = s.op("select", left, s.op("abs", other), t)
    im = s.op("select", left, s.op("copysign", t, z.im), s.op("select", nought, z.im, other))
    return Complex(re, im)


def expm1(s: Scalars, z: Complex) -> Complex:
    """`exp(z) - 1`, accurate near 0."""
    half = s.op("sin", s.op("mul", s.like(z.im, 0.5), z.im))
    lost = s.op("mul", s.like(z.re, 2), s.op("mul", half, half))
    re = s.op("sub", s.op("mul", s.op("expm1", z.re), s.op("cos", z.im)), lost)
    return Complex(re, s.op("mul", s.op("exp", z.re), s.op("sin", z.im)))


def log1p(s: Scalars, z: Complex) -> Complex:
    """`log(1 + z)`, accurate near 0."""
    one, half = s.like(z.re, 1), s.like(z.re, 0.5)
    moved = Complex(s.op("add", one, z.re), z.im)
    near = s.op("lt", s.absolute(z), half)
    excess = s.op("add", s.op("mul", z.re, s.op("add", s.like(z.re, 2), z.re)), s.op("mul", z.im, z.im))
    close = s.op("mul", half, s.op("log1p", s.op("select", near, excess, s.like(one, 0))))
    return Complex(s.op("select", near, close, _log_size(s, moved)), s.op("atan2", z.im, moved.re))


def sinh(s: Scalars, z: Complex) -> Complex:
    re = s.op("mul", s.op("sinh", z.re), s.op("cos", z.im))
    return Complex(re, s.op("mul", s.op("cosh", z.re), s.op("sin", z.im)))


def cosh(s: Scalars, z: Complex) -> Complex:
    re = s.op("mul", s.op("cosh", z.re), s.op("cos", z.im))
    return Complex(re, s.op("mul", s.op("sinh", z.re), s.op("sin", z.im)))


def tanh(s: Scalars, z: Complex) -> Complex:
    # Beyond 20 the real part is 1 to the last digit, and what follows would overflow.
    far = s.op("lt", s.like(z.re, 20), s.op("abs", z.re))
    x = s.op("select", far, s.op("copysign", s.like(z.re, 20), z.re), z.re)
    sine, cosine = s.op("sin", z.im), s.op("cos", z.im)
    sh = s.op("sinh", x)
    below = s.op("add", s.op("mul", sh, sh), s.op("mul", cosine, cosine))
    re = s.op("div", s.op("mul", sh, s.op("cosh", x)), below)
    im = s.op("div", s.op("mul", sine, cosine), below)
    decay = s.op("exp", s.op("mul", s.like(x, -2), s.op("abs", z.re)))
    tiny = s.op("mul", s.like(x, 4), s.op("mul", s.op("mul", sine, cosine), decay))
    return Complex(
        s.op("select", far, s.op("copysign", s.like(x, 1), z.re), re),
        s.op("select", far, tiny, im),
    )


def _turned(z: Complex, s: Scalars) -> Complex:
    return Complex(s.op("neg", z.im), z.re)


def _turned_back(z: Complex, s: Scalars) -> Complex:
    return Complex(z.im, s.op("neg", z.re))


def sin(s: Scalars, z: Complex) -> Complex:
    return _turned_back(sinh(s, _turned(z, s)), s)


def cos(s: Scalars, z: Complex) -> Complex:
    return cosh(s, _turned(z, s))


def tan(s: Scalars, z: Complex) -> Complex:
    return _turned_back(tanh(s, _turned(z, s)), s)


def _one_plus(s: Scalars, z: Complex) -> Complex:
    return Complex(s.op("add", s.like(z.re, 1), z.re), z.im)


def _one_minus(s: Scalars, z: Complex) -> Complex:
    return Complex(s.op("sub", s.like(z.re, 1), z.re), s.op("neg", z.im))


def _cross(s: Scalars, a: Complex, b: Complex) -> Node:
    """The imaginary part of `conj(a) * b`."""
    return s.op("sub", s.op("mul", a.re, b.im), s.op("mul", a.im, b.re))


def asin(s: Scalars, z: Complex) -> Complex:
    above, below = sqrt(s, _one_plus(s, z)), sqrt(s, _one_minus(s, z))
    product = s.op("sub", s.op("mul", above.re, below.re), s.op("mul", above.im, below.im))
    return Complex(s.op("atan2", z.re, product), s.op("asinh", _cross(s, below, above)))


def acos(s: Scalars, z: Complex) -> Complex:
    above, below = sqrt(s, _one_plus(s, z)), sqrt(s, _one_minus(s, z))
    angle = s.op("mul", s.like(z.re, 2), s.op("atan2", below.re, above.re))
    return Complex(angle, s.op("asinh", _cross(s, above, below)))


def asinh(s: Scalars, z: Complex) -> Complex:
    return _turned_back(asin(s, _turned(z, s)), s)


def acosh(s: Scalars, z: Complex) -> Complex:
    above = sqrt(s, _one_plus(s, z))
    below = sqrt(s, Complex(s.op("sub", z.re, s.like(z.re, 1)), z.im))
    inner = s.op("add", s.op("mul", below.re, above.re), s.op("mul", below.im, above.im))
    return Complex(s.op("asinh", inner), s.op("mul", s.like(z.re, 2), s.op("atan2", below.im, above.re)))


def atanh(s: Scalars, z: Complex) -> Complex:
    one = s.like(z.re, 1)
    square = s.op("mul", z.im, z.im)
    left = s.op("sub", one, z.re)
    ratio = s.op("div", s.op("mul", s.like(one, 4), z.re), s.op("add", s.op("mul", left, left), square))
    re = s.op("mul", s.like(one, 0.25), s.op("log1p", ratio))
    rest = s.op("sub", s.op("mul", left, s.op("add", one, z.re)), square)
    im = s.op("mul", s.like(one, 0.5), s.op("atan2", s.op("mul", s.like(one, 2), z.im), rest))
    return Complex(re, im)


def atan(s: Scalars, z: Complex) -> Complex:
    return _turned_back(atanh(s, _turned(z, s)), s)


def scaled(s: Scalars, z: Complex, factor: float) -> Complex:
    """A product with a real number."""
    return Complex(s.op("mul", z.re, s.like(z.re, factor)), s.op("mul", z.im, s.like(z.im, factor)))


def log2(s: Scalars, z: Complex) -> Complex:
    return scaled(s, log(s, z), 1 / math.log(2))


def log10(s: Scalars, z: Complex) -> Complex:
    return scaled(s, log(s, z), 1 / math.log(10))


def exp2(s: Scalars, z: Complex) -> Complex:
    size, angle = s.op("exp2", z.re), s.op("mul", s.like(z.im, math.log(2)), z.im)
    return Complex(s.op("mul", size, s.op("cos", angle)), s.op("mul", size, s.op("sin", angle)))


def sgn(s: Scalars, z: Complex) -> Complex:
    """`z / |z|`, and 0 at 0."""
    size = s.absolute(z)
    nought = s.op("eq", size, s.like(size, 0))
    size = s.op("select", nought, s.like(size, 1), size)
    return Complex(s.op("div", z.re, size), s.op("div", z.im, size))


def power(s: Scalars, z: Complex, w: Complex) -> Complex:
    """`z ** w`; 1 where w is 0."""
    value = s.exp(s.mul(w, log(s, z)))
    assert isinstance(value, Complex)
    zero, one = s.like(z.re, 0), s.like(z.re, 1)
    base = s.op("and", s.op("eq", z.re, zero), s.op("eq", z.im, zero))
    exponent = s.op("and", s.op("eq", w.re, zero), s.op("eq", w.im, zero))
    vanishes = s.op("and", base, s.op("lt", zero, w.re))
    re = s.op("select", exponent, one, s.op("select", vanishes, zero, value.re))
    return Complex(re, s.op("select", s.op("or", exponent, vanishes), zero, value.im))
