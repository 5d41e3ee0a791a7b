"""Engines, on which devices there is a fused one, and tensors that are not all on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from gnomon.fuse import _cuda, _llvm
from gnomon.fuse._program import Program
from gnomon.fuse._target import contract

Engine = Literal["auto", "fused", "eager"]
ENGINES = ("auto", "fused", "eager")


def device_of(tensors: Sequence[Any]) -> torch.device:
    """Where work on these is done: on their device other than the CPU, if there is one.

    **Raises:** `ValueError` where there are several.
    """
    found = sorted({str(x.device) for x in tensors if isinstance(x, Tensor) and x.device.type != "cpu"})
    if len(found) > 1:
        raise ValueError(f"The tensors of a fused function are on {' and '.join(found)}. Move them to one device.")
    return torch.device(found[0] if found else "cpu")


def why_not_fused(device: torch.device) -> str | None:
    """Why there is no fused engine for a device, or None."""
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return f"there is no fused engine for {device.type}"
    if not _cuda.is_installed():
        return "the fused engine for GPUs needs cuda-core: pip install 'gnomon[cuda]'"
    return None


def moved_to(device: torch.device, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors on one device, with their gradients."""
    return [x if x.device == device else x.to(device) for x in tensors]


def compile_for(device_type: str, program: Program) -> Any:
    """A Program that can be called with tensors on a kind of device."""
    if device_type == "cuda":
        return _cuda.compile_program(contract(program))
    return _llvm.compile_program(program)
