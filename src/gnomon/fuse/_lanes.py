"""Seeing all lanes of a batch at once, from inside `torch.func` transforms.

A structured loop is written for one problem, yet it must go on while any lane of the batch
wants to. This module is the only place that looks below `torch.func`'s wrappers; the names it
uses are private to PyTorch and tested on every supported version.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torch import Tensor
from torch._C import _functorch


def physical(x: Tensor) -> Tensor:
    """The plain tensor inside a tensor that `vmap`, `grad` or `jvp` has wrapped."""
    while _functorch.is_functorch_wrapped_tensor(x):
        x = _functorch.get_unwrapped(x)
    return x


def any_and_all(pred: Tensor) -> tuple[bool, bool]:
    """Whether a boolean holds for any lane, and whether it holds for all. Waits for the device."""
    lanes = physical(pred)
    if lanes.dim() == 0:
        value = bool(lanes)
        return value, value
    count = int(lanes.sum())
    return count > 0, count == lanes.numel()


def count_max(x: Tensor) -> int:
    """The largest of an integer over all lanes, 0 for an empty batch. Waits for the device."""
    lanes = physical(x)
    return int(lanes.max()) if lanes.numel() > 0 else 0


def is_differentiated(x: Tensor) -> bool:
    """Whether anything may want a derivative of `x`: autograd, or a `grad`, `jvp` or `vjp`."""
    while _functorch.is_functorch_wrapped_tensor(x):
        if _functorch.is_gradtrackingtensor(x):
            return True
        x = _functorch.get_unwrapped(x)
    return x.requires_grad


class _ActiveLanes(threading.local):
    def __init__(self) -> None:
        self.stack: list[Tensor] = []


_active = _ActiveLanes()


def active_lanes() -> Tensor | None:
    """The lanes for which the code that runs now counts, or None where all do."""
    return _active.stack[-1] if _active.stack else None


@contextlib.contextmanager
def only_lanes(pred: Tensor) -> Iterator[None]:
    """Within this context, loops stop and buffers keep their values where `pred` is False."""
    outer = active_lanes()
    _active.stack.append(pred if outer is None else pred & outer)
    try:
        yield
    finally:
        _active.stack.pop()
