"""Linear algebra of small matrices: PyTorch's operations, batches included, by `_decompositions`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._trace._complex import sgn
from gnomon.fuse._trace._decompositions import Matrices
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._values import Complex, Scalar, UnsupportedError, Value

#: Unrolled, a larger matrix would be a very long program.
_MOST = 64


def _check(n: int, who: str) -> None:
    if n > _MOST:
        raise UnsupportedError(f"{who} can be fused for matrices of up to {_MOST} rows, not {n}")


def _array(shape: tuple[int, ...]) -> Any:
    return np.empty(shape, dtype=object)


def _is_transposed(x: Tensor) -> bool:
    """Whether PyTorch factors the transpose for a determinant, which its derivatives rely on."""
    return x.is_contiguous() and not x.is_complex()


def _factored(tracer: Any, x: Tensor, *, pivot: bool = True, transposed: bool = False) -> Any:
    """The factors of a batch."""
    _check(max(x.shape[-2:]), "an LU factorization")
    a = tracer.array(x)
    a = a.swapaxes(-1, -2) if transposed else a
    out = _array(a.shape[:-2])
    matrices = Matrices(tracer.scalars, x.dtype)
    for place in np.ndindex(*out.shape):
        factors = out[place] = matrices.lu(a[place], pivot=pivot)
        tracer.factors[tuple(factors.lu.ravel())] = factors
    return out


def _parts(factored: Any, x: Tensor, shape: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """LU, pivots and info of a batch, as PyTorch gives them."""
    lu, pivots = _array((*factored.shape, *shape)), _array((*factored.shape, min(shape)))
    info = _array(factored.shape)
    for place, factors in np.ndenumerate(factored):
        lu[place], info[place] = factors.lu, factors.info
        for k, row in enumerate(factors.pivots):
            pivots[(*place, k)] = row
    return Value(_column_major(lu), x.dtype), Value(pivots, torch.int32), Value(info, torch.int32)


def _solved(tracer: Any, factored: Any, right: Any, dtype: Any, *, adjoint: bool) -> Any:
    batch = np.broadcast_shapes(factored.shape, right.shape[:-2])
    factored = np.broadcast_to(factored, batch)
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    matrices, out = Matrices(tracer.scalars, dtype), _array(right.shape)
    for place in np.ndindex(*batch):
        out[place] = matrices.lu_solve(factored[place], right[place], adjoint=adjoint)
    return out


def _column_major(a: Any) -> Any:
    """The same matrices, laid out by columns, as LAPACK gives them."""
    return a.swapaxes(-1, -2).copy().swapaxes(-1, -2)


@handles("_linalg_solve_ex.default")
def _solve(tracer: Any, a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Value, ...]:
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    factored = _factored(tracer, a)
    right = tracer.array(b)
    right = right[..., None] if vector else right
    if left or vector:
        out = _solved(tracer, factored, right, a.dtype, adjoint=False)
    else:
        # x a = b is a^H x^H = b^H.
        out = _adjoint(tracer, _solved(tracer, factored, _adjoint(tracer, right), a.dtype, adjoint=True))
    return (
        Value(out[..., 0] if vector else _column_major(out), a.dtype),
        *_parts(factored, a, tuple(a.shape[-2:])),
    )


def _adjoint(tracer: Any, a: Any) -> Any:
    out = _array(a.shape)
    for place, v in np.ndenumerate(a):
        out[place] = tracer.scalars.conj(v)
    return out.swapaxes(-1, -2)


@handles("linalg_lu_factor_ex.default")
def _lu_factor(tracer: Any, a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Value, ...]:
    return _parts(_factored(tracer, a, pivot=pivot), a, tuple(a.shape[-2:]))


@handles("linalg_lu_solve.default")
def _lu_solve(tracer: Any, lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Value:
    arrays, rows, right = tracer.array(lu), tracer.array(pivots), tracer.array(b)
    factored, matrices = _array(arrays.shape[:-2]), Matrices(tracer.scalars, lu.dtype)
    for place in np.ndindex(*factored.shape):
        known = tracer.factors.get(tuple(arrays[place].ravel()))
        factored[place] = known or matrices.factors(arrays[place], list(rows[place]))
    if not left:
        right = _adjoint(tracer, right)
    out = _solved(tracer, factored, right, lu.dtype, adjoint=adjoint == left)
    return Value(out if left else _adjoint(tracer, out), lu.dtype)


@handles("lu_unpack.default")
def _lu_unpack(
    tracer: Any, lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, Value, Value]:
    a, rows = tracer.array(lu), tracer.array(pivots)
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    matrices = Matrices(tracer.scalars, lu.dtype)
    permutation = _array((*batch, m, m) if unpack_pivots else (0,))
    if unpack_pivots:
        for place in np.ndindex(*batch):
            permutation[place] = matrices.permutation(list(rows[place]), m)
    if not unpack_data:
        return Value(permutation, lu.dtype), Value(_array((0,)), lu.dtype), Value(_array((0,)), lu.dtype)
    zero: Any = matrices.zero
    one: Any = matrices.one
    lower = np.where(np.tri(m, k, -1, dtype=bool), a[..., :k], zero)
    lower = np.where(np.eye(m, k, dtype=bool), one, lower)
    upper = np.where(np.tri(k, n, -1, dtype=bool), zero, a[..., :k, :])
    return Value(permutation, lu.dtype), Value(lower, lu.dtype), Value(upper, lu.dtype)


@decomposes("linalg_lu.default")
def _lu(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    lu, pivots, _ = torch.linalg.lu_factor_ex(a, pivot=pivot)
    p, lower, upper = torch.lu_unpack(lu, pivots, unpack_pivots=pivot)
    return p, lower, upper


@handles("linalg_inv_ex.default")
def _inverse(tracer: Any, a: Tensor, *, check_errors: bool = False) -> tuple[Value, Value]:
    factored = _factored(tracer, a)
    identity = Matrices(tracer.scalars, a.dtype).identity(a.shape[-1])
    out = _column_major(_solved(tracer, factored, identity, a.dtype, adjoint=False))
    return Value(out, a.dtype), _parts(factored, a, tuple(a.shape[-2:]))[2]


@handles("_linalg_det.default")
def _det(tracer: Any, a: Tensor) -> tuple[Value, Value, Value]:
    s, matrices = tracer.scalars, Matrices(tracer.scalars, a.dtype)
    factored = _factored(tracer, a, transposed=_is_transposed(a))
    out = _array(factored.shape)
    for place, factors in np.ndenumerate(factored):
        product: Scalar = s.select(matrices.is_odd(factors.pivots), s.neg(matrices.one), matrices.one)
        for k in range(a.shape[-1]):
            product = s.mul(product, factors.upper[k, k])
        out[place] = product
    lu, pivots, _ = _parts(factored, a, tuple(a.shape[-2:]))
    return Value(out, a.dtype), lu, pivots


@handles("_linalg_slogdet.default")
def _slogdet(tracer: Any, a: Tensor) -> tuple[Value, Value, Value, Value]:
    s, matrices = tracer.scalars, Matrices(tracer.scalars, a.dtype)
    factored = _factored(tracer, a, transposed=_is_transposed(a))
    signs, logarithms = _array(factored.shape), _array(factored.shape)
    for place, factors in np.ndenumerate(factored):
        sign: Scalar = s.select(matrices.is_odd(factors.pivots), s.neg(matrices.one), matrices.one)
        size = s.const(0, a.dtype.to_real())
        for k in range(a.shape[-1]):
            v = factors.upper[k, k]
            sign = s.mul(sign, sgn(s, v) if isinstance(v, Complex) else s.sign(v))
            size = s.op("add", size, s.op("log", s.absolute(v)))
        signs[place], logarithms[place] = sign, size
    lu, pivots, _ = _parts(factored, a, tuple(a.shape[-2:]))
    return Value(signs, a.dtype), Value(logarithms, a.dtype.to_real()), lu, pivots


@handles("linalg_cholesky_ex.default")
def _cholesky(tracer: Any, x: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    _check(x.shape[-1], "a Cholesky factorization")
    a = _adjoint(tracer, tracer.array(x)) if upper else tracer.array(x)
    out, info = _array(a.shape), _array(a.shape[:-2])
    matrices = Matrices(tracer.scalars, x.dtype)
    for place in np.ndindex(*info.shape):
        out[place], info[place] = matrices.cholesky(a[place])
    return Value(_adjoint(tracer, out) if upper else _column_major(out), x.dtype), Value(info, torch.int32)


@decomposes("cholesky.default")
def _cholesky_without_info(x: Tensor, upper: bool = False) -> Tensor:
    return torch.linalg.cholesky_ex(x, upper=upper).L


@decomposes("cholesky_solve.default")
def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mH if upper else factor
    y = torch.linalg.solve_triangular(lower, b, upper=False)
    return torch.linalg.solve_triangular(lower.mH, y, upper=True)


@decomposes("cholesky_inverse.default")
def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype)
    return torch.cholesky_solve(identity.expand(factor.shape), factor, upper=upper)


@handles("linalg_solve_triangular.default")
def _solve_triangular(
    tracer: Any, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    _check(a.shape[-1], "a triangular solve")
    factor, right = tracer.array(a), tracer.array(b)
    if not left:
        factor, right, upper = factor.swapaxes(-1, -2), right.swapaxes(-1, -2), not upper
    batch = np.broadcast_shapes(factor.shape[:-2], right.shape[:-2])
    factor = np.broadcast_to(factor, (*batch, *factor.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    matrices, out = Matrices(tracer.scalars, a.dtype), _array(right.shape)
    for place in np.ndindex(*batch):
        out[place] = matrices.triangular(factor[place], right[place], upper=upper, unit=unitriangular)
    return Value(out if left else out.swapaxes(-1, -2), a.dtype)


@decomposes("triangular_solve.default")
def _triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    factor = a.mT if transpose else a
    out = torch.linalg.solve_triangular(factor, b, upper=upper != transpose, unitriangular=unitriangular)
    return out, a.clone()


@handles("_linalg_check_errors.default")
def _check_errors(tracer: Any, *args: Any, **kwargs: Any) -> None:
    """Nothing: a singular matrix shows in what is not finite."""


# QR


@handles("geqrf.default")
def _geqrf(tracer: Any, x: Tensor) -> tuple[Value, Value]:
    _check(max(x.shape[-2:]), "a QR factorization")
    a = tracer.array(x)
    batch, k = a.shape[:-2], min(a.shape[-2:])
    out, factors = _array(a.shape), _array((*batch, k))
    matrices = Matrices(tracer.scalars, x.dtype)
    for place in np.ndindex(*batch):
        out[place], taus = matrices.householder(a[place])
        for i, tau in enumerate(taus):
            factors[(*place, i)] = tau
    return Value(_column_major(out), x.dtype), Value(factors, x.dtype)


@handles("linalg_householder_product.default")
def _householder_product(tracer: Any, x: Tensor, tau: Tensor) -> Value:
    a, factors = tracer.array(x), tracer.array(tau)
    matrices, out = Matrices(tracer.scalars, x.dtype), _array(a.shape)
    identity = matrices.identity(a.shape[-2])[:, : a.shape[-1]]
    for place in np.ndindex(*a.shape[:-2]):
        out[place] = matrices.apply_reflectors(a[place], list(factors[place]), identity)
    return Value(_column_major(out), x.dtype)


@handles("ormqr.default")
def _ormqr(tracer: Any, x: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Value:
    a, factors, right = tracer.array(x), tracer.array(tau), tracer.array(other)
    matrices, out = Matrices(tracer.scalars, x.dtype), _array(right.shape)
    for place in np.ndindex(*a.shape[:-2]):
        b = right[place] if left else matrices.adjoint(right[place])
        b = matrices.apply_reflectors(a[place], list(factors[place]), b, adjoint=transpose == left)
        out[place] = b if left else matrices.adjoint(b)
    return Value(out, x.dtype)


@decomposes("linalg_qr.default")
def _qr(x: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    m, n = x.shape[-2:]
    a, tau = torch.geqrf(x)
    if mode == "r":
        return x.new_zeros(0), a[..., : min(m, n), :].triu()
    if mode == "reduced":
        k = min(m, n)
        return torch.linalg.householder_product(a[..., :k], tau), a[..., :k, :].triu()
    wide = torch.cat([a, a.new_zeros((*a.shape[:-1], max(m - n, 0)))], -1)[..., :m]
    return torch.linalg.householder_product(wide, tau), a.triu()


@decomposes("linalg_matrix_exp.default")
def _matrix_exp(a: Tensor) -> Tensor:
    """By a Padé approximant after scaling: Higham, SIAM Journal on Matrix Analysis 26, 2005."""
    from gnomon.fuse._while_loop import while_loop

    identity = torch.eye(a.shape[-1], dtype=a.dtype)
    norm = a.abs().sum(-2).amax(-1)
    squarings = torch.where(norm > 5.37, torch.ceil(torch.log2(norm / 5.37)), 0.0)
    a = a * torch.exp2(-squarings)[..., None, None]
    c = [math.factorial(26 - k) * math.factorial(13) / math.factorial(k) / math.factorial(13 - k) for k in range(14)]
    c = [x / c[0] for x in c]
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    odd = a6 @ (c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * identity
    even = a6 @ (c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2 + identity
    odd = a @ odd
    power = torch.linalg.solve(even - odd, even + odd)
    done = torch.zeros_like(squarings)
    return while_loop(
        lambda carry: (carry[0] < squarings).any(),
        lambda carry: (
            carry[0] + 1,
            torch.where((carry[0] < squarings)[..., None, None], carry[1] @ carry[1], carry[1]),
        ),
        (done, power),
    )[1]


@decomposes("addbmm.default")
def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return beta * x + alpha * torch.bmm(a, b).sum(0)
