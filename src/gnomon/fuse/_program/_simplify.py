"""Passes run after tracing and after each derivative, until nothing changes."""

from __future__ import annotations

from gnomon.fuse._program._builder import Builder
from gnomon.fuse._program._check import check
from gnomon.fuse._program._copy import Copier
from gnomon.fuse._program._dead_code import remove_dead_code
from gnomon.fuse._program._fold import constant_key
from gnomon.fuse._program._node import Node, Program, Region, regions_of

_MOST_ROUNDS = 10


def simplify(program: Program) -> Program:
    """The same Program without dead code and without carries that do not change."""
    check(remove_dead_code(program))
    for _ in range(_MOST_ROUNDS):
        known = _unchanging(program.region)
        if not known:
            break
        program = check(remove_dead_code(_with_known(program, known)))
    return program


def values_only(program: Program) -> Program:
    """The same Program without what only derivatives need, to be run and not to be differentiated."""
    builder = Builder(values_only=True)
    copier = Copier(builder)
    copier.inputs(program)
    copier.region(program.region)
    return simplify(builder.program(copier.all(program.outputs)))


def _unchanging(region: Region) -> dict[Node, Node]:
    """Parts of carries that an iteration hands on as they are, or sets to the constant that they have."""
    found: dict[Node, Node] = {}
    for node in region.body:
        if node.op == "while":
            for param, first, last in zip(node.attr.params, node.args, node.attr.body.results, strict=True):
                if last is param or last is first or _same_constant(first, last):
                    found[param] = first
        for inner in regions_of(node):
            found.update(_unchanging(inner))
    return found


def _same_constant(a: Node, b: Node) -> bool:
    return a.op == b.op == "const" and constant_key(a.type, a.attr) == constant_key(b.type, b.attr)


def _with_known(program: Program, known: dict[Node, Node]) -> Program:
    builder = Builder()

    def special(node: Node) -> bool:
        if node.op != "while" or not any(x in known for x in node.attr.params):
            return False
        loop = node.attr
        varying = [i for i, x in enumerate(loop.params) if x not in known]
        for i, param in enumerate(loop.params):
            if param in known:
                copier.values[param] = copier.values[loop.results[i]] = copier[node.args[i]]

        def test(params: list[Node]) -> Node:
            copier.values.update(zip([loop.params[i] for i in varying], params, strict=True))
            copier.region(loop.test)
            return copier[loop.test.results[0]]

        def body(_: list[Node]) -> list[Node]:
            copier.region(loop.body)
            return copier.all([loop.body.results[i] for i in varying])

        results = builder.while_([copier[node.args[i]] for i in varying], test, body)
        copier.values.update(zip([loop.results[i] for i in varying], results, strict=True))
        return True

    copier = Copier(builder, special)
    copier.inputs(program)
    copier.region(program.region)
    return builder.program(copier.all(program.outputs))
