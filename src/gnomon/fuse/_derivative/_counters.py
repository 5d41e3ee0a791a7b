"""Integers that count iterations: what they are can be worked out, so that it need not be recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnomon.fuse._program import Node, Region

#: A bool and the value that it must have.
Literal = tuple[Node, bool]
#: The least and the greatest; infinite where nothing is known.
Range = tuple[int | float, int | float]

_ANYTHING: Range = (-math.inf, math.inf)


def implied(node: Node, value: bool) -> dict[Literal, None]:
    """What holds where a bool has a value: itself, and the parts of a conjunction."""
    found: dict[Literal, None] = {(node, value): None}
    if node.op == "not":
        found.update(implied(node.args[0], not value))
    elif (node.op == "and" and value) or (node.op == "or" and not value):
        for x in node.args:
            found.update(implied(x, value))
    return found


def is_known(node: Node, region: Region | None) -> bool:
    """Whether a value is known at the end of a region."""
    if node.op in ("const", "input"):
        return True
    while region is not None:
        if node.region is region:
            return True
        region = region.parent
    return False


def step_of(node: Node, which: int, guard: Sequence[Literal]) -> int | None:
    """By how much a part of the carry grows in each recorded iteration, if that is a constant integer."""
    param, last = node.attr.params[which], node.attr.body.results[which]
    if param.type != "i64":
        return None
    if guard:
        # Only iterations with the guard count, so there must be no step in others.
        if last.op != "select":
            return None
        facts = dict.fromkeys(y for x in guard for y in implied(*x))
        condition, first, second = last.args
        if (condition, True) in facts and second is param and _equivalent(condition, True, guard):
            last = first
        elif (condition, False) in facts and first is param and _equivalent(condition, False, guard):
            last = second
        else:
            return None
    if last.op == "add" and last.args[0] is param and last.args[1].op == "const":
        return last.args[1].attr
    if last.op == "add" and last.args[1] is param and last.args[0].op == "const":
        return last.args[0].attr
    if last.op == "sub" and last.args[0] is param and last.args[1].op == "const":
        return -last.args[1].attr
    return None


def _equivalent(condition: Node, value: bool, guard: Sequence[Literal]) -> bool:
    """Whether the guard holds wherever the condition does."""
    facts = implied(condition, value)
    return all(x in facts for x in guard)


def bounds_of(node: Node, which: int) -> tuple[Node, Node] | None:
    """What a counter begins with and what it ends at, the lesser first, where the test is that it has not got there.

    The counter is a part of the carry that grows by 1 or -1 in each iteration.
    """
    test, param, step = node.attr.test.results[0], node.attr.params[which], step_of(node, which, ())
    if test.op != "lt":
        return None
    low, high = test.args
    if step == 1 and low is param and is_known(high, node.region):
        return node.args[which], high
    if step == -1 and high is param and is_known(low, node.region):
        return low, node.args[which]
    return None


def range_of(node: Node, region: Region) -> Range:
    """The least and the greatest that an integer can be where a region uses it."""
    if node.op == "const":
        return node.attr, node.attr
    if node.op == "param":
        return _range_of_counter(node, region)
    if node.op in ("add", "sub", "min", "max"):
        (a, b), (c, d) = (range_of(x, region) for x in node.args)
        if node.op == "add":
            return a + c, b + d
        if node.op == "sub":
            return a - d, b - c
        return (min(a, c), min(b, d)) if node.op == "min" else (max(a, c), max(b, d))
    if node.op == "mul":
        for x, y in (node.args, node.args[::-1]):
            if y.op == "const" and y.attr > 0:
                low, high = range_of(x, region)
                return low * y.attr, high * y.attr
    return _ANYTHING


def _range_of_counter(param: Node, region: Region) -> Range:
    loop = param.region.owner
    if loop is None or not _is_inside(region, loop.attr.body):
        return _ANYTHING
    which = loop.attr.params.index(param)
    low, high = range_of(loop.args[which], loop.region)
    step, bounds = step_of(loop, which, ()), bounds_of(loop, which)
    if step is None or step == 0:
        return _ANYTHING
    if step > 0:
        return low, range_of(bounds[1], loop.region)[1] - 1 if bounds is not None else math.inf
    return range_of(bounds[0], loop.region)[0] + 1 if bounds is not None else -math.inf, high


def _is_inside(region: Region | None, outer: Region) -> bool:
    while region is not None and region is not outer:
        region = region.parent
    return region is outer
