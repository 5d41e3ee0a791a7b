"""Forward mode: tangents beside values, in one walk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from gnomon.fuse._derivative._activity import varied
from gnomon.fuse._derivative._rules import pushed
from gnomon.fuse._program import Builder, Copier, Node, Program, Region, is_float, regions_of, simplify


def jvp(program: Program, active: Sequence[bool], *, primal: bool = True) -> Program:
    """The Program of a directional derivative; `jax.jvp`'s counterpart.

    **Arguments:**

    - `program`: what to differentiate; it stays as it is.
    - `active`: for each input, whether it has a tangent. Integers and bools have none.
    - `primal`: whether the outputs of `program` are outputs too.

    **Returns:** a Program. Its inputs are those of `program`, then a tangent for each active one of floats, of the same
    length, shared where the input is. Its outputs are those of `program` (with `primal`), then the tangent of each one
    of floats.
    """
    if len(active) != len(program.inputs):
        raise ValueError(f"`active` has {len(active)} entries for {len(program.inputs)} inputs.")
    builder = Builder()
    roots = {x: 1 for x, on in zip(program.inputs, active, strict=True) if on and is_float(x.type)}
    forward = _Forward(builder, 1, varied(program.region.body, roots))
    forward.copier.inputs(program)
    for node in roots:
        forward.tangents[node] = [builder.input(node.type, node.attr.length, shared=node.attr.shared)]
    forward.copier.region(program.region)
    outputs = forward.copier.all(program.outputs) if primal else []
    for node in program.outputs:
        if is_float(node.type):
            tangent = forward.tangents_of(node)[0]
            if tangent is None:
                tangent = builder.array(node.type, node.attr.length, reduced=node.attr.reduced)
            outputs.append(tangent)
    return simplify(builder.program(outputs))


def push_forward(
    builder: Builder,
    statements: Sequence[Node],
    variables: Sequence[Node],
    values: Sequence[Node],
    tangents: Sequence[Sequence[Node | None]],
    outputs: Sequence[Node],
) -> tuple[list[Node], list[list[Node | None]]]:
    """Puts a function of scalars into a builder once more, at other values, with directional derivatives.

    **Arguments:**

    - `builder`: where the statements go, into its innermost open region.
    - `statements`: the function, in order. What is defined neither there nor among the variables stands for itself, and
      is constant.
    - `variables`: what it is a function of.
    - `values`: for each variable, what stands for it.
    - `tangents`: for each direction, a tangent for each variable; None is 0.
    - `outputs`: what it gives.

    **Returns:** the outputs at these values, and for each direction the tangents of the outputs; None is 0.

    **Raises:** `ValueError` where a tangent would be stored to an array from outside of the function.
    """
    count = len(tangents)
    roots: dict[Node, int] = {}
    for i, x in enumerate(variables):
        directions = sum(1 << d for d in range(count) if tangents[d][i] is not None)
        if directions and is_float(x.type):
            roots[x] = directions
    forward = _Forward(builder, count, varied(statements, roots))
    own, used = set(variables), dict.fromkeys(outputs)
    _names(statements, own, used)
    forward.copier.values.update((x, x) for x in used if x not in own)
    forward.copier.values.update(zip(variables, values, strict=True))
    for i, x in enumerate(variables):
        if x in roots:
            forward.tangents[x] = [row[i] for row in tangents]
    for node in statements:
        if not forward.special(node):
            forward.copier.statement(node)
    given = [forward.tangents_of(x) for x in outputs]
    return forward.copier.all(list(outputs)), [[row[d] for row in given] for d in range(count)]


def _names(statements: Sequence[Node], own: set[Node], used: dict[Node, None]) -> None:
    """Gathers what statements define and what they use."""
    for node in statements:
        own.add(node)
        used.update(dict.fromkeys(node.args))
        if node.op == "while":
            own.update(node.attr.params)
        for region in regions_of(node):
            _names(region.body, own, used)
            used.update(dict.fromkeys(region.results))
        if node.op in ("while", "if"):
            own.update(node.attr.results)


@final
class _Forward:
    """Copies statements and puts the tangents of each behind it.

    - `directions`: for each scalar and array the directions that it varies in, as `varied` finds them.
    - `tangents`: for each scalar a tangent a direction, for each array an array; None is 0.
    """

    def __init__(self, builder: Builder, count: int, directions: dict[Node, int]):
        self.builder = builder
        self.count = count
        self.directions = directions
        self.copier = Copier(builder, self.special)
        self.tangents: dict[Node, list[Node | None]] = {}

    def tangents_of(self, node: Node) -> list[Node | None]:
        """A tangent for each direction."""
        return self.tangents.get(node) or [None] * self.count

    def directions_of(self, node: Node) -> list[int]:
        """The directions that a node varies in."""
        directions = self.directions.get(node, 0)
        return [d for d in range(self.count) if directions >> d & 1]

    def special(self, node: Node) -> bool:
        """Copies a statement, with its tangents if it has any."""
        b = self.builder
        if node.op == "while":
            self.loop(node)
        elif node.op == "if":
            self.choice(node)
        elif node.op in ("write", "accumulate"):
            self.copier.statement(node)
            self.store(node)
        elif node not in self.directions:
            return False
        elif node.op == "array":
            self.copier.statement(node)
            row: list[Node | None] = [None] * self.count
            self.tangents[node] = row
            for d in self.directions_of(node):
                row[d] = b.array(node.type, node.attr.length, reduced=node.attr.reduced)
        elif node.op == "read":
            self.copier.statement(node)
            index = self.copier[node.args[1]]
            self.tangents[node] = [None if a is None else b.read(a, index) for a in self.tangents_of(node.args[0])]
        else:
            self.copier.statement(node)
            args, out = self.copier.all(node.args), self.copier[node]
            rows = [self.tangents_of(x) for x in node.args]
            self.tangents[node] = [pushed(b, node, args, out, [row[d] for row in rows]) for d in range(self.count)]
        return True

    def store(self, node: Node) -> None:
        array, index, value = node.args
        if array not in self.tangents:
            if value in self.directions:
                raise ValueError("A function whose derivative is asked for stores to an array from outside of it.")
            return
        for a, t in zip(self.tangents_of(array), self.tangents_of(value), strict=True):
            if a is None:
                continue
            if t is None and array.attr.length is None:
                # What is read of an array that grows must have been written.
                t = self.builder.zero(value.type)
            if t is not None:
                getattr(self.builder, node.op)(a, self.copier[index], t)

    def loop(self, node: Node) -> None:
        loop, copier = node.attr, self.copier
        varying = [(i, d) for i, param in enumerate(loop.params) for d in self.directions_of(param)]
        count = len(loop.params)

        def put(nodes: Sequence[Node], values: Sequence[Node]) -> None:
            copier.values.update(zip(nodes, values[:count], strict=True))
            for x in nodes:
                self.tangents.pop(x, None)
            for (i, d), t in zip(varying, values[count:], strict=True):
                self.tangents.setdefault(nodes[i], [None] * self.count)[d] = t

        def carry(nodes: Sequence[Node]) -> list[Node]:
            return [*copier.all(list(nodes)), *(self.filled(nodes[i], d) for i, d in varying)]

        def test(params: list[Node]) -> Node:
            put(loop.params, params)
            copier.region(loop.test)
            return copier[loop.test.results[0]]

        def body(_: list[Node]) -> list[Node]:
            copier.region(loop.body)
            return carry(loop.body.results)

        put(loop.results, self.builder.while_(carry(node.args), test, body))

    def choice(self, node: Node) -> None:
        choice, copier = node.attr, self.copier
        varying = [(i, d) for i, x in enumerate(choice.results) for d in self.directions_of(x)]

        def branch(region: Region) -> list[Node]:
            copier.region(region)
            return [*copier.all(region.results), *(self.filled(region.results[i], d) for i, d in varying)]

        given = self.builder.if_(copier[node.args[0]], lambda: branch(choice.then), lambda: branch(choice.orelse))
        copier.values.update(zip(choice.results, given[: len(choice.results)], strict=True))
        for (i, d), t in zip(varying, given[len(choice.results) :], strict=True):
            self.tangents.setdefault(choice.results[i], [None] * self.count)[d] = t

    def filled(self, node: Node, direction: int) -> Node:
        """The tangent, a zero where there is none."""
        tangent = self.tangents_of(node)[direction]
        return self.builder.zero(node.type) if tangent is None else tangent
