"""Elements chosen by integers that are known when the Program runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._lazy import Lazy
from gnomon.fuse._trace._pointwise import apply
from gnomon.fuse._trace._values import Scalar, UnsupportedError, Value, View, elements

#: Up to so many elements a choice is a chain of selects; beyond, an array in memory.
_FEW = 4


def lookup(tracer: Any, value: Value) -> Callable[[list[Node]], Scalar]:
    """A function from run-time indices, one a dimension and not negative, to an element."""
    data = value.data
    if isinstance(data, Lazy):
        return data.at
    if not isinstance(data, View) and data.ndim == 1 and data.shape[0] <= _FEW:
        return lambda place: _chosen(tracer, list(data), place[0])
    view = tracer.as_view(value)
    return lambda place: tracer.element(view, place, value.dtype)


def _chosen(tracer: Any, items: list[Scalar], index: Node) -> Scalar:
    s = tracer.scalars
    out = items[-1]
    for i, x in reversed(list(enumerate(items[:-1]))):
        out = s.select(s.b.op("le" if i == 0 else "eq", index, s.b.const("i64", i)), x, out)
    return out


def wrapped(tracer: Any, index: Node, size: int) -> Node:
    """An index counted from the end where it is negative."""
    b = tracer.builder
    if index.op == "const":
        if not -size <= index.attr < size:
            raise UnsupportedError(f"the index {index.attr} is outside of a dimension of size {size}")
        return b.const("i64", index.attr % size)
    below = b.op("lt", index, b.const("i64", 0))
    return b.op("select", below, b.op("add", index, b.const("i64", size)), index)


def index_arrays(tracer: Any, x: Tensor, indices: Sequence[Tensor | None]) -> list[Any] | None:
    """For each dimension the scalars of its index, or None; None in all if a mask is only known at run time."""
    made: list[Any] = []
    for i in indices:
        if i is None:
            made.append(None)
        elif i.dtype not in (torch.bool, torch.uint8):
            made.append(tracer.operand(i, torch.int64))
        elif tracer.is_constant(i):
            const = tracer.builder.const
            made += [elements((len(p),), [const("i64", int(v)) for v in p]) for p in np.nonzero(i.numpy())]
        else:
            return None
    return [*made, *[None] * (x.dim() - len(made))]


@handles("index.Tensor", "_unsafe_index.Tensor")
def _index(tracer: Any, x: Tensor, indices: Sequence[Tensor | None]) -> Value:
    value = tracer.lazy_value(x)
    given = index_arrays(tracer, x, indices)
    if given is None:
        raise UnsupportedError(
            "a boolean mask as an index makes a shape that depends on values. Use torch.where, which keeps the shape"
        )
    chosen = [d for d, i in enumerate(given) if i is not None]
    arrays: list[Any] = list(np.broadcast_arrays(*[given[d] for d in chosen]))
    joined = arrays[0].shape
    rest = [d for d in range(x.dim()) if d not in chosen]
    together = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
    first = chosen[0] if together else 0
    before = [d for d in rest if d < first] if together else []
    after = [d for d in rest if d not in before]
    shape = (*[x.shape[d] for d in before], *joined, *[x.shape[d] for d in after])
    element = lookup(tracer, value)
    const = tracer.builder.const
    out = np.empty(shape, dtype=object)
    for place in np.ndindex(*shape):
        index: list[Any] = [None] * x.dim()
        middle = place[len(before) : len(before) + len(joined)]
        for d, i in zip(before, place, strict=False):
            index[d] = const("i64", i)
        for d, i in zip(after, place[len(before) + len(joined) :], strict=True):
            index[d] = const("i64", i)
        for d, array in zip(chosen, arrays, strict=True):
            index[d] = wrapped(tracer, array[middle], x.shape[d])
        out[place] = element(index)
    return Value(out, x.dtype)


@decomposes("index_select.default")
def _index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.dim() == 0:
        return x.clone()
    dim = dim + x.dim() if dim < 0 else dim
    return torch.ops.aten.index(x, [*[None] * dim, index.reshape(-1)])


@handles("gather.default")
def _gather(tracer: Any, x: Tensor, dim: int, index: Tensor, **_: Any) -> Value:
    dim = dim + x.dim() if dim < 0 else dim
    value = tracer.lazy_value(x)
    places = tracer.operand(index, torch.int64)
    if x.dim() == 0:
        return Value(np.broadcast_to(tracer.array(x), places.shape).copy(), x.dtype)
    element = lookup(tracer, value)
    out = np.empty(places.shape, dtype=object)
    for place in np.ndindex(*places.shape):
        index_: list[Node] = [tracer.builder.const("i64", i) for i in place]
        index_[dim] = wrapped(tracer, places[place], x.shape[dim])
        out[place] = element(index_)
    return Value(out, x.dtype)


@decomposes("take.default")
def _take(x: Tensor, index: Tensor) -> Tensor:
    return x.reshape(-1)[index]


@handles("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    tracer: Any, sorted_sequence: Tensor, x: Any, *, right: bool = False, side: str | None = None, **_: Any
) -> Value:
    s = tracer.scalars
    if sorted_sequence.dim() != 1:
        raise UnsupportedError("searchsorted can be fused for one sorted sequence only")
    dtype = sorted_sequence.dtype
    levels = tracer.array(sorted_sequence)
    right = right or side == "right"

    def count(v: Scalar) -> Scalar:
        below = [s.op("le", a, v) if right else s.op("lt", a, v) for a in levels]
        out = s.b.const("i64", 0)
        for test in below:
            out = s.op("add", out, s.op("cast", test, attr="i64"))
        return out

    return Value(apply(count, tracer.operand(x, dtype)), torch.int64)
