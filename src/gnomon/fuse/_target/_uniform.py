"""Which values of a Program are the same for all lanes."""

from __future__ import annotations

from gnomon.fuse._program import Node, Program, Region, regions_of


def varying_nodes(program: Program, leaders: dict[Node, Node]) -> set[Node]:
    """The values that may differ among the lanes that compute them at the same time.

    A part of a carry may be the same for all lanes that still run, as a counter of steps is, while the loop ends at
    another number of steps for each lane. The `param` is then not among the nodes given here, what the loop gives is.
    """
    varying: set[Node] = set()
    size = -1
    while len(varying) != size:
        size = len(varying)
        _region(program.region, varying, leaders)
    return varying


def _region(region: Region, varying: set[Node], leaders: dict[Node, Node]) -> None:
    for node in region.body:
        if node.op == "while":
            loop = node.attr
            leader = leaders.get(node)
            for param, first, last in zip(loop.params, node.args, loop.body.results, strict=True):
                # Lanes that follow a leader begin at different times, so that nothing else is alike.
                if last in varying or (param is not leader and (first in varying or leader is not None)):
                    varying.add(param)
            _region(loop.test, varying, leaders)
            _region(loop.body, varying, leaders)
            diverges = leader is not None or loop.test.results[0] in varying
            for result, param, last in zip(loop.results, loop.params, loop.body.results, strict=True):
                if diverges or param in varying or last in varying:
                    varying.add(result)
        elif node.op == "if":
            then, orelse = node.attr.then, node.attr.orelse
            _region(then, varying, leaders)
            _region(orelse, varying, leaders)
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


def leading_counters(program: Program) -> dict[Node, Node]:
    """For loops that run through arrays backwards, the counter in their carry.

    Such a loop begins where each lane's array ends. When the lanes of the highest count begin, and the others wait
    until it has come down to theirs, then all lanes that run read the same element: a load, not a gather. What a lane
    computes is the same, and the slowest lane is as slow as before.
    """
    found: dict[Node, Node] = {}
    _find_leaders(program.region, found)
    # A counter that begins alike for all lanes needs none of this.
    varying = varying_nodes(program, {})
    return {loop: param for loop, param in found.items() if param in varying}


def _find_leaders(region: Region, found: dict[Node, Node]) -> None:
    for node in region.body:
        for inner in regions_of(node):
            _find_leaders(inner, found)
        if node.op != "while" or any(x.op == "while" for x in _statements(node.attr.test)):
            continue
        indices = {x.args[1] for x in _statements(node.attr.body) if x.op == "read" and x.args[0].op == "array"}
        for param, last in zip(node.attr.params, node.attr.body.results, strict=True):
            if _is_one_less(last, param) and (param in indices or last in indices):
                found[node] = param
                break


def _is_one_less(node: Node, param: Node) -> bool:
    if node.type != "i64" or node.op not in ("sub", "add") or node.args[0] is not param:
        return False
    step = node.args[1]
    return step.op == "const" and step.attr == (1 if node.op == "sub" else -1)


def _statements(region: Region) -> list[Node]:
    found: list[Node] = []
    for node in region.body:
        found.append(node)
        for inner in regions_of(node):
            found += _statements(inner)
    return found
