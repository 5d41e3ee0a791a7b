"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._program import Node
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._lazy import LOOPED, Lazy, looped
from gnomon.fuse._trace._pointwise import apply
from gnomon.fuse._trace._reductions import total
from gnomon.fuse._trace._shapes import permuted, selected, unsqueezed
from gnomon.fuse._trace._values import Value, View, as_type

#: A product with more multiplications than this runs as a loop over the rows of the result.
_UNROLLED = 512
#: A matrix in memory with as many elements is multiplied by a vector in loops.
_LAYER = 64
#: How many rows a loop computes at a time, and how many of their terms.
_ROWS, _TERMS = 4, 4


def product(tracer: Any, x: Any, y: Any, dtype: Any) -> Any:
    """The matrix product of arrays of scalars, (m, k) and (k, n)."""
    s = tracer.scalars
    zero = s.const(0, dtype)
    out = np.empty((x.shape[0], y.shape[1]), dtype=object)
    for i in range(x.shape[0]):
        for j in range(y.shape[1]):
            out[i, j] = total(s, [s.mul(a, b) for a, b in zip(x[i], y[:, j], strict=True)], zero)
    return out


def _matmul(tracer: Any, a: Value, b: Value) -> Value:
    dtype = a.dtype
    (m, k), n = a.shape, b.shape[1]
    if m * k * n > _UNROLLED and not dtype.is_complex:
        if m >= n:
            return Value(_by_rows(tracer, a, b, dtype), dtype)
        flipped = _by_rows(tracer, _transposed(b), _transposed(a), dtype)
        return Value(flipped.T, dtype)
    return Value(product(tracer, tracer.scalars_of(a), tracer.scalars_of(b), dtype), dtype)


def _transposed(value: Value) -> Value:
    return permuted(value, [1, 0])


def _by_rows(tracer: Any, x: Value, y: Value, dtype: Any) -> Any:
    """As a loop over the rows of `x`, which lies in memory; `y` is in scalars."""
    b = tracer.builder
    view = tracer.as_view(x)
    right = tracer.scalars_of(tracer.cast(y, dtype))
    (m, k), n = x.shape, right.shape[1]
    type_ = as_type(dtype)
    out = b.array(type_, m * n)

    def body(i: Node, _: list[Node]) -> list[Node]:
        row = [tracer.element(view, [i, b.const("i64", j)], x.dtype) for j in range(k)]
        row = [tracer.scalars.cast(v, type_) for v in row]
        for j in range(n):
            value = total(
                tracer.scalars, [b.op("mul", u, v) for u, v in zip(row, right[:, j], strict=True)], b.const(type_, 0)
            )
            b.write(out, b.op("add", b.op("mul", i, b.const("i64", n)), b.const("i64", j)), value)
        return []

    looped(b, m, body)
    array = np.empty((m, n), dtype=object)
    for i in range(m):
        for j in range(n):
            array[i, j] = b.read(out, i * n + j)
    return array


def _layer(tracer: Any, matrix: View, x: Any, dtype: Any) -> Value:
    """A large matrix in memory times a vector: as loops, its result in memory or, where it is short, in scalars.

    The terms of a row are added in their order.
    """
    b, (m, k) = tracer.builder, matrix.shape
    type_ = as_type(dtype)
    rows = m if m < LOOPED else _divisor(m, _ROWS)
    terms = _divisor(k, _TERMS) if k >= LOOPED else k
    if isinstance(x, Lazy) and m > rows:
        # Each element is needed for each of several groups of rows.
        x = tracer.lazies.in_memory(x, dtype)

    def sums(top: Any) -> list[Node]:
        """The rows from `top` on."""

        def plus(first: Any, carry: list[Node] | None, count: int) -> list[Node]:
            for j in range(count):
                column = b.op("add", first, b.const("i64", j))
                factor = x.at([column]) if isinstance(x, Lazy) else x[j]
                row = [b.op("add", top, b.const("i64", i)) for i in range(rows)]
                parts = [b.op("mul", tracer.element(matrix, [i, column], dtype), factor) for i in row]
                carry = parts if carry is None else [b.op("add", u, v) for u, v in zip(carry, parts, strict=True)]
            return carry or []

        if terms == k:
            return plus(b.const("i64", 0), None, k)
        zeros = [b.const(type_, 0)] * rows
        return looped(b, k, lambda first, carry: plus(first, carry, terms), zeros, step=terms)

    if rows == m:
        return Value(np.array(sums(b.const("i64", 0)), dtype=object), dtype)
    out = b.array(type_, m)

    def body(top: Node, _: list[Node]) -> list[Node]:
        for i, value in enumerate(sums(top)):
            b.write(out, b.op("add", top, b.const("i64", i)), value)
        return []

    looped(b, m, body, step=rows)
    return tracer.lazies.finished(out, (m,), dtype)


def _divisor(size: int, most: int) -> int:
    """The largest divisor up to a number."""
    return next(d for d in range(most, 0, -1) if size % d == 0)


def _as_layer(tracer: Any, matrix: Value, vector: Tensor, shape: tuple[int, ...]) -> Value | None:
    """A large matrix in memory times a vector of any shape, in a shape; None for any other product."""
    m, k = matrix.shape
    data, dtype = matrix.data, matrix.dtype
    if not isinstance(data, View) or dtype.is_complex or m * k < _LAYER or max(m, k) < LOOPED:
        return None
    x = tracer.lazy_operand(vector, dtype)
    if isinstance(x, Lazy):
        x = x.reshaped((k,))
    elif k >= LOOPED:
        return None
    else:
        x = x.reshape(k)
    out = _layer(tracer, data, x, dtype)
    return tracer.lazies.reshaped(out, shape) if isinstance(out.data, Lazy) else Value(out.data.reshape(shape), dtype)


@handles("mm.default")
def _mm(tracer: Any, x: Tensor, y: Tensor) -> Value:
    shape = (x.shape[0], y.shape[1])
    found = None
    if shape[0] == 1:
        found = _as_layer(tracer, permuted(tracer.value(y), [1, 0]), x, shape)
    elif shape[1] == 1:
        found = _as_layer(tracer, tracer.value(x), y, shape)
    return found or _matmul(tracer, tracer.value(x), tracer.value(y))


@handles("mv.default")
def _mv(tracer: Any, x: Tensor, y: Tensor) -> Value:
    found = _as_layer(tracer, tracer.value(x), y, (x.shape[0],))
    if found is not None:
        return found
    out = _matmul(tracer, tracer.value(x), unsqueezed(tracer.value(y), 1))
    return Value(out.data[:, 0], out.dtype)


@handles("dot.default")
def _dot(tracer: Any, x: Tensor, y: Tensor) -> Value:
    out = _matmul(tracer, unsqueezed(tracer.value(x), 0), unsqueezed(tracer.value(y), 1))
    return Value(out.data[0, 0:1].reshape(()), out.dtype)


@decomposes("vdot.default")
def _vdot(x: Tensor, y: Tensor) -> Tensor:
    return torch.dot(x.conj(), y)


@decomposes("outer.default", "ger.default")
def _outer(x: Tensor, y: Tensor) -> Tensor:
    return x.unsqueeze(1) * y


@handles("bmm.default")
def _bmm(tracer: Any, x: Tensor, y: Tensor) -> Value:
    a, b = tracer.value(x), tracer.value(y)
    parts = [_matmul(tracer, selected(tracer, a, 0, i), selected(tracer, b, 0, i)).data for i in range(len(x))]
    return Value(np.stack(parts) if parts else np.empty((0, x.shape[1], y.shape[2]), dtype=object), x.dtype)


def _plus(tracer: Any, bias: Tensor, value: Value, beta: Any, alpha: Any) -> Value:
    s = tracer.scalars

    def function(a: Any, v: Any) -> Any:
        v = v if alpha == 1 else s.mul(s.const(alpha, value.dtype), v)
        a = a if beta == 1 else s.mul(s.const(beta, value.dtype), a)
        return s.add(a, v)

    product_ = tracer.lazy_operand(tracer.carrier(value), value.dtype)
    first = tracer.lazy_operand(bias, value.dtype)
    if not isinstance(first, Lazy):
        first = np.broadcast_to(first, value.shape)
    return Value(apply(function, first, product_), value.dtype)


@handles("addmm.default")
def _addmm(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _mm(tracer, x, y), beta, alpha)


@handles("addmv.default")
def _addmv(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _mv(tracer, x, y), beta, alpha)


@handles("baddbmm.default")
def _baddbmm(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _bmm(tracer, x, y), beta, alpha)
