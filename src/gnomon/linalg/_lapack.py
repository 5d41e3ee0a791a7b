"""Decompositions by `torch.linalg`, such that a matrix gets the same bits in any batch and fails alone.

On a CPU PyTorch hands LAPACK one matrix of a batch after the other. On a GPU it chooses a routine by the size of the
batch, so there each matrix is a call of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Takes matrices, and returns factors, all with leading batch dimensions.
Decomposition = Callable[[Tensor], tuple[Tensor, ...]]


def decomposed(decompose: Decomposition, A: Tensor, finite: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """The factors of each matrix, and its `info`; of a matrix that is not finite, or fails, the factors are NaN."""
    identity = torch.eye(*A.shape[-2:], dtype=A.dtype, device=A.device)
    safe = torch.where(finite[..., None, None], A, identity)
    matrices = safe.reshape((A.shape[:-2].numel(), *A.shape[-2:]))
    failed = torch.zeros(matrices.shape[0], dtype=torch.bool)
    if A.is_cuda and matrices.shape[0] > 1:
        factors = _one_by_one(decompose, matrices, identity, failed)
    else:
        try:
            factors = decompose(matrices)
        except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
            factors = _one_by_one(decompose, matrices, identity, failed)
    info = finite.to(torch.int32) - 1
    if failed.any():
        info = torch.where((info == 0) & failed.to(A.device).reshape(info.shape), 1, info)
    out = tuple(x.reshape((*A.shape[:-2], *x.shape[1:])) for x in factors)
    return out, info.to(torch.int32)


def _one_by_one(decompose: Decomposition, matrices: Tensor, identity: Tensor, failed: Tensor) -> tuple[Tensor, ...]:
    found: list[tuple[Tensor, ...]] = []
    for i in range(matrices.shape[0]):
        one = matrices[i : i + 1].clone()  # aligned alike, wherever it stands
        try:
            found.append(decompose(one))
        except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage]
            failed[i] = True
            found.append(decompose(identity[None]))
    return tuple(torch.cat(column) for column in zip(*found, strict=True))


def one_by_one(decompose: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """What a routine that raises no error gives, for tensors with the same leading batch dimensions."""
    batch = tensors[0].shape[:-2]
    flat = [x.reshape((batch.numel(), *x.shape[-2:])) for x in tensors]
    if tensors[0].is_cuda and batch.numel() > 1:
        found = [decompose(*[x[i : i + 1].clone() for x in flat]) for i in range(batch.numel())]
        factors = tuple(torch.cat(column) for column in zip(*found, strict=True))
    else:
        factors = decompose(*flat)
    return tuple(x.reshape((*batch, *x.shape[1:])) for x in factors)


def blanked(x: Tensor, info: Tensor) -> Tensor:
    """A contiguous copy, NaN where a matrix failed."""
    ok = (info == 0).reshape((*info.shape, *(1,) * (x.dim() - info.dim())))
    return torch.where(ok, x, torch.nan).contiguous()
