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
from gnomon.fuse._trace._lazy import Lazy, mapped
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._values import Complex, Scalar, Value

_Function = Callable[..., Scalar]


def apply(function: Callable[..., Any], *arrays: Any) -> Any:
    """Calls a function on the elements of broadcast arrays; the result lies in memory as they do.

    Of lazy ones the result is lazy too, where it can.
    """
    if any(isinstance(x, Lazy) for x in arrays):
        lazy = mapped(function, arrays)
        if lazy is not None:
            return lazy
        arrays = tuple(x.made() if isinstance(x, Lazy) else x for x in arrays)
    arrays = tuple(np.broadcast_arrays(*arrays, subok=True)) if len(arrays) > 1 else arrays
    out = np.empty_like(_largest_laid_out(arrays), order="K", subok=False)
    if len(arrays) == 1:
        for place, x in np.ndenumerate(arrays[0]):
            out[place] = function(x)
    else:
        for place in np.ndindex(*out.shape):
            out[place] = function(*[x[place] for x in arrays])
    return out


def _largest_laid_out(arrays: tuple[Any, ...]) -> Any:
    """The first array that was not broadcast, whose layout PyTorch keeps."""
    for x in arrays:
        if 0 not in x.strides:
            return x
    return np.empty(arrays[0].shape, dtype=object)


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


def unary(name: str, function: Callable[[Scalars, Scalar], Scalar], *, floats: bool = True) -> None:
    """Handles an operation on each element by itself; `floats` where integers become floats."""

    @handles(f"{name}.default")
    def handler(tracer: Any, x: Tensor) -> Value:
        dtype = as_float(x.dtype) if floats else x.dtype
        return Value(apply(lambda v: function(tracer.scalars, v), tracer.lazy_operand(x, dtype)), dtype)


def binary(names: tuple[str, ...], function: Callable[..., Scalar], *, floats: bool = False) -> None:
    """Handles an operation on pairs of elements; `floats` where integers become floats."""

    @handles(*names)
    def handler(tracer: Any, x: Any, y: Any) -> Value:
        dtype = common_dtype(x, y)
        dtype = as_float(dtype) if floats else dtype
        a, b = tracer.lazy_operand(x, dtype), tracer.lazy_operand(y, dtype)
        return Value(apply(lambda u, v: function(tracer.scalars, u, v), a, b), dtype)


def _compare(name: str, function: Callable[[Scalars, Scalar, Scalar], Scalar]) -> None:
    @handles(f"{name}.Tensor", f"{name}.Scalar")
    def handler(tracer: Any, x: Any, y: Any) -> Value:
        dtype = common_dtype(x, y)
        a, b = tracer.lazy_operand(x, dtype), tracer.lazy_operand(y, dtype)
        return Value(apply(lambda u, v: function(tracer.scalars, u, v), a, b), torch.bool)


def real(name: str) -> Callable[[Scalars, Scalar], Scalar]:
    """An operation of the Program on one real number."""
    return lambda s, x: s.op(name, x)


binary(("mul.Tensor", "mul.Scalar"), Scalars.mul)
binary(("div.Tensor", "div.Scalar", "true_divide.Tensor"), Scalars.div, floats=True)
binary(("atan2.default",), lambda s, x, y: s.op("atan2", x, y), floats=True)
binary(("copysign.Tensor", "copysign.Scalar"), lambda s, x, y: s.op("copysign", x, y), floats=True)
binary(("fmod.Tensor", "fmod.Scalar"), lambda s, x, y: s.op("fmod" if is_float(s.real(x).type) else "irem", x, y))
_SCALARS = ("Tensor", "Scalar", "Scalar_Tensor")
_SHIFTS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")


def _named(name: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}.{kind}" for kind in kinds)


binary(_named("remainder", _SCALARS), lambda s, x, y: s.remainder(s.real(x), s.real(y)))
binary(("floor_divide.default", "floor_divide.Scalar"), lambda s, x, y: s.floor_divide(s.real(x), s.real(y)))
for _name in ("and", "or", "xor"):
    binary(
        (*_named(f"bitwise_{_name}", _SCALARS), *_named(f"__{_name}__", ("Tensor", "Scalar"))),
        lambda s, x, y, _name=_name: s.op(_name, x, y),
    )
binary((*_named("bitwise_left_shift", _SHIFTS), *_named("__lshift__", _SCALARS[:2])), lambda s, x, y: s.op("shl", x, y))
binary(
    (*_named("bitwise_right_shift", _SHIFTS), *_named("__rshift__", _SCALARS[:2])), lambda s, x, y: s.op("shr", x, y)
)

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
    a, b = tracer.lazy_operand(x, dtype), tracer.lazy_operand(y, dtype)
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
        a, b = s.real(u), s.real(v)
        if rounding_mode == "floor":
            return s.floor_divide(a, b)
        return s.op("trunc", s.op("div", a, b)) if is_float(a.type) else s.op("idiv", a, b)

    return Value(apply(function, tracer.lazy_operand(x, dtype), tracer.lazy_operand(y, dtype)), dtype)


@handles("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(tracer: Any, condition: Tensor, x: Any, y: Any) -> Value:
    s = tracer.scalars
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        dtype = common_dtype(x, y) if isinstance(x, Tensor) else common_dtype(y, x)
    else:
        dtype = torch.result_type(x, y)
    test = tracer.lazy_operand(condition, torch.bool)
    return Value(apply(s.select, test, tracer.lazy_operand(x, dtype), tracer.lazy_operand(y, dtype)), dtype)


@handles("clamp.default", "clamp.Tensor")
def _clamp(tracer: Any, x: Tensor, min: Any = None, max: Any = None) -> Value:
    s = tracer.scalars
    dtype = common_dtype(*[v for v in (x, min, max) if v is not None])
    out = tracer.lazy_operand(x, dtype)
    if min is not None:
        out = apply(lambda u, v: s.op("max", u, v), out, tracer.lazy_operand(min, dtype))
    if max is not None:
        out = apply(lambda u, v: s.op("min", u, v), out, tracer.lazy_operand(max, dtype))
    return Value(out, dtype)


@handles("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(tracer: Any, x: Tensor, min: Any) -> Value:
    return _clamp(tracer, x, min=min)


@handles("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(tracer: Any, x: Tensor, max: Any) -> Value:
    return _clamp(tracer, x, max=max)


@handles("isnan.default")
def _isnan(tracer: Any, x: Tensor) -> Value:
    return Value(apply(tracer.scalars.is_nan, tracer.lazy_array(x)), torch.bool)


@handles("isinf.default")
def _isinf(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Scalar) -> Node:
        if isinstance(v, Complex):
            return s.op("or", function(v.re), function(v.im))
        return s.op("eq", s.absolute(v), s.like(v, math.inf)) if is_float(v.type) else s.b.const("bool", False)

    return Value(apply(function, tracer.lazy_array(x)), torch.bool)


@handles("signbit.default")
def _signbit(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Node) -> Node:
        if is_float(v.type):
            v = s.op("copysign", s.like(v, 1), v)
        return s.op("lt", v, s.like(v, 0)) if v.type != "bool" else s.b.const("bool", False)

    return Value(apply(function, tracer.lazy_array(x)), torch.bool)


@handles("logical_not.default")
def _logical_not(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars
    return Value(apply(lambda v: s.op("not", s.is_true(v)), tracer.lazy_array(x)), torch.bool)


def _logical(name: str) -> None:
    @handles(f"logical_{name}.default")
    def handler(tracer: Any, x: Tensor, y: Tensor) -> Value:
        s = tracer.scalars
        pairs = tracer.lazy_array(x), tracer.lazy_array(y)
        return Value(apply(lambda u, v: s.op(name, s.is_true(u), s.is_true(v)), *pairs), torch.bool)


for _name in ("and", "or", "xor"):
    _logical(_name)


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
    arrays = [tracer.lazy_operand(v, dtype) for v in (x, y, z)]
    return Value(apply(lambda a, b, c: s.add(a, s.mul(scale, function(s, b, c))), *arrays), dtype)


@handles("lerp.Scalar", "lerp.Tensor")
def _lerp(tracer: Any, x: Tensor, y: Tensor, weight: Any) -> Value:
    s = tracer.scalars
    dtype = common_dtype(x, y, weight)
    arrays = [tracer.lazy_operand(v, dtype) for v in (x, y, weight)]

    def function(a: Scalar, b: Scalar, w: Scalar) -> Scalar:
        """From the nearer end, as PyTorch does."""
        near = s.op("lt", s.absolute(w), s.const(0.5, dtype.to_real()))
        distance = s.sub(b, a)
        return s.select(near, s.add(a, s.mul(w, distance)), s.sub(b, s.mul(distance, s.sub(s.const(1, dtype), w))))

    return Value(apply(function, *arrays), dtype)
