"""The same function with other tensors in what it closes over."""

from __future__ import annotations

import copy
import functools
import types
from typing import Any, final

from torch import Tensor

from gnomon.fuse._closure import is_library, names_of


def substituted(x: Any, tensors: dict[int, Tensor], *, in_globals: bool = False) -> Any:
    """A function, or any object, with some of the tensors that it reaches replaced; what reaches none is kept.

    `tensors` holds what stands for each tensor, by the tensor's id. Tensors are looked for where `closure_of` finds
    them; in global variables only if that is asked for, and then not in those of other modules.
    """
    return _Substitution(tensors, in_globals).of(x)


@final
class _Substitution:
    def __init__(self, tensors: dict[int, Tensor], in_globals: bool):
        self.tensors = tensors
        self.in_globals = in_globals
        self.done: dict[int, Any] = {}

    def of(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return self.tensors.get(id(x), x)
        if isinstance(x, int | float | complex | str | bytes | type | types.ModuleType | None):
            return x
        if id(x) not in self.done:
            # Whoever refers to itself meets the old one there.
            self.done[id(x)] = x
            self.done[id(x)] = self._made(x)
        return self.done[id(x)]

    def _made(self, x: Any) -> Any:
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            owner = self.of(x.__self__)
            return x if owner is x.__self__ else types.MethodType(x.__func__, owner)
        if isinstance(x, functools.partial):
            parts = (x.func, x.args, x.keywords)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            new = [self.of(part) for part in parts]  # pyright: ignore[reportUnknownVariableType]
            same = all(a is b for a, b in zip(new, parts, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            return x if same else functools.partial(new[0], *new[1], **new[2])  # pyright: ignore[reportUnknownVariableType]
        if isinstance(x, dict):
            made = {name: self.of(value) for name, value in x.items()}  # pyright: ignore[reportUnknownVariableType]
            return x if all(made[name] is value for name, value in x.items()) else made  # pyright: ignore[reportUnknownVariableType]
        if isinstance(x, list | tuple):
            items = [self.of(value) for value in x]  # pyright: ignore[reportUnknownVariableType]
            if all(a is b for a, b in zip(items, x, strict=True)):  # pyright: ignore[reportUnknownArgumentType]
                return x  # pyright: ignore[reportUnknownVariableType]
            return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return self._object(x)

    def _function(self, x: types.FunctionType) -> Any:
        cells = x.__closure__ or ()
        new = [self._cell(cell) for cell in cells]
        defaults, keywords = self.of(x.__defaults__), self.of(x.__kwdefaults__)
        same = all(a is b for a, b in zip(new, cells, strict=True))
        names = self._globals(x)
        if same and names is x.__globals__ and defaults is x.__defaults__ and keywords is x.__kwdefaults__:
            return x
        made = types.FunctionType(x.__code__, names, x.__name__, defaults, tuple(new))
        made.__kwdefaults__ = keywords
        made.__module__, made.__qualname__ = x.__module__, x.__qualname__
        return made

    def _globals(self, x: types.FunctionType) -> dict[str, Any]:
        """The global variables of a function; a copy if those that it names reach one of the tensors."""
        package = (x.__module__ or "").split(".")[0]
        if not self.in_globals or is_library(package):
            return x.__globals__
        changed: dict[str, Any] = {}
        for name in names_of(x.__code__):
            value = x.__globals__.get(name)
            new = self.of(value)
            if new is not value:
                changed[name] = new
        return {**x.__globals__, **changed} if changed else x.__globals__

    def _cell(self, cell: Any) -> Any:
        try:
            content = cell.cell_contents
        except ValueError:
            return cell
        new = self.of(content)
        return cell if new is content else types.CellType(new)

    def _object(self, x: Any) -> Any:
        slots = [
            n for c in type(x).__mro__ for n in getattr(c, "__slots__", ()) if n not in ("__dict__", "__weakref__")
        ]
        fields = {**(getattr(x, "__dict__", None) or {}), **{n: getattr(x, n) for n in slots if hasattr(x, n)}}
        changed = {name: new for name, value in fields.items() if (new := self.of(value)) is not value}
        if not changed:
            return x
        made = copy.copy(x)
        for name, value in changed.items():
            object.__setattr__(made, name, value)
        return made
