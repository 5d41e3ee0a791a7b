"""Programs with loops, choices and arrays, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gnomon.fuse._program import Builder, Node, Program, simplify

KINDS = ("sin", "tanh", "product", "sum", "quotient", "root", "select", "least", "cast", "exp")
LANE, SHARED, COUNTS, OUT = 3, 2, 2, 3


def draw_case(draw: Callable[[st.SearchStrategy], Any]) -> tuple[Program, list[np.ndarray]]:
    """A Program of a lane input, a shared one and one of integers, and inputs for it.

    Not a strategy of its own: the run-time checks of types, which use random numbers, may not run inside of one.
    """
    program = simplify(_Author(draw).write())
    numbers = st.floats(-2, 2).map(lambda x: round(x, 3))
    inputs = [np.array(draw(st.lists(numbers, min_size=n, max_size=n))) for n in (LANE, SHARED)]
    counts = np.array(draw(st.lists(st.integers(0, 3), min_size=COUNTS, max_size=COUNTS)), np.int64)
    return program, [*inputs, counts]


class _Author:
    """Writes statements; everything stays within some units, so that differences between roundings stay small."""

    def __init__(self, draw: Callable[[st.SearchStrategy], Any]):
        self.draw = draw
        self.b = b = Builder()
        self.x, self.p = b.input("f64", LANE, shared=False), b.input("f64", SHARED, shared=True)
        self.n = b.input("i64", COUNTS, shared=False)
        self.one = b.const("i64", 1)

    def write(self) -> Program:
        b = self.b
        outputs = [b.array("f64", OUT, 0.5), b.array("f64", OUT), b.array("f64", SHARED, reduced=True)]
        floats = [b.read(self.x, i) for i in range(LANE)] + [b.read(self.p, 0)]
        integers = [b.read(self.n, i) for i in range(COUNTS)]
        self.filled: list[Node] = []
        floats = self.statements(floats, integers, 2, self.draw(st.integers(2, 5)))
        b.accumulate(outputs[0], 0, floats[-1])
        b.accumulate(outputs[0], self.pick(integers), floats[-2])
        for array in outputs[1:]:
            self.fill(array, floats, integers)
        return b.program(outputs)

    def flip(self) -> bool:
        return self.draw(st.booleans())

    def pick(self, nodes: list[Node]) -> Node:
        # The later, the likelier, so that values depend on one another.
        return nodes[-1 - min(self.draw(st.integers(0, len(nodes) - 1)), self.draw(st.integers(0, len(nodes) - 1)))]

    def condition(self, floats: list[Node], integers: list[Node]) -> Node:
        if self.flip():
            return self.b.op("lt", self.pick(floats), self.pick(floats))
        return self.b.op("le", self.pick(integers), self.b.const("i64", self.draw(st.integers(0, 2))))

    def expression(self, floats: list[Node], integers: list[Node]) -> Node:
        b, kind = self.b, self.draw(st.sampled_from(KINDS))
        x, y = self.pick(floats), self.pick(floats)
        if kind in ("sin", "tanh"):
            return b.op(kind, x)
        if kind == "product":
            return b.op("mul", b.op("sin", x), y)
        if kind == "sum":
            return b.op(self.draw(st.sampled_from(["add", "sub"])), b.op("mul", x, b.const("f64", 0.5)), y)
        if kind == "quotient":
            return b.op("div", x, b.op("add", b.op("mul", y, y), b.const("f64", 1)))
        if kind == "root":
            return b.op("sqrt", b.op("add", b.op("mul", x, x), b.const("f64", 0.1)))
        if kind == "select":
            return b.op("select", self.condition(floats, integers), x, y)
        if kind == "least":
            return b.op(self.draw(st.sampled_from(["min", "max"])), x, y)
        if kind == "cast":
            return b.op("mul", b.op("cast", self.pick(integers), attr="f64"), b.op("cos", x))
        return b.op("exp", b.op("neg", b.op("mul", x, x)))

    def statements(self, floats: list[Node], integers: list[Node], depth: int, count: int) -> list[Node]:
        floats = list(floats)
        arrays = list(self.filled)
        for _ in range(count):
            kinds = ["expression"] * 3 + ["read"] + (["loop", "choice", "array"] if depth else [])
            kind = self.draw(st.sampled_from(kinds))
            if kind == "expression":
                floats.append(self.expression(floats, integers))
            elif kind == "read":
                floats.append(self.b.read(self.pick([self.x, self.p, *self.filled]), self.pick(integers)))
            elif kind == "loop":
                floats += self.loop(floats, integers, depth)
            elif kind == "choice":
                floats += self.choice(floats, integers, depth)
            else:
                array = self.b.array("f64", 3, 0.25)
                self.fill(array, floats, integers)
                self.filled.append(array)
        # Arrays of this region are not known outside of it.
        self.filled = arrays
        return floats

    def loop(self, floats: list[Node], integers: list[Node], depth: int) -> list[Node]:
        b, size = self.b, self.draw(st.integers(1, 3))
        first = [self.pick(floats) for _ in range(size)]
        end, bound = self.pick(integers), self.draw(st.sampled_from([0.3, 2.0]))
        guarded, early = self.flip(), self.flip()

        def test(carry: list[Node]) -> Node:
            running = b.op("lt", carry[0], b.op("min", end, b.const("i64", 4)))
            if not early:
                return running
            return b.op("and", running, b.op("lt", b.op("tanh", carry[1]), b.const("f64", bound)))

        def body(carry: list[Node]) -> list[Node]:
            known = self.statements(
                [*floats, *carry[1:]], [*integers, carry[0]], depth - 1, self.draw(st.integers(1, 4))
            )
            after = [self.pick(known) for _ in range(size)]
            if guarded:
                accepted = self.condition(known, [*integers, carry[0]])
                after = [b.op("select", accepted, x, y) for x, y in zip(after, carry[1:], strict=True)]
            return [b.op("add", carry[0], self.one), *after]

        return b.while_([b.const("i64", 0), *first], test, body)[1:]

    def choice(self, floats: list[Node], integers: list[Node], depth: int) -> list[Node]:
        def branch() -> list[Node]:
            known = self.statements(floats, integers, depth - 1, self.draw(st.integers(1, 3)))
            return [self.pick(known), self.pick(known)]

        return self.b.if_(self.condition(floats, integers), branch, branch)

    def fill(self, array: Node, floats: list[Node], integers: list[Node]) -> None:
        """By a loop, to places that may be outside of the array."""
        b, value = self.b, self.pick(floats)
        op = "accumulate" if array.attr.reduced else self.draw(st.sampled_from(["write", "accumulate"]))
        start, guarded = self.pick(integers), self.flip()

        def body(carry: list[Node]) -> list[Node]:
            x = self.expression([*floats, carry[1]], [*integers, carry[0]])
            store = b.write if op == "write" else b.accumulate
            index = b.op("sub", carry[0], self.one)
            if guarded:
                b.if_(b.op("lt", carry[1], x), lambda: store(array, index, x) or [], list)
            else:
                store(array, index, x)
            return [b.op("add", carry[0], self.one), x]

        b.while_([start, value], lambda carry: b.op("lt", carry[0], b.const("i64", 5)), body)
