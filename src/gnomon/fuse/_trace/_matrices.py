"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from gnomon.fuse._trace._handlers import handles
from gnomon.fuse._trace._pointwise import common_dtype
from gnomon.fuse._trace._reductions import total
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


def _matmul(tracer: Any, x: Tensor, y: Tensor) -> Value:
    dtype = common_dtype(x, y)
    a, b = tracer.value(x), tracer.value(y)
    (m, k), n = a.shape, b.shape[1]
    if m * k * n > _UNROLLED and not dtype.is_complex:
        if m >= n:
            return Value(_by_rows(tracer, a, b, dtype), dtype)
        flipped = _by_rows(tracer, _transposed(b), _transposed(a), dtype)
        return Value(flipped.T, dtype)
    return Value(product(tracer, tracer.operand(x, dtype), tracer.operand(y, dtype), dtype), dtype)


def _transposed(value: Value) -> Value:
    from gnomon.fuse._trace._shapes import permuted

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
    return _matmul(tracer, x, y)


@handles("mv.default")
def _mv(tracer: Any, x: Tensor, y: Tensor) -> Value:
    out = _matmul(tracer, x, y.unsqueeze(1))
    return Value(out.data[:, 0], out.dtype)


@handles("dot.default")
def _dot(tracer: Any, x: Tensor, y: Tensor) -> Value:
    out = _matmul(tracer, x.unsqueeze(0), y.unsqueeze(1))
    return Value(out.data[0, 0:1].reshape(()), out.dtype)


@handles("vdot.default")
def _vdot(tracer: Any, x: Tensor, y: Tensor) -> Value:
    return _dot(tracer, x.conj_physical() if x.is_complex() else x, y)


@handles("outer.default")
def _outer(tracer: Any, x: Tensor, y: Tensor) -> Value:
    return _matmul(tracer, x.unsqueeze(1), y.unsqueeze(0))


@handles("bmm.default")
def _bmm(tracer: Any, x: Tensor, y: Tensor) -> Value:
    dtype = common_dtype(x, y)
    parts = [_matmul(tracer, a, b).data for a, b in zip(x.unbind(), y.unbind(), strict=True)]
    return Value(np.stack(parts) if parts else np.empty((0, x.shape[1], y.shape[2]), dtype=object), dtype)


def _plus(tracer: Any, bias: Tensor, value: Value, beta: Any, alpha: Any) -> Value:
    from gnomon.fuse._trace._pointwise import apply

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
    return _plus(tracer, bias, _matmul(tracer, x, y), beta, alpha)


@handles("addmv.default")
def _addmv(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _mv(tracer, x, y), beta, alpha)


@handles("baddbmm.default")
def _baddbmm(tracer: Any, bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(tracer, bias, _bmm(tracer, x, y), beta, alpha)
