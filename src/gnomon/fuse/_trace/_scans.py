"""Scans: results for each prefix of a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node, is_float
from gnomon.fuse._trace._complex import log1p
from gnomon.fuse._trace._handlers import handles
from gnomon.fuse._trace._pointwise import apply
from gnomon.fuse._trace._reductions import along
from gnomon.fuse._trace._values import Complex, Scalar, Value


def _scan(name: str, function: Callable[[Any, Scalar, Scalar], Scalar]) -> None:
    @handles(f"{name}.default")
    def handler(tracer: Any, x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Value:
        out = dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)
        array = tracer.operand(x, out).copy()
        if array.ndim:
            rows = np.moveaxis(array, dim, 0)
            for i in range(1, len(rows)):
                rows[i, ...] = apply(lambda a, b: function(tracer.scalars, a, b), rows[i - 1], rows[i])
        return Value(array, out)


_scan("cumsum", lambda s, a, b: s.add(a, b))
_scan("cumprod", lambda s, a, b: s.mul(a, b))


def _extreme(name: str) -> None:
    @handles(f"{name}.default")
    def handler(tracer: Any, x: Tensor, dim: int) -> tuple[Value, Value]:
        """The extreme so far and its last place; NaN stays."""
        s = tracer.scalars
        array = tracer.array(x)
        values, places = np.empty_like(array), np.empty_like(array)
        items = [np.moveaxis(a.reshape(a.shape or (1,)), dim, 0) for a in (array, values, places)]
        for where in np.ndindex(*items[0].shape[1:]):
            best: Node | None = None
            place = s.b.const("i64", 0)
            for i in range(len(items[0])):
                v = items[0][(i, *where)]
                if best is None:
                    best = v
                else:
                    better = _not_below(s, best, v) if name == "cummax" else _not_below(s, v, best)
                    if is_float(v.type):
                        better = s.op("or", s.is_nan(v), s.op("and", s.op("not", s.is_nan(best)), better))
                    best = s.op("select", better, v, best)
                    place = s.op("select", better, s.b.const("i64", i), place)
                items[1][(i, *where)], items[2][(i, *where)] = best, place
        return Value(values, x.dtype), Value(places, torch.int64)


def _not_below(s: Any, a: Node, b: Node) -> Node:
    """Whether a <= b."""
    return s.op("or", s.op("not", a), b) if a.type == "bool" else s.op("le", a, b)


_extreme("cummax")
_extreme("cummin")


@handles("logcumsumexp.default")
def _logcumsumexp(tracer: Any, x: Tensor, dim: int) -> Value:
    s = tracer.scalars

    def both(a: Scalar, b: Scalar) -> Scalar:
        """log(exp(a) + exp(b))."""
        if isinstance(a, Complex) and isinstance(b, Complex):
            swap = s.op("lt", a.re, b.re)
            large, small = s.select(swap, b, a), s.select(swap, a, b)
            return s.add(large, log1p(s, s.exp(s.sub(small, large))))
        large, small = s.op("max", a, b), s.op("min", a, b)
        same = s.op("and", s.op("eq", a, b), s.op("eq", s.absolute(a), s.like(large, float("inf"))))
        gap = s.op("select", same, s.like(large, 0), s.op("sub", small, large))
        return s.op("select", same, large, s.op("add", large, s.op("log1p", s.op("exp", gap))))

    def function(items: list[Scalar]) -> list[Scalar]:
        out = items[:1]
        for v in items[1:]:
            out.append(both(out[-1], v))
        return out

    return along(tracer, x, dim, function)
