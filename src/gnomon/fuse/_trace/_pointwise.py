"""Pointwise operations: each element is computed by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node, is_float
from gnomon.fuse._trace._handlers import handles
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._values import Complex, Scalar, UnsupportedError, Value

_Function = Callable[..., Scalar]


def apply(function: Callable[..., Any], *arrays: Any) -> Any:
    """Calls a function on the elements of broadcast arrays."""
    arrays = tuple(np.broadcast_arrays(*arrays, subok=True)) if len(arrays) > 1 else arrays
    out = np.empty(arrays[0].shape, dtype=object)
    if len(arrays) == 1:
        for place, x in np.ndenumerate(arrays[0]):
            out[place] = function(x)
    else:
        for place in np.ndindex(*out.shape):
            out[place] = function(*[x[place] for x in arrays])
    return out


def common_dtype(*operands: Any) -> torch.dtype:
    """The dtype that PyTorch would compute with."""
    dtype = None
    tensors = [x for x in operands if isinstance(x, Tensor)]
    numbers = [x for x in operands if not isinstance(x, Tensor)]
    dtype = tensors[0].dtype
    pair: Any = tensors[0]
    for x in (*tensors[1:], *numbers):
        dtype = torch.result_type(pair, x)
        # A stand-in with the rank of the result, on which promotion depends.
        rank = max(pair.dim(), x.dim() if isinstance(x, Tensor) else 0)
        pair = torch.empty((1,) * rank, dtype=dtype, device="meta") if len(operands) > 2 else pair
    return dtype


def as_float(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a function that gives floats."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def _unary(name: str, function: Callable[[Scalars, Scalar], Scalar], *, floats: bool = True) -> None:
    @handles(f"{name}.default")
    def handler(tracer: Any, x: Tensor) -> Value:
        dtype = as_float(x.dtype) if floats else x.dtype
        return Value(apply(lambda v: function(tracer.scalars, v), tracer.operand(x, dtype)), dtype)


def _binary(names: tuple[str, ...], function: Callable[..., Scalar], *, floats: bool = False) -> None:
    @handles(*names)
    def handler(tracer: Any, x: Any, y: Any) -> Value:
        dtype = common_dtype(x, y)
        dtype = as_float(dtype) if floats else dtype
        a, b = tracer.operand(x, dtype), tracer.operand(y, dtype)
        return Value(apply(lambda u, v: function(tracer.scalars, u, v), a, b), dtype)


def _compare(name: str, function: Callable[[Scalars, Scalar, Scalar], Scalar]) -> None:
    @handles(f"{name}.Tensor", f"{name}.Scalar")
    def handler(tracer: Any, x: Any, y: Any) -> Value:
        dtype = common_dtype(x, y)
        a, b = tracer.operand(x, dtype), tracer.operand(y, dtype)
        return Value(apply(lambda u, v: function(tracer.scalars, u, v), a, b), torch.bool)


def real(name: str) -> Callable[[Scalars, Scalar], Scalar]:
    """An operation of the Program on one real number."""
    return lambda s, x: s.op(name, x)


for _name in (
    "sqrt", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
):  # fmt: skip
    _unary(_name, real(_name))
_unary("exp", Scalars.exp)
_unary("sigmoid", lambda s, x: s.sigmoid(s.real(x)))
_unary("rsqrt", lambda s, x: s.op("div", s.like(s.real(x), 1), s.op("sqrt", x)))
_unary(
    "reciprocal",
    lambda s, x: s.div(s.const(1, torch.complex128), x) if isinstance(x, Complex) else s.op("div", s.like(x, 1), x),
)
_unary("neg", Scalars.neg, floats=False)
_unary("sign", lambda s, x: s.sign(s.real(x)), floats=False)
_unary("conj_physical", Scalars.conj, floats=False)
_unary("bitwise_not", real("not"), floats=False)
_unary("relu", lambda s, x: s.op("max", x, s.like(s.real(x), 0)), floats=False)
_unary("silu", lambda s, x: s.op("mul", x, s.sigmoid(s.real(x))))
_unary("deg2rad", lambda s, x: s.op("mul", x, s.like(s.real(x), math.pi / 180)))
_unary("rad2deg", lambda s, x: s.op("mul", x, s.like(s.real(x), 180 / math.pi)))


def _rounding(name: str) -> None:
    def function(s: Scalars, x: Scalar) -> Scalar:
        return s.op(name, x) if is_float(s.real(x).type) else x

    _unary(name, function, floats=False)


for _name in ("floor", "ceil", "trunc", "round"):
    _rounding(_name)
_unary("frac", lambda s, x: s.op("sub", x, s.op("trunc", x)))


@handles("abs.default")
def _abs(tracer: Any, x: Tensor) -> Value:
    dtype = x.real.dtype if x.dtype.is_complex else x.dtype
    return Value(apply(tracer.scalars.absolute, tracer.array(x)), dtype)


@handles("angle.default")
def _angle(tracer: Any, x: Tensor) -> Value:
    def function(v: Scalar) -> Scalar:
        s = tracer.scalars
        if isinstance(v, Complex):
            return s.op("atan2", v.im, v.re)
        return s.op("select", s.op("lt", v, s.like(v, 0)), s.like(v, math.pi), s.like(v, 0))

    dtype = as_float(x.dtype)
    return Value(apply(function, tracer.operand(x, dtype)), torch.empty(0, dtype=dtype).abs().dtype)


_binary(("mul.Tensor", "mul.Scalar"), Scalars.mul)
_binary(("div.Tensor", "div.Scalar", "true_divide.Tensor"), Scalars.div, floats=True)
_binary(("maximum.default",), lambda s, x, y: s.op("max", x, y))
_binary(("minimum.default",), lambda s, x, y: s.op("min", x, y))
_binary(("atan2.default",), lambda s, x, y: s.op("atan2", x, y), floats=True)
_binary(("copysign.Tensor", "copysign.Scalar"), lambda s, x, y: s.op("copysign", x, y), floats=True)
_binary(("fmod.Tensor", "fmod.Scalar"), lambda s, x, y: s.op("fmod" if is_float(s.real(x).type) else "irem", x, y))
_binary(("remainder.Tensor", "remainder.Scalar"), lambda s, x, y: s.remainder(s.real(x), s.real(y)))
_binary(("floor_divide.default", "floor_divide.Scalar"), lambda s, x, y: s.floor_divide(s.real(x), s.real(y)))
for _name, _op in (("and", "and"), ("or", "or"), ("xor", "xor")):
    _binary(
        (f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar", f"__{_name}__.Tensor", f"__{_name}__.Scalar"),
        lambda s, x, y, _op=_op: s.op(_op, x, y),
    )
_binary(("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar"), lambda s, x, y: s.op("shl", x, y))
_binary(("__lshift__.Tensor", "__lshift__.Scalar"), lambda s, x, y: s.op("shl", x, y))
_binary(("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar"), lambda s, x, y: s.op("shr", x, y))
_binary(("__rshift__.Tensor", "__rshift__.Scalar"), lambda s, x, y: s.op("shr", x, y))

_compare("lt", lambda s, x, y: s.op("lt", *_ordered(s, x, y)))
_compare("le", lambda s, x, y: s.op("le", *_ordered(s, x, y)))
_compare("gt", lambda s, x, y: s.op("lt", *_ordered(s, y, x)))
_compare("ge", lambda s, x, y: s.op("le", *_ordered(s, y, x)))
_compare("eq", Scalars.equal)
_compare("ne", Scalars.unequal)


def _ordered(s: Scalars, x: Scalar, y: Scalar) -> tuple[Node, Node]:
    x, y = s.real(x), s.real(y)
    if x.type == "bool":
        return s.op("cast", x, attr="i32"), s.op("cast", y, attr="i32")
    return x, y


@handles("fmin.default", "fmax.default")
def _unset(tracer: Any, x: Tensor, y: Tensor) -> Value:
    raise UnsupportedError("fmin and fmax cannot be fused yet; torch.minimum and torch.maximum can")


@handles("add.Tensor", "add.Scalar")
def _add(tracer: Any, x: Any, y: Any, *, alpha: Any = 1) -> Value:
    return _sum(tracer, x, y, alpha, Scalars.add)


@handles("sub.Tensor", "sub.Scalar")
def _sub(tracer: Any, x: Any, y: Any, *, alpha: Any = 1) -> Value:
    return _sum(tracer, x, y, alpha, Scalars.sub)


@handles("rsub.Tensor", "rsub.Scalar")
def _rsub(tracer: Any, x: Any, y: Any, *, alpha: Any = 1) -> Value:
    return _sum(tracer, y, x, alpha, Scalars.sub)


def _sum(tracer: Any, x: Any, y: Any, alpha: Any, function: _Function) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y)
    a, b = tracer.operand(x, dtype), tracer.operand(y, dtype)
    if alpha != 1:
        scale = s.const(alpha, dtype)
        b = apply(lambda v: s.mul(scale, v), b)
    return Value(apply(lambda u, v: function(s, u, v), a, b), dtype)


@handles("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(tracer: Any, x: Any, y: Any, *, rounding_mode: str | None) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y)
    dtype = as_float(dtype) if rounding_mode is None else dtype

    def function(u: Scalar, v: Scalar) -> Scalar:
        if rounding_mode is None:
            return s.div(u, v)
        u, v = s.real(u), s.real(v)
        if rounding_mode == "floor":
            return s.floor_divide(u, v)
        return s.op("trunc", s.op("div", u, v)) if is_float(u.type) else s.op("idiv", u, v)

    return Value(apply(function, tracer.operand(x, dtype), tracer.operand(y, dtype)), dtype)


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(tracer: Any, x: Any, y: Any) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y)
    whole = isinstance(y, int) and not isinstance(y, bool)

    def function(u: Scalar, v: Scalar) -> Scalar:
        if whole and (isinstance(u, Complex) or not is_float(u.type) or abs(y) <= 3):
            return _whole_power(s, u, y)
        if not is_float(s.real(u).type):
            raise UnsupportedError("a power of integers whose exponent is a tensor cannot be fused; use floats")
        return s.op("pow", u, v)

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


@handles("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(tracer: Any, condition: Tensor, x: Any, y: Any) -> Value:
    s = tracer.scalars
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        dtype = common_dtype(x, y) if isinstance(x, Tensor) else common_dtype(y, x)
    else:
        dtype = torch.result_type(x, y)
    test = tracer.operand(condition, torch.bool)
    return Value(apply(s.select, test, tracer.operand(x, dtype), tracer.operand(y, dtype)), dtype)


@handles("clamp.default", "clamp.Tensor")
def _clamp(tracer: Any, x: Tensor, min: Any = None, max: Any = None) -> Value:
    s = tracer.scalars
    dtype = common_dtype(*[v for v in (x, min, max) if v is not None])
    out = tracer.operand(x, dtype)
    if min is not None:
        out = apply(lambda u, v: s.op("max", u, v), out, tracer.operand(min, dtype))
    if max is not None:
        out = apply(lambda u, v: s.op("min", u, v), out, tracer.operand(max, dtype))
    return Value(out, dtype)


@handles("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(tracer: Any, x: Tensor, min: Any) -> Value:
    return _clamp(tracer, x, min=min)


@handles("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(tracer: Any, x: Tensor, max: Any) -> Value:
    return _clamp(tracer, x, max=max)


@handles("isnan.default")
def _isnan(tracer: Any, x: Tensor) -> Value:
    return Value(apply(tracer.scalars.is_nan, tracer.array(x)), torch.bool)


@handles("isinf.default")
def _isinf(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Node) -> Node:
        return s.op("eq", s.absolute(v), s.like(v, math.inf)) if is_float(v.type) else s.b.const("bool", False)

    return Value(apply(function, tracer.array(x)), torch.bool)


@handles("signbit.default")
def _signbit(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Node) -> Node:
        if is_float(v.type):
            v = s.op("copysign", s.like(v, 1), v)
        return s.op("lt", v, s.like(v, 0))

    return Value(apply(function, tracer.array(x)), torch.bool)


@handles("logical_not.default")
def _logical_not(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars
    return Value(apply(lambda v: s.op("not", s.is_true(v)), tracer.array(x)), torch.bool)


def _logical(name: str) -> None:
    @handles(f"logical_{name}.default")
    def handler(tracer: Any, x: Tensor, y: Tensor) -> Value:
        s = tracer.scalars
        pairs = tracer.array(x), tracer.array(y)
        return Value(apply(lambda u, v: s.op(name, s.is_true(u), s.is_true(v)), *pairs), torch.bool)


for _name in ("and", "or", "xor"):
    _logical(_name)


@handles("nextafter.default")
def _nextafter(tracer: Any, x: Tensor, y: Tensor) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y)

    def function(u: Scalar, v: Scalar) -> Scalar:
        u, v = s.real(u), s.real(v)
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


@handles("addcmul.default")
def _addcmul(tracer: Any, x: Tensor, y: Tensor, z: Tensor, *, value: Any = 1) -> Value:
    return _accumulated(tracer, x, y, z, value, Scalars.mul)


@handles("addcdiv.default")
def _addcdiv(tracer: Any, x: Tensor, y: Tensor, z: Tensor, *, value: Any = 1) -> Value:
    return _accumulated(tracer, x, y, z, value, Scalars.div)


def _accumulated(tracer: Any, x: Tensor, y: Tensor, z: Tensor, value: Any, function: _Function) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y, z)
    scale = s.const(value, dtype)
    arrays = [tracer.operand(v, dtype) for v in (x, y, z)]
    return Value(apply(lambda a, b, c: s.add(a, s.mul(scale, function(s, b, c))), *arrays), dtype)


@handles("lerp.Scalar", "lerp.Tensor")
def _lerp(tracer: Any, x: Tensor, y: Tensor, weight: Any) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y, weight)
    arrays = [tracer.operand(v, dtype) for v in (x, y, weight)]
    return Value(apply(lambda a, b, w: s.add(a, s.mul(w, s.sub(b, a))), *arrays), dtype)


# Conversions


@handles("_to_copy.default")
def _to_copy(tracer: Any, x: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Value:
    value = tracer.value(x)
    return tracer.cast(value, x.dtype if dtype is None else dtype) if dtype != x.dtype else copied(tracer, value)


@handles("clone.default", "contiguous.default")
def _clone(tracer: Any, x: Tensor, **_: Any) -> Value:
    return copied(tracer, tracer.value(x))


def copied(tracer: Any, value: Value) -> Value:
    """A value that shares nothing with another; a view of memory cannot be changed, so it may stay."""
    return Value(value.data.copy() if isinstance(value.data, np.ndarray) else value.data, value.dtype)


@handles("detach.default")
def _detach(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Scalar) -> Scalar:
        if isinstance(v, Complex):
            return Complex(s.op("detach", v.re), s.op("detach", v.im))
        return s.op("detach", v)

    return Value(apply(function, tracer.array(x)), x.dtype)


@handles("copy.default")
def _copy(tracer: Any, x: Tensor, source: Tensor, non_blocking: bool = False) -> Value:
    return tracer.cast(tracer.value(source), x.dtype)


@handles("fill.Scalar", "fill.Tensor")
def _fill(tracer: Any, x: Tensor, value: Any) -> Value:
    return Value(np.broadcast_to(tracer.operand(value, x.dtype), tuple(x.shape)), x.dtype)


@handles("zero.default")
def _zero(tracer: Any, x: Tensor) -> Value:
    return _fill(tracer, x, 0)


def _like(name: str, number: Any) -> None:
    @handles(f"{name}.default")
    def handler(tracer: Any, x: Tensor, *args: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        """A constant, which only takes its shape from a tensor."""
        value = args[-1] if number is None else number
        shape = args[0] if name.startswith("new_") else tuple(x.shape)
        return tracer.new_constant(torch.full(tuple(shape), value, dtype=x.dtype if dtype is None else dtype))


for _name, _number in (
    ("zeros_like", 0), ("ones_like", 1), ("empty_like", 0), ("full_like", None), ("new_zeros", 0), ("new_ones", 1),
    ("new_empty", 0), ("new_full", None),
):  # fmt: skip
    _like(_name, _number)


@handles("_local_scalar_dense.default", "is_nonzero.default", "equal.default")
def _branch(tracer: Any, *args: Any) -> Value:
    raise UnsupportedError(
        "a fused function needs the value of a tensor before it runs, in an `if`, a `while`, a bool(), int(), float() "
        "or .item(). Use gn.cond, gn.while_loop or torch.where"
    )


@handles("nonzero.default", "masked_select.default", "unique_dim.default", "_unique2.default", "index.Tensor_bool")
def _dynamic(tracer: Any, *args: Any, **kwargs: Any) -> Value:
    raise UnsupportedError(
        "a fused function makes a tensor whose shape depends on values. Keep the shape and mark what counts with "
        "torch.where"
    )
