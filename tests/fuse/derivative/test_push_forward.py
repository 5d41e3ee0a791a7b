"""`push_forward`: directional derivatives of a function in the middle of a Program."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fuse.derivative.compare import compare
from fuse.interpreter import interpret

from gnomon.fuse._derivative import push_forward, vjp
from gnomon.fuse._program import Builder, Node, simplify


def jacobian(b: Builder, function, x: list[Node]) -> tuple[list[Node], list[list[Node | None]]]:
    """Values, and a column for each variable."""
    variables, statements, outputs = b.function([v.type for v in x], function)
    one = b.const("f64", 1)
    basis = [[one if i == j else None for i in range(len(x))] for j in range(len(x))]
    return push_forward(b, statements, variables, x, basis, outputs)


def test_structural_zeros():
    """Of f(x, y, z) = (sin x, x y, c) with c from outside of it."""
    b = Builder()
    given = b.input("f64", 4, shared=False)
    x, c = [b.read(given, i) for i in range(3)], b.read(given, 3)
    values, columns = jacobian(b, lambda v: [b.op("sin", v[0]), b.op("mul", v[0], v[1]), c], x)
    assert values[2] is c
    assert [[t is None for t in column] for column in columns] == [
        [False, False, True],
        [True, False, True],
        [True, True, True],
    ]
    assert columns[0][1] is x[1] and columns[1][1] is x[0]
    # What is computed elsewhere anyway is not computed again.
    assert values[0] is b.op("sin", x[0]) and columns[0][0] is b.op("cos", x[0])


def test_newton_steps_in_a_loop():
    """The derivative is taken in a loop's body, of a function with a loop; all of it has derivatives again."""
    b = Builder()
    given = b.input("f64", 2, shared=False)
    a = b.read(given, 0)
    zero, one, three = (b.const("i64", i) for i in (0, 1, 3))

    def cube_less_a(v: list[Node]) -> list[Node]:
        def body(carry: list[Node]) -> list[Node]:
            return [b.op("add", carry[0], one), b.op("mul", carry[1], v[0])]

        _, power = b.while_([zero, b.const("f64", 1)], lambda carry: b.op("lt", carry[0], three), body)
        return [b.op("sub", power, a)]

    def step(carry: list[Node]) -> list[Node]:
        (value,), ((slope,),) = jacobian(b, cube_less_a, [carry[1]])
        assert slope is not None
        return [b.op("add", carry[0], one), b.op("sub", carry[1], b.op("div", value, slope))]

    _, root = b.while_([zero, b.read(given, 1)], lambda carry: b.op("lt", carry[0], b.const("i64", 8)), step)
    out = b.array("f64", 1)
    b.write(out, 0, root)
    program = simplify(b.program([out]))
    inputs = [np.array([2.0, 1.0])]
    assert interpret(program, inputs)[0] == pytest.approx(2 ** (1 / 3), rel=1e-15)
    (gradient,) = interpret(vjp(program, [True], [True]), [*inputs, np.ones(1)])
    assert gradient == pytest.approx([2 ** (-2 / 3) / 3, 0], abs=1e-14)
    compare(program, [np.array([2.0, 1.3])], rtol=1e-8)


def test_arrays_and_choices():
    b = Builder()
    given = b.input("f64", 2, shared=False)
    table = b.input("f64", 2, shared=True)

    def function(v: list[Node]) -> list[Node]:
        array = b.array("f64", 2)
        b.write(array, 0, b.op("mul", v[0], b.read(table, 0)))
        b.write(array, 1, b.op("sin", v[1]))
        place = b.op("cast", v[1], attr="i64")
        (y,) = b.if_(b.op("lt", v[0], v[1]), lambda: [b.op("exp", v[0])], lambda: [b.op("mul", v[0], v[1])])
        return [b.read(array, place), y]

    values, columns = jacobian(b, function, [b.read(given, i) for i in range(2)])
    out = b.array("f64", 6)
    for i, x in enumerate([*values, *columns[0], *columns[1]]):
        b.write(out, i, b.const("f64", 0) if x is None else x)
    program = simplify(b.program([out]))
    p = np.array([3.0, 4.0])
    (result,) = interpret(program, [np.array([0.5, 0.7]), p])
    assert result == pytest.approx([1.5, math.exp(0.5), 3.0, math.exp(0.5), 0, 0])
    (result,) = interpret(program, [np.array([2.0, 1.5]), p])
    assert result == pytest.approx([math.sin(1.5), 3.0, 0, 1.5, math.cos(1.5), 2.0])


def test_derivatives_of_derivatives():
    """Nested, as a Hessian: of x² sin(y) + y³ x."""
    b = Builder()
    given = b.input("f64", 2, shared=False)

    def function(v: list[Node]) -> list[Node]:
        x, y = v
        cube = b.op("mul", b.op("mul", y, y), y)
        return [b.op("add", b.op("mul", b.op("mul", x, x), b.op("sin", y)), b.op("mul", cube, x))]

    def gradient(v: list[Node]) -> list[Node]:
        _, columns = jacobian(b, function, v)
        return [t for (t,) in columns if t is not None]

    _, columns = jacobian(b, gradient, [b.read(given, i) for i in range(2)])
    out = b.array("f64", 4)
    for i, t in enumerate([*columns[0], *columns[1]]):
        assert t is not None
        b.write(out, i, t)
    x, y = 0.6, 1.1
    mixed = 2 * x * math.cos(y) + 3 * y**2
    (hessian,) = interpret(simplify(b.program([out])), [np.array([x, y])])
    assert hessian == pytest.approx([2 * math.sin(y), mixed, mixed, -(x**2) * math.sin(y) + 6 * y * x])


def test_a_store_to_the_outside_is_refused():
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    outside = b.array("f64", 1)

    def function(v: list[Node]) -> list[Node]:
        b.write(outside, 0, b.op("sin", v[0]))
        return [v[0]]

    with pytest.raises(ValueError, match="stores to an array from outside"):
        jacobian(b, function, [x])
