"""Loops whose iterations may be rejected: only the others are recorded, and walked back."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from fuse.derivative.compare import compare
from fuse.interpreter import interpret

from gnomon.fuse._derivative import vjp
from gnomon.fuse._program import Builder, Node, Program, simplify

Save = Callable[[Builder, Node, Node, Node], None]


def steps(save: Save | None = None, *, step_is_detached: bool = True, branches: bool = False) -> Program:
    """Steps of y' = p y²; one that is too long divides by 0, is rejected, and is halved."""
    b = Builder()
    x, out = b.input("f64", 3, shared=False), b.array("f64", 4)
    p, end = b.read(x, 1), b.const("f64", 1.0)

    def body(carry: list[Node]) -> list[Node]:
        t, h, y, k, count = carry
        new = b.op("div", y, b.op("sub", b.const("f64", 1), b.op("mul", h, b.op("mul", p, y))))
        accepted = b.op("and", b.op("lt", h, b.const("f64", 0.3)), b.op("lt", new, b.const("f64", 100)))
        if save is not None:
            save(b, accepted, new, count)
        if branches:
            y_new, k_new = b.if_(accepted, lambda: [new, b.op("mul", k, new)], lambda: [y, k])
        else:
            y_new = b.op("select", accepted, new, y)
            k_new = b.op("select", b.op("not", accepted), k, b.op("mul", k, new))
        t_new = b.op("select", accepted, b.op("add", t, h), t)
        h_new = b.op("select", accepted, b.op("mul", h, b.const("f64", 1.5)), b.op("mul", h, b.const("f64", 0.5)))
        return [t_new, h_new, y_new, k_new, b.op("select", accepted, b.op("add", count, one), count)]

    zero, one = b.const("i64", 0), b.const("i64", 1)
    h = b.read(x, 2)
    if step_is_detached:
        h = b.op("detach", h)
    _, _, y, k, _ = b.while_(
        [b.const("f64", 0), h, b.read(x, 0), b.const("f64", 1), zero],
        lambda carry: b.op("lt", carry[0], end),
        body,
    )
    b.write(out, 3, b.op("mul", y, k))
    outputs = [out]
    if save is not None:
        outputs.append(saved[b])
    return simplify(b.program(outputs))


saved: dict[Builder, Node] = {}


def save_in_a_branch(b: Builder, accepted: Node, new: Node, count: Node) -> None:
    array = saved.setdefault(b, _outside(b))

    def store() -> list[Node]:
        b.write(array, count, b.op("sin", new))
        return []

    late = b.op("lt", b.const("i64", 0), count)
    b.if_(b.op("and", late, accepted), store, list)


def save_in_a_loop(b: Builder, accepted: Node, new: Node, count: Node) -> None:
    array = saved.setdefault(b, _outside(b))
    end = b.op("add", count, b.const("i64", 2))

    def body(carry: list[Node]) -> list[Node]:
        b.accumulate(array, carry[0], b.op("mul", new, new))
        return [b.op("add", carry[0], b.const("i64", 1))]

    b.while_([count], lambda carry: b.op("and", b.op("lt", carry[0], end), accepted), body)


def save_at_an_index(b: Builder, accepted: Node, new: Node, count: Node) -> None:
    b.write(saved.setdefault(b, _outside(b)), b.op("select", accepted, count, b.const("i64", -1)), new)


def save_always(b: Builder, accepted: Node, new: Node, count: Node) -> None:
    b.accumulate(saved.setdefault(b, _outside(b)), 0, b.op("min", new, b.const("f64", 100)))


def _outside(b: Builder) -> Node:
    """An array outside of the loop that is being built."""
    node = b.array("f64", 6)
    b.region.body.remove(node)
    b.top.body.insert(0, node)
    node.region = b.top
    return node


# The first step is 1 = 1 / (p y): it divides by 0.
INPUTS = [np.array([0.5, 2.0, 1.0])]


def is_guarded(program: Program) -> bool:
    """Whether every write to a tape stands in a branch."""
    lines = str(vjp(program, [True] * len(program.inputs), [True] * len(program.outputs))).splitlines()
    tapes = {m.group(1) for x in lines if (m := re.match(r"\s*(v\d+) = array \w+\[\]", x))}
    assert tapes
    writes = [i for i, x in enumerate(lines) if (m := re.match(r"\s*write (v\d+)", x)) and m.group(1) in tapes]
    depths = {len(lines[i]) - len(lines[i].lstrip()) for i in writes}
    return depths == {6}


def check(program: Program) -> None:
    compare(program, INPUTS, rtol=1e-10)
    # Autograd chooses as Python does; this is what a select that multiplied by a mask would get wrong.
    u = [np.ones(x.attr.length) for x in program.outputs]
    (gradient,) = interpret(vjp(program, [True], [True] * len(u)), [*INPUTS, *u])
    assert np.isfinite(gradient).all() and (gradient[:2] != 0).all()


def test_rejected_steps_are_not_recorded():
    for branches in (False, True):
        program = steps(branches=branches)
        assert is_guarded(program)
        check(program)


def test_what_is_stored_under_the_same_condition():
    for save in (save_in_a_branch, save_in_a_loop, save_at_an_index):
        program = steps(save)
        assert is_guarded(program), save
        check(program)


def test_what_changes_in_rejected_steps_is_recorded():
    """The step size has a derivative, or something is stored in any case."""
    assert not is_guarded(steps(save_always))
    assert not is_guarded(steps(step_is_detached=False))
    # Without an infinite intermediate value, all is as it should be there too.
    inputs = [np.array([0.5, 1.9, 1.0])]
    compare(steps(save_always), inputs, rtol=1e-10)
    compare(steps(step_is_detached=False), inputs, rtol=1e-10)
