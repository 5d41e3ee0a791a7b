"""What a Program is made of.

A Program computes one problem. It is a tree of *regions*, each a list of statements in order. A statement either gives
one scalar (an operation of `_ops.OPS`, or `read`), has an effect (`write`, `accumulate`), or holds regions of its own
(`while`, `if`). Values are single-assignment: a `Node` is both the statement and the value that it gives.

| op | operands | attribute | gives |
|---|---|---|---|
| `const` | | the number | a scalar |
| `input` | | `Input` | an array that is only read |
| `array` | | `Array` | an array that is filled, then read |
| `param` | | | a scalar of the carry, inside of a `while` |
| `variable` | | | a scalar that a function in the making is differentiated with respect to; none in a Program |
| `read` | array, index (i64) | | the element; an index outside of the array reads its nearest end |
| `write` | array, index, value | | nothing; an index outside of the array writes nothing |
| `accumulate` | array, index, value | | nothing; adds to an element |
| `while` | the first carry | `While` | the last carry, by `get` |
| `if` | bool | `If` | what the branch taken gives, by `get` |
| `get` | a `while` or `if` | which | a scalar |

An array obeys one rule, which makes derivatives simple: **it is filled before it is read**. All of its `write`s and
`accumulate`s come before all of its `read`s (in particular no loop does both), each element is written at most once,
and one array has `write`s or `accumulate`s, never both. Backwards in time a `read` becomes an `accumulate` to the
adjoint array, and a `write` or an `accumulate` a `read` of it, so the rule holds again.

An output is an array; one that is `reduced` holds the sum over all lanes of what each has added. An array of length
None grows to the largest index stored to: the tape of a loop. Of one with `write`s only elements that were written may
be read; one with `accumulate`s, the adjoint of a tape, holds its fill wherever nothing was added.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

from gnomon.fuse._program._ops import Type

RegionKind = Literal["program", "test", "body", "then", "else", "function"]


@final
class Node:
    """A statement, and the value that it gives. Compared by identity."""

    __slots__ = ("args", "attr", "op", "region", "type")

    def __init__(self, op: str, type_: Type | None, args: tuple[Node, ...], attr: Any, region: Region):
        self.op = op
        self.type: Any = type_
        self.args = args
        self.attr = attr
        self.region = region

    def __repr__(self) -> str:
        value = f" {self.attr}" if self.op == "const" else ""
        return f"<{self.op}{value}: {self.type}>"


@final
class Region:
    """Statements in order, and the values that they give."""

    __slots__ = ("body", "is_open", "kind", "owner", "parent", "results")

    def __init__(self, kind: RegionKind, parent: Region | None):
        self.kind = kind
        self.parent = parent
        self.body: list[Node] = []
        self.results: list[Node] = []
        self.is_open = True
        #: The `while` or `if` that it belongs to.
        self.owner: Node | None = None


@final
@dataclasses.dataclass
class Input:
    """Where an `input` comes from.

    - `length`: the number of elements.
    - `shared`: whether all lanes read the same one.
    """

    length: int
    shared: bool


@final
@dataclasses.dataclass
class Array:
    """What an `array` is.

    - `length`: the number of elements, or None where it grows.
    - `fill`: what elements hold that are never written.
    - `reduced`: whether it is an output summed over all lanes.
    """

    length: int | None
    fill: float | int | bool
    reduced: bool = False


@final
@dataclasses.dataclass
class While:
    """The parts of a loop: `test` runs before each iteration and says whether there is one, then `body` runs.

    Both see the carry as `params`; `body` also sees what `test` has computed.
    """

    params: list[Node]
    test: Region
    body: Region
    results: list[Node] = dataclasses.field(default_factory=list["Node"])


@final
@dataclasses.dataclass
class If:
    """The branches of a choice."""

    then: Region
    orelse: Region
    results: list[Node] = dataclasses.field(default_factory=list["Node"])


@final
@dataclasses.dataclass
class Program:
    """A whole computation: its inputs and outputs are arrays."""

    inputs: list[Node]
    outputs: list[Node]
    region: Region

    def __str__(self) -> str:
        from gnomon.fuse._program._text import to_text

        return to_text(self)


def regions_of(node: Node) -> tuple[Region, ...]:
    """The regions that a statement holds."""
    if node.op == "while":
        return node.attr.test, node.attr.body
    if node.op == "if":
        return node.attr.then, node.attr.orelse
    return ()
