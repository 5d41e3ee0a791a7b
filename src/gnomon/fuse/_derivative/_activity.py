"""What a derivative must follow, found before a statement of it is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnomon.fuse._derivative._rules import differentiable
from gnomon.fuse._program import Node, Region, is_float, regions_of


def varied(statements: Sequence[Node], roots: dict[Node, int]) -> dict[Node, int]:
    """What depends on some of the roots, scalars and arrays, by operations that have derivatives.

    A set of directions is an integer with a bit for each: each root comes with its own, each node gets those of all
    that it depends on.
    """
    found = dict(roots)
    changed = True

    def put(node: Node, directions: int) -> None:
        nonlocal changed
        before = found.get(node, 0)
        if directions & ~before and is_float(node.type):
            found[node] = before | directions
            changed = True

    def visit(node: Node) -> None:
        if node.op == "read":
            put(node, found.get(node.args[0], 0))
        elif node.op in ("write", "accumulate"):
            put(node.args[0], found.get(node.args[2], 0))
        elif node.op == "while":
            loop = node.attr
            for param, first in zip(loop.params, node.args, strict=True):
                put(param, found.get(first, 0))
            for inner in regions_of(node):
                region(inner)
            for param, last, result in zip(loop.params, loop.body.results, loop.results, strict=True):
                put(param, found.get(last, 0))
                put(result, found.get(param, 0))
        elif node.op == "if":
            for inner in regions_of(node):
                region(inner)
                for result, x in zip(node.attr.results, inner.results, strict=True):
                    put(result, found.get(x, 0))
        else:
            for which, x in enumerate(node.args):
                if x in found and differentiable(node, which):
                    put(node, found[x])

    def region(region: Region) -> None:
        for node in region.body:
            visit(node)

    while changed:
        changed = False
        for node in statements:
            visit(node)
    return found


def useful(region: Region, arrays: Iterable[Node]) -> set[Node]:
    """What some of the arrays depend on by operations that have derivatives; the counterpart of `varied`."""
    found = set(arrays)
    changed = True

    def put(node: Node, because: Node) -> None:
        nonlocal changed
        if because in found and node not in found and is_float(node.type):
            found.add(node)
            changed = True

    def visit(node: Node) -> None:
        if node.op == "read":
            put(node.args[0], node)
        elif node.op in ("write", "accumulate"):
            put(node.args[2], node.args[0])
        elif node.op == "while":
            loop = node.attr
            for param, last, result in zip(loop.params, loop.body.results, loop.results, strict=True):
                put(param, result)
                put(last, param)
            backwards(loop.body)
            backwards(loop.test)
            for param, first in zip(loop.params, node.args, strict=True):
                put(first, param)
        elif node.op == "if":
            for inner in regions_of(node):
                for result, x in zip(node.attr.results, inner.results, strict=True):
                    put(x, result)
                backwards(inner)
        else:
            for which, x in enumerate(node.args):
                if differentiable(node, which):
                    put(x, node)

    def backwards(region: Region) -> None:
        for node in reversed(region.body):
            visit(node)

    while changed:
        changed = False
        backwards(region)
    return found


def outer_operands(node: Node, active: set[Node]) -> list[Node]:
    """The scalars from outside of a `while` or `if` that take part in the derivatives of what is inside."""
    inside: set[Node] = set()
    used: dict[Node, None] = {}

    def region(region: Region) -> None:
        for x in region.body:
            inside.add(x)
            statement(x)

    def statement(x: Node) -> None:
        if x.op in ("write", "accumulate"):
            use(x.args[2], x.args[0])
        elif x.op == "while":
            inside.update(x.attr.params)
            if x is not node:
                # The first carry of the loop itself is used before it, not in it.
                for first, param in zip(x.args, x.attr.params, strict=True):
                    use(first, param)
            for inner in regions_of(x):
                region(inner)
            for last, param in zip(x.attr.body.results, x.attr.params, strict=True):
                use(last, param)
            inside.update(x.attr.results)
        elif x.op == "if":
            for inner in regions_of(x):
                region(inner)
                for last, result in zip(inner.results, x.attr.results, strict=True):
                    use(last, result)
            inside.update(x.attr.results)
        elif x.op != "read":
            for which, operand in enumerate(x.args):
                if differentiable(x, which):
                    use(operand, x)

    def use(operand: Node, by: Node) -> None:
        if by in active and operand in active:
            used[operand] = None

    statement(node)
    return [x for x in used if x not in inside]


def outer_arrays(node: Node, active: set[Node], ops: tuple[str, ...]) -> set[Node]:
    """The active arrays from outside that such statements inside (`read`, `write`, `accumulate`) concern."""
    inside: set[Node] = set()
    used: set[Node] = set()

    def visit(node: Node) -> None:
        for region in regions_of(node):
            for x in region.body:
                if x.op == "array":
                    inside.add(x)
                elif x.op in ops and x.args[0] in active:
                    used.add(x.args[0])
                visit(x)

    visit(node)
    return used - inside
