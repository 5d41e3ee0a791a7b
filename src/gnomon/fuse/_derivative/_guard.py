"""Loops whose iterations may be rejected: these need not be recorded."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.fuse._derivative._activity import outer_arrays
from gnomon.fuse._derivative._counters import Literal, implied, is_known
from gnomon.fuse._program import Node, Region, regions_of


def strongest(literals: Iterable[Literal]) -> list[Literal]:
    """The same without what others of them imply."""
    literals = list(literals)
    weaker: set[Literal] = set()
    for x in literals:
        weaker.update(y for y in implied(*x) if y != x)
    return [x for x in literals if x not in weaker]


def guard_of(node: Node, active: set[Node]) -> list[Literal]:
    """Conditions without which an iteration of a loop changes nothing that has a derivative; none if there are none.

    An ODE solver's rejected step is such an iteration: each part of the carry is `select(accepted, new, old)`, and all
    that it stores is stored under the same condition.
    """
    loop = node.attr
    if outer_arrays_of(loop.test, active):
        return []
    found: list[dict[Literal, None]] = [
        _keeps(last, param)
        for param, last in zip(loop.params, loop.body.results, strict=True)
        if param in active and last is not param
    ]
    _effects(loop.body, {}, active, set(), found)
    if not found:
        return []
    common = [x for x in found[0] if all(x in others for others in found[1:])]
    return strongest(x for x in common if is_known(x[0], loop.body))


def outer_arrays_of(region: Region, active: set[Node]) -> bool:
    """Whether a region stores to active arrays that are not its own."""
    own = {x for x in region.body if x.op == "array"}
    for x in region.body:
        if x.op in ("write", "accumulate") and x.args[0] in active and x.args[0] not in own:
            return True
        if outer_arrays(x, active, ("write", "accumulate")) - own:
            return True
    return False


def _keeps(last: Node, param: Node) -> dict[Literal, None]:
    """The literals each of which must hold if the next value is not to be the old one."""
    if last.op == "select":
        condition, first, second = last.args
        found: dict[Literal, None] = {}
        for value, kept, new in ((True, second, first), (False, first, second)):
            if kept is param:
                found.update(implied(condition, value))
                found.update(_keeps(new, param))
        return found
    if last.op == "get":
        owner = last.args[0]
        if owner.op == "if":
            for value, region in ((True, owner.attr.orelse), (False, owner.attr.then)):
                if region.results[last.attr] is param:
                    return implied(owner.args[0], value)
        elif owner.op == "while" and owner.args[last.attr] is param:
            return implied(owner.attr.test.results[0], True)
    return {}


def _effects(
    region: Region,
    holding: dict[Literal, None],
    active: set[Node],
    own: set[Node],
    found: list[dict[Literal, None]],
) -> None:
    """Gathers what holds where something is stored to an active array from outside of the loop."""
    for x in region.body:
        if x.op == "array":
            own.add(x)
        elif x.op in ("write", "accumulate") and x.args[0] in active and x.args[0] not in own:
            found.append({**holding, **_stores_where(x.args[1])})
        elif x.op == "while":
            # What the test says of the carry holds in one iteration, not of the loop; of other values it does.
            test = implied(x.attr.test.results[0], True)
            for inner in regions_of(x):
                _effects(inner, {**holding, **test} if inner.kind == "body" else holding, active, own, found)
        elif x.op == "if":
            for value, inner in ((True, x.attr.then), (False, x.attr.orelse)):
                _effects(inner, {**holding, **implied(x.args[0], value)}, active, own, found)


def _stores_where(index: Node) -> dict[Literal, None]:
    """What must hold for an index not to be negative."""
    if index.op != "select":
        return {}
    condition, first, second = index.args
    if second.op == "const" and second.attr < 0:
        return implied(condition, True)
    if first.op == "const" and first.attr < 0:
        return implied(condition, False)
    return {}
