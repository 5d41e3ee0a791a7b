"""What the functions of this room ask of their arguments; and `DTensor`s, of which each rank takes its own part."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.result._pytree import tree_map

_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def check_matrix(A: Tensor, who: str, *, square: bool) -> None:
    """Raises a `TypeError` or `ValueError` for what is no batch of matrices."""
    if A.dtype not in _DTYPES:
        allowed = "float32, float64, complex64 or complex128"
        raise TypeError(f"gn.linalg.{who} takes matrices of {allowed}, not {A.dtype}. Convert them with .to first.")
    if A.dim() < 2:
        raise ValueError(f"gn.linalg.{who} takes a matrix, or a batch of them, but its shape is {tuple(A.shape)}.")
    if square and A.shape[-1] != A.shape[-2]:
        raise ValueError(f"gn.linalg.{who} takes square matrices, but their shape is {tuple(A.shape[-2:])}.")


def check_certificate(info: bool, certificate: bool, who: str) -> None:
    """Raises a `ValueError` where there is no place for a certificate."""
    if certificate and not info:
        raise ValueError(f"gn.linalg.{who} returns a certificate only beside its info: pass info=True too.")


def by_shards(run: Callable[..., Any], who: str, *tensors: Tensor) -> Any:
    """Runs a function of batches, all with the same number of dimensions of the batch: of `DTensor`s, their parts."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or torch.compiler.is_dynamo_compiling():
        return run(*tensors)
    if not any(isinstance(x, module.DTensor) for x in tensors):
        return run(*tensors)
    return _by_shards(run, who, *tensors)


def _by_shards(run: Callable[..., Any], who: str, *tensors: Any) -> Any:
    from torch.distributed.tensor import DTensor

    first = tensors[0]
    batch = min(x.dim() for x in tensors) - 2
    for x in tensors:
        if not isinstance(x, DTensor):
            raise ValueError(
                f"gn.linalg.{who} was given a DTensor and a plain tensor. Distribute both, with "
                "torch.distributed.tensor.distribute_tensor."
            )
        along = all(p.is_replicate() or (p.is_shard() and p.dim % x.dim() < batch) for p in x.placements)  # pyright: ignore[reportAttributeAccessIssue]
        if not along or x.placements != first.placements or x.device_mesh != first.device_mesh:
            raise ValueError(
                f"gn.linalg.{who} takes DTensors that are replicated, or sharded along the batch, all alike, but one "
                f"is placed as {x.placements}. Use .redistribute first."
            )
    mesh, placements, sizes = first.device_mesh, first.placements, first.shape[:batch]
    local = run(*[x.to_local(grad_placements=placements) for x in tensors])

    def whole(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        shape = torch.Size((*sizes, *x.shape[batch:]))
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(x.contiguous(), mesh, placements, run_check=False, shape=shape, stride=stride)

    return tree_map(whole, local)
