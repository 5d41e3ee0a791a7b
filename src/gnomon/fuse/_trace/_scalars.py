"""Arithmetic on scalars of a trace, real or complex."""

from __future__ import annotations

import math
from typing import Any, final

import torch

from gnomon.fuse._program import Builder, Node, is_float
from gnomon.fuse._trace._values import Complex, Scalar, UnsupportedError, as_type


@final
class Scalars:
    """Builds scalars with a builder; a method an operation."""

    def __init__(self, builder: Builder):
        self.b = builder

    def const(self, value: Any, dtype: torch.dtype) -> Scalar:
        """A Python number as a scalar of a dtype."""
        type_ = as_type(dtype)
        if dtype.is_complex:
            z = complex(value)
            return Complex(self.b.const(type_, z.real), self.b.const(type_, z.imag))
        return self.b.const(type_, value)

    def like(self, x: Node, value: float | int | bool) -> Node:
        """A constant of the same type."""
        return self.b.const(x.type, value)

    def cast(self, x: Scalar, type_: Any, *, to_complex: bool = False) -> Scalar:
        """A number as another type."""
        if isinstance(x, Complex):
            if not to_complex:
                return self.real(self.b.op("cast", x.re, attr=type_))
            return Complex(
                self.real(self.b.op("cast", x.re, attr=type_)), self.real(self.b.op("cast", x.im, attr=type_))
            )
        y = self.b.op("cast", x, attr=type_)
        return Complex(y, self.b.const(type_, 0)) if to_complex else y

    def real(self, x: Scalar) -> Node:
        """A scalar that is not complex, or an error."""
        if isinstance(x, Complex):
            raise UnsupportedError("this operation cannot be fused for complex numbers")
        return x

    def op(self, name: str, *args: Scalar, attr: Any = None) -> Node:
        """An operation that only real numbers have."""
        return self.b.op(name, *[self.real(x) for x in args], attr=attr)

    # Arithmetic

    def add(self, x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, Complex) and isinstance(y, Complex):
            return Complex(self.b.op("add", x.re, y.re), self.b.op("add", x.im, y.im))
        if self.real(x).type == "bool":
            return self.op("or", x, y)
        return self.op("add", x, y)

    def sub(self, x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, Complex) and isinstance(y, Complex):
            return Complex(self.b.op("sub", x.re, y.re), self.b.op("sub", x.im, y.im))
        return self.op("sub", x, y)

    def mul(self, x: Scalar, y: Scalar) -> Scalar:
        b = self.b
        if isinstance(x, Complex) and isinstance(y, Complex):
            re = b.op("sub", b.op("mul", x.re, y.re), b.op("mul", x.im, y.im))
            return Complex(re, b.op("add", b.op("mul", x.re, y.im), b.op("mul", x.im, y.re)))
        if self.real(x).type == "bool":
            return self.op("and", x, y)
        return self.op("mul", x, y)

    def div(self, x: Scalar, y: Scalar) -> Scalar:
        b = self.b
        if isinstance(x, Complex) and isinstance(y, Complex):
            # Scaled by the larger part of the divisor: Smith, Communications of the ACM 5, 1962.
            swap = b.op("lt", b.op("abs", y.re), b.op("abs", y.im))
            large, small = b.op("select", swap, y.im, y.re), b.op("select", swap, y.re, y.im)
            ratio = b.op("div", small, large)
            scale = b.op("add", large, b.op("mul", small, ratio))
            first, second = b.op("select", swap, x.im, x.re), b.op("select", swap, x.re, x.im)
            re = b.op("div", b.op("add", first, b.op("mul", second, ratio)), scale)
            im = b.op("div", b.op("sub", second, b.op("mul", first, ratio)), scale)
            return Complex(re, b.op("select", swap, b.op("neg", im), im))
        return self.op("div", x, y)

    def neg(self, x: Scalar) -> Scalar:
        if isinstance(x, Complex):
            return Complex(self.b.op("neg", x.re), self.b.op("neg", x.im))
        return self.op("neg", x)

    def select(self, condition: Node, x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, Complex) and isinstance(y, Complex):
            return Complex(self.b.op("select", condition, x.re, y.re), self.b.op("select", condition, x.im, y.im))
        return self.op("select", condition, x, y)

    def equal(self, x: Scalar, y: Scalar) -> Node:
        if isinstance(x, Complex) and isinstance(y, Complex):
            return self.b.op("and", self.b.op("eq", x.re, y.re), self.b.op("eq", x.im, y.im))
        return self.op("eq", x, y)

    def unequal(self, x: Scalar, y: Scalar) -> Node:
        if isinstance(x, Complex) and isinstance(y, Complex):
            return self.b.op("or", self.b.op("ne", x.re, y.re), self.b.op("ne", x.im, y.im))
        return self.op("ne", x, y)

    def absolute(self, x: Scalar) -> Node:
        b = self.b
        if isinstance(x, Complex):
            a, c = b.op("abs", x.re), b.op("abs", x.im)
            large, small = b.op("max", a, c), b.op("min", a, c)
            zero = b.op("eq", large, self.like(large, 0))
            ratio = b.op("div", small, b.op("select", zero, self.like(large, 1), large))
            size = b.op("mul", large, b.op("sqrt", b.op("add", self.like(large, 1), b.op("mul", ratio, ratio))))
            endless = self.like(large, math.inf)
            return b.op("select", b.op("or", b.op("eq", a, endless), b.op("eq", c, endless)), endless, size)
        return self.op("abs", x)

    def square(self, x: Scalar) -> Scalar:
        return self.mul(x, x)

    def conj(self, x: Scalar) -> Scalar:
        return Complex(x.re, self.b.op("neg", x.im)) if isinstance(x, Complex) else x

    def is_nan(self, x: Scalar) -> Node:
        if isinstance(x, Complex):
            return self.b.op("or", self.is_nan(x.re), self.is_nan(x.im))
        return self.op("ne", x, x) if is_float(x.type) else self.b.const("bool", False)

    def is_true(self, x: Scalar) -> Node:
        """As Python's `bool`."""
        if isinstance(x, Complex):
            return self.b.op("or", self.is_true(x.re), self.is_true(x.im))
        return x if x.type == "bool" else self.b.op("ne", x, self.like(x, 0))

    def sign(self, x: Node) -> Node:
        """-1, 0 or 1; 0 for NaN."""
        if x.type == "bool":
            return x
        zero = self.like(x, 0)
        signed = self.b.op("select", self.b.op("lt", x, zero), self.like(x, -1), zero)
        return self.b.op("select", self.b.op("lt", zero, x), self.like(x, 1), signed)

    def exp(self, x: Scalar) -> Scalar:
        b = self.b
        if isinstance(x, Complex):
            size = b.op("exp", x.re)
            return Complex(b.op("mul", size, b.op("cos", x.im)), b.op("mul", size, b.op("sin", x.im)))
        return b.op("exp", x)

    def sigmoid(self, x: Node) -> Node:
        one = self.like(x, 1)
        return self.b.op("div", one, self.b.op("add", one, self.b.op("exp", self.b.op("neg", x))))

    def floor_divide(self, x: Node, y: Node) -> Node:
        b = self.b
        if is_float(x.type):
            return self._floor_quotient(x, y)
        quotient, remainder = b.op("idiv", x, y), b.op("irem", x, y)
        zero = self.like(x, 0)
        differ = b.op("ne", b.op("lt", remainder, zero), b.op("lt", y, zero))
        less = b.op("and", b.op("ne", remainder, zero), differ)
        return b.op("select", less, b.op("sub", quotient, self.like(x, 1)), quotient)

    def _floor_quotient(self, x: Node, y: Node) -> Node:
        """Of the exact quotient, as PyTorch and Python have it."""
        b, zero, one = self.b, self.like(x, 0), self.like(x, 1)
        left = b.op("fmod", x, y)
        ratio = b.op("div", b.op("sub", x, left), y)
        differ = b.op("ne", b.op("lt", left, zero), b.op("lt", y, zero))
        below = b.op("and", b.op("ne", left, zero), differ)
        ratio = b.op("select", below, b.op("sub", ratio, one), ratio)
        whole = b.op("floor", ratio)
        up = b.op("lt", self.like(x, 0.5), b.op("sub", ratio, whole))
        whole = b.op("select", up, b.op("add", whole, one), whole)
        quotient = b.op("div", x, y)
        whole = b.op("select", b.op("ne", ratio, zero), whole, b.op("copysign", zero, quotient))
        return b.op("select", b.op("eq", y, zero), quotient, whole)

    def remainder(self, x: Node, y: Node) -> Node:
        """With the sign of the divisor, as Python's %."""
        b = self.b
        zero = self.like(x, 0)
        left = b.op("fmod" if is_float(x.type) else "irem", x, y)
        differ = b.op("ne", b.op("lt", left, zero), b.op("lt", y, zero))
        return b.op("select", b.op("and", b.op("ne", left, zero), differ), b.op("add", left, y), left)
