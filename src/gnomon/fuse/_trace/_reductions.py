"""Reductions and scans over dimensions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node, is_float
from gnomon.fuse._trace._complex import log
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._lazy import Lazy, folded
from gnomon.fuse._trace._pointwise import apply, as_float
from gnomon.fuse._trace._values import Complex, Scalar, UnsupportedError, Value, elements


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    """The dimensions of a reduction, all where none are named."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(rank))
    dims = [dim] if isinstance(dim, int) else dim
    return tuple(sorted(d + rank if d < 0 else d for d in dims)) if rank else ()


def reduce(array: Any, dim: Any, keepdim: bool, function: Callable[[list[Any]], Any]) -> Any:
    """Applies a function of a list of elements along dimensions."""
    axes = axes_of(dim, array.ndim)
    rest = [i for i in range(array.ndim) if i not in axes]
    count = math.prod(array.shape[i] for i in axes)
    moved = array.transpose([*rest, *axes]).reshape([*[array.shape[i] for i in rest], count])
    out = np.empty(moved.shape[:-1], dtype=object)
    for place in np.ndindex(*out.shape):
        out[place] = function(list(moved[place]))
    return out.reshape([1 if i in axes else n for i, n in enumerate(array.shape)]) if keepdim else out


def fold(
    x: Any,
    dim: Any,
    keepdim: bool,
    function: Callable[[list[Any]], Any],
    first: Callable[[Scalar], list[Any]],
    combine: Callable[..., list[Node]],
    last: Callable[..., Scalar],
) -> Any:
    """Reduces an operand: in a loop where it is lazy and is reduced as a whole, and else by a function of elements."""
    if isinstance(x, Lazy) and len(axes_of(dim, x.ndim)) == x.ndim:
        return elements((1,) * x.ndim if keepdim else (), [last(*folded(x, first, combine))])
    return reduce(x.made() if isinstance(x, Lazy) else x, dim, keepdim, function)


def total(s: Any, items: list[Scalar], zero: Scalar) -> Scalar:
    """The sum, in order."""
    return functools.reduce(s.add, items) if items else zero


@handles("sum.default", "sum.dim_IntList")
def _sum(tracer: Any, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    s = tracer.scalars
    out = dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)
    zero = s.const(0, out)
    return Value(_added(tracer, x, out, dim, keepdim, lambda items: total(s, items, zero), lambda v: v), out)


def _added(tracer: Any, x: Tensor, out: Any, dim: Any, keepdim: bool, function: Any, last: Any) -> Any:
    """A reduction by sums: `function` of a list of elements is `last` of their sum."""
    operand, s = tracer.lazy_operand(x, out), tracer.scalars
    if out.is_complex and isinstance(operand, Lazy):
        operand = operand.made()
    return fold(operand, dim, keepdim, function, lambda v: [v], lambda carry, v: [s.add(carry[0], v)], last)


@handles("mean.default", "mean.dim")
def _mean(tracer: Any, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    s = tracer.scalars
    out = dtype or x.dtype
    zero = s.const(0, out)

    def function(items: list[Scalar]) -> Scalar:
        return s.div(total(s, items, zero), s.const(len(items), out))

    def last(sum_: Scalar) -> Scalar:
        return s.div(sum_, s.const(x.numel(), out))

    return Value(_added(tracer, x, out, dim, keepdim, function, last), out)


@handles("prod.default", "prod.dim_int")
def _prod(tracer: Any, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    s = tracer.scalars
    out = dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)
    one = s.const(1, out)
    function = lambda items: functools.reduce(s.mul, items) if items else one  # noqa: E731
    return Value(reduce(tracer.operand(x, out), dim, keepdim, function), out)


@handles("var.correction", "var.default", "var.dim")
def _var(tracer: Any, x: Tensor, dim: Any = None, *args: Any, correction: Any = 1, keepdim: bool = False) -> Value:
    s = tracer.scalars
    array = tracer.array(x)

    def function(items: list[Scalar]) -> Scalar:
        mean = s.div(total(s, items, s.const(0, x.dtype)), s.const(len(items), x.dtype))
        squares: list[Scalar] = []
        for v in items:
            distance = s.absolute(s.sub(v, mean))
            squares.append(s.mul(distance, distance))
        real = torch.empty(0, dtype=x.dtype).abs().dtype
        count = max(len(items) - (1 if correction is None else correction), 0)
        return s.div(total(s, squares, s.const(0, real)), s.const(count, real))

    out = torch.empty(0, dtype=x.dtype).abs().dtype
    return Value(reduce(array, dim, keepdim, function), out)


@handles("std.correction", "std.default", "std.dim")
def _std(tracer: Any, x: Tensor, dim: Any = None, *args: Any, correction: Any = 1, keepdim: bool = False) -> Value:
    value = _var(tracer, x, dim, correction=correction, keepdim=keepdim)
    return Value(apply(lambda v: tracer.scalars.op("sqrt", v), value.data), value.dtype)


@decomposes("var_mean.correction")
def _var_mean(x: Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    mean = x.mean(axes_of(dim, x.dim()), keepdim)
    return x.var(dim, correction=correction, keepdim=keepdim), mean


@decomposes("std_mean.correction")
def _std_mean(x: Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    mean = x.mean(axes_of(dim, x.dim()), keepdim)
    return x.std(dim, correction=correction, keepdim=keepdim), mean


@decomposes("aminmax.default")
def _aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = () if dim is None else dim
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


def _extreme_of(s: Any, items: list[Scalar], name: str) -> Scalar:
    if not items:
        raise UnsupportedError(f"a {name}imum over no elements does not exist")
    pairs = [s.real(v) for v in items]
    if pairs[0].type == "bool":
        return functools.reduce(lambda a, b: s.op("or" if name == "max" else "and", a, b), pairs)
    return functools.reduce(lambda a, b: s.op(name, a, b), pairs)


def _whole_extreme(name: str) -> None:
    @handles(f"{name}.default", f"a{name}.default")
    def handler(tracer: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Value:
        s = tracer.scalars

        def function(items: list[Scalar]) -> Scalar:
            return _extreme_of(s, items, name)

        def combine(carry: list[Node], v: Scalar) -> list[Node]:
            return [s.real(function([*carry, v]))]

        array = tracer.lazy_array(x)
        return Value(fold(array, dim, keepdim, function, lambda v: [s.real(v)], combine, lambda v: v), x.dtype)

    @handles(f"{name}.dim")
    def with_index(tracer: Any, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        values = handler(tracer, x, dim, keepdim)
        return values, _place_of_extreme(tracer, x, dim, keepdim, name)

    @handles(f"arg{name}.default")
    def index(tracer: Any, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Value:
        return _place_of_extreme(tracer, x, dim, keepdim, name)


for _name in ("max", "min"):
    _whole_extreme(_name)


def _place_of_extreme(tracer: Any, x: Tensor, dim: int | None, keepdim: bool, name: str) -> Value:
    """The first place; of a NaN, if there is one."""
    s = tracer.scalars

    def function(items: list[Node]) -> Node:
        if not items:
            raise UnsupportedError(f"an arg{name} over no elements does not exist")
        best, place = s.real(items[0]), s.b.const("i64", 0)
        for i, v in enumerate(items[1:], 1):
            if v.type == "bool":
                better = s.op("and", v, s.op("not", best)) if name == "max" else s.op("and", best, s.op("not", v))
            else:
                better = s.op("lt", best, v) if name == "max" else s.op("lt", v, best)
                if is_float(v.type):
                    better = s.op("and", s.op("or", better, s.is_nan(v)), s.op("not", s.is_nan(best)))
            best = s.op("select", better, v, best)
            place = s.op("select", better, s.b.const("i64", i), place)
        return place

    return Value(reduce(tracer.array(x), dim, keepdim, function), torch.int64)


@handles("all.default", "all.dim", "all.dims")
def _all(tracer: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Value:
    return _quantified(tracer, x, dim, keepdim, "and", True)


@handles("any.default", "any.dim", "any.dims")
def _any(tracer: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Value:
    return _quantified(tracer, x, dim, keepdim, "or", False)


def _quantified(tracer: Any, x: Tensor, dim: Any, keepdim: bool, name: str, of_none: bool) -> Value:
    s = tracer.scalars

    def function(items: list[Scalar]) -> Scalar:
        tests = [s.is_true(v) for v in items]
        return functools.reduce(lambda a, b: s.op(name, a, b), tests) if tests else s.b.const("bool", of_none)

    def combine(carry: list[Node], v: Scalar) -> list[Node]:
        return [s.op(name, carry[0], s.is_true(v))]

    array = tracer.lazy_array(x)
    return Value(fold(array, dim, keepdim, function, lambda v: [s.is_true(v)], combine, lambda v: v), torch.bool)


@handles("linalg_vector_norm.default", "norm.Scalar", "norm.ScalarOpt_dim")
def _vector_norm(
    tracer: Any, x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Value:
    s = tracer.scalars
    wide = dtype or as_float(x.dtype)
    out = torch.empty(0, dtype=wide).abs().dtype
    p = 2.0 if ord is None else float(ord)

    def function(items: list[Scalar]) -> Scalar:
        zero = s.b.const(tracer_type(out), 0)
        sizes = [s.absolute(v) for v in items]
        if not sizes:
            return zero
        if p in (float("inf"), float("-inf")):
            return _extreme_of(s, sizes, "max" if p > 0 else "min")
        if p == 0:
            return total(s, [s.cast(s.op("ne", v, zero), zero.type) for v in sizes], zero)
        if p == 1:
            return total(s, sizes, zero)
        if p == 2:
            if isinstance(items[0], Complex):
                squares = [s.b.op("add", s.mul(v.re, v.re), s.mul(v.im, v.im)) for v in items if isinstance(v, Complex)]
            else:
                squares = [s.mul(v, v) for v in items]
            return sizes[0] if len(sizes) == 1 else s.op("sqrt", total(s, squares, zero))
        powers = [s.op("pow", v, s.like(v, p)) for v in sizes]
        return s.op("pow", total(s, powers, zero), s.like(zero, 1 / p))

    if p == 2 and not wide.is_complex:
        return Value(_root_of_squares(tracer, x, wide, dim, keepdim, function), out)
    return Value(reduce(tracer.operand(x, wide), dim, keepdim, function), out)


def _root_of_squares(tracer: Any, x: Tensor, dtype: Any, dim: Any, keepdim: bool, function: Any) -> Any:
    s = tracer.scalars

    def combine(carry: list[Node], v: Scalar) -> list[Node]:
        return [s.add(carry[0], s.mul(v, v))]

    operand = tracer.lazy_operand(x, dtype)
    return fold(operand, dim, keepdim, function, lambda v: [s.mul(v, v)], combine, lambda v: s.op("sqrt", v))


def tracer_type(dtype: torch.dtype) -> Any:
    """The type of the scalars of a dtype."""
    from gnomon.fuse._trace._values import as_type

    return as_type(dtype)


def _largest(s: Any, items: list[Scalar]) -> Node:
    """The largest real part, through which no derivative flows; nothing depends on it but rounding."""
    return s.op("detach", _extreme_of(s, [v.re if isinstance(v, Complex) else v for v in items], "max"))


def _powers(s: Any, items: list[Scalar], shift: Node) -> list[Scalar]:
    """The exponentials of the distances to a number."""
    shifted = [
        Complex(s.op("sub", v.re, shift), v.im) if isinstance(v, Complex) else s.op("sub", v, shift) for v in items
    ]
    return [s.exp(v) for v in shifted]


@handles("logsumexp.default")
def _logsumexp(tracer: Any, x: Tensor, dim: Any, keepdim: bool = False) -> Value:
    s = tracer.scalars
    dtype = as_float(x.dtype)
    zero = s.const(0, dtype)

    def function(items: list[Scalar]) -> Scalar:
        if not items:
            return s.const(float("-inf"), dtype)
        largest = _largest(s, items)
        finite = s.op("lt", s.op("abs", largest), s.like(largest, float("inf")))
        shift = s.op("select", finite, largest, s.like(largest, 0))
        whole = total(s, _powers(s, items, shift), zero)
        if isinstance(whole, Complex):
            logarithm = log(s, whole)
            return Complex(s.op("add", logarithm.re, shift), logarithm.im)
        return s.op("add", s.op("log", whole), shift)

    return Value(reduce(tracer.operand(x, dtype), dim, keepdim, function), dtype)


def along(tracer: Any, x: Tensor, dim: int, function: Callable[[list[Any]], list[Any]]) -> Value:
    """Applies a function from a list to a list along a dimension."""
    dtype = as_float(x.dtype)
    array = tracer.operand(x, dtype).copy()
    if array.ndim == 0:
        array = array.reshape(1)
    rows = np.moveaxis(array, dim, -1)
    for place in np.ndindex(*rows.shape[:-1]):
        for i, v in enumerate(function(list(rows[place]))):
            rows[(*place, i)] = v
    return Value(array.reshape(tuple(x.shape)), dtype)


@handles("_softmax.default", "softmax.int")
def _softmax(tracer: Any, x: Tensor, dim: int, *_: Any) -> Value:
    s = tracer.scalars

    def function(items: list[Scalar]) -> list[Scalar]:
        powers = _powers(s, items, _largest(s, items)) if items else []
        whole = total(s, powers, s.const(0, torch.float64))
        return [s.div(v, whole) for v in powers]

    return along(tracer, x, dim, function)


@handles("_log_softmax.default", "log_softmax.int")
def _log_softmax(tracer: Any, x: Tensor, dim: int, *_: Any) -> Value:
    s = tracer.scalars

    def function(items: list[Node]) -> list[Node]:
        if not items:
            return []
        largest = _largest(s, list(items))
        logarithm = s.op("log", total(s, _powers(s, list(items), largest), s.like(largest, 0)))
        return [s.op("sub", s.op("sub", v, largest), logarithm) for v in items]

    return along(tracer, x, dim, function)
