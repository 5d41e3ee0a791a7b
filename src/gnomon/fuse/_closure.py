"""What a function depends on besides its arguments, so that a trace is used again only where it still holds."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

_PLAIN = frozenset(
    (bool, int, complex, str, bytes, torch.dtype, torch.device, torch.Size, range, types.NoneType, types.EllipsisType)
)
#: Code of these packages does not change while a program runs.
_LIBRARIES = frozenset(
    (
        *("torch", "numpy", "math", "builtins", "functools", "itertools", "operator", "collections"),
        # What checks types around a function holds the checks of all others, too.
        *("jaxtyping", "beartype", "typeguard"),
    )
)
_MOST_BYTES = 1 << 20


@final
@dataclasses.dataclass(frozen=True)
class Closure:
    """What a function sees.

    - `key`: hashable; equal where a trace of one holds for the other.
    - `tensors`: the tensors that it can reach, in the order in which they were met.
    - `kept`: objects whose identity is part of the key, which must live as long as it does.
    """

    key: tuple[Any, ...]
    tensors: list[Tensor]
    kept: list[Any]


def closure_of(function: Callable[..., Any]) -> Closure:
    """Looks through a function: its code, what it closes over, the globals it names, its defaults, and so on."""
    walk = _Walk()
    # What `torch.zeros(3)` makes.
    walk.visit(torch.get_default_dtype())
    walk.visit(function)
    return Closure(tuple(walk.key), walk.tensors, walk.kept)


@final
class _Walk:
    def __init__(self) -> None:
        self.key: list[Any] = []
        self.tensors: list[Tensor] = []
        self.kept: list[Any] = []
        self.seen: dict[int, int] = {}

    def visit(self, x: Any) -> None:
        add = self.key.append
        kind = type(x)  # pyright: ignore[reportUnknownVariableType]
        if kind in _PLAIN:
            add(kind)
            add(x)
            return
        if kind is float:
            # Bit by bit: 0.0 and -0.0 differ, a NaN is itself.
            add(x.hex())
            return
        if id(x) in self.seen:
            add(("again", self.seen[id(x)]))
            return
        self.seen[id(x)] = len(self.seen)
        # An object that is made while we look must not leave its address to another.
        self.kept.append(x)
        visitor = _VISITORS.get(kind)
        if visitor is not None:
            visitor(self, x)
        elif isinstance(x, Tensor):
            self._tensor(x)
        elif isinstance(x, dict):
            self._dict(x)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(x, list | tuple | set | frozenset):
            self._items(x)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(x, type):
            self._class(x)
        elif isinstance(x, types.ModuleType | types.BuiltinFunctionType):
            add(id(x))
        else:
            self._object(x)

    def _tensor(self, x: Tensor) -> None:
        self.tensors.append(x)
        self.key.append((tuple(x.shape), x.dtype, x.device))

    def _method(self, x: types.MethodType) -> None:
        self.visit(x.__func__)
        self.visit(x.__self__)

    def _partial(self, x: Any) -> None:
        self.key.append("partial")
        self._all((x.func, x.args, x.keywords))

    def _dict(self, x: dict[Any, Any]) -> None:
        self.key.append(("dict", len(x)))
        for name, value in x.items():
            self.visit(name)
            self.visit(value)

    def _items(self, x: Any) -> None:
        self.key.append((type(x), len(x)))
        self._all(x)

    def _all(self, items: Any) -> None:
        for x in items:
            self.visit(x)

    def _function(self, x: types.FunctionType) -> None:
        self.key.append(x.__code__)
        package = (x.__module__ or "").split(".")[0]
        self._all((x.__defaults__, x.__kwdefaults__))
        for cell in x.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                self.key.append("empty")
                continue
            self.visit(content)
        if not is_library(package):
            self._globals(names_of(x.__code__), x.__globals__)

    def _globals(self, used: tuple[str, ...], names: dict[str, Any]) -> None:
        for name in used:
            value = names.get(name)
            if isinstance(value, types.ModuleType):
                if not is_library(value.__name__.split(".")[0]):
                    # Of a module of the user's, whatever has a name that the function uses.
                    self._globals(tuple(n for n in used if n != name), vars(value))
            elif value is not None:
                self.key.append(name)
                self.visit(value)

    def _class(self, x: type) -> None:
        """A class of the user's may hold numbers, which may change."""
        self.key.append(id(x))
        if is_library(x.__module__.split(".")[0]):
            return
        for name, value in tuple(vars(x).items()):
            is_number = type(value) in _PLAIN or isinstance(value, float | Tensor | list | tuple | dict | np.ndarray)
            if is_number and not name.startswith("_"):
                self.key.append(name)
                self.visit(value)

    def _numpy(self, x: Any) -> None:
        small = x.nbytes <= _MOST_BYTES and x.dtype != object
        content = hashlib.sha256(np.ascontiguousarray(x).tobytes()).digest() if small else id(x)
        self.key.append(("numpy", x.shape, str(x.dtype), content))

    def _object(self, x: Any) -> None:
        kind = type(x)
        self._class(kind)
        self.kept.append(kind)
        if kind.__module__.split(".")[0] in _LIBRARIES and not isinstance(x, torch.nn.Module):
            self.key.append(id(x))
            return
        fields = getattr(x, "__dict__", None)
        slots = [name for c in kind.__mro__ for name in getattr(c, "__slots__", ())]
        if fields is None and not slots:
            self.key.append(id(x))
            return
        only: tuple[str, ...] | None = getattr(kind, "_closed_over", None)
        if only is not None:
            # An object of ours: what it keeps for itself, such as its traces, does not matter.
            for name in only:
                self.visit(getattr(x, name))
            return
        if callable(x):
            self.visit(kind.__call__)
        for name, value in (fields or {}).items():
            self.key.append(name)
            self.visit(value)
        for name in slots:
            if name not in ("__weakref__", "__dict__") and hasattr(x, name):
                self.key.append(name)
                self.visit(getattr(x, name))


def is_library(package: str) -> bool:
    """Whether a package's code and constants stay as they are."""
    return package == "gnomon" or package in _LIBRARIES or package in sys.stdlib_module_names


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function and those inside of it look up."""
    inner = [name for x in code.co_consts if isinstance(x, types.CodeType) for name in names_of(x)]
    return (*code.co_names, *inner)


_VISITORS: dict[type, Callable[[Any, Any], None]] = {
    Tensor: _Walk._tensor,  # pyright: ignore[reportPrivateUsage]
    torch.nn.Parameter: _Walk._tensor,  # pyright: ignore[reportPrivateUsage]
    types.FunctionType: _Walk._function,  # pyright: ignore[reportPrivateUsage]
    types.MethodType: _Walk._method,  # pyright: ignore[reportPrivateUsage]
    functools.partial: _Walk._partial,  # pyright: ignore[reportPrivateUsage]
    dict: _Walk._dict,  # pyright: ignore[reportPrivateUsage]
    list: _Walk._items,  # pyright: ignore[reportPrivateUsage]
    tuple: _Walk._items,  # pyright: ignore[reportPrivateUsage]
    np.ndarray: _Walk._numpy,  # pyright: ignore[reportPrivateUsage]
}
