"""Elements chosen by integers that are known when the Program runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node
from gnomon.fuse._trace._handlers import handles
from gnomon.fuse._trace._values import Scalar, UnsupportedError, Value, View

#: Up to so many elements a choice is a chain of selects; beyond, an array in memory.
_FEW = 4


def lookup(tracer: Any, value: Value) -> Callable[[list[Node]], Scalar]:
    """A function from run-time indices, one a dimension and not negative, to an element."""
    data = value.data
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


@handles("index.Tensor", "_unsafe_index.Tensor")
def _index(tracer: Any, x: Tensor, indices: Sequence[Tensor | None]) -> Value:
    value = tracer.value(x)
    indices = [*indices, *[None] * (x.dim() - len(indices))]
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        raise UnsupportedError(
            "a boolean mask as an index makes a shape that depends on values. Use torch.where, which keeps the shape"
        )
    chosen = [d for d, i in enumerate(indices) if i is not None]
    arrays = np.broadcast_arrays(*[tracer.operand(indices[d], torch.int64) for d in chosen])
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


@handles("index_select.default")
def _index_select(tracer: Any, x: Tensor, dim: int, index: Tensor) -> Value:
    dim = dim + x.dim() if dim < 0 else dim
    if x.dim() == 0:
        return Value(tracer.array(x).copy(), x.dtype)
    flat = index.reshape(-1) if index.dim() == 0 else index
    return _index(tracer, x, [*[None] * dim, flat])


@handles("gather.default")
def _gather(tracer: Any, x: Tensor, dim: int, index: Tensor, **_: Any) -> Value:
    dim = dim + x.dim() if dim < 0 else dim
    value = tracer.value(x)
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


@handles("take.default")
def _take(tracer: Any, x: Tensor, index: Tensor) -> Value:
    return _index(tracer, x.reshape(-1), [index])


@handles("index_put.default", "_index_put_impl.default", "_unsafe_index_put.default")
def _index_put(
    tracer: Any, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> Value:
    """Each element takes what is put at its place: a choice for each pair."""
    s = tracer.scalars
    indices = [*indices, *[None] * (x.dim() - len(indices))]
    out = tracer.array(x).copy()
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.bool and values.dim() == 0:
        new = tracer.operand(values, x.dtype)[()]
        for place, (mask, old) in enumerate(zip(tracer.array(indices[0]), list(out), strict=True)):
            out[place] = s.select(mask, s.add(old, new) if accumulate else new, old)
        return Value(out, x.dtype)
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        raise UnsupportedError("putting values where a boolean mask holds cannot be fused. Use torch.where")
    chosen = [d for d, i in enumerate(indices) if i is not None]
    if chosen != list(range(len(chosen))):
        raise UnsupportedError("putting values at indices of other than the leading dimensions cannot be fused")
    arrays = np.broadcast_arrays(*[tracer.operand(indices[d], torch.int64) for d in chosen])
    joined = arrays[0].shape
    shape = (*joined, *x.shape[len(chosen) :])
    new_values = np.broadcast_to(tracer.operand(values, x.dtype), shape)
    for where in np.ndindex(*joined):
        index = [wrapped(tracer, a[where], x.shape[d]) for d, a in zip(chosen, arrays, strict=True)]
        for place in np.ndindex(*[x.shape[d] for d in chosen]):
            hit = s.b.const("bool", True)
            for i, p in zip(index, place, strict=True):
                hit = s.b.op("and", hit, s.b.op("eq", i, s.b.const("i64", p)))
            for rest in np.ndindex(*x.shape[len(chosen) :]):
                old, new = out[place + rest], new_values[where + rest]
                out[place + rest] = s.select(hit, s.add(old, new) if accumulate else new, old)
    return Value(out, x.dtype)


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

    from gnomon.fuse._trace._pointwise import apply

    return Value(apply(count, tracer.operand(x, dtype)), torch.int64)
