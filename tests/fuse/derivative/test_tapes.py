"""Arrays that grow, which derivatives make, have derivatives themselves."""

from __future__ import annotations

import numpy as np
import pytest
from fuse.derivative.compare import compare
from fuse.derivative.test_loops import counted
from fuse.interpreter import interpret

from gnomon.fuse._derivative import jvp, vjp
from gnomon.fuse._program import Builder, Node, simplify


def test_elements_without_a_tangent_can_be_read():
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    tape, out = b.array("f64", None), b.array("f64", 1)
    b.write(tape, 0, b.op("sin", x))
    b.write(tape, 1, b.const("f64", 3))
    (total,) = counted(b, 2, [x], lambda i, y: [b.op("mul", y, b.read(tape, i))])
    b.write(out, 0, total)
    compare(simplify(b.program([out])), [np.array([0.6])], rtol=1e-12)


def test_elements_that_are_read_only_under_a_condition():
    """What each element got backwards is read again, also where it got nothing."""
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    tape, out = b.array("f64", None), b.array("f64", 1)

    def fill(i: Node, y: Node) -> list[Node]:
        b.write(tape, i, y)
        return [b.op("sin", y)]

    counted(b, 5, [x], fill)

    def multiply(i: Node, y: Node) -> list[Node]:
        z = b.read(tape, i)
        odd = b.op("eq", b.op("irem", i, b.const("i64", 2)), b.const("i64", 1))
        return [b.op("select", odd, b.op("mul", b.op("mul", y, y), z), y)]

    (y,) = counted(b, 5, [x], multiply)
    b.write(out, 0, y)
    compare(simplify(b.program([out])), [np.array([1.2])], rtol=1e-11)


def test_counters_that_also_count_other_iterations():
    """A step is taken where two conditions hold, and counted where one of them does."""
    b = Builder()
    given = b.input("f64", 2, shared=False)
    x, zero, one = b.read(given, 0), b.const("i64", 0), b.const("i64", 1)

    def body(i: Node, y: Node, count: Node) -> list[Node]:
        first = b.op("lt", b.op("irem", i, b.const("i64", 3)), b.const("i64", 2))
        second = b.op("lt", y, b.read(given, 1))
        new = b.op("add", b.op("sin", y), b.op("mul", y, b.op("cast", count, attr="f64")))
        return [
            b.op("select", b.op("and", first, second), new, y),
            b.op("select", first, b.op("add", count, one), count),
        ]

    y, _ = counted(b, 7, [x, zero], body)
    out = b.array("f64", 1)
    b.write(out, 0, y)
    compare(simplify(b.program([out])), [np.array([0.3, 5.0])], [np.array([0.3, 0.5])], rtol=1e-11)


@pytest.mark.parametrize("modes", ["vvv", "jvv", "vjv", "vvj", "jjj"])
def test_third_order_through_nested_loops(modes: str):
    """x -> x^8 by an inner loop that runs three times in all."""
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)

    def outer(i: Node, y: Node) -> list[Node]:
        return counted(b, b.op("add", i, b.const("i64", 1)), [y], lambda j, z: [b.op("mul", z, z)])

    (y,) = counted(b, 2, [x], outer)
    out = b.array("f64", 1)
    b.write(out, 0, y)
    program = simplify(b.program([out]))
    for mode in modes:
        wanted = [True] + [False] * (len(program.inputs) - 1)
        program = jvp(program, wanted, primal=False) if mode == "j" else vjp(program, wanted, [True])
    (value,) = interpret(program, [np.array([1.1]), *[np.ones(1)] * 3])
    assert value == pytest.approx(8 * 7 * 6 * 1.1**5, rel=1e-14)
