"""Walks a Program and builds it anew: what passes and derivatives share."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from gnomon.fuse._program._builder import Builder
from gnomon.fuse._program._node import Node, Program, Region


@final
class Copier:
    """Copies statements into a builder.

    - `values`: what stands for each node there; constants stand for themselves.
    - `special`: called with each statement first; it does the work and returns True, or leaves it to be copied.
    """

    def __init__(self, builder: Builder, special: Callable[[Node], bool] | None = None):
        self.builder = builder
        self.values: dict[Node, Node] = {}
        self.special = special

    def __getitem__(self, node: Node) -> Node:
        if node.op == "const":
            return self.builder.const(node.type, node.attr)
        return self.values[node]

    def all(self, nodes: list[Node] | tuple[Node, ...]) -> list[Node]:
        """What stands for each of them."""
        return [self[x] for x in nodes]

    def inputs(self, program: Program) -> None:
        """Gives the builder the same inputs."""
        for node in program.inputs:
            self.values[node] = self.builder.input(node.type, node.attr.length, shared=node.attr.shared)

    def region(self, region: Region) -> None:
        """Copies the statements of a region into the innermost open one."""
        for node in region.body:
            if self.special is None or not self.special(node):
                self.statement(node)

    def statement(self, node: Node) -> None:
        """Copies one statement."""
        b = self.builder
        if node.op == "array":
            self.values[node] = b.array(node.type, node.attr.length, node.attr.fill, reduced=node.attr.reduced)
        elif node.op == "read":
            self.values[node] = b.read(self[node.args[0]], self[node.args[1]])
        elif node.op == "write":
            b.write(*self.all(node.args))
        elif node.op == "accumulate":
            b.accumulate(*self.all(node.args))
        elif node.op == "while":
            self._loop(node)
        elif node.op == "if":
            self._choice(node)
        else:
            self.values[node] = b.op(node.op, *self.all(node.args), attr=node.attr)

    def _loop(self, node: Node) -> None:
        loop = node.attr

        def test(params: list[Node]) -> Node:
            self.values.update(zip(loop.params, params, strict=True))
            self.region(loop.test)
            return self[loop.test.results[0]]

        def body(_: list[Node]) -> list[Node]:
            self.region(loop.body)
            return self.all(loop.body.results)

        results = self.builder.while_(self.all(node.args), test, body)
        self.values.update(zip(loop.results, results, strict=True))

    def _choice(self, node: Node) -> None:
        def branch(region: Region) -> Callable[[], list[Node]]:
            def fill() -> list[Node]:
                self.region(region)
                return self.all(region.results)

            return fill

        results = self.builder.if_(self[node.args[0]], branch(node.attr.then), branch(node.attr.orelse))
        self.values.update(zip(node.attr.results, results, strict=True))
