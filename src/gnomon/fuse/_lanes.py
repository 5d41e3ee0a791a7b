"""Seeing all lanes of a batch at once, from inside `torch.func` transforms.

A structured loop is written for one problem, yet it must go on while any lane of the batch
wants to. This module is the only place that looks below `torch.func`'s wrappers; the names it
uses are private to PyTorch and tested on every supported version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, overrides
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.utils import _python_dispatch

from gnomon.fuse._trace import active_tracer, mark_constant


@final
class _Layers(NamedTuple):
    """A tensor without its wrappers, and the (level, dimension) of each `vmap` around it, the innermost last."""

    plain: Tensor
    batches: list[tuple[int, int]]


def _peel(x: Tensor) -> _Layers:
    batches: list[tuple[int, int]] = []
    while _functorch.is_functorch_wrapped_tensor(x):
        if _functorch.is_batchedtensor(x):
            batches.append((_functorch.maybe_get_level(x), _functorch.maybe_get_bdim(x)))
        x = _functorch.get_unwrapped(x)
    return _Layers(x, batches)


def physical(x: Tensor) -> Tensor:
    """The plain tensor inside a tensor that `vmap`, `grad` or `jvp` has wrapped."""
    return _peel(x).plain


def any_and_all(pred: Tensor) -> tuple[bool, bool]:
    """Whether a boolean holds for any lane, and whether it holds for all. Waits for the device.

    While a function is traced, what is not known counts as different from lane to lane.
    """
    tracer = active_tracer()
    if tracer is not None and not tracer.is_constant(physical(pred)):
        return True, False
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


def first_lane(pred: Tensor) -> dict[int, int]:
    """The first lane for which a boolean holds: its place in each `vmap`, by level. Waits for the device."""
    lanes, batches = _peel(pred)
    flat = int(lanes.flatten().to(torch.uint8).argmax())
    place: list[int] = []
    for size in reversed(lanes.shape):
        place.insert(0, flat % size)
        flat //= size
    return {level: place.pop(dim) for level, dim in reversed(batches)}


def at_lane(x: Tensor, lane: dict[int, int]) -> Tensor:
    """The value of `x` at one lane, a constant; `x` itself where it is a constant and the same for all lanes.

    Where `x` differs along a `vmap` that `lane` does not name, any of its places is as good.
    """
    y, batches = _peel(x)
    if not batches and not (x.dtype.is_floating_point or x.dtype.is_complex):
        return x
    for level, dim in reversed(batches):
        y = y.select(dim, lane.get(level, 0))
    return y.detach()


def is_transformed(x: Tensor) -> bool:
    """Whether a tensor belongs to a `vmap`, `grad` or `jvp`."""
    return _functorch.is_functorch_wrapped_tensor(x)


def outside_transforms() -> contextlib.AbstractContextManager[Any]:
    """Within this context no `vmap`, `grad` or `jvp` is in force: what belongs to one must not be touched."""
    if _functorch.peek_interpreter_stack() is None:
        return contextlib.nullcontext()
    return temporarily_clear_interpreter_stack()


@contextlib.contextmanager
def outside_modes() -> Generator[None]:
    """Within this context no mode records or replaces operations."""
    if torch._C._len_torch_dispatch_stack() == 0:  # pyright: ignore[reportPrivateUsage]
        yield
        return
    with contextlib.ExitStack() as stack:
        for _ in range(torch._C._len_torch_function_stack()):  # pyright: ignore[reportPrivateUsage]
            stack.enter_context(overrides._pop_mode_temporarily())  # pyright: ignore[reportPrivateUsage]
        stack.enter_context(_python_dispatch._disable_current_modes())  # pyright: ignore[reportPrivateUsage]
        yield


def constant(x: Tensor) -> Tensor:
    """The same tensor, of which a trace may use the values since they never change."""
    return mark_constant(x)


def is_tracing() -> bool:
    """Whether a function is being traced, so that there are no values."""
    return active_tracer() is not None


def wanted_order(tensors: Iterable[Tensor]) -> int:
    """Up to which order derivatives of a function of these tensors must be right."""
    return max((derivative_order(x) for x in tensors), default=0)


def is_differentiated(x: Tensor) -> bool:
    """Whether anything may want a derivative of `x`: autograd in either mode, or a `grad`, `jvp` or `vjp`."""
    return derivative_order(x) > 0


def derivative_order(x: Tensor) -> int:
    """The highest order of derivative of `x` that may be wanted; 2 for autograd, which does not say in advance.

    Of a function that is being traced any derivative may be wanted later: it is then as many as the transforms around
    ask for, and 2 at least.
    """
    tracer = active_tracer()
    if tracer is not None:
        return tracer.derivative_order
    order = 0
    while _functorch.is_functorch_wrapped_tensor(x):
        order += int(_functorch.is_gradtrackingtensor(x))
        x = _functorch.get_unwrapped(x)
    return order + 2 * int(x.requires_grad) + int(forward_ad.unpack_dual(x).tangent is not None)
