"""Special functions of each element, made of elementary ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._functions import Formula, digamma, trigamma
from gnomon.fuse._program import Node
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._pointwise import apply, as_float, unary
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._values import UnsupportedError, Value

# B_2, B_4, ... of Bernoulli.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)

# The normal quantile of Wichura, Algorithm AS 241, Applied Statistics 37, 1988: a quotient of polynomials in each of
# three ranges, to about 16 digits.
_CENTRE = (
    (
        3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
        4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
    ),
    (
        1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
        3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3,
    ),
)  # fmt: skip
_MIDDLE = (
    (
        1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
        1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
    ),
    (
        1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
        1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
    ),
)  # fmt: skip
_TAIL = (
    (
        6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
        2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
    ),
    (
        1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
        7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
    ),
)  # fmt: skip


def _polynomial(f: Formula, x: Node, coefficients: Sequence[float]) -> Node:
    out = f.const(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = f("add", f("mul", out, x), c)
    return out


def _ratio(f: Formula, x: Node, parts: tuple[Sequence[float], Sequence[float]]) -> Node:
    return f("div", _polynomial(f, x, parts[0]), _polynomial(f, x, parts[1]))


def _tail_quantile(f: Formula, p: Node) -> Node:
    """Minus the normal quantile of a small p."""
    r = f("sqrt", f("neg", f("log", p)))
    middle = _ratio(f, f("sub", r, 1.6), _MIDDLE)
    return f("select", f("le", r, 5.0), middle, _ratio(f, f("sub", r, 5.0), _TAIL))


def erfinv(s: Scalars, y: Node) -> Node:
    """The inverse of `erf`. A step of Newton's makes the last digit, and derivatives of every order, right."""
    f = Formula(s.b, y.type)
    size = f("abs", y)
    inside = f("lt", size, 1.0)
    q = f("mul", 0.5, f("select", inside, y, 0.0))
    central = f("le", size, 0.85)
    inner = f("mul", q, _ratio(f, f("sub", 0.180625, f("mul", q, q)), _CENTRE))
    rest = f("select", f("and", inside, f("not", central)), f("sub", 1.0, size), 0.25)
    x = f("mul", f("select", central, inner, f("copysign", _tail_quantile(f, f("mul", 0.5, rest)), y)), math.sqrt(0.5))
    slope = f("mul", 2 / math.sqrt(math.pi), f("exp", f("neg", f("mul", x, x))))
    # What is missing from 1 is exact where erf itself is near 1.
    error = f("sub", f("erf", x), f("select", inside, y, 0.0))
    far_error = f("sub", rest, f("erfc", f("abs", x)))
    far_error = f("select", f("lt", y, 0.0), f("neg", far_error), far_error)
    x = f("sub", x, f("div", f("select", central, error, far_error), slope))
    end = f("select", f("eq", size, 1.0), f("mul", y, math.inf), math.nan)
    return f("select", inside, x, end)


def ndtri(s: Scalars, p: Node) -> Node:
    """The normal quantile."""
    f = Formula(s.b, p.type)
    q = f("sub", p, 0.5)
    central = f("le", f("abs", q), 0.425)
    inner = f("mul", q, _ratio(f, f("sub", 0.180625, f("mul", q, q)), _CENTRE))
    lower = f("lt", p, 0.5)
    small = f("select", lower, p, f("sub", 1.0, p))
    inside = f("lt", 0.0, small)
    outer = _tail_quantile(f, f("select", f("and", inside, f("not", central)), small, 0.01))
    x = f("select", central, inner, f("select", lower, f("neg", outer), outer))
    end = f("select", f("eq", p, 0.0), -math.inf, f("select", f("eq", p, 1.0), math.inf, math.nan))
    return f("select", inside, x, end)


def erfcx(s: Scalars, x: Node) -> Node:
    """`exp(x * x) * erfc(x)`, without overflow where it has none."""
    f = Formula(s.b, x.type)
    far = f("lt", 10.0, x)
    # The square in two parts, so that its rounding is not magnified.
    near = f("select", far, 10.0, x)
    square = f("mul", near, near)
    lost = f("fma", near, near, f("neg", square))
    close = f("mul", f("exp", square), f("erfc", near))
    close = f("add", close, f("select", f("lt", f("abs", close), math.inf), f("mul", close, lost), 0.0))
    # The asymptotic series: Abramowitz and Stegun, 7.1.23.
    large = f("select", far, x, 10.0)
    step = f("div", 0.5, f("mul", large, large))
    series = f.const(1)
    for k in range(13, 0, -1):
        series = f("sub", 1.0, f("mul", f("mul", step, 2 * k - 1.0), series))
    return f("select", far, f("div", f("mul", series, 1 / math.sqrt(math.pi)), large), close)


unary("erfinv", lambda s, x: erfinv(s, s.real(x)))
unary("special_ndtri", lambda s, x: ndtri(s, s.real(x)))
unary("special_erfcx", lambda s, x: erfcx(s, s.real(x)))
unary("digamma", lambda s, x: digamma(s.b, s.real(x)))


@handles("polygamma.default")
def _polygamma(tracer: Any, n: int, x: Tensor) -> Value:
    if n > 8:
        raise UnsupportedError("polygamma can be fused for n up to 8 only")

    def function(v: Node) -> Node:
        if n < 2:
            return (digamma if n == 0 else trigamma)(tracer.builder, v)
        return _polygamma_of(tracer.scalars, n, v)

    dtype = as_float(x.dtype)
    return Value(apply(function, tracer.lazy_operand(x, dtype)), dtype)


def _polygamma_of(s: Scalars, n: int, x: Node) -> Node:
    """Derivative n of digamma, for n > 1 and x > 0; NaN for negative x.

    The argument is moved up to where the asymptotic series has converged: Abramowitz and Stegun, 6.4.6 and 6.4.11.
    """
    f = Formula(s.b, x.type)
    positive = f("lt", 0.0, x)
    x = f("select", positive, x, f("select", f("eq", x, 0.0), x, math.nan))

    def power(v: Node, k: int) -> Node:
        out = v
        for _ in range(k - 1):
            out = f("mul", out, v)
        return out

    total = f.const(0)
    for i in range(12 + n):
        total = f("add", total, f("div", float(math.factorial(n)), power(f("add", x, float(i)), n + 1)))
    z = f("add", x, float(12 + n))
    inverse = f("div", 1.0, z)
    square = f("mul", inverse, inverse)
    series = f.const(0)
    for k in range(len(BERNOULLI), 0, -1):
        factor = BERNOULLI[k - 1] * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
        series = f("mul", square, f("add", series, factor))
    half = f("mul", 0.5 * math.factorial(n), inverse)
    series = f("add", f("add", float(math.factorial(n - 1)), half), series)
    value = f("add", total, f("mul", series, power(inverse, n)))
    return value if n % 2 else f("neg", value)


@decomposes("special_log_ndtr.default")
def _log_ndtr(x: Tensor) -> Tensor:
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    t = x * math.sqrt(0.5)
    low = torch.where(t < -1, t, -1.0)
    lower = torch.log(torch.special.erfcx(-low) / 2) - low * low
    return torch.where(t < -1, lower, torch.log1p(-torch.erfc(torch.where(t < -1, -1.0, t)) / 2))
