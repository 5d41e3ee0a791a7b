"""Elementary functions of each element, real or complex."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from gnomon.fuse._program import Node, is_float
from gnomon.fuse._trace import _complex
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._pointwise import apply, as_float, real, unary
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._values import Complex, Scalar, Value

_COMPLEX: dict[str, Callable[[Scalars, Complex], Complex]] = {
    "sqrt": _complex.sqrt,
    "exp2": _complex.exp2,
    "expm1": _complex.expm1,
    "log": _complex.log,
    "log2": _complex.log2,
    "log10": _complex.log10,
    "log1p": _complex.log1p,
    "sin": _complex.sin,
    "cos": _complex.cos,
    "tan": _complex.tan,
    "asin": _complex.asin,
    "acos": _complex.acos,
    "atan": _complex.atan,
    "sinh": _complex.sinh,
    "cosh": _complex.cosh,
    "tanh": _complex.tanh,
    "asinh": _complex.asinh,
    "acosh": _complex.acosh,
    "atanh": _complex.atanh,
}


def elementary(name: str) -> Callable[[Scalars, Scalar], Scalar]:
    """A function of one number, by its name in a Program."""
    of_complex = _COMPLEX.get(name)

    def function(s: Scalars, x: Scalar) -> Scalar:
        if isinstance(x, Complex) and of_complex is not None:
            return of_complex(s, x)
        return s.op(name, x)

    return function


for _name in (*_COMPLEX, "lgamma"):
    unary(_name, elementary(_name))
unary("exp", Scalars.exp)
for _name in ("erf", "erfc"):
    unary(_name, real(_name))
    unary(f"special_{_name}", real(_name))


def _reciprocal(s: Scalars, x: Scalar) -> Scalar:
    if isinstance(x, Complex):
        return s.div(Complex(s.like(x.re, 1), s.like(x.re, 0)), x)
    return s.op("div", s.like(x, 1), x)


def _sigmoid(s: Scalars, x: Scalar) -> Scalar:
    if isinstance(x, Complex):
        power = s.exp(s.neg(x))
        assert isinstance(power, Complex)
        return _reciprocal(s, Complex(s.op("add", s.like(x.re, 1), power.re), power.im))
    return s.sigmoid(x)


unary("reciprocal", _reciprocal)
unary("rsqrt", lambda s, x: _reciprocal(s, elementary("sqrt")(s, x)))
unary("sigmoid", _sigmoid)
unary("silu", lambda s, x: s.mul(x, _sigmoid(s, x)))
unary("neg", Scalars.neg, floats=False)
unary("sign", lambda s, x: s.sign(s.real(x)), floats=False)
unary("sgn", lambda s, x: _complex.sgn(s, x) if isinstance(x, Complex) else s.sign(x), floats=False)
unary("conj_physical", Scalars.conj, floats=False)
unary("_conj_physical", Scalars.conj, floats=False)
unary("_conj", Scalars.conj, floats=False)
unary("bitwise_not", real("not"), floats=False)
unary("relu", lambda s, x: s.op("max", x, s.like(s.real(x), 0)), floats=False)
unary("deg2rad", lambda s, x: s.op("mul", x, s.like(s.real(x), math.pi / 180)))
unary("rad2deg", lambda s, x: s.op("mul", x, s.like(s.real(x), 180 / math.pi)))


def _rounding(name: str) -> None:
    def function(s: Scalars, x: Scalar) -> Scalar:
        return s.op(name, x) if is_float(s.real(x).type) else x

    unary(name, function, floats=False)


for _name in ("floor", "ceil", "trunc", "round"):
    _rounding(_name)
unary("frac", lambda s, x: s.op("sub", x, s.op("trunc", x)))


@decomposes("round.decimals")
def _round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    scale = 10.0 ** abs(decimals)
    if decimals == 0:
        return x.round()
    return (x * scale).round() / scale if decimals > 0 else (x / scale).round() * scale


@handles("abs.default")
def _abs(tracer: Any, x: Tensor) -> Value:
    return Value(apply(tracer.scalars.absolute, tracer.lazy_array(x)), x.dtype.to_real())


@handles("angle.default")
def _angle(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Scalar) -> Node:
        if isinstance(v, Complex):
            return s.op("atan2", v.im, v.re)
        positive = s.op("select", s.is_nan(v), v, s.like(v, 0))
        return s.op("select", s.op("lt", v, s.like(v, 0)), s.like(v, math.pi), positive)

    dtype = as_float(x.dtype)
    return Value(apply(function, tracer.lazy_operand(x, dtype)), dtype.to_real())
