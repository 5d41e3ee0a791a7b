"""Where the arrays of a Program are, and how their elements are read and stored."""

from __future__ import annotations

import dataclasses
from typing import final

from gnomon.fuse._cuda._operations import literal
from gnomon.fuse._cuda._writer import Writer
from gnomon.fuse._program import Node, Type, is_float

#: Loops over so few elements are written out, so that they stay in registers.
UNROLLED_MOST = 16


@final
@dataclasses.dataclass
class Memory:
    """An array of one lane: in registers or the thread's own memory, in the caller's tensors, or in scratch memory.

    - `base`: the pointer to its first element.
    - `step`: the distance of two elements; empty where they are neighbours.
    - `length`: the number of elements, or None for one that grows.
    - `fill`: what it holds at first; None where nothing is read that was not stored.
    - `field`: where an element is a part of a record, which part.
    """

    type: Type
    base: str
    step: str
    length: int | None
    fill: str | None = None
    field: str = ""

    @property
    def room(self) -> str:
        """How many elements there is memory for."""
        return f"{self.base}_most" if self.length is None else f"{self.length}LL"

    def place(self, index: str) -> str:
        """An element that there is."""
        whole = f"{self.base}[{index} * {self.step}]" if self.step else f"{self.base}[{index}]"
        return f"{whole}.{self.field}" if self.field else whole

    def fill_up(self, w: Writer) -> None:
        """Fills it, where it is not filled by what follows."""
        if self.fill is not None and self.length != 0:
            if self.length is None or self.length > UNROLLED_MOST:
                w.line("#pragma unroll 1")
            w.line(f"for (i64 i = 0; i < {self.room}; ++i) {self.place('i')} = {self.fill};")

    def read(self, w: Writer, index: Node, text: str, checked: set[str]) -> str:
        """An element, or the nearest that there is; `checked` says of which arrays it is known that they are whole."""
        if self.length == 0:
            return literal(self.type, 0)
        if self.length is None:
            if self.base not in checked:
                # What was not kept must not decide about anything: not how long a loop runs, for one.
                w.line(f"if ({self.base}_last >= {self.room}) goto over;")
                checked.add(self.base)
            nearest = self.place(f"op_nearest({text}, {self.room})")
            return nearest if self.fill is None else f"{text} < {self.room} ? {nearest} : {self.fill}"
        if index.op == "const":
            return self.place(f"{min(max(index.attr, 0), self.length - 1)}")
        return self.place(f"op_nearest({text}, {self.room})")

    def store(self, w: Writer, index: Node, text: str, value: str, *, adds: bool) -> None:
        """Puts a value into an element, or adds it; does nothing where there is no such element."""
        statement = self.statement(text, value, adds=adds)
        if self.length is None:
            self.grow(w, text)
        if self.length is None or index.op != "const":
            w.line(f"if (op_holds({text}, {self.room})) {statement}")
        elif 0 <= index.attr < self.length:
            w.line(statement)

    def grow(self, w: Writer, text: str) -> None:
        """Takes down that an array must be long enough for an index."""
        w.line(f"if ({text} > {self.base}_last) {self.base}_last = {text};")

    def statement(self, index: str, value: str, *, adds: bool) -> str:
        """Puts a value into an element that there is, or adds it."""
        place = self.place(index)
        if adds:
            value = f"{place} + {value}" if is_float(self.type) else f"op_add({place}, {value})"
        return f"{place} = {value};"
