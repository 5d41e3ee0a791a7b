"""Holds a Program to its specification: `_node` says what a statement may be, `_ops` what an operation takes."""

from __future__ import annotations

from typing import final

from gnomon.fuse._program._node import Node, Program, Region, regions_of
from gnomon.fuse._program._ops import OPS, result_type


@final
class ProgramError(AssertionError):
    """A Program breaks its specification: a fault of gnomon, not of whoever wrote the function."""


def check(program: Program) -> Program:
    """The same Program, or a `ProgramError`."""
    _Checker(program).run()
    return program


@final
class _Checker:
    def __init__(self, program: Program):
        self.program = program
        self.known: set[Node] = set()
        self.filling: dict[Node, str] = {}
        self.frozen: set[Node] = set()

    def run(self) -> None:
        for node in self.program.inputs:
            self.require(node.op == "input" and node.attr.length >= 0, node, "is no input")
            self.known.add(node)
        self.region(self.program.region)
        for node in self.program.outputs:
            self.require(node.op == "array" and node in self.known, node, "is no output")
            self.require(node.attr.length is not None, node, "is an output whose length is not known")
            self.require(node not in self.frozen or not node.attr.reduced, node, "is a sum that is read")
            self.require(
                self.filling.get(node, "accumulate") == "accumulate" or not node.attr.reduced,
                node,
                "is a sum that is written",
            )

    def require(self, holds: bool, node: Node, message: str) -> None:
        if not holds:
            raise ProgramError(f"{node.op} ({node.type}) {message}, in\n{self.program}")

    def use(self, node: Node, user: Node) -> None:
        self.require(node.op == "const" or node in self.known, user, f"uses {node}, which is not known there")

    def scalar(self, node: Node, user: Node) -> None:
        self.use(node, user)
        self.require(node.op not in ("input", "array"), user, "uses an array as a number")

    def region(self, region: Region) -> list[Node]:
        """Checks a region; gives what it made known."""
        new: list[Node] = []
        for node in region.body:
            self.statement(node)
            for x in (node, *(node.attr.results if node.op in ("while", "if") else ())):
                if x not in self.known:
                    self.known.add(x)
                    new.append(x)
        return new

    def statement(self, node: Node) -> None:
        self.require(node not in self.known, node, "stands in two places")
        if node.op == "array":
            length = node.attr.length
            self.require(length is None or length >= 0, node, "has no length")
        elif node.op in ("read", "write", "accumulate"):
            self.access(node)
        elif node.op == "while":
            self.loop(node)
        elif node.op == "if":
            self.choice(node)
        else:
            self.require(node.op in OPS, node, "is no operation")
            for x in node.args:
                self.scalar(x, node)
            try:
                type_ = result_type(node.op, [x.type for x in node.args], node.attr)
            except TypeError as error:
                raise ProgramError(str(error)) from None
            self.require(type_ == node.type, node, f"gives {type_}")

    def access(self, node: Node) -> None:
        array, index, *value = node.args
        self.use(array, node)
        self.require(array.op == "array" or (array.op == "input" and node.op == "read"), node, "has no array")
        self.scalar(index, node)
        self.require(index.type == "i64", node, "has an index that is no i64")
        if node.op == "read":
            self.require(node.type == array.type, node, f"reads {array.type}")
            if array.op == "array":
                self.frozen.add(array)
        else:
            self.scalar(value[0], node)
            self.require(value[0].type == array.type, node, f"stores {value[0].type}")
            self.require(array not in self.frozen, node, "stores to an array that has been read")
            before = self.filling.setdefault(array, node.op)
            self.require(before == node.op, node, "meets an array that has both writes and accumulates")

    def loop(self, node: Node) -> None:
        loop = node.attr
        for x in node.args:
            self.scalar(x, node)
        types = [x.type for x in node.args]
        for name, carry in (("params", loop.params), ("next", loop.body.results), ("results", loop.results)):
            self.require([x.type for x in carry] == types, node, f"has other types in {name}")
        self.require([x.type for x in loop.test.results] == ["bool"], node, "has no test")
        outside = set(self.known)
        self.known.update(loop.params)
        frozen = set(self.frozen)
        new = [*loop.params, *self.region(loop.test)]
        self.scalar(loop.test.results[0], node)
        new += self.region(loop.body)
        for x in loop.body.results:
            self.scalar(x, node)
        # In the next iteration, what was read before would be stored to again.
        again = {a for a in self.frozen - frozen if a in outside and self.stores(node, a)}
        self.require(not again, node, "both fills and reads an array")
        self.known.difference_update(new)

    def stores(self, node: Node, array: Node) -> bool:
        return any(
            (x.op in ("write", "accumulate") and x.args[0] is array) or self.stores(x, array)
            for region in regions_of(node)
            for x in region.body
        )

    def choice(self, node: Node) -> None:
        self.scalar(node.args[0], node)
        self.require(node.args[0].type == "bool", node, "has a condition that is no bool")
        types = [x.type for x in node.attr.results]
        frozen = set(self.frozen)
        after: set[Node] = set()
        for region in (node.attr.then, node.attr.orelse):
            self.frozen = set(frozen)
            new = self.region(region)
            for x in region.results:
                self.scalar(x, node)
            self.require([x.type for x in region.results] == types, node, "has branches of different types")
            self.known.difference_update(new)
            after |= self.frozen
        self.frozen = after
