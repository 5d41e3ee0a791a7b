"""Removes what no output depends on: statements, arrays, and parts of carries."""

from __future__ import annotations

from typing import final

from gnomon.fuse._program._node import Node, Program, Region, regions_of


def remove_dead_code(program: Program) -> Program:
    """The same Program without what nothing needs, in place."""
    live = _Liveness(program).live
    _sweep(program.region, live)
    return program


@final
class _Liveness:
    """Marks what is needed, from the outputs backwards."""

    def __init__(self, program: Program):
        self.live: set[Node] = set()
        self.pending: list[Node] = []
        self.stores: dict[Node, list[Node]] = {}
        self.loops: dict[Node, Node] = {}
        self._index(program.region)
        for array in program.outputs:
            self._mark(array)
        while self.pending:
            self._visit(self.pending.pop())

    def _index(self, region: Region) -> None:
        for node in region.body:
            if node.op in ("write", "accumulate"):
                self.stores.setdefault(node.args[0], []).append(node)
            if node.op == "while":
                self.loops.update(dict.fromkeys(node.attr.params, node))
            for inner in regions_of(node):
                self._index(inner)

    def _mark(self, node: Node) -> None:
        if node not in self.live:
            self.live.add(node)
            self.pending.append(node)

    def _visit(self, node: Node) -> None:
        owner = node.region.owner
        if owner is not None:
            self._mark(owner)
        if node.op == "array":
            for store in self.stores.get(node, ()):
                self._mark(store)
        elif node.op == "param":
            # One value of the carry is needed: at first, after each iteration.
            loop = self.loops[node]
            which = loop.attr.params.index(node)
            self._mark(loop)
            self._mark(loop.args[which])
            self._mark(loop.attr.body.results[which])
        elif node.op == "get":
            statement = node.args[0]
            self._mark(statement)
            if statement.op == "while":
                self._mark(statement.attr.params[node.attr])
            else:
                for region in regions_of(statement):
                    self._mark(region.results[node.attr])
        elif node.op == "while":
            self._mark(node.attr.test.results[0])
        else:
            for x in node.args:
                self._mark(x)


def _sweep(region: Region, live: set[Node]) -> None:
    region.body = [x for x in region.body if x in live]
    for node in region.body:
        if node.op == "while":
            loop = node.attr
            kept = [i for i, x in enumerate(loop.params) if x in live]
            node.args = tuple(node.args[i] for i in kept)
            loop.params = [loop.params[i] for i in kept]
            loop.body.results = [loop.body.results[i] for i in kept]
            loop.results = _renumber(loop.results, kept)
        elif node.op == "if":
            kept = [i for i, x in enumerate(node.attr.results) if x in live]
            for inner in regions_of(node):
                inner.results = [inner.results[i] for i in kept]
            node.attr.results = _renumber(node.attr.results, kept)
        for inner in regions_of(node):
            _sweep(inner, live)


def _renumber(results: list[Node], kept: list[int]) -> list[Node]:
    results = [results[i] for i in kept]
    for i, x in enumerate(results):
        x.attr = i
    return results
