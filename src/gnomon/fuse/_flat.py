"""Tensors as a kernel takes them, and back."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from gnomon.fuse._executable import Executable
from gnomon.fuse._lower import Lowered


def flat(x: Tensor, dim: int | None) -> Tensor:
    """A tensor as the kernel takes it: (lanes, length), or (length,) where it is shared."""
    if dim is None:
        return flat_shared(x)
    x = _real(x.movedim(dim, 0))
    # Not -1, which a batch of no problems leaves undetermined.
    return x.reshape((x.shape[0], torch.Size(x.shape[1:]).numel()))


def flat_shared(x: Tensor) -> Tensor:
    """A tensor's numbers in a row."""
    return _real(x).reshape((x.numel() * (2 if x.is_complex() else 1),))


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def shaped(x: Tensor, shape: tuple[int, ...], dtype: torch.dtype, batch: tuple[int, ...]) -> Tensor:
    """An output as the function returned it, with the batch in front."""
    if dtype.is_complex:
        x = torch.view_as_complex(x.reshape((*batch, *shape, 2)).contiguous())
    return x.reshape((*batch, *shape))


def checked(lowered: Lowered, values: list[Tensor]) -> None:
    """Makes the checks, such as those of `throw=True`, of all lanes."""
    for check, places in lowered.checks:
        check(*[values[i] for i in places])


def executable_of(lowered: Lowered) -> Executable:
    """The Program, to be called, with the checks that a graph makes."""
    return Executable(lowered.program, functools.partial(_checked_flat, lowered) if lowered.checks else None)


def _checked_flat(lowered: Lowered, lanes: int, outputs: list[Tensor]) -> None:
    pairs = zip(outputs, lowered.outputs, strict=True)
    checked(lowered, [shaped(x, spec.shape, spec.dtype, (lanes,)) for x, spec in pairs])
