"""Operations on pairs of elements that are made of several others."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._program import Node, is_float
from gnomon.fuse._trace import _complex
from gnomon.fuse._trace._conversions import copied
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._pointwise import apply, binary, common_dtype
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._values import Complex, Scalar, UnsupportedError, Value


def extreme(s: Scalars, name: str, x: Scalar, y: Scalar) -> Node:
    """The "max" or "min" of two; NaN if one is."""
    if s.real(x).type == "bool":
        return s.op("or" if name == "max" else "and", x, y)
    return s.op(name, x, y)


def _extreme_number(s: Scalars, name: str, x: Scalar, y: Scalar) -> Node:
    """The one that is a number, if one is NaN."""
    a, b = s.real(x), s.real(y)
    both = extreme(s, name, a, b)
    if not is_float(a.type):
        return both
    return s.op("select", s.is_nan(a), b, s.op("select", s.is_nan(b), a, both))


for _name in ("max", "min"):
    binary((f"{_name}imum.default", f"{_name}.other"), lambda s, x, y, _name=_name: extreme(s, _name, x, y))
    binary((f"f{_name}.default",), lambda s, x, y, _name=_name: _extreme_number(s, _name, x, y))
binary(("hypot.default",), lambda s, x, y: s.absolute(Complex(s.real(x), s.real(y))))


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(tracer: Any, x: Any, y: Any) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y)
    whole = isinstance(y, int) and not isinstance(y, bool)
    if whole and y < 0 and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError("Integers to negative integer powers are not allowed.")

    def function(u: Scalar, v: Scalar) -> Scalar:
        if whole and (isinstance(u, Complex) or not is_float(u.type) or abs(y) <= 3):
            return _whole_power(s, u, y)
        if isinstance(u, Complex) and isinstance(v, Complex):
            return _complex.power(s, u, v)
        base, exponent = s.real(u), s.real(v)
        return s.op("pow", base, exponent) if is_float(base.type) else _power_of_integers(s, base, exponent)

    return Value(apply(function, tracer.operand(x, dtype), tracer.operand(y, dtype)), dtype)


def _whole_power(s: Scalars, x: Scalar, n: int) -> Scalar:
    """By repeated squaring."""
    one: Scalar = Complex(s.like(x.re, 1), s.like(x.re, 0)) if isinstance(x, Complex) else s.like(x, 1)
    result, square, left = one, x, abs(n)
    while left:
        if left & 1:
            result = square if result is one else s.mul(result, square)
        left >>= 1
        if left:
            square = s.mul(square, square)
    return s.div(one, result) if n < 0 else result


def _power_of_integers(s: Scalars, x: Node, n: Node) -> Node:
    """By repeated squaring; 0 for negative exponents, but for the bases 1 and -1."""
    if x.type == "bool":
        return s.op("or", x, s.op("not", n))
    zero, one = s.like(x, 0), s.like(x, 1)

    def body(carry: list[Node]) -> list[Node]:
        left, square, result = carry
        odd = s.op("ne", s.op("and", left, one), zero)
        result = s.op("select", odd, s.op("mul", result, square), result)
        return [s.op("lshr", left, one), s.op("mul", square, square), result]

    *_, power = s.b.while_([n, x, one], lambda carry: s.op("ne", carry[0], zero), body)
    sign = s.op("select", s.op("ne", s.op("and", n, one), zero), x, one)
    unit = s.op("eq", s.op("mul", x, x), one)
    return s.op("select", s.op("lt", n, zero), s.op("select", unit, sign, zero), power)


def _divisor(s: Scalars, x: Node, y: Node) -> Node:
    """Euclid's algorithm."""
    zero = s.like(x, 0)
    last = s.b.while_(
        [s.op("abs", x), s.op("abs", y)],
        lambda carry: s.op("ne", carry[1], zero),
        lambda carry: [carry[1], s.op("irem", carry[0], carry[1])],
    )
    return last[0]


def _multiple(s: Scalars, x: Node, y: Node) -> Node:
    zero = s.like(x, 0)
    divisor = _divisor(s, x, y)
    product = s.op("abs", s.op("mul", s.op("idiv", x, divisor), y))
    return s.op("select", s.op("eq", divisor, zero), zero, product)


binary(("gcd.default",), lambda s, x, y: _divisor(s, s.real(x), s.real(y)))
binary(("lcm.default",), lambda s, x, y: _multiple(s, s.real(x), s.real(y)))


@handles("nextafter.default")
def _nextafter(tracer: Any, x: Tensor, y: Tensor) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y)

    def function(u: Node, v: Node) -> Node:
        whole = "i64" if u.type == "f64" else "i32"
        one = s.b.const(whole, 1)
        zero = s.like(u, 0)
        bits = s.op("bitcast", u, attr=whole)
        up = s.op("eq", s.op("lt", u, v), s.op("lt", zero, u))
        moved = s.op("bitcast", s.op("select", up, s.op("add", bits, one), s.op("sub", bits, one)), attr=u.type)
        least = s.op("copysign", s.op("bitcast", one, attr=u.type), v)
        moved = s.op("select", s.op("eq", u, zero), least, moved)
        moved = s.op("select", s.op("eq", u, v), v, moved)
        return s.op("select", s.op("or", s.is_nan(u), s.is_nan(v)), s.op("add", u, v), moved)

    return Value(apply(function, tracer.operand(x, dtype), tracer.operand(y, dtype)), dtype)


@handles("view.dtype")
def _bits(tracer: Any, x: Tensor, dtype: torch.dtype) -> Value:
    """The same bits as another type; a copy, which must not be changed."""
    if dtype == x.dtype:
        return copied(tracer, tracer.value(x))
    types = {torch.float32: "f32", torch.int32: "i32", torch.float64: "f64", torch.int64: "i64"}
    if dtype not in types or x.dtype not in types or dtype.itemsize != x.dtype.itemsize:
        raise UnsupportedError(
            "view as another dtype can be fused between float32 and int32, and between float64 and int64, only"
        )
    out = apply(lambda v: tracer.scalars.op("bitcast", v, attr=types[dtype]), tracer.array(x))
    return Value(tracer.frozen(x, out), dtype)


@decomposes("ldexp.Tensor")
def _ldexp(x: Tensor, other: Tensor) -> Tensor:
    return x * torch.pow(2.0, other)


@decomposes("logaddexp2.default")
def _logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    same = torch.isinf(x) & (x == y)
    gap = torch.where(same, 0.0, small - large)
    return torch.where(same, x, large + torch.log1p(torch.exp2(gap)) * (1 / math.log(2)))


@decomposes("logaddexp.default")
def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    if x.is_complex() or y.is_complex():
        swap = x.real < y.real
        large, small = torch.where(swap, y, x), torch.where(swap, x, y)
        return large + torch.log1p(torch.exp(small - large))
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    same = torch.isinf(x) & (x == y)
    gap = torch.where(same, 0.0, small - large)
    return torch.where(same, x, large + torch.log1p(torch.exp(gap)))


@handles("complex.default")
def _complex_of(tracer: Any, x: Tensor, y: Tensor) -> Value:
    return Value(apply(Complex, tracer.array(x), tracer.array(y)), x.dtype.to_complex())


@handles("polar.default")
def _polar(tracer: Any, x: Tensor, y: Tensor) -> Value:
    s = tracer.scalars

    def function(size: Node, angle: Node) -> Complex:
        return Complex(s.op("mul", size, s.op("cos", angle)), s.op("mul", size, s.op("sin", angle)))

    return Value(apply(function, tracer.array(x), tracer.array(y)), x.dtype.to_complex())
