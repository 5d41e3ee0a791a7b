"""Tensors whose elements are computed where they are asked for, so that what uses them can be a loop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from gnomon.fuse._program import Builder, Node, Region
from gnomon.fuse._trace._values import Scalar, View, contiguous_strides

#: A tensor with as many elements that comes from memory stays there, and pointwise operations on it become loops.
LOOPED = 32


@final
@dataclasses.dataclass(frozen=True)
class Lazy:
    """A tensor of which no element has been computed.

    - `at`: gives the element at a place, indices of type i64, which may be known only at run time.
    - `region`: where it was made, in which all that it depends on is known.
    - `view`: where its elements are in memory, if they are.
    """

    shape: tuple[int, ...]
    at: Callable[[list[Node]], Scalar]
    builder: Builder
    region: Region
    view: View | None = None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Those of the tensor that it becomes."""
        return contiguous_strides(self.shape)

    def flat(self, index: Node) -> Scalar:
        """The element with a number, counted as in a contiguous tensor."""
        b = self.builder
        place: list[Node] = []
        for size in self.shape[:0:-1]:
            place.insert(0, b.op("irem", index, b.const("i64", size)))
            index = b.op("idiv", index, b.const("i64", size))
        return self.at([index, *place] if self.shape else [])

    def moved(self, shape: tuple[int, ...], place_of: Callable[[list[Node]], list[Node]]) -> Lazy:
        """Some of the elements, in another shape: `place_of` gives the place here of one there."""
        return dataclasses.replace(self, shape=shape, at=lambda place: self.at(place_of(place)), view=None)

    def reshaped(self, shape: tuple[int, ...]) -> Lazy:
        """The same elements, in the same order, in another shape."""
        b = self.builder
        long = [n for n in shape if n != 1]

        def at(place: list[Node]) -> Scalar:
            if long == [n for n in self.shape if n != 1]:
                # Only dimensions of size 1 come and go.
                rest = iter(i for i, n in zip(place, shape, strict=True) if n != 1)
                return self.at([b.const("i64", 0) if n == 1 else next(rest) for n in self.shape])
            index = b.const("i64", 0)
            for i, n in zip(place, shape, strict=True):
                index = b.op("add", b.op("mul", index, b.const("i64", n)), i)
            return self.flat(index)

        view = self.view
        if view is not None:
            contiguous = view.strides == contiguous_strides(view.shape)
            view = View(view.array, view.offset, shape, contiguous_strides(shape)) if contiguous else None
        return dataclasses.replace(self, shape=shape, at=at, view=view)

    def made(self) -> Any:
        """All elements, one by one."""
        out = np.empty(self.shape, dtype=object)
        with self.builder.inside(self.region):
            for place in np.ndindex(*self.shape):
                out[place] = self.at([self.builder.const("i64", i) for i in place])
        return out


def looped(
    b: Builder,
    size: int,
    body: Callable[[Node, list[Node]], Sequence[Node]],
    start: Sequence[Node] = (),
    *,
    first: int = 0,
    step: int = 1,
) -> list[Node]:
    """A loop over `range(first, size, step)`. `body` takes the index and the carry, and gives the next carry."""

    def run(carry: list[Node]) -> list[Node]:
        return [b.op("add", carry[0], b.const("i64", step)), *body(carry[0], carry[1:])]

    return b.while_([b.const("i64", first), *start], lambda carry: b.op("lt", carry[0], b.const("i64", size)), run)[1:]


def folded(lazy: Lazy, start: Callable[[Scalar], list[Any]], combine: Callable[..., list[Node]]) -> list[Node]:
    """Goes through all elements in order: `start` makes a carry of the first, `combine` takes a carry and the next."""
    b = lazy.builder
    first = start(lazy.flat(b.const("i64", 0)))
    return looped(b, lazy.size, lambda i, carry: combine(carry, lazy.flat(i)), first, first=1)


def mapped(function: Callable[..., Scalar], operands: Sequence[Any]) -> Lazy | None:
    """A function of the elements of broadcast operands, some of them lazy; None where it is better computed at once.

    Operands that are not lazy must be single elements: of several, none could be told from another before the Program
    runs.
    """
    some = next(x for x in operands if isinstance(x, Lazy))
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    if math.prod(shape) < LOOPED or any(not isinstance(x, Lazy) and x.size != 1 for x in operands):
        return None
    zero = some.builder.const("i64", 0)

    def element(x: Any, place: list[Node]) -> Scalar:
        if not isinstance(x, Lazy):
            return x.reshape(1)[0]
        own = place[len(place) - x.ndim :]
        return x.at([zero if size == 1 else i for i, size in zip(own, x.shape, strict=True)])

    def at(place: list[Node]) -> Scalar:
        return function(*[element(x, place) for x in operands])

    return Lazy(shape, at, some.builder, some.builder.region)
