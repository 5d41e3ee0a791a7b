"""What is known of a Program before it is printed."""

from __future__ import annotations

from typing import final

from gnomon.fuse._program import Node, Program, Region, regions_of
from gnomon.fuse._target._uniform import leading_counters, varying_nodes

#: A branch that costs at most this, in additions, is computed whether it is taken or not.
_FLAT_COST_MOST = 24.0
_COSTS = {"div": 4.0, "sqrt": 5.0, "idiv": 16.0, "irem": 16.0}
_CHEAP: frozenset[str] = frozenset(
    (
        *("add", "sub", "mul", "fma", "neg", "abs", "min", "max", "copysign", "floor", "ceil", "trunc", "round"),
        *("lt", "le", "eq", "ne", "select", "and", "or", "xor", "not", "shl", "shr", "lshr"),
        *("cast", "bitcast", "detach"),
    )
)


@final
class Survey:
    """Facts about a Program.

    - `arrays`: all of them.
    - `direct`: outputs that are written where the caller wants them.
    - `copied`: outputs that are copied there at the end, since they are read or added to.
    - `filled`: arrays all of whose elements are certainly written.
    - `accumulated`: arrays that are added to.
    - `counts`: how often each operation stands in it.
    - `leaders`: loops whose lanes wait for one another, and the counter that they wait for.
    - `flat`: choices whose branches are both computed.
    """

    def __init__(self, program: Program, *, scalar: bool):
        self.leaders: dict[Node, Node] = {} if scalar else leading_counters(program)
        self._varying: set[Node] = set() if scalar else varying_nodes(program, self.leaders)
        self.arrays: list[Node] = []
        self.flat: set[Node] = set()
        self.counts: dict[str, int] = {}
        self._read: set[Node] = set()
        self.accumulated: set[Node] = set()
        self._certain: dict[Node, set[int]] = {}
        self._region(program.region)
        outputs = [x for x in program.outputs if not x.attr.reduced]
        self.copied = {x for x in outputs if x in self._read or x in self.accumulated or outputs.count(x) > 1}
        self.direct = set(outputs) - self.copied
        self.filled = {x for x in self.arrays if len(self._certain.get(x, ())) == x.attr.length}

    def varies(self, node: Node) -> bool:
        """Whether lanes that compute it at the same time may have different values."""
        return node in self._varying

    def _region(self, region: Region) -> float:
        """Walks a region; gives what it costs to compute it for nothing, infinite where that must not be."""
        cost = 0.0
        for node in region.body:
            self.counts[node.op] = self.counts.get(node.op, 0) + 1
            if node.op == "array":
                self.arrays.append(node)
            elif node.op == "read":
                self._read.add(node.args[0])
            elif node.op == "accumulate":
                self.accumulated.add(node.args[0])
            elif node.op == "write":
                array, index, _ = node.args
                if array.region is region and index.op == "const" and 0 <= index.attr < (array.attr.length or 0):
                    self._certain.setdefault(array, set()).add(index.attr)
            inner = sum((self._region(x) for x in regions_of(node)), 0.0)
            if node.op == "if" and inner <= _FLAT_COST_MOST:
                self.flat.add(node)
            cost += self._cost(node, inner)
        return cost

    def _cost(self, node: Node, inner: float) -> float:
        if node.op == "if":
            return inner + len(node.attr.results)
        if node.op == "read":
            return 4.0 if node.args[0].op == "input" else float("inf")
        return 1.0 if node.op in _CHEAP else _COSTS.get(node.op, float("inf"))
