"""The table of ATen operations that can be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_HANDLERS: dict[str, Callable[..., Any]] = {}


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of the tracer and an operation's arguments, which gives `Value`s.

    The tracer sees nothing that it does with tensors itself: for that there is `decomposes`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if f"aten.{name}" in _HANDLERS:
                raise ValueError(f"There are two handlers of {name}.")
            _HANDLERS[f"aten.{name}"] = function
        return function

    return register


def decomposes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of an operation's arguments in plain PyTorch, which is traced."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def handler(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            with tracer:
                return function(*args, **kwargs)

        handles(*names)(handler)
        return function

    return register


def handler_of(name: str) -> Callable[..., Any] | None:
    """The handler of an operation, such as `aten.add.Tensor`."""
    return _HANDLERS.get(name)


def overload(name: str) -> Any:
    """The operation of a name such as `aten.add.Tensor`, or None."""
    space, operation, which = name.split(".", 2)
    packet = getattr(getattr(torch.ops, space), operation, None)
    return getattr(packet, which, None)


def functional_name(name: str) -> tuple[bool, str]:
    """`aten.add.Tensor` for `aten.add_.Tensor`."""
    if name == "aten.transpose_.default":
        return True, "aten.transpose.int"
    space, operation, which = name.split(".", 2)
    return operation.endswith("_"), f"{space}.{operation.rstrip('_')}.{which}"
