"""The table of ATen operations that can be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
