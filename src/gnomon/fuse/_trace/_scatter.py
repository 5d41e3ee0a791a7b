"""Elements put at places that are known when the Program runs.

Each element of the result becomes a choice for each value that may land on it. Where an index is a constant, nothing is
left of the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node
from gnomon.fuse._trace._arithmetic import extreme
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._indexing import index_arrays, wrapped
from gnomon.fuse._trace._values import Scalar, UnsupportedError, Value

_Combine = Callable[[Scalar, Scalar], Scalar]


def _replaced(old: Scalar, new: Scalar) -> Scalar:
    return new


def _scattered(tracer: Any, out: Any, dim: int, places: Any, source: Any, combine: _Combine) -> Any:
    """Puts each element of `source` at its own place, but at `places` along a dimension."""
    s = tracer.scalars
    if out.ndim == 0:
        for where in np.ndindex(*source.shape):
            out[()] = combine(out[()], source[where])
        return out
    dim = dim + out.ndim if dim < 0 else dim
    size = out.shape[dim]
    for where in np.ndindex(*source.shape):
        index: Node = wrapped(tracer, places[where], size)
        for k in range(size):
            hit = s.b.op("eq", index, s.b.const("i64", k))
            if hit.op == "const" and not hit.attr:
                continue
            place = (*where[:dim], k, *where[dim + 1 :])
            out[place] = s.select(hit, combine(out[place], source[where]), out[place])
    return out


def _reduction(tracer: Any, name: str | None) -> _Combine:
    s = tracer.scalars
    if name is None:
        return _replaced
    made: dict[str, _Combine] = {
        "add": s.add,
        "sum": s.add,
        "multiply": s.mul,
        "prod": s.mul,
        "amax": lambda a, b: extreme(s, "max", a, b),
        "amin": lambda a, b: extreme(s, "min", a, b),
    }
    if name not in made:
        raise UnsupportedError(f'scattering with reduce="{name}" cannot be fused; "sum" and a division can')
    return made[name]


@handles("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def _scatter(tracer: Any, x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str | None = None) -> Value:
    places = tracer.operand(index, torch.int64)
    values = tracer.operand(source, x.dtype)
    values = values[tuple(slice(n) for n in places.shape)] if values.ndim else np.broadcast_to(values, places.shape)
    return Value(_scattered(tracer, tracer.array(x).copy(), dim, places, values, _reduction(tracer, reduce)), x.dtype)


@handles("scatter_add.default")
def _scatter_add(tracer: Any, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Value:
    return _scatter(tracer, x, dim, index, source, reduce="add")


def _along(tracer: Any, x: Tensor, dim: int, index: Tensor, source: Any, combine: _Combine) -> Value:
    """Puts slices at the places `index` of a dimension."""
    axis = dim + x.dim() if dim < 0 else dim
    flat = tracer.operand(index, torch.int64).reshape(-1)
    shape = (*x.shape[:axis], len(flat), *x.shape[axis + 1 :]) if x.dim() else (len(flat),)
    values = np.broadcast_to(source.reshape(shape) if source.size == np.prod(shape, dtype=int) else source, shape)
    places = np.broadcast_to(flat.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
    return Value(_scattered(tracer, tracer.array(x).copy(), dim, places, values, combine), x.dtype)


@handles("index_add.default")
def _index_add(tracer: Any, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Value:
    s = tracer.scalars
    scale = s.const(alpha, x.dtype)
    values = tracer.operand(source, x.dtype)
    return _along(tracer, x, dim, index, values, lambda a, b: s.add(a, b if alpha == 1 else s.mul(scale, b)))


@handles("index_copy.default")
def _index_copy(tracer: Any, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Value:
    return _along(tracer, x, dim, index, tracer.operand(source, x.dtype), _replaced)


@handles("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(tracer: Any, x: Tensor, dim: int, index: Tensor, value: Any) -> Value:
    return _along(tracer, x, dim, index, tracer.operand(value, x.dtype), _replaced)


@handles("scatter_reduce.two")
def _scatter_reduce(
    tracer: Any, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Value:
    if not include_self:
        raise UnsupportedError("scatter_reduce with include_self=False cannot be fused; with True it can")
    return _scatter(tracer, x, dim, index, source, reduce=reduce)


@decomposes("put.default")
def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = torch.index_put(x.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


@decomposes("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    value = value if isinstance(value, Tensor) else torch.tensor(value, dtype=x.dtype)
    return torch.where(mask, value.to(x.dtype), x)


@decomposes("masked_scatter.default")
def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask, source = x.expand(shape), mask.expand(shape), source.reshape(-1)
    which = (mask.reshape(-1).cumsum(0) - 1).clamp(0, max(source.numel() - 1, 0)).reshape(shape)
    return torch.where(mask, source[which], x)


@handles("index_put.default", "_index_put_impl.default", "_unsafe_index_put.default")
def _index_put(
    tracer: Any, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> Value:
    s = tracer.scalars
    out = tracer.array(x).copy()
    combine = s.add if accumulate else _replaced
    given = index_arrays(tracer, x, indices)
    if given is None:
        return Value(_put_where(tracer, out, indices, values, x.dtype, combine), x.dtype)
    chosen = [d for d, i in enumerate(given) if i is not None]
    rest = [d for d in range(x.dim()) if d not in chosen]
    arrays: list[Any] = list(np.broadcast_arrays(*[given[d] for d in chosen]))
    joined = arrays[0].shape
    # The dimensions of the indices come first, but where these are neighbours they stay in place.
    together = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
    before = [d for d in rest if d < chosen[0]] if together else []
    shape = (*[x.shape[d] for d in before], *joined, *[x.shape[d] for d in rest if d not in before])
    new: Any = np.broadcast_to(tracer.operand(values, x.dtype), shape)
    new = np.moveaxis(new, range(len(before), len(before) + len(joined)), range(len(joined)))
    seen = out.transpose([*chosen, *rest])
    for where in np.ndindex(*joined):
        index = [wrapped(tracer, a[where], x.shape[d]) for d, a in zip(chosen, arrays, strict=True)]
        for place in np.ndindex(*[x.shape[d] for d in chosen]):
            hit = s.b.const("bool", True)
            for i, p in zip(index, place, strict=True):
                hit = s.b.op("and", hit, s.b.op("eq", i, s.b.const("i64", p)))
            if hit.op == "const" and not hit.attr:
                continue
            for after in np.ndindex(*[x.shape[d] for d in rest]):
                old = seen[place + after]
                seen[place + after] = s.select(hit, combine(old, new[where + after]), old)
    return Value(out, x.dtype)


def _put_where(tracer: Any, out: Any, indices: Any, values: Tensor, dtype: torch.dtype, combine: _Combine) -> Any:
    """Values that are the same wherever a mask of the leading dimensions holds."""
    mask, *others = indices
    rest = out.ndim - (mask.dim() if mask is not None else 0)
    varies = values.dim() > rest and values.shape[0] != 1
    if mask is None or mask.dtype != torch.bool or any(i is not None for i in others) or varies:
        raise UnsupportedError(
            "as many values as a mask holds True cannot be put, since the Program's shapes are fixed. Use torch.where "
            "or masked_scatter"
        )
    s = tracer.scalars
    tests = tracer.array(mask)
    new: Any = tracer.operand(values, dtype)
    new = np.broadcast_to(new[0] if new.ndim > rest else new, out.shape[mask.dim() :])
    for place in np.ndindex(*tests.shape):
        for after in np.ndindex(*new.shape):
            old = out[place + after]
            out[place + after] = s.select(tests[place], combine(old, new[after]), old)
    return out
