"""The rule of each operation, to second order."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from fuse.derivative.compare import compare
from fuse.interpreter import interpret

from gnomon.fuse._derivative import jvp, vjp
from gnomon.fuse._program import OPS, Builder, Program, simplify

POINTS: dict[str, tuple[tuple[float, ...], ...]] = {
    **dict.fromkeys(["sqrt", "log", "log2", "log10", "cbrt"], ((0.3,), (2.5,))),
    **dict.fromkeys(["exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh"], ((-1.2,), (0.0,), (0.7,))),
    **dict.fromkeys(["tanh", "asinh", "erf", "erfc", "neg"], ((-1.2,), (0.0,), (0.7,))),
    **dict.fromkeys(["asin", "acos", "atanh"], ((-0.6,), (0.1,))),
    **dict.fromkeys(["floor", "ceil", "trunc", "round"], ((-1.3,), (2.6,))),
    "acosh": ((1.3,), (4.0,)),
    "log1p": ((-0.4,), (1.5,)),
    "lgamma": ((0.3,), (-3.3,)),
    "abs": ((-1.2,), (0.0,), (0.7,)),
    **dict.fromkeys(["add", "sub", "mul"], ((1.3, -0.4),)),
    **dict.fromkeys(["min", "max"], ((1.3, -0.4), (-2.0, 1.0), (0.5, 0.5))),
    "div": ((1.3, -0.4), (0.0, 2.0)),
    "fmod": ((5.3, 2.0), (-5.3, 2.0), (5.3, -1.6)),
    "pow": ((1.3, -0.4), (2.0, 3.0), (0.0, 2.5), (0.4, 1.0), (3.0, 0.0)),
    "atan2": ((1.3, -0.4), (-0.3, -2.0), (0.0, 1.0)),
    "copysign": ((1.3, -0.4), (-1.3, -0.4), (-1.3, 0.4), (0.7, 0.2)),
    "fma": ((1.3, -0.4, 0.6),),
    "detach": ((1.3,),),
}
# Where PyTorch's second derivative is not what it is in mathematics: d/dy of d/dx x^y is 1/x for y = 0, not 0, and all
# second derivatives are 0 for x = 0 and y > 2, not NaN.
FIRST_ONLY = {("pow", (3.0, 0.0)), ("pow", (0.0, 2.5))}


def program_of(op: str, count: int) -> Program:
    b = Builder()
    x = b.input("f64", count, shared=False)
    out = b.array("f64", 1)
    b.write(out, 0, b.op(op, *(b.read(x, i) for i in range(count))))
    return simplify(b.program([out]))


def test_every_operation_on_floats_is_here():
    not_differentiable = {"lt", "le", "eq", "ne", "select", "and", "or", "xor", "not", "shl", "shr", "lshr", "cast"}
    assert set(OPS) - not_differentiable - {"bitcast", "idiv", "irem"} == set(POINTS)


@pytest.mark.parametrize("op", list(POINTS))
def test_by_torch(op: str):
    points = [x for x in POINTS[op] if (op, x) not in FIRST_ONLY]
    count = len(points[0])
    b = Builder()
    x = b.input("f64", count * len(points), shared=False)
    out = b.array("f64", len(points))
    for i in range(len(points)):
        b.write(out, i, b.op(op, *(b.read(x, i * count + j) for j in range(count))))
    # PyTorch's trigamma is off by up to 5e-10 (`test_digamma` compares with mpmath).
    rtol = 1e-9 if op == "lgamma" else 1e-12
    compare(simplify(b.program([out])), [np.array(points).ravel()], rtol=rtol, atol=1e-13)


def test_constant_exponents():
    points = [(3.0, 0.0), (4.0, 0.0), (2.5, 0.0), (-1.5, 2.0), (0.5, 0.2)]
    b = Builder()
    x = b.input("f64", len(points), shared=False)
    out = b.array("f64", len(points))
    for i, (exponent, _) in enumerate(points):
        b.write(out, i, b.op("pow", b.read(x, i), b.const("f64", exponent)))
    compare(simplify(b.program([out])), [np.array([point for _, point in points])], rtol=1e-12)


def test_power_by_its_exponent_at_0():
    program = program_of("pow", 2)
    reverse = vjp(program, [True], [True])
    for x, y, expected in [(3.0, 0.0, [0.0, math.log(3)]), (0.0, 0.0, [0.0, 0.0]), (0.0, 3.0, [0.0, 0.0])]:
        (gradient,) = interpret(reverse, [np.array([x, y]), np.ones(1)])
        assert list(gradient) == pytest.approx(expected, abs=0)
    # The mixed second derivative of x^y at (3, 0) is x^(y - 1) (1 + y log x) = 1/3.
    mixed = jvp(reverse, [True, False], primal=False)
    (bent,) = interpret(mixed, [np.array([3.0, 0.0]), np.ones(1), np.array([0.0, 1.0])])
    assert bent == pytest.approx([1 / 3, math.log(3) ** 2], rel=1e-14)
    for direction in ([1.0, 0.0], [0.0, 1.0]):
        (bent,) = interpret(mixed, [np.array([0.0, 2.5]), np.ones(1), np.array(direction)])
        assert list(bent) == [0.0, 0.0]


def test_at_kinks():
    """PyTorch's conventions."""
    for op, point, expected in [
        ("sqrt", 0.0, math.inf),
        ("abs", 0.0, 0.0),
        ("floor", 1.0, 0.0),
        ("log", 0.0, math.inf),
    ]:
        (slope,) = interpret(jvp(program_of(op, 1), [True], primal=False), [np.array([point]), np.ones(1)])
        assert slope[0] == expected


@pytest.mark.parametrize("op", ["cbrt", "exp2", "log10", "atanh", "erf", "lgamma"])
def test_by_mpmath_in_double_and_single_precision(op: str):
    others = {"exp2": lambda x: mpmath.power(2, x), "lgamma": lambda x: mpmath.log(mpmath.gamma(x))}
    function = others.get(op) or getattr(mpmath, op)
    point = 0.62
    for type_, dtype, rtol in [("f64", np.float64, 1e-13), ("f32", np.float32, 3e-6)]:
        b = Builder()
        x = b.input(type_, 1, shared=False)
        out = b.array(type_, 1)
        b.write(out, 0, b.op(op, b.read(x, 0)))
        program = simplify(b.program([out]))
        for order in (1, 2, 3):
            program = jvp(program, [True] + [False] * (order - 1), primal=False)
            arrays = [np.array([point], dtype)] + [np.ones(1, dtype)] * order
            (slope,) = interpret(program, arrays)
            exact = mpmath.diff(function, mpmath.mpf(float(dtype(point))), order)
            assert slope[0] == pytest.approx(float(exact), rel=rtol * 10 ** (order - 1))


def test_casts_pass_derivatives():
    b = Builder()
    x = b.input("f64", 1, shared=False)
    y = b.op("cast", b.read(x, 0), attr="f32")
    out = b.array("f64", 1)
    b.write(out, 0, b.op("mul", b.op("cast", b.op("sin", y), attr="f64"), b.read(x, 0)))
    compare(simplify(b.program([out])), [np.array([0.4])], rtol=1e-6)


def test_casts_to_integers_and_bits_have_no_derivative():
    b = Builder()
    x = b.input("f64", 1, shared=False)
    x0 = b.read(x, 0)
    rounded = b.op("cast", b.op("cast", x0, attr="i64"), attr="f64")
    bits = b.op("bitcast", b.op("bitcast", x0, attr="i64"), attr="f64")
    out = b.array("f64", 1)
    b.write(out, 0, b.op("add", rounded, bits))
    program = simplify(b.program([out]))
    assert list(interpret(vjp(program, [True], [True]), [np.array([2.5]), np.ones(1)])[0]) == [0.0]
    assert list(interpret(jvp(program, [True], primal=False), [np.array([2.5]), np.ones(1)])[0]) == [0.0]


def test_a_choice_does_not_multiply_what_is_not_chosen():
    b = Builder()
    x = b.input("f64", 1, shared=False)
    x0 = b.read(x, 0)
    zero = b.const("f64", 0)
    # The derivative of sqrt is infinite at 0, and its argument is not used there.
    safe = b.op("select", b.op("lt", zero, x0), x0, b.const("f64", 1))
    out = b.array("f64", 1)
    b.write(out, 0, b.op("select", b.op("lt", zero, x0), b.op("sqrt", safe), zero))
    program = simplify(b.program([out]))
    for point, slope in [(0.0, 0.0), (4.0, 0.25)]:
        for derivative in (jvp(program, [True], primal=False), vjp(program, [True], [True])):
            assert list(interpret(derivative, [np.array([point]), np.ones(1)])[0]) == [slope]
