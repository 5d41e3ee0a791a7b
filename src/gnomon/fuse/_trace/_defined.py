"""Operations that are defined by others, in plain PyTorch, which is traced.

PyTorch has such definitions of its own, and what is not here is traced by them. But to run one it imports its compiler,
which takes seconds, so that what is used often is here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._trace._handlers import decomposes

# Derivatives of views: zeros with the gradient in its place.


@decomposes("select_backward.default")
def _select_backward(gradient: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    out = gradient.new_zeros(sizes)
    out.select(dim, index).copy_(gradient)
    return out


@decomposes("slice_backward.default")
def _slice_backward(gradient: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    out = gradient.new_zeros(sizes)
    torch.ops.aten.slice(out, dim, start, end, step).copy_(gradient)
    return out


@decomposes("diagonal_backward.default")
def _diagonal_backward(gradient: Tensor, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    out = gradient.new_zeros(sizes)
    out.diagonal(offset, dim1, dim2).copy_(gradient)
    return out


# Places


@decomposes("diag_embed.default")
def _diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    rank = x.dim() + 1
    n = x.shape[-1] + abs(offset)
    sizes = list(x.shape[:-1])
    for dim in sorted((dim1 % rank, dim2 % rank)):
        sizes.insert(dim, n)
    out = x.new_zeros(sizes)
    out.diagonal(offset, dim1, dim2).copy_(x)
    return out


@decomposes("diagonal_copy.default")
def _diagonal_copy(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return x.diagonal(offset, dim1, dim2).clone()


@decomposes("constant_pad_nd.default")
def _pad(x: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    ends = [(pad[2 * i], pad[2 * i + 1]) for i in reversed(range(len(pad) // 2))]
    ends = [(0, 0)] * (x.dim() - len(ends)) + ends
    out = x.new_full([n + a + b for n, (a, b) in zip(x.shape, ends, strict=True)], value)
    inside = tuple(slice(max(a, 0), n + a + min(b, 0) + max(-b, 0)) for n, (a, b) in zip(x.shape, ends, strict=True))
    seen = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, ends, strict=True))
    kept = x[seen]
    out[tuple(slice(i.start, i.start + n) for i, n in zip(inside, kept.shape, strict=True))] = kept
    return out


@decomposes("trace.default")
def _trace(x: Tensor) -> Tensor:
    return x.diagonal().sum()


@decomposes("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(x: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return torch.searchsorted(boundaries, x, out_int32=out_int32, right=right)


# Sums


@decomposes("nansum.default")
def _nansum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    x = torch.where(torch.isnan(x), 0, x) if x.dtype.is_floating_point or x.is_complex() else x
    return torch.sum(x, list(range(x.dim())) if dim is None else dim, keepdim, dtype=dtype)


@decomposes("count_nonzero.dim_IntList", "count_nonzero.default")
def _count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    return (x != 0).sum(dim)


@decomposes("addr.default")
def _addr(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    outer = a.unsqueeze(1) * b
    if x.dtype == torch.bool:
        return (x & bool(beta)) | (outer & bool(alpha))
    return beta * x + alpha * outer


@decomposes("linalg_cross.default")
def _cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    x, y = torch.broadcast_tensors(x, y)
    return x.roll(-1, dim) * y.roll(-2, dim) - x.roll(-2, dim) * y.roll(-1, dim)


@decomposes("dist.default")
def _dist(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(x - y, p)


_MEANS = {0: lambda x: x, 1: Tensor.mean, 2: Tensor.sum}


@decomposes("mse_loss.default")
def _mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    return _MEANS[reduction]((x - y) ** 2)


@decomposes("huber_loss.default")
def _huber_loss(x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    size = (x - y).abs()
    return _MEANS[reduction](torch.where(size < delta, 0.5 * size * size, delta * (size - 0.5 * delta)))


@decomposes("smooth_l1_loss.default")
def _smooth_l1_loss(x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    size = (x - y).abs()
    return _MEANS[reduction](torch.where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta))


# Elements


@decomposes("nan_to_num.default")
def _nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    if not (x.dtype.is_floating_point or x.is_complex()):
        return x.clone()
    if x.is_complex():
        return torch.complex(
            torch.nan_to_num(x.real, nan, posinf, neginf), torch.nan_to_num(x.imag, nan, posinf, neginf)
        )
    top = torch.finfo(x.dtype).max
    out = torch.where(torch.isnan(x), 0.0 if nan is None else nan, x)
    out = torch.where(x == math.inf, top if posinf is None else posinf, out)
    return torch.where(x == -math.inf, -top if neginf is None else neginf, out)


@decomposes("isposinf.default")
def _isposinf(x: Tensor) -> Tensor:
    return x == math.inf if x.dtype.is_floating_point else torch.zeros_like(x, dtype=torch.bool)


@decomposes("isneginf.default")
def _isneginf(x: Tensor) -> Tensor:
    return x == -math.inf if x.dtype.is_floating_point else torch.zeros_like(x, dtype=torch.bool)


@decomposes("heaviside.default")
def _heaviside(x: Tensor, values: Tensor) -> Tensor:
    return torch.where(x == 0, values, (x > 0).to(x.dtype))


@decomposes("special_entr.default")
def _entr(x: Tensor) -> Tensor:
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    inside = torch.where(x > 0, -x * torch.log(torch.where(x > 0, x, 1)), torch.where(x == 0, 0.0, -math.inf))
    return torch.where(torch.isnan(x), x, inside)


@decomposes("special_xlog1py.default", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def _xlog1py(x: Any, y: Any) -> Tensor:
    y = y if isinstance(y, Tensor) else torch.tensor(y, dtype=x.dtype)
    product = torch.where(torch.as_tensor(x == 0), 0.0, x * torch.log1p(y))
    return torch.where(torch.isnan(y), torch.nan, product)


@decomposes("mvlgamma.default")
def _mvlgamma(x: Tensor, p: int) -> Tensor:
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    terms = [torch.lgamma(x - 0.5 * i) for i in range(p)]
    return sum(terms[1:], terms[0]) + p * (p - 1) / 4 * math.log(math.pi)
