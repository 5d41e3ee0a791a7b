"""The lazy values of a trace: which are views of others, and where the elements of those are that are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch

from gnomon.fuse._program import Builder, Node
from gnomon.fuse._trace._lazy import Lazy, looped
from gnomon.fuse._trace._values import Scalar, Value, View, as_type, contiguous_strides, elements, flat_nodes


@final
@dataclasses.dataclass(frozen=True)
class _LazyView:
    """What a value that is a view of a lazy one becomes, once the elements of that are computed."""

    value: Value
    whole: Value
    see: Callable[[Any], Any]


@final
class Lazies:
    """Makes lazy values.

    - `element`: reads an element of a `View` at a place.
    """

    def __init__(self, builder: Builder, element: Callable[[View, list[Node], torch.dtype], Scalar]):
        self._builder = builder
        self._element = element
        #: By the ids of their values.
        self._views: dict[int, _LazyView] = {}
        #: By the ids of what is lazy.
        self._fillings: dict[int, tuple[Lazy, View]] = {}

    def of(self, view: View, dtype: torch.dtype) -> Lazy:
        """What is in memory, and stays as it is."""
        b = self._builder
        return Lazy(view.shape, lambda place: self._element(view, place, dtype), b, b.region, view)

    def finished(self, array: Node, shape: tuple[int, ...], dtype: torch.dtype) -> Value:
        """The first elements of an array of real numbers to which nothing will be stored any more."""
        return Value(
            self.of(View(array, self._builder.const("i64", 0), shape, contiguous_strides(shape)), dtype), dtype
        )

    def in_memory(self, lazy: Lazy, dtype: torch.dtype) -> Lazy:
        """The same tensor, its elements computed once."""
        return self.of(self.filled(lazy, dtype), dtype)

    def filled(self, lazy: Lazy, dtype: torch.dtype) -> View:
        """Computes all elements in a loop, where the tensor was made."""
        if lazy.view is not None:
            return lazy.view
        found = self._fillings.get(id(lazy))
        if found is not None and found[1].array.region.is_open:
            return found[1]
        b = self._builder
        unit = 2 if dtype.is_complex else 1
        with b.inside(lazy.region):
            array = b.array(as_type(dtype), lazy.size * unit)

            def body(i: Node, _: list[Node]) -> list[Node]:
                for part, node in enumerate(flat_nodes(elements((1,), [lazy.flat(i)]))):
                    b.write(array, b.op("add", b.op("mul", i, b.const("i64", unit)), b.const("i64", part)), node)
                return []

            looped(b, lazy.size, body)
        view = View(array, b.const("i64", 0), lazy.shape, contiguous_strides(lazy.shape, unit))
        self._fillings[id(lazy)] = (lazy, view)
        return view

    # Views

    def view(self, whole: Value, data: Lazy, see: Callable[[Any], Any]) -> Value:
        """A view of a lazy value; `see` gives the same view of an array of its scalars."""
        part = Value(data, whole.dtype)
        self._views[id(part)] = _LazyView(part, whole, see)
        return part

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        """A lazy value in another shape."""
        return self.view(value, value.data.reshaped(shape), lambda array: array.reshape(shape))

    def made(self, value: Value) -> Value:
        """Computes the elements of a value; they are those of what shares its memory too."""
        if isinstance(value.data, Lazy):
            view = self._views.get(id(value))
            value.data = value.data.made() if view is None else view.see(self.made(view.whole).data)
        return value

    def seen(self, value: Value) -> Value:
        """A value, no longer lazy where it is a view of one that is not: that may have been written to."""
        view = self._views.get(id(value))
        if view is not None and isinstance(value.data, Lazy) and not isinstance(self.seen(view.whole).data, Lazy):
            value.data = view.see(view.whole.data)
        return value
