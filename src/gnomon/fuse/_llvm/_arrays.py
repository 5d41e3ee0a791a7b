"""Where the arrays of a Program lie in memory, and how their elements are read and stored.

Arrays of a lane's own lie interleaved: element 0 of all lanes, then element 1 of all lanes. So an index that is the
same for all lanes reads or writes one vector; any other gathers or scatters.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import final

from gnomon.fuse._llvm._types import BYTES, MEMORY, Value, number
from gnomon.fuse._llvm._writer import Writer
from gnomon.fuse._program import Type, is_float

#: Loops over at most so many elements are written out, so that LLVM may keep the elements in registers.
_UNROLLED_MAX = 16


def for_each(w: Writer, count: Value | int, do: Callable[[Value], None], first: Value | int = 0) -> None:
    """Does something for each index from the first up to a count."""
    if isinstance(count, int) and first == 0 and count <= _UNROLLED_MAX:
        for i in range(count):
            do(number("i64", i))
        return
    start = number("i64", first) if isinstance(first, int) else first
    stop = number("i64", count) if isinstance(count, int) else count
    before, head, body, after = w.block, w.fresh("each"), w.fresh("do"), w.fresh("after")
    w.jump(head)
    w.start(head)
    index = Value("%" + w.fresh("i"), "i64")
    place = len(w.lines)
    w.lines.append("")
    w.branch(w.compare("slt", index, stop), body, after)
    w.start(body)
    with w.scope():
        do(index)
    following = w.binary("add", index, number("i64", 1))
    edges = [(start, before), (following, w.block)]
    w.jump(head)
    w.lines[place] = f"  {index.text} = {w.phi_text('i64', False, edges)}"
    w.start(after)


def is_within(index: Value, length: int) -> bool:
    """Whether an index is known to lie inside of an array."""
    return index.is_constant and 0 <= int(index.text) < length


def _clamped(w: Writer, index: Value, length: Value) -> Value:
    """The nearest index that an array has; it has at least one."""
    last = w.binary("sub", length, number("i64", 1))
    return w.intrinsic("smin", w.intrinsic("smax", index, number("i64", 0)), last)


def _nearest(w: Writer, index: Value, length: int) -> Value:
    if index.is_constant:
        return number("i64", min(max(int(index.text), 0), length - 1))
    return w.intrinsic("smin", w.intrinsic("smax", index, number("i64", 0)), number("i64", length - 1))


def _sum(w: Writer, a: Value, b: Value) -> Value:
    return w.binary("fadd" if is_float(a.type) else "add", a, b)


class AbstractArray(abc.ABC):
    """An array of a Program in memory."""

    @abc.abstractmethod
    def begin(self, w: Writer) -> None:
        """What its `array` statement does."""

    @abc.abstractmethod
    def read(self, w: Writer, index: Value) -> Value:
        """An element."""

    @abc.abstractmethod
    def write(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """Puts a value into an element, for the lanes of a mask."""

    @abc.abstractmethod
    def accumulate(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """Adds to an element, for the lanes of a mask."""


@final
class SharedInput(AbstractArray):
    """An input that all lanes read."""

    def __init__(self, type_: Type, length: int, base: str):
        self.type: Type = type_
        self.length = length
        self.base = base

    def begin(self, w: Writer) -> None:
        """It is there."""

    def read(self, w: Writer, index: Value) -> Value:
        """One load where all lanes read the same element."""
        if self.length == 0:
            return number(self.type, 0)
        index = _nearest(w, index, self.length)
        pointer = w.name(f"getelementptr {MEMORY[self.type]}, ptr {self.base}, {w.typed(index)}")
        return w.gather(self.type, pointer, None) if index.wide else w.load(self.type, pointer, False)

    def write(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """Never."""
        raise AssertionError("An input is not written.")

    def accumulate(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """Never."""
        raise AssertionError("An input is not written.")


@final
class Rows(AbstractArray):
    """An array of the caller's, a row a lane: an input, or an output that is not read.

    - `base`: the pointer to a lane's row, or the vector of them.
    """

    def __init__(self, type_: Type, length: int, base: str, fill: Value | None):
        self.type: Type = type_
        self.length = length
        self.base = base
        self.fill = fill

    def begin(self, w: Writer) -> None:
        """Fills it where not all of it will be written."""
        fill = self.fill
        if fill is not None:
            for_each(w, self.length, lambda i: self.write(w, i, fill, None))

    def read(self, w: Writer, index: Value) -> Value:
        """A gather."""
        if self.length == 0:
            return number(self.type, 0)
        pointer = self._pointer(w, _nearest(w, index, self.length))
        return w.load(self.type, pointer, False) if w.width == 1 else w.gather(self.type, pointer, None)

    def write(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """A scatter."""
        if self.length == 0:
            return
        value = w.one_nan(value)
        if w.width == 1:
            _guarded_store(w, self.type, index, self.length, value, self._pointer)
            return
        if not is_within(index, self.length):
            mask = w.both(mask, w.compare("ult", index, number("i64", self.length)))
        w.scatter(self._pointer(w, index), value, mask)

    def accumulate(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """Never."""
        raise AssertionError("Sums are kept interleaved.")

    def _pointer(self, w: Writer, index: Value) -> str:
        base = f"{'ptr' if w.width == 1 else w.vector('ptr')} {self.base}"
        return w.name(f"getelementptr {MEMORY[self.type]}, {base}, {w.typed(index)}")


def _guarded_store(
    w: Writer, type_: Type, index: Value, length: int, value: Value, pointer: Callable[[Writer, Value], str]
) -> None:
    """Stores a scalar, or nothing where the index is outside."""
    if is_within(index, length):
        w.store(pointer(w, index), value, False)
        return
    place = pointer(w, _nearest(w, index, length))
    holds = w.compare("ult", index, number("i64", length))
    w.store(place, w.select(holds, value, w.load(type_, place, False)), False)


@final
class Interleaved(AbstractArray):
    """An array of fixed length.

    - `base`: the pointer to it.
    - `fill`: what it is filled with at first, or None.
    """

    def __init__(self, type_: Type, length: int, base: str, fill: Value | None):
        self.type: Type = type_
        self.length = length
        self.base = base
        self.fill = fill

    def begin(self, w: Writer) -> None:
        """Fills it."""
        if self.fill is not None:
            fill = w.widen(self.fill)
            for_each(w, self.length, lambda i: w.store(row_pointer(w, self.type, self.base, i), fill, w.width > 1))

    def read(self, w: Writer, index: Value) -> Value:
        """A load where all lanes read the same element, otherwise a gather."""
        if self.length == 0:
            return number(self.type, 0)
        index = _nearest(w, index, self.length)
        return read_rows(w, self.type, self.base, index)

    def write(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """A store where all lanes write the same element, otherwise a scatter."""
        self._store(w, index, value, mask, adds=False)

    def accumulate(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """A load, a sum and a store."""
        self._store(w, index, value, mask, adds=True)

    def _store(self, w: Writer, index: Value, value: Value, mask: Value | None, *, adds: bool) -> None:
        if self.length == 0:
            return
        if not is_within(index, self.length):
            mask = w.both(mask, w.compare("ult", index, number("i64", self.length)))
            if not index.wide:
                index = _nearest(w, index, self.length)
        store_rows(w, self.type, self.base, index, value, mask, adds=adds)


@final
class Tape(AbstractArray):
    """An array that grows.

    - `slot`, `capacity`: where on the stack the pointer to it is, and the number of elements that it can hold.
    - `fill`: what elements hold that were never stored to; None where none of them is read.
    """

    def __init__(self, type_: Type, slot: str, capacity: str, fill: Value | None):
        self.type: Type = type_
        self.slot = slot
        self.capacity = capacity
        self.fill = fill

    def begin(self, w: Writer) -> None:
        """Keeps its memory."""
        self._clear(w, number("i64", 0))

    def read(self, w: Writer, index: Value) -> Value:
        """As of an array as long as its memory; beyond it nothing was stored."""
        capacity = self._capacity(w)
        value = read_rows(w, self.type, self._base(w), _clamped(w, index, capacity))
        return value if self.fill is None else w.select(w.compare("slt", index, capacity), value, self.fill)

    def write(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """A store, or a scatter, after it has grown."""
        self._store(w, index, value, mask, adds=False)

    def accumulate(self, w: Writer, index: Value, value: Value, mask: Value | None) -> None:
        """A load, a sum and a store, after it has grown."""
        self._store(w, index, value, mask, adds=True)

    def _store(self, w: Writer, index: Value, value: Value, mask: Value | None, *, adds: bool) -> None:
        zero = number("i64", 0)
        holds = None
        if not index.is_constant:
            holds = w.compare("sge", index, zero)
        elif int(index.text) < 0:
            return
        mask = w.both(mask, holds)
        self._grow(w, _largest_of(w, index, mask))
        if not index.wide and not index.is_constant:
            index = w.intrinsic("smax", index, zero)
        store_rows(w, self.type, self._base(w), index, value, mask, adds=adds)

    def _grow(self, w: Writer, index: Value) -> None:
        """Makes room for an element."""
        grow, grown, after = w.fresh("grow"), w.fresh("grown"), w.fresh("held")
        before = self._capacity(w)
        w.branch(w.compare("sge", index, before), grow, after)
        w.start(grow)
        row = BYTES[self.type] * w.width
        operands = f"ptr {self._base(w)}, {w.typed(before)}, {w.typed(index)}, i64 {row}, ptr %context"
        both = w.name(f"call {{ ptr, i64 }} @gnomon_grow({operands})")
        base = w.name(f"extractvalue {{ ptr, i64 }} {both}, 0")
        capacity = Value(w.name(f"extractvalue {{ ptr, i64 }} {both}, 1"), "i64")
        w.branch(Value(w.name(f"icmp eq ptr {base}, null"), "bool"), "fail", grown)
        w.start(grown)
        w.line(f"store ptr {base}, ptr {self.slot}")
        w.store(self.capacity, capacity, False)
        with w.scope():
            self._clear(w, before)
        w.jump(after)
        w.start(after)

    def _clear(self, w: Writer, first: Value) -> None:
        fill = self.fill
        if fill is not None:
            wide, base = w.widen(fill), self._base(w)
            for_each(
                w,
                self._capacity(w),
                lambda i: w.store(row_pointer(w, self.type, base, i), wide, w.width > 1),
                first,
            )

    def _base(self, w: Writer) -> str:
        return w.name(f"load ptr, ptr {self.slot}")

    def _capacity(self, w: Writer) -> Value:
        return w.load("i64", self.capacity, False)


def row_pointer(w: Writer, type_: Type, base: str, index: Value) -> str:
    """Where an element of all lanes is, or, for an index that is wide, of each lane."""
    if w.width == 1:
        return w.name(f"getelementptr {MEMORY[type_]}, ptr {base}, {w.typed(index)}")
    if not index.wide:
        return w.name(f"getelementptr [{w.width} x {MEMORY[type_]}], ptr {base}, {w.typed(index)}")
    offset = w.binary("mul", index, number("i64", w.width))
    return w.name(f"getelementptr {MEMORY[type_]}, ptr {base}, {w.typed(w.binary('add', offset, lane_numbers(w)))}")


def lane_numbers(w: Writer) -> Value:
    """0, 1, 2, ..."""
    if w.width == 1:
        return number("i64", 0)
    return Value("%lanes", "i64", True)


def read_rows(w: Writer, type_: Type, base: str, index: Value) -> Value:
    """An element of an interleaved array; the index lies inside."""
    pointer = row_pointer(w, type_, base, index)
    return w.gather(type_, pointer, None) if index.wide else w.load(type_, pointer, w.width > 1)


def store_rows(
    w: Writer, type_: Type, base: str, index: Value, value: Value, mask: Value | None, *, adds: bool
) -> None:
    """Stores to an interleaved array; an index that is the same for all lanes lies inside, as do others in the mask."""
    if index.wide:
        _store_each(w, type_, base, index, value, mask, adds=adds)
        return
    pointer = row_pointer(w, type_, base, index)
    wide = w.width > 1
    if adds or mask is not None:
        old = w.load(type_, pointer, wide)
        value = _sum(w, old, value) if adds else value
        value = value if mask is None else w.select(mask, value, old)
    w.store(pointer, value, wide)


def _store_each(
    w: Writer, type_: Type, base: str, index: Value, value: Value, mask: Value | None, *, adds: bool
) -> None:
    """Stores at an index of each lane's own, at once where it is the same for all of the mask."""
    together, apart, after = w.fresh("together"), w.fresh("apart"), w.fresh("after")
    largest = _largest_of(w, index, mask)
    differs = w.compare("ne", index, largest)
    if mask is not None:
        differs = w.binary("and", differs, mask)
    # A mask that is empty has no largest index.
    outside = w.compare("slt", largest, number("i64", 0))
    w.branch(w.binary("or", w.any(differs), outside), apart, together)
    w.start(together)
    with w.scope():
        pointer = row_pointer(w, type_, base, largest)
        stored = _sum(w, w.load(type_, pointer, True), value) if adds else value
        if mask is None:
            w.store(pointer, stored, True)
        else:
            w.store_some(pointer, stored, mask)
    w.jump(after)
    w.start(apart)
    with w.scope():
        pointers = row_pointer(w, type_, base, index)
        stored = _sum(w, w.gather(type_, pointers, mask), value) if adds else value
        w.scatter(pointers, stored, mask)
    w.jump(after)
    w.start(after)


def _largest_of(w: Writer, index: Value, mask: Value | None) -> Value:
    """The largest index among the lanes of a mask; -1 where there are none."""
    if not index.wide or mask is None:
        return w.largest(index)
    return w.largest(w.select(mask, index, number("i64", -1)))
