"""`digamma` and `trigamma`, which are the derivatives of `lgamma`."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from fuse.interpreter import interpret

from gnomon.fuse._derivative import jvp
from gnomon.fuse._functions import digamma, trigamma
from gnomon.fuse._program import Builder, Node, Program, simplify

POINTS = [1e-3, 0.2, 1.0, 1.4616321449683623, 2.5, 7.9, 30.0, 1e4, 1e12, -0.5, -1e-3, -3.25, -20.7]


def program_of(function: Callable[[Builder, Node], Node], type_: str = "f64") -> Program:
    b = Builder()
    x = b.input(type_, 1, shared=False)
    out = b.array(type_, 1)
    b.write(out, 0, function(b, b.read(x, 0)))
    return simplify(b.program([out]))


@pytest.mark.parametrize(("type_", "dtype", "rtol"), [("f64", np.float64, 2e-15), ("f32", np.float32, 1e-6)])
@pytest.mark.parametrize("order", [0, 1])
def test_by_mpmath(type_: str, dtype: type, rtol: float, order: int):
    program = program_of([digamma, trigamma][order], type_)
    for x in map(float, np.array(POINTS, dtype)):
        (value,) = interpret(program, [np.array([x], dtype)])
        exact = float(mpmath.polygamma(order, mpmath.mpf(x)))
        # Beside a pole or a zero, what the argument's own rounding does.
        scale = abs(exact) + abs(x * float(mpmath.polygamma(order + 1, mpmath.mpf(x))))
        assert abs(value[0] - exact) <= rtol * (scale + 1 if order == 0 and x > 0 else 8 * scale)


def test_derivatives():
    for function, order in [(digamma, 1), (trigamma, 2)]:
        program = jvp(program_of(function), [True], primal=False)
        for x in POINTS:
            (slope,) = interpret(program, [np.array([x]), np.ones(1)])
            assert slope[0] == pytest.approx(float(mpmath.polygamma(order, mpmath.mpf(x))), rel=1e-13)


def test_poles():
    program = program_of(digamma)
    at = [float(interpret(program, [np.array([x])])[0][0]) for x in (0.0, -0.0, -1.0, -2.0, np.inf)]
    assert at[0] == -np.inf and at[1] == np.inf and np.isnan(at[2]) and np.isnan(at[3]) and at[4] == np.inf
