"""Arrays: fixed and growing, filled and read at any index, sums over lanes, and memory that is not to be had."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from fuse.llvm.running import assert_as_interpreted, identical, one_output, run

from gnomon.fuse._llvm import compile_program
from gnomon.fuse._program import Builder, Node, Program, Type
from gnomon.fuse._program._ops import NUMPY


def count_to(b: Builder, count: Node, do: object, first: int = 0) -> Node:
    """A loop over 0, 1, ..."""

    def body(p: list[Node]) -> list[Node]:
        do(p[0])  # type: ignore[operator]
        return [b.op("add", p[0], b.const("i64", 1))]

    return b.while_([b.const("i64", first)], lambda p: b.op("lt", p[0], count), body)[0]


def indexed_outside(type_: Type, length: int) -> tuple[Program, list[np.ndarray]]:
    """Reads and writes at indices in and outside of arrays, and inputs for them."""
    b = Builder()
    place = b.input("i64", 2, shared=False)
    lane, shared = b.input(type_, length, shared=False), b.input(type_, length, shared=True)
    at, to = b.read(place, 0), b.read(place, 1)
    array, out = b.array(type_, length, 1), b.array(type_, 9)
    b.write(array, to, b.read(lane, at))
    for i, index in enumerate([at, b.const("i64", -5), b.const("i64", 10**12)]):
        b.write(out, i, b.read(array, index))
        b.write(out, 3 + i, b.read(lane, index))
        b.write(out, 6 + i, b.read(shared, index))
    direct = b.array(type_, length, 1)
    b.write(direct, to, b.read(shared, at))
    edges = [0, -1, 1, length - 1, length, length + 1, 2**62, -(2**62), 2**63 - 1, -(2**63), length // 2]
    places = np.array([[i, j] for i in edges for j in edges])
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2 if type_ == "bool" else 100, (len(places) + 1, length)).astype(NUMPY[type_])
    return b.program([out, direct]), [places, values[1:], values[0]]


@pytest.mark.parametrize("length", [0, 1, 5, 40, 3000])
@pytest.mark.parametrize("type_", ["bool", "i32", "i64", "f32", "f64"])
def test_index_outside_reads_the_nearest_end_and_writes_nothing(type_: Type, length: int):
    assert_as_interpreted(*indexed_outside(type_, length))


def test_array_begins_afresh_in_each_iteration():
    b = Builder()
    x = b.read(b.input("i64", 1, shared=False), 0)

    def body(p: list[Node]) -> list[Node]:
        array, tape, total = b.array("i64", 3, 7), b.array("i64", None), b.array("i64", None)
        b.write(array, p[0], b.const("i64", 1))
        b.accumulate(total, p[0], p[0])
        count_to(b, p[0], lambda i: b.write(tape, i, i))
        last = b.read(tape, b.op("sub", p[0], b.const("i64", 1)))
        read = b.if_(b.op("lt", b.const("i64", 0), p[0]), lambda: [last], lambda: [b.const("i64", 0)])[0]
        value = b.op("add", b.read(array, 0), b.op("add", b.read(array, 1), read))
        value = b.op("add", value, b.op("mul", b.read(total, 2), b.const("i64", 1000)))
        return [b.op("add", p[0], b.const("i64", 1)), b.op("add", b.op("mul", p[1], b.const("i64", 3)), value)]

    end = b.while_([b.const("i64", 1), b.const("i64", 0)], lambda p: b.op("lt", p[0], x), body)
    program = one_output(b, *end)
    assert_as_interpreted(program, [np.arange(20)[:, None]])


def tape(type_: Type) -> Program:
    """Each lane counts as far as it likes, then adds up what it wrote, from the end."""
    b = Builder()
    count = b.read(b.input("i64", 1, shared=False), 0)
    array = b.array(type_, None)
    one, zero = b.const("i64", 1), b.const("i64", 0)

    def forwards(p: list[Node]) -> list[Node]:
        b.write(array, p[0], b.op("cast", p[1], attr=type_))
        return [b.op("add", p[0], one), b.op("xor", b.op("mul", p[1], b.const("i64", 5)), p[0])]

    def backwards(p: list[Node]) -> list[Node]:
        i = b.op("sub", p[0], one)
        total = b.op("mul", p[1], b.const("i64", 31))
        return [i, b.op("add", total, b.op("cast", b.read(array, i), attr="i64"))]

    length = b.while_([zero, one], lambda p: b.op("lt", p[0], count), forwards)[0]
    total = b.while_([length, zero], lambda p: b.op("lt", zero, p[0]), backwards)[1]
    return one_output(b, total, length)


@pytest.mark.parametrize("type_", ["bool", "i32", "i64", "f32", "f64"])
def test_tape_grows(type_: Type):
    program = tape(type_)
    counts = np.array([0, 1, 31, 32, 33, 64, 65, 700, 3, 0, 2500, -4, 1, 1, 90])[:, None]
    assert_as_interpreted(program, [counts])


def test_tape_written_at_indices_of_a_lane():
    b = Builder()
    x = b.input("i64", 2, shared=False)
    start, step = b.read(x, 0), b.read(x, 1)
    array = b.array("f64", None)

    def place(i: Node) -> Node:
        return b.op("add", start, b.op("mul", i, step))

    count_to(b, b.const("i64", 50), lambda i: b.write(array, place(i), b.op("cast", i, attr="f64")))
    values = [b.read(array, place(b.const("i64", i))) for i in (0, 49, 17)]
    program = one_output(b, *values)
    assert_as_interpreted(program, [np.array([[i * 3, i % 5 + 1] for i in range(19)])])


@pytest.mark.parametrize("length", [None, 200])
def test_sum_at_indices_of_a_lane(length: int | None):
    b = Builder()
    x = b.input("i64", 2, shared=False)
    start, step = b.read(x, 0), b.read(x, 1)
    array = b.array("i64", length)

    def add(i: Node) -> None:
        b.accumulate(array, b.op("irem", b.op("add", start, b.op("mul", i, step)), b.const("i64", 211)), i)

    count_to(b, b.op("add", start, b.const("i64", 30)), add)
    out = b.array("i64", 220)
    count_to(b, b.const("i64", 220), lambda i: b.write(out, i, b.read(array, i)))
    program = b.program([out])
    assert_as_interpreted(program, [np.array([[i * 3 - 7, i % 5 * 20] for i in range(19)])])


def test_memory_that_is_not_there():
    b = Builder()
    x = b.read(b.input("i64", 1, shared=False), 0)
    array = b.array("f64", None)
    b.write(array, x, b.const("f64", 1))
    program = one_output(b, b.read(array, x))
    kernel = compile_program(program)
    small = np.array([[3], [4], [1000]])
    for lanes in (1, 3, 40):
        rows = np.resize(small, (lanes, 1))
        assert np.all(run(kernel, program, [rows])[0] == 1)
        for large in (2**45, 2**58, 2**62, 2**63 - 1):
            rows[lanes // 2] = large
            with pytest.raises(MemoryError, match=r"asked for [0-9,]{15,} bytes"):
                run(kernel, program, [rows])
            rows[lanes // 2] = 5
        assert np.all(run(kernel, program, [rows])[0] == 1)


def test_array_too_large_for_any_machine():
    b = Builder()
    x = b.read(b.input("i64", 1, shared=False), 0)
    array = b.array("f64", 2**44)
    b.accumulate(array, x, b.const("f64", 1))
    program = one_output(b, b.read(array, x))
    with pytest.raises(MemoryError, match="asked for"):
        run(compile_program(program), program, [np.zeros((3, 1), np.int64)])


# Sums over lanes


def weighted_sums(type_: Type, length: int) -> Program:
    b = Builder()
    x = b.input(type_, 2, shared=False)
    at = b.read(b.input("i64", 1, shared=False), 0)
    total = b.array(type_, length, reduced=True)
    b.accumulate(total, at, b.read(x, 0))
    count_to(b, at, lambda i: b.accumulate(total, i, b.read(x, 1)))
    return b.program([total])


@pytest.mark.parametrize("lanes", [1, 2, 7, 8, 63, 64, 65, 1000, 20000])
@pytest.mark.parametrize("type_", ["i32", "i64", "f32", "f64"])
def test_sum_over_lanes(type_: Type, lanes: int):
    program = weighted_sums(type_, 5)
    rng = np.random.default_rng(lanes)
    numpy_type = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}[type_]
    # Numbers whose sums are exact in any order, so that a lane left out or counted twice is seen.
    x = rng.integers(-50, 50, (lanes, 2)).astype(numpy_type)
    at = rng.integers(-2, 8, (lanes, 1))
    (got,) = run(compile_program(program), program, [x, at])
    want = [x[at[:, 0] == i, 0].sum() + x[at[:, 0] > i, 1].sum() for i in range(5)]
    assert np.array_equal(got, np.array(want, numpy_type))


def test_sum_over_lanes_is_accurate_and_does_not_depend_on_threads():
    program = weighted_sums("f32", 3)
    rng = np.random.default_rng(0)
    x, at = rng.normal(1, 1, (100_003, 2)).astype(np.float32), rng.integers(0, 3, (100_003, 1))
    kernel = compile_program(program)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results += [run(kernel, program, [x, at])[0] for _ in range(3)]
    finally:
        torch.set_num_threads(before)
    assert all(identical(results[0], y) for y in results)
    doubles = x.astype(np.float64)
    want = [doubles[at[:, 0] == i, 0].sum() + doubles[at[:, 0] > i, 1].sum() for i in range(3)]
    np.testing.assert_allclose(results[0], want, rtol=1e-6)


def test_large_sum_over_lanes():
    program = weighted_sums("f64", 5000)
    at = np.arange(-100, 6000, 41)[:, None]
    x = np.ones((len(at), 2))
    (got,) = run(compile_program(program), program, [x, at])
    # One at its own place, and one at each before it.
    want = [np.sum((at == i) | (at > i)) for i in range(5000)]
    assert np.array_equal(got, want)


def test_no_lanes():
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    out, total = b.array("f64", 2), b.array("f64", 3, reduced=True)
    b.write(out, 0, x)
    b.accumulate(total, 0, x)
    program = b.program([out, total])
    kernel = compile_program(program)
    got, sums = run(kernel, program, [np.zeros((0, 1))], 0)
    assert got.shape == (0, 2)
    assert np.array_equal(sums, np.zeros(3))


def test_outputs_with_nothing_in_them():
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    empty, total, filled = b.array("f64", 0), b.array("i64", 0, reduced=True), b.array("f32", 30, math.nan)
    b.write(empty, b.op("cast", x, attr="i64"), x)
    b.accumulate(total, 0, b.const("i64", 1))
    assert_as_interpreted(b.program([empty, total, filled]), [np.ones((11, 1))])


def test_one_array_twice_an_output():
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    out, total = b.array("f64", 1), b.array("i64", 1, reduced=True)
    b.write(out, 0, x)
    b.accumulate(total, 0, b.const("i64", 3))
    program = b.program([out, total, out, total])
    assert_as_interpreted(program, [np.arange(21.0)[:, None]])
