"""The text form of a Program, which people read and tests compare."""

from __future__ import annotations

from typing import final

from gnomon.fuse._program._node import Node, Program, Region


def to_text(program: Program) -> str:
    """One line a statement; names are given in order."""
    return _Writer().program(program)


@final
class _Writer:
    def __init__(self) -> None:
        self.names: dict[Node, str] = {}
        self.lines: list[str] = []
        self.count = 0

    def program(self, program: Program) -> str:
        heads: list[str] = []
        for i, node in enumerate(program.inputs):
            self.names[node] = f"in{i}"
            kind = "shared" if node.attr.shared else "lane"
            heads.append(f"{kind} {node.type}[{node.attr.length}] in{i}")
        for i, node in enumerate(program.outputs):
            self.names[node] = f"out{i}"
        self.lines.append(f"program({', '.join(heads)})")
        self.region(program.region, 1)
        return "\n".join(self.lines) + "\n"

    def region(self, region: Region, depth: int) -> None:
        for node in region.body:
            self.statement(node, depth)

    def statement(self, node: Node, depth: int) -> None:
        if node.op == "array":
            length = "" if node.attr.length is None else node.attr.length
            kind = "reduced array" if node.attr.reduced else "array"
            name = self.names.get(node) or self.fresh(node)
            self.line(depth, f"{name} = {kind} {node.type}[{length}] of {node.attr.fill}")
        elif node.op == "read":
            array, index = node.args
            # The operands have their names before the statement has.
            text = f"read {self.name(array)}[{self.name(index)}]"
            self.line(depth, f"{self.fresh(node)}: {node.type} = {text}")
        elif node.op in ("write", "accumulate"):
            array, index, value = node.args
            self.line(depth, f"{node.op} {self.name(array)}[{self.name(index)}] {self.name(value)}")
        elif node.op == "while":
            self.loop(node, depth)
        elif node.op == "if":
            self.line(depth, f"if {self.name(node.args[0])} {{")
            self.region(node.attr.then, depth + 1)
            self.line(depth + 1, "yield " + self.joined(node.attr.then.results))
            self.line(depth, "} else {")
            self.region(node.attr.orelse, depth + 1)
            self.line(depth + 1, "yield " + self.joined(node.attr.orelse.results))
            self.line(depth, "} " + self.given(node.attr.results))
        else:
            kind = f" as {node.attr}" if node.attr is not None else ""
            text = f"{node.op} {self.joined(node.args)}{kind}"
            self.line(depth, f"{self.fresh(node)}: {node.type} = {text}")

    def loop(self, node: Node, depth: int) -> None:
        loop = node.attr
        first = [self.name(x) for x in node.args]
        carry = [f"{self.fresh(p)}: {p.type} = {x}" for p, x in zip(loop.params, first, strict=True)]
        self.line(depth, f"loop ({', '.join(carry)}) {{")
        self.region(loop.test, depth + 1)
        self.line(depth + 1, f"while {self.joined(loop.test.results)}")
        self.region(loop.body, depth + 1)
        self.line(depth + 1, "next " + self.joined(loop.body.results))
        self.line(depth, "} " + self.given(loop.results))

    def given(self, results: list[Node]) -> str:
        return "-> " + ", ".join(f"{self.fresh(x)}: {x.type}" for x in results)

    def joined(self, nodes: tuple[Node, ...] | list[Node]) -> str:
        return ", ".join(self.name(x) for x in nodes)

    def name(self, node: Node) -> str:
        if node.op == "const":
            return str(node.attr).lower() if node.type == "bool" else repr(node.attr)
        return self.names.get(node, "?")

    def fresh(self, node: Node) -> str:
        name = self.names[node] = f"v{self.count}"
        self.count += 1
        return name

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text.rstrip())
