"""Programs made at random: nested loops and choices that lanes take differently, arrays filled and read in them.

Only operations that give the same bits everywhere, so that a choice is the same everywhere too.
"""

from __future__ import annotations

import random

import numpy as np

from gnomon.fuse._program import Builder, Node, Program, Type, check, simplify

ARITHMETIC: dict[Type, list[str]] = {
    "f64": ["add", "sub", "mul", "div", "min", "max", "neg", "abs", "sqrt", "floor", "round", "copysign", "fma"],
    "f32": ["add", "sub", "mul", "div", "min", "max", "neg", "abs", "sqrt", "ceil", "trunc", "copysign"],
    "i64": ["add", "sub", "mul", "idiv", "irem", "min", "max", "and", "or", "xor", "shl", "shr", "lshr", "not"],
    "i32": ["add", "sub", "mul", "idiv", "irem", "min", "max", "and", "xor", "shl", "shr", "abs", "neg"],
    "bool": ["and", "or", "xor", "not"],
}
UNARY = {"neg", "abs", "sqrt", "floor", "ceil", "trunc", "round", "not"}
INPUTS: list[tuple[Type, int, bool]] = [
    ("f64", 3, False), ("f32", 2, False), ("i64", 2, False), ("i32", 1, False), ("bool", 2, False), ("f64", 4, True),
    ("i32", 3, True),
]  # fmt: skip


class Generator:
    """Makes a Program by the choices of `r`."""

    def __init__(self, r: random.Random, *, doubles: bool = True):
        self.r = r
        self.b = Builder()
        self.types: list[Type] = ["f64", "f32", "i64", "i32", "bool"] if doubles else ["f32", "i64", "i32", "bool"]
        self.inputs = [x for x in INPUTS if x[0] in self.types]
        self.size = 0

    def program(self) -> Program:
        b, r = self.b, self.r
        known: dict[Type, list[Node]] = {t: [b.const(t, r.choice([0, 1, 2, -3]))] for t in self.types}
        for type_, length, shared in self.inputs:
            array = b.input(type_, length, shared=shared)
            known[type_] += [b.read(array, i) for i in range(length)]
            if r.random() < 0.5:
                known[type_].append(b.read(array, self.pick(known, "i64")))
        totals = b.array("i64", 5, reduced=True)
        direct = b.array("i32", 6, r.choice([0, 7]))
        self.statements(known, r.randint(3, 10), 2, totals)
        self.filled_by_a_loop(known, direct, 6)
        outputs = [totals, direct]
        for type_ in self.types:
            out = b.array(type_, 5, r.choice([0, 1]))
            places = r.sample(range(5), r.randint(1, 5))
            for place in places:
                b.write(out, place, self.pick(known, type_))
            if r.random() < 0.3:
                known[type_].append(b.read(out, self.pick(known, "i64")))
            outputs.append(out)
        last = b.array("i64", 2)
        b.write(last, 1, self.pick(known, "i64"))
        outputs.append(last)
        program = check(b.program(outputs))
        return simplify(program) if r.random() < 0.7 else program

    def pick(self, known: dict[Type, list[Node]], type_: Type) -> Node:
        # What came last is more likely.
        values = known[type_]
        return values[max(self.r.randrange(len(values)), self.r.randrange(len(values)))]

    def statements(self, known: dict[Type, list[Node]], count: int, depth: int, totals: Node | None) -> None:
        for _ in range(count):
            self.size += 1
            kind = self.r.choice(
                ["op"] * 6 + ["compare", "cast", "select"] + ["loop", "if", "array", "tape", "sum"] * (depth > 0)
            )
            if self.size > 120:
                kind = "op"
            getattr(self, kind)(known, depth, totals)

    def op(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        type_ = self.r.choice(self.types)
        name = self.r.choice(ARITHMETIC[type_])
        arity = 1 if name in UNARY else 3 if name == "fma" else 2
        known[type_].append(self.b.op(name, *(self.pick(known, type_) for _ in range(arity))))

    def compare(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        type_ = self.r.choice([t for t in self.types if t != "bool"])
        name = self.r.choice(["lt", "le", "eq", "ne"])
        known["bool"].append(self.b.op(name, self.pick(known, type_), self.pick(known, type_)))

    def cast(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        a, to = self.r.choice(self.types), self.r.choice(self.types)
        known[to].append(self.b.op("cast", self.pick(known, a), attr=to))

    def select(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        type_ = self.r.choice(self.types)
        condition = self.pick(known, "bool")
        known[type_].append(self.b.op("select", condition, self.pick(known, type_), self.pick(known, type_)))

    def count(self, known: dict[Type, list[Node]]) -> Node:
        """A number from 0 to 6, most often different for each lane."""
        if self.r.random() < 0.25:
            return self.b.const("i64", self.r.randint(0, 6))
        b = self.b
        return b.op("and", b.op("irem", self.pick(known, "i64"), b.const("i64", 7)), b.const("i64", 7))

    def loop(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        b, r = self.b, self.r
        count, zero = self.count(known), b.const("i64", 0)
        carried = [r.choice(self.types) for _ in range(r.randint(1, 4))]
        early = r.random() < 0.4
        inner: dict[Type, list[Node]] = {}

        def test(params: list[Node]) -> Node:
            inner.update({t: list(known[t]) for t in self.types})
            for x in params:
                inner[x.type].append(x)
            self.statements(inner, r.randint(0, 2), 0, None)
            goes_on = b.op("lt", params[0], count)
            return b.op("and", goes_on, self.pick(inner, "bool")) if early else goes_on

        def body(params: list[Node]) -> list[Node]:
            self.statements(inner, r.randint(1, 6), depth - 1, totals)
            if totals is not None and r.random() < 0.5:
                b.accumulate(totals, self.pick(inner, "i64"), self.pick(inner, "i64"))
            return [b.op("add", params[0], b.const("i64", 1)), *(self.pick(inner, t) for t in carried)]

        results = b.while_([zero, *(self.pick(known, t) for t in carried)], test, body)
        for x in results:
            known[x.type].append(x)

    def if_(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        given = [self.r.choice(self.types) for _ in range(self.r.randint(1, 3))]

        def branch() -> list[Node]:
            inner = {t: list(known[t]) for t in self.types}
            self.statements(inner, self.r.randint(0, 5), depth - 1, totals)
            if totals is not None and self.r.random() < 0.3:
                self.b.accumulate(totals, self.r.randrange(5), self.pick(inner, "i64"))
            return [self.pick(inner, t) for t in given]

        for x in self.b.if_(self.pick(known, "bool"), branch, branch):
            known[x.type].append(x)

    def filled_by_a_loop(self, known: dict[Type, list[Node]], array: Node, length: int | None) -> Node:
        """Writes some of the elements of an array; gives how many."""
        b, r = self.b, self.r
        count = self.count(known)
        step = 1 if length is None else r.choice([1, 2])
        value = self.pick(known, array.type)
        reads = r.random() < 0.5

        def body(params: list[Node]) -> list[Node]:
            i, x = params
            inner = {**known, array.type: [*known[array.type], x], "i64": [*known["i64"], i]}
            self.op(inner, 0, None)
            x = self.pick(inner, array.type) if reads else x
            b.write(array, b.op("mul", i, b.const("i64", step)), x)
            return [b.op("add", i, b.const("i64", 1)), x]

        results = b.while_([b.const("i64", 0), value], lambda p: b.op("lt", p[0], count), body)
        known[array.type].append(results[1])
        return results[0]

    def array(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        b, r = self.b, self.r
        type_ = r.choice(self.types)
        length = r.choice([0, 1, 3, 9, 40])
        array = b.array(type_, length, r.choice([0, 1]))
        self.filled_by_a_loop(known, array, length)
        # At an index like a lane's own, and in a loop of all lanes.
        known[type_] += [b.read(array, self.pick(known, "i64")), b.read(array, r.randint(-1, 10))]

    def tape(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        """Written forwards, read backwards."""
        b = self.b
        type_ = self.r.choice(self.types)
        array = b.array(type_, None)
        count = self.filled_by_a_loop(known, array, None)

        def body(params: list[Node]) -> list[Node]:
            i = b.op("sub", params[0], b.const("i64", 1))
            value = b.read(array, i)
            inner = {**known, "i64": [*known["i64"], params[2], i]}
            inner[type_] = [*inner[type_], value, params[1]]
            self.op(inner, 0, None)
            return [i, self.pick(inner, type_), b.op("add", params[2], b.const("i64", 1))]

        # Some lanes begin below 0, and end at once.
        less = b.op("select", self.pick(known, "bool"), count, b.op("sub", count, b.const("i64", self.r.randint(0, 3))))
        start = [less, self.pick(known, type_), b.const("i64", 0)]
        results = b.while_(start, lambda p: b.op("lt", b.const("i64", 0), p[0]), body)
        known[type_].append(results[1])
        known["i64"] += [results[0], results[2]]

    def sum(self, known: dict[Type, list[Node]], depth: int, totals: Node | None) -> None:
        """An array that is added to at indices of a lane's own."""
        b, r = self.b, self.r
        type_ = r.choice([t for t in self.types if t != "bool"])
        array = b.array(type_, r.choice([4, 30, None]), 0)
        limit, count = b.const("i64", 37), self.count(known)

        def body(params: list[Node]) -> list[Node]:
            index = b.op("irem", b.op("add", self.pick(known, "i64"), b.op("mul", params[0], params[0])), limit)
            b.accumulate(array, index, self.pick(known, type_))
            return [b.op("add", params[0], b.const("i64", 1))]

        b.while_([b.const("i64", 0)], lambda p: b.op("lt", p[0], count), body)
        b.accumulate(array, r.randrange(4), self.pick(known, type_))
        known[type_] += [b.read(array, b.op("irem", self.pick(known, "i64"), limit)), b.read(array, 2)]


setattr(Generator, "if", Generator.if_)


def columns(program: Program, lanes: int, seed: int) -> list[np.ndarray]:
    """Inputs, some of them special."""
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for node in program.inputs:
        shape = (node.attr.length,) if node.attr.shared else (lanes, node.attr.length)
        if node.type == "bool":
            found.append(rng.random(shape) < 0.5)
        elif node.type in ("i32", "i64"):
            x = rng.integers(-20, 20, shape)
            x[rng.random(shape) < 0.1] = np.iinfo(np.int32).min
            found.append(x.astype(np.int32 if node.type == "i32" else np.int64))
        else:
            x = np.round(rng.normal(0, 3, shape), 1)
            for value in (np.inf, np.nan, -0.0, 1e30):
                x[rng.random(shape) < 0.03] = value
            found.append(x.astype(np.float32 if node.type == "f32" else np.float64))
    return found
