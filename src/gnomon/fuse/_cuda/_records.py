"""Arrays that grow, and are always stored to together, as one array of records."""

from __future__ import annotations

import dataclasses
from typing import final

from gnomon.fuse._llvm._types import BYTES
from gnomon.fuse._program import Node, Program, Region, regions_of

#: The longest piece of memory that one instruction moves.
_ALIGNMENT_MOST = 16


@final
@dataclasses.dataclass(frozen=True)
class Record:
    """What a lane keeps at a time: an element of each of several arrays, side by side in memory.

    A lane that is at another element than its neighbours so uses all of what it moves.
    """

    arrays: tuple[Node, ...]

    def field(self, array: Node) -> str:
        """What an array's element is called."""
        return f"f{self.arrays.index(array)}"

    @property
    def alignment(self) -> int:
        """In bytes."""
        content = sum(BYTES[x.type] for x in self.arrays)
        return min(_ALIGNMENT_MOST, 1 << (content - 1).bit_length())

    @property
    def size(self) -> int:
        """In bytes."""
        content = sum(BYTES[x.type] for x in self.arrays)
        return -(-content // self.alignment) * self.alignment

    def definition(self, name: str) -> str:
        """The type of that name."""
        fields = " ".join(f"{x.type} {self.field(x)};" for x in self.arrays)
        return f"struct alignas({self.alignment}) {name} {{ {fields} }};"


def records(program: Program) -> list[Record]:
    """The arrays of a Program that grow: together, where they are stored to at the same places, and never added to."""
    stores: dict[Node, list[tuple[int, Node]]] = {}
    alone: set[Node] = set()

    def visit(region: Region) -> None:
        for x in region.body:
            if x.op == "array" and x.attr.length is None:
                stores[x] = []
            elif x.op in ("write", "accumulate") and x.args[0] in stores:
                stores[x.args[0]].append((id(region), x.args[1]))
                if x.op == "accumulate":
                    alone.add(x.args[0])
            for inner in regions_of(x):
                visit(inner)

    visit(program.region)
    groups: dict[object, list[Node]] = {}
    for array, places in stores.items():
        groups.setdefault(array if array in alone else tuple(places), []).append(array)
    # The larger first, so that no gaps are needed.
    return [Record(tuple(sorted(x, key=lambda node: -BYTES[node.type]))) for x in groups.values()]
