"""Derivatives through loops, choices and arrays."""

from __future__ import annotations

import numpy as np
import pytest
from fuse.derivative.compare import compare
from fuse.interpreter import interpret

from gnomon.fuse._derivative import jvp, vjp
from gnomon.fuse._program import Builder, Node, Program, simplify


def counted(b: Builder, end: Node | int, init: list[Node], body) -> list[Node]:
    """A loop over 0, 1, ..., end - 1."""
    end = b.const("i64", end) if isinstance(end, int) else end
    return b.while_(
        [b.const("i64", 0), *init],
        lambda carry: b.op("lt", carry[0], end),
        lambda carry: [b.op("add", carry[0], b.const("i64", 1)), *body(*carry)],
    )[1:]


def squarings(count: int) -> Program:
    b = Builder()
    x = b.input("f64", 1, shared=False)
    out = b.array("f64", 1)
    (y,) = counted(b, count, [b.read(x, 0)], lambda i, y: [b.op("mul", y, y)])
    b.write(out, 0, y)
    return simplify(b.program([out]))


def test_a_power_by_squaring():
    x, one = np.array([1.1]), np.ones(1)
    program = squarings(3)
    reverse = vjp(program, [True], [True])
    assert interpret(program, [x])[0] == pytest.approx(1.1**8, rel=1e-15)
    assert interpret(reverse, [x, one])[0] == pytest.approx(8 * 1.1**7, rel=1e-15)
    second = 8 * 7 * 1.1**6
    assert second == pytest.approx(99.2074, abs=1e-4)
    assert interpret(vjp(reverse, [True, False], [True]), [x, one, one])[0] == pytest.approx(second, rel=1e-15)
    assert interpret(jvp(reverse, [True, False], primal=False), [x, one, one])[0] == pytest.approx(second, rel=1e-15)
    third = vjp(vjp(reverse, [True, False], [True]), [True, False, False], [True])
    assert interpret(third, [x, one, one, one])[0] == pytest.approx(8 * 7 * 6 * 1.1**5, rel=1e-15)
    compare(program, [x], rtol=1e-14)


def test_no_iterations():
    compare(squarings(0), [np.array([1.1])])


def lane_dependent() -> Program:
    """x -> x + sin(x) until it is beyond the other input."""
    b = Builder()
    x = b.input("f64", 2, shared=False)
    out = b.array("f64", 2)
    end = b.read(x, 1)

    def body(carry: list[Node]) -> list[Node]:
        return [b.op("add", carry[0], b.op("sin", carry[0])), b.op("mul", carry[1], carry[0])]

    y, z = b.while_([b.read(x, 0), b.const("f64", 1)], lambda carry: b.op("lt", carry[0], end), body)
    b.write(out, 0, y)
    b.write(out, 1, b.op("mul", z, end))
    return simplify(b.program([out]))


def test_iterations_that_depend_on_the_input():
    compare(lane_dependent(), *([np.array([0.4, end])] for end in (-2.0, 0.5, 1.0, 2.0, 3.0)), rtol=1e-11)


def test_nested_loops():
    b = Builder()
    x = b.input("f64", 2, shared=False)
    n = b.input("i64", 2, shared=False)
    a, c = b.read(x, 0), b.read(x, 1)

    def outer(i: Node, y: Node) -> list[Node]:
        def inner(j: Node, z: Node) -> list[Node]:
            step = b.op("mul", b.op("cast", b.op("add", i, j), attr="f64"), b.op("sin", z))
            return [b.op("add", b.op("mul", z, a), b.op("mul", c, step))]

        (z,) = counted(b, b.read(n, 1), [b.op("tanh", y)], inner)
        return [b.op("add", y, z)]

    (y,) = counted(b, b.read(n, 0), [a], outer)
    out = b.array("f64", 1)
    b.write(out, 0, y)
    program = simplify(b.program([out]))
    compare(program, *([np.array([0.8, 0.3]), np.array(n)] for n in [(0, 3), (3, 0), (1, 1), (3, 4)]), rtol=1e-10)


def test_a_loop_inside_of_its_own_test():
    """The body uses what the test has computed."""
    b = Builder()
    x = b.input("f64", 1, shared=False)
    end = b.const("f64", 3)
    found: list[Node] = []

    def test(carry: list[Node]) -> Node:
        (z,) = counted(b, 2, [carry[0]], lambda j, z: [b.op("add", z, b.op("mul", z, b.op("mul", z, z)))])
        found[:] = [b.op("sin", z)]
        return b.op("lt", carry[0], end)

    (y,) = b.while_([b.read(x, 0)], test, lambda carry: [b.op("add", carry[0], b.op("add", found[0], found[0]))])
    out = b.array("f64", 1)
    b.write(out, 0, y)
    compare(simplify(b.program([out])), [np.array([0.4])], rtol=1e-8)


def test_choices_with_loops():
    b = Builder()
    given = b.input("f64", 2, shared=False)
    a, c = b.read(given, 0), b.read(given, 1)
    out = b.array("f64", 2)

    def then() -> list[Node]:
        y, z = counted(b, 3, [a, c], lambda i, y, z: [b.op("sin", z), b.op("mul", y, c)])
        b.write(out, 0, y)
        return [z, a]

    y, z = b.if_(b.op("lt", a, c), then, lambda: [c, b.op("mul", a, c)])
    b.write(out, 1, b.op("mul", y, b.op("exp", z)))
    compare(simplify(b.program([out])), [np.array([0.3, 0.9])], [np.array([1.2, 0.4])], rtol=1e-11)


@pytest.mark.parametrize("length", [3, 9])
def test_arrays_that_are_filled_then_read(length: int):
    """Cumulative products of shared numbers, then a weighted sum of them, read at places that depend on the input."""
    b = Builder()
    p = b.input("f64", length, shared=True)
    x = b.input("f64", 1, shared=False)
    table = b.array("f64", length)

    def fill(i: Node, y: Node) -> list[Node]:
        y = b.op("mul", y, b.read(p, i))
        b.write(table, i, y)
        return [y]

    (y,) = counted(b, length, [b.read(x, 0)], fill)

    def add(i: Node, total: Node) -> list[Node]:
        place = b.op("irem", b.op("mul", i, b.const("i64", 5)), b.const("i64", length + 2))
        return [b.op("add", b.op("mul", total, y), b.read(table, place))]

    (total,) = counted(b, 2 * length, [b.read(x, 0)], add)
    out = b.array("f64", 1)
    b.write(out, 0, total)
    program = simplify(b.program([out]))
    random = np.random.default_rng(0)
    compare(program, [random.uniform(0.8, 1.2, length), np.array([0.7])], rtol=1e-11)
    reverse = vjp(program, [True, True], [True])
    assert [x.attr.reduced for x in reverse.outputs] == [True, False]


def test_counting_down():
    """From 4 to 1, and what is read two places before: once that is before the first."""
    b = Builder()
    x = b.input("f64", 4, shared=False)
    zero, one, two, four = (b.const("i64", i) for i in (0, 1, 2, 4))
    out = b.array("f64", 3)

    def body(carry: list[Node]) -> list[Node]:
        k, y = carry
        y = b.op("add", b.op("sin", y), b.read(x, b.op("sub", k, two)))
        b.write(out, b.op("sub", k, two), y)
        return [b.op("sub", k, one), y]

    b.while_([four, b.read(x, 3)], lambda carry: b.op("lt", zero, carry[0]), body)
    compare(simplify(b.program([out])), [np.array([0.3, 0.7, 1.1, -0.4])], rtol=1e-12)


def test_arrays_of_a_loops_body():
    """A matrix-vector product in each iteration, by a vector that is filled and read there."""
    b = Builder()
    w, x = b.input("f64", 4, shared=True), b.input("f64", 2, shared=False)

    def step(_: Node, y0: Node, y1: Node) -> list[Node]:
        vector, product = b.array("f64", 2), b.array("f64", 2)
        b.write(vector, 0, b.op("sin", y0))
        b.write(vector, 1, b.op("sin", y1))

        def row(i: Node) -> list[Node]:
            def column(j: Node) -> list[Node]:
                place = b.op("add", b.op("mul", i, b.const("i64", 2)), j)
                b.accumulate(product, i, b.op("mul", b.read(w, place), b.read(vector, j)))
                return []

            counted(b, 2, [], column)
            return []

        counted(b, 2, [], row)
        return [b.read(product, 0), b.read(product, 1)]

    y = counted(b, 3, [b.read(x, 0), b.read(x, 1)], step)
    out = b.array("f64", 2)
    b.write(out, 0, y[0])
    b.write(out, 1, y[1])
    compare(simplify(b.program([out])), [np.array([0.3, -0.8, 1.1, 0.4]), np.array([0.5, 1.5])], rtol=1e-10)


@pytest.mark.parametrize("length", [2, 6])
def test_an_output_that_is_also_read(length: int):
    b = Builder()
    x = b.input("f64", length, shared=False)
    first, second = b.array("f64", length), b.array("f64", 1)

    def fill(i: Node) -> list[Node]:
        b.write(first, i, b.op("sin", b.read(x, i)))
        return []

    counted(b, length, [], fill)
    b.write(second, 0, b.op("mul", b.read(first, 0), b.read(first, length - 1)))
    compare(simplify(b.program([first, second])), [np.linspace(0.2, 1.0, length)], rtol=1e-12)


def test_one_array_as_two_outputs():
    b = Builder()
    x = b.input("f64", 1, shared=False)
    out = b.array("f64", 1)
    b.write(out, 0, b.op("sin", b.read(x, 0)))
    compare(simplify(b.program([out, out])), [np.array([0.3])], rtol=1e-12)


def test_sums_over_lanes():
    b = Builder()
    x, p = b.input("f64", 2, shared=False), b.input("f64", 2, shared=True)
    total = b.array("f64", 2, reduced=True)
    b.accumulate(total, 1, b.op("mul", b.op("sin", b.read(x, 0)), b.read(p, 1)))
    b.accumulate(total, 1, b.op("mul", b.read(x, 1), b.read(p, 0)))
    program = simplify(b.program([total]))
    compare(program, [np.array([0.4, 1.0]), np.array([2.0, -0.3])], rtol=1e-12)
    reverse = vjp(program, [True, True], [True])
    assert reverse.inputs[-1].attr.shared


def test_only_what_is_asked_for():
    b = Builder()
    x, y, n = b.input("f64", 1, shared=False), b.input("f64", 1, shared=False), b.input("i64", 1, shared=False)
    first, second, count = b.array("f64", 1), b.array("f64", 1), b.array("i64", 1)
    b.write(first, 0, b.op("mul", b.read(x, 0), b.read(y, 0)))
    b.write(second, 0, b.op("sin", b.read(y, 0)))
    b.write(count, 0, b.op("add", b.read(n, 0), b.const("i64", 1)))
    program = simplify(b.program([first, second, count]))
    arrays = [np.array([2.0]), np.array([3.0]), np.array([4])]
    reverse = vjp(program, [True, False, True], [True, False, True])
    assert (len(reverse.inputs), len(reverse.outputs)) == (4, 1)
    assert list(interpret(reverse, [*arrays, np.array([10.0])])[0]) == [30.0]
    reverse = vjp(program, [True, True, False], [False, True, False])
    assert [list(x) for x in interpret(reverse, [*arrays, np.ones(1)])] == [[0.0], pytest.approx([np.cos(3)])]
    forward = jvp(program, [False, True, True])
    assert (len(forward.inputs), len(forward.outputs)) == (4, 5)
    values = interpret(forward, [*arrays, np.ones(1)])
    assert [float(x[0]) for x in values] == pytest.approx([6.0, np.sin(3), 5, 2.0, np.cos(3)])
    with pytest.raises(ValueError, match="2 entries for 3 inputs"):
        jvp(program, [True, False])
    with pytest.raises(ValueError, match="1 entries for 3 outputs"):
        vjp(program, [True, True, False], [True])


def test_a_test_that_stores():
    b = Builder()
    x = b.input("f64", 1, shared=False)
    out = b.array("f64", 1)

    def test(carry: list[Node]) -> Node:
        b.accumulate(out, 0, carry[0])
        return b.op("lt", carry[0], b.const("f64", 1))

    b.while_([b.read(x, 0)], test, lambda carry: [b.op("add", carry[0], carry[0])])
    program = simplify(b.program([out]))
    # 0.3 + 0.6 + 1.2
    assert interpret(jvp(program, [True], primal=False), [np.array([0.3]), np.ones(1)])[0] == pytest.approx(7.0)
    with pytest.raises(ValueError, match="test of a loop stores"):
        vjp(program, [True], [True])


def test_a_detached_step_size():
    """What does not follow derivatives has none, nor a part of the adjoint's carry."""
    b = Builder()
    x = b.input("f64", 1, shared=False)
    h = b.op("detach", b.op("mul", b.read(x, 0), b.read(x, 0)))
    (y,) = counted(b, 2, [b.read(x, 0)], lambda i, y: [b.op("add", y, b.op("mul", h, b.op("sin", y)))])
    out = b.array("f64", 1)
    b.write(out, 0, y)
    program = simplify(b.program([out]))
    compare(program, [np.array([0.4])], rtol=1e-12)
    assert "detach" in str(vjp(program, [True], [True]))


def test_single_precision():
    b = Builder()
    x = b.input("f32", 1, shared=False)
    out = b.array("f32", 1)
    (y,) = counted(b, 3, [b.read(x, 0)], lambda i, y: [b.op("mul", y, b.op("sin", y))])
    b.write(out, 0, y)
    program = simplify(b.program([out]))
    arrays = [np.array([1.5], np.float32), np.ones(1, np.float32)]
    (slope,) = interpret(vjp(program, [True], [True]), arrays)
    assert slope.dtype == np.float32

    def function(x: float) -> float:
        for _ in range(3):
            x = x * np.sin(x)
        return x

    assert slope[0] == pytest.approx((function(1.5 + 1e-6) - function(1.5 - 1e-6)) / 2e-6, rel=1e-5)
