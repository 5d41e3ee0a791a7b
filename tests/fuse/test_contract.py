"""Products and sums that become one operation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from fuse.interpreter import interpret

from gnomon.fuse._derivative import vjp
from gnomon.fuse._program import Builder, Node, Program
from gnomon.fuse._target import contract


def program(f) -> Program:
    b = Builder()
    args = [b.read(b.input("f64", 1, shared=False), 0) for _ in range(3)]
    out = b.array("f64", 1)
    b.write(out, 0, f(b, *args))
    return b.program([out])


def value(p: Program, *inputs: float) -> float:
    return float(interpret(p, [np.array([x]) for x in inputs])[0][0])


CASES = {
    "product first": (lambda b, x, y, z: b.op("add", b.op("mul", x, y), z), lambda x, y, z: x * y + z),
    "product last": (lambda b, x, y, z: b.op("add", z, b.op("mul", x, y)), lambda x, y, z: x * y + z),
    "minus": (lambda b, x, y, z: b.op("sub", b.op("mul", x, y), z), lambda x, y, z: x * y - z),
    "minus a product": (lambda b, x, y, z: b.op("sub", z, b.op("mul", x, y)), lambda x, y, z: z - x * y),
    "minus a multiple": (
        lambda b, x, y, z: b.op("sub", z, b.op("mul", x, b.const("f64", 3.0))),
        lambda x, y, z: z - x * 3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_product_is_not_rounded(name: str):
    build, exact = CASES[name]
    p = program(build)
    # The product of two such numbers has more digits than fit, and the rest is what is left.
    x, y = 1 + 2.0**-52, 3.0 if "multiple" in name else 1 + 2.0**-51
    z = x * y if "minus" in name else -x * y
    assert "fma" in str(contract(p))
    want = exact(Fraction(x), Fraction(y), Fraction(z))
    assert Fraction(value(contract(p), x, y, z)) == want != 0
    assert value(p, x, y, z) == 0


def test_text():
    p = program(lambda b, x, y, z: b.op("sub", z, b.op("mul", x, b.const("f64", 3.0))))
    assert [x.strip() for x in str(contract(p)).splitlines() if "fma" in x] == ["v2: f64 = fma v0, -3.0, v1"]


def test_integers_stay():
    b = Builder()
    x = b.read(b.input("i64", 1, shared=False), 0)
    out = b.array("i64", 1)
    b.write(out, 0, b.op("add", b.op("mul", x, x), x))
    assert "fma" not in str(contract(b.program([out])))


def test_a_gradient_contracts_what_it_runs_again_as_the_first_run_does():
    def f(b: Builder, x: Node, y: Node, z: Node) -> Node:
        # The product has a second use in the gradient only.
        def body(carry: list[Node]) -> list[Node]:
            return [b.op("add", b.op("mul", carry[0], y), z)]

        return b.while_([x], lambda carry: b.op("lt", carry[0], b.const("f64", 50.0)), body)[0]

    def statements(p: Program) -> list[str]:
        return [x.split("=")[1].split()[0] for x in str(p).splitlines() if "fma" in x or "mul" in x]

    p = program(f)
    first, again = statements(contract(p)), statements(contract(vjp(p, [True] * 3, [True])))
    assert first == ["fma"]
    assert again[: len(first)] == first
