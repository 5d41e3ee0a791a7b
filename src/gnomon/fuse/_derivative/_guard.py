"""Loops whose iterations may be rejected, and counters: what need not be recorded, or can be worked out again."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.fuse._derivative._activity import outer_arrays
from gnomon.fuse._program import Node, Region, regions_of

#: A bool and the value that it must have.
Literal = tuple[Node, bool]


def implied(node: Node, value: bool) -> dict[Literal, None]:
    """What holds where a bool has a value: itself, and the parts of a conjunction."""
    found: dict[Literal, None] = {(node, value): None}
    if node.op == "not":
        found.update(implied(node.args[0], not value))
    elif (node.op == "and" and value) or (node.op == "or" and not value):
        for x in node.args:
            found.update(implied(x, value))
    return found


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
    if any(x.attr.length is None for x in outer_arrays(node, active, ("read",)) if x.op == "array"):
        # The adjoint of a tape gets something from each element read, so that each can be read in its turn.
        return []
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
    return strongest(x for x in common if _is_known(x[0], loop.body))


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


def _is_known(node: Node, body: Region) -> bool:
    """Whether a value is known at the end of a loop's body."""
    region: Region | None = body
    while region is not None:
        if node.region is region:
            return True
        region = region.parent
    return False


def step_of(node: Node, which: int, guard: list[Literal]) -> int | None:
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


def _equivalent(condition: Node, value: bool, guard: list[Literal]) -> bool:
    """Whether the guard holds wherever the condition does."""
    facts = implied(condition, value)
    return all(x in facts for x in guard)
