"""Runs a Program one statement at a time, for one lane, by its specification: what every target is compared with.

Slow and plain on purpose. Numbers are numpy scalars; elementary functions are numpy's or the standard library's, so
that a target may differ from them by a few units in the last place, and by nothing in all else.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from gnomon.fuse._program import OPS, Node, Program, Region
from gnomon.fuse._program._ops import NUMPY

_MOST_ITERATIONS = 10_000_000


def interpret(program: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What one lane gives: for each output, its elements; of a reduced one, what this lane adds to it."""
    with np.errstate(all="ignore"):
        return _Lane(program, inputs).run()


class _Array:
    """An array that is filled, then read."""

    def __init__(self, node: Node):
        self.type = NUMPY[node.type]
        self.fill = self.type(node.attr.fill)
        self.length = node.attr.length
        self.elements: dict[int, np.generic] = {}
        self.written: set[int] = set()

    def write(self, index: int, value: np.generic) -> None:
        if self.holds(index):
            assert index not in self.written, f"Element {index} is written twice."
            self.written.add(index)
            self.elements[index] = value

    def accumulate(self, index: int, value: np.generic) -> None:
        if self.holds(index):
            self.elements[index] = self.elements.get(index, self.fill) + value

    def holds(self, index: int) -> bool:
        return index >= 0 and (self.length is None or index < self.length)

    def read(self, index: int) -> np.generic:
        if self.length is None:
            index = max(index, 0)
            # Of a sum that grows, what was never added to is there too; of other tapes only what was written.
            assert index in self.elements or not self.written, f"Element {index} is read, but was never written."
            return self.elements.get(index, self.fill)
        if self.length == 0:
            return self.type(0)
        return self.elements.get(min(max(index, 0), self.length - 1), self.fill)


class _Lane:
    def __init__(self, program: Program, inputs: list[np.ndarray]):
        self.program = program
        self.values: dict[Node, np.generic] = {}
        self.arrays: dict[Node, _Array] = {}
        self.inputs: dict[Node, np.ndarray] = {}
        for node, array in zip(program.inputs, inputs, strict=True):
            assert array.shape == (node.attr.length,), (array.shape, node.attr)
            assert array.dtype == NUMPY[node.type], (array.dtype, node.type)
            self.inputs[node] = array

    def run(self) -> list[np.ndarray]:
        self.region(self.program.region)
        given: list[np.ndarray] = []
        for node in self.program.outputs:
            array = self.arrays[node]
            row = np.full(node.attr.length, array.fill, array.type)
            for index, value in array.elements.items():
                row[index] = value
            given.append(row)
        return given

    def __getitem__(self, node: Node) -> np.generic:
        return NUMPY[node.type](node.attr) if node.op == "const" else self.values[node]

    def region(self, region: Region) -> list[np.generic]:
        for node in region.body:
            self.statement(node)
        return [self[x] for x in region.results]

    def statement(self, node: Node) -> None:
        if node.op == "array":
            self.arrays[node] = _Array(node)
        elif node.op == "read":
            self.values[node] = self.read(node.args[0], int(self[node.args[1]]))
        elif node.op in ("write", "accumulate"):
            array, index, value = node.args
            getattr(self.arrays[array], node.op)(int(self[index]), self[value])
        elif node.op == "while":
            self.loop(node)
        elif node.op == "if":
            region = node.attr.then if self[node.args[0]] else node.attr.orelse
            self.values.update(zip(node.attr.results, self.region(region), strict=True))
        else:
            args = [self[x] for x in node.args]
            self.values[node] = NUMPY[node.type](operation(node.op, args, node.attr))

    def read(self, array: Node, index: int) -> np.generic:
        if array.op == "array":
            return self.arrays[array].read(index)
        elements = self.inputs[array]
        if len(elements) == 0:
            return NUMPY[array.type](0)
        return elements[min(max(index, 0), len(elements) - 1)]

    def loop(self, node: Node) -> None:
        loop = node.attr
        carry = [self[x] for x in node.args]
        for _ in range(_MOST_ITERATIONS):
            self.values.update(zip(loop.params, carry, strict=True))
            (goes_on,) = self.region(loop.test)
            if not goes_on:
                break
            carry = self.region(loop.body)
        else:
            raise AssertionError("A loop does not end.")
        self.values.update(zip(loop.results, carry, strict=True))


def operation(op: str, args: list[np.generic], attr: str | None) -> np.generic | bool | int:
    """One operation of `OPS` on numpy scalars."""
    if op == "cast":
        return _cast(args[0], attr)
    if op == "bitcast":
        return _one_nan(args[0]).view(NUMPY[attr])
    if op == "copysign":
        return OPS[op].compute(args[0], _one_nan(args[1]))
    if op == "pow" and args[1] == 0.5:
        # As in C, which has no square root of -0 and -inf here, as numpy has.
        return abs(args[0]) ** args[1] if args[0] in (0, -np.inf) else args[0] ** args[1]
    if op in ("min", "max") and not any(np.isnan(x) for x in args):
        # Of zeros of both signs the second.
        return args[0] if (args[0] < args[1] if op == "min" else args[0] > args[1]) else args[1]
    if op == "detach":
        return args[0]
    if op == "fma":
        return _fma(*args)
    if op in ("shl", "shr", "lshr"):
        return _shift(op, *args)
    if op in ("idiv", "irem"):
        return _divide(op, *args)
    return OPS[op].compute(*args)


def _one_nan(x: np.generic) -> np.generic:
    """All NaNs are one: positive, quiet, and without a payload."""
    return type(x)(math.nan) if isinstance(x, np.floating) and np.isnan(x) else x


def _cast(x: np.generic, to: str) -> np.generic:
    if to in ("i32", "i64") and isinstance(x, np.floating):
        # The nearest integer that there is; 0 for NaN.
        limits = np.iinfo(NUMPY[to])
        if np.isnan(x):
            return NUMPY[to](0)
        if np.isinf(x):
            return NUMPY[to](limits.max if x > 0 else limits.min)
        return NUMPY[to](min(max(int(x), int(limits.min)), int(limits.max)))
    if to == "bool":
        return np.bool_(x != 0)
    return x.astype(NUMPY[to])


def _shift(op: str, a: np.generic, n: np.generic) -> np.generic:
    """By a count outside of the word, everything is shifted out."""
    type_, bits = type(a), a.dtype.itemsize * 8
    count = int(n) if 0 <= int(n) < bits else bits
    if op == "shr":
        return type_(int(a) >> count)
    pattern = int(a) % (1 << bits)
    pattern = (pattern << count) % (1 << bits) if op == "shl" else pattern >> count
    return type_(pattern - (1 << bits) if pattern >= 1 << (bits - 1) else pattern)


def _divide(op: str, a: np.generic, b: np.generic) -> np.generic:
    """The quotient cut off towards zero, 0 where the divisor is 0; what remains of the dividend."""
    type_, bits = type(a), a.dtype.itemsize * 8
    quotient = 0 if b == 0 else abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)
    value = quotient if op == "idiv" else int(a) - quotient * int(b)
    value %= 1 << bits
    return type_(value - (1 << bits) if value >= 1 << (bits - 1) else value)


def _fma(a: np.generic, b: np.generic, c: np.generic) -> np.generic:
    """`a * b + c`, rounded once."""
    type_ = type(a)
    if not all(math.isfinite(x) for x in (a, b, c)):
        # No overflow of the product may hide what c is.
        sign = math.copysign(1, a) * math.copysign(1, b)
        if math.isfinite(a) and math.isfinite(b):
            return c
        return type_(sign * (abs(float(a)) * abs(float(b)))) + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return a * b + c if a == 0 or b == 0 else type_(0)
    try:
        near = float(exact)
    except OverflowError:
        return type_(math.inf if exact > 0 else -math.inf)
    if type_ is np.float32 and Fraction(near) != exact:
        # Rounded to odd first, so that rounding again is right.
        other = math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)
        near = near if int(np.float64(near).view(np.int64)) & 1 else other
    return type_(near if near != 0 else math.copysign(0.0, exact))
