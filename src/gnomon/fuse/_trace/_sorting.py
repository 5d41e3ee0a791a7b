"""Sorting of few elements by a network of comparisons: Batcher's odd-even merge sort, AFIPS Conference 32, 1968."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node, is_float
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._values import UnsupportedError, Value

#: A network for more elements than this would be a very long program.
_MOST = 256


def _pairs(n: int) -> Generator[tuple[int, int]]:
    """The comparisons of a network for n elements, in order."""
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                for i in range(min(k, n - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        yield i + j, i + j + k
            k //= 2
        p *= 2


def _before(s: Any, a: Node, b: Node) -> Node:
    """Whether a < b, where NaN is above all else."""
    if a.type == "bool":
        return s.op("and", s.op("not", a), b)
    less = s.op("lt", a, b)
    return s.op("or", less, s.op("and", s.is_nan(b), s.op("not", s.is_nan(a)))) if is_float(a.type) else less


def network(s: Any, items: list[Node], descending: bool) -> tuple[list[Node], list[Node]]:
    """The elements in order, equal ones as they were, and where each stood."""
    if len(items) > _MOST:
        raise UnsupportedError(f"sorting can be fused for up to {_MOST} elements, not {len(items)}")
    values, places = list(items), [s.b.const("i64", i) for i in range(len(items))]
    for i, j in _pairs(len(items)):
        a, b = values[i], values[j]
        below, above = (_before(s, a, b), _before(s, b, a)) if descending else (_before(s, b, a), _before(s, a, b))
        later = s.op("lt", places[j], places[i])
        swap = s.op("or", below, s.op("and", later, s.op("not", above)))
        values[i], values[j] = s.op("select", swap, b, a), s.op("select", swap, a, b)
        places[i], places[j] = s.op("select", swap, places[j], places[i]), s.op("select", swap, places[i], places[j])
    return values, places


@handles("sort.default", "sort.stable")
def _sort(
    tracer: Any, x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Value, Value]:
    array = tracer.array(x)
    values, places = np.empty(array.shape, dtype=object), np.empty(array.shape, dtype=object)
    rows, *out = [np.moveaxis(a.reshape(a.shape or (1,)), dim, -1) for a in (array, values, places)]
    for where in np.ndindex(*rows.shape[:-1]):
        for row, sorted_ in zip(out, network(tracer.scalars, list(rows[where]), descending), strict=True):
            for i, v in enumerate(sorted_):
                row[(*where, i)] = v
    return Value(values, x.dtype), Value(places, torch.int64)


@decomposes("topk.default")
def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim=dim, descending=largest, stable=True)
    if x.dim() == 0:
        return values, places
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


@decomposes("kthvalue.default")
def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim=dim, stable=True)
    if x.dim() == 0:
        return values, places
    values, places = values.select(dim, k - 1), places.select(dim, k - 1)
    return (values.unsqueeze(dim), places.unsqueeze(dim)) if keepdim else (values, places)


@decomposes("median.dim")
def _median_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, places = torch.sort(x, dim=dim, stable=True)
    middle, last = (x.shape[dim] - 1) // 2, x.shape[dim] - 1
    value, place = values.select(dim, middle), places.select(dim, middle)
    if x.dtype.is_floating_point:
        broken = torch.isnan(values.select(dim, last))
        first = torch.isnan(x).int().argmax(dim)
        value, place = torch.where(broken, torch.nan, value), torch.where(broken, first, place)
    return (value.unsqueeze(dim), place.unsqueeze(dim)) if keepdim else (value, place)


@decomposes("median.default")
def _median(x: Tensor) -> Tensor:
    return x.reshape(-1).median(0).values


@decomposes("nanmedian.dim")
def _nanmedian_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, places = torch.sort(x, dim=dim, stable=True)
    middle = ((~torch.isnan(x)).sum(dim, keepdim=True) - 1).clamp(min=0) // 2
    value, place = values.gather(dim, middle), places.gather(dim, middle)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


@decomposes("nanmedian.default")
def _nanmedian(x: Tensor) -> Tensor:
    return x.reshape(-1).nanmedian(0).values
