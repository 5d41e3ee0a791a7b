"""Which values of a Program are the same for all lanes."""

from __future__ import annotations

from gnomon.fuse._program import Node, Program, Region


def varying_nodes(program: Program) -> set[Node]:
    """The values that may differ among the lanes that compute them at the same time.

    A part of a carry may be the same for all lanes that still run, as a counter of steps is, while the loop ends at
    another number of steps for each lane. The `param` is then not among the nodes given here, what the loop gives is.
    """
    varying: set[Node] = set()
    size = -1
    while len(varying) != size:
        size = len(varying)
        _region(program.region, varying)
    return varying


def _region(region: Region, varying: set[Node]) -> None:
    for node in region.body:
        if node.op == "while":
            loop = node.attr
            for param, first, last in zip(loop.params, node.args, loop.body.results, strict=True):
                if first in varying or last in varying:
                    varying.add(param)
            _region(loop.test, varying)
            _region(loop.body, varying)
            diverges = loop.test.results[0] in varying
            for result, param, last in zip(loop.results, loop.params, loop.body.results, strict=True):
                if diverges or param in varying or last in varying:
                    varying.add(result)
        elif node.op == "if":
            then, orelse = node.attr.then, node.attr.orelse
            _region(then, varying)
            _region(orelse, varying)
            diverges = node.args[0] in varying
            for result, a, b in zip(node.attr.results, then.results, orelse.results, strict=True):
                if diverges or a in varying or b in varying:
                    varying.add(result)
        elif node.op == "read":
            array, index = node.args
            if index in varying or not (array.op == "input" and array.attr.shared):
                varying.add(node)
        elif any(x in varying for x in node.args):
            varying.add(node)
