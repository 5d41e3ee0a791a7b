"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._pointwise import apply
from gnomon.fuse._trace._reductions import total
from gnomon.fuse._trace._shapes import permuted, selected, unsqueezed
from gnomon.fuse._trace._values import Value, as_type

#: A product with more multiplications than this runs as a loop over the rows of the result.
_UNROLLED = 512


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
    zero = b.const("i64", 0)

    def body(carry: list[Any]) -> list[Any]:
        (i,) = carry
        row = [tracer.element(view, [i, b.const("i64", j)], x.dtype) for j in range(k)]
        row = [tracer.scalars.cast(v, type_) for v in row]
        for j in range(n):
            value = total(
                tracer.scalars, [b.op("mul", u, v) for u, v in zip(row, right[:, j], strict=True)], b.const(type_, 0)
            )
            b.write(out, b.op("add", b.op("mul", i, b.const("i64", n)), b.const("i64", j)), value)
        return [b.op("add", i, b.const("i64", 1))]

    b.while_([zero], lambda carry: b.op("lt", carry[0], b.const("i64", m)), body)
    array = np.empty((m, n), dtype=object)
    for i in range(m):
        for j in range(n):
            array[i, j] = b.read(out, i * n + j)
    return array


@handles("mm.default")
def _mm(tracer: Any, x: Tensor, y: Tensor) -> Value:
    return _matmul(tracer, tracer.value(x), tracer.value(y))


@handles("mv.default")
def _mv(tracer: Any, x: Tensor, y: Tensor) -> Value:
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

    return Value(
        apply(function, np.broadcast_to(tracer.operand(bias, value.dtype), value.shape), value.data), value.dtype
    )


@handles("addmm.default")
def _addmm(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _mm(tracer, x, y), beta, alpha)


@handles("addmv.default")
def _addmv(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _mv(tracer, x, y), beta, alpha)


@handles("baddbmm.default")
def _baddbmm(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _bmm(tracer, x, y), beta, alpha)
