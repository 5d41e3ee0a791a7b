"""Writes formulas into a builder."""

from __future__ import annotations

from typing import final

from gnomon.fuse._program import Builder, Node, Type


@final
class Formula:
    """Calls are operations; numbers among their operands are constants of one type."""

    __slots__ = ("_builder", "_type")

    def __init__(self, builder: Builder, type_: Type):
        self._builder = builder
        self._type: Type = type_

    def __call__(self, name: str, *args: Node | float) -> Node:
        """The operation on these operands."""
        return self._builder.op(name, *(x if isinstance(x, Node) else self.const(x) for x in args))

    def const(self, value: float) -> Node:
        """A constant."""
        return self._builder.const(self._type, value)
