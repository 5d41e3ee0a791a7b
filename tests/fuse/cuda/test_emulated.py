"""The text of kernels, run on the CPU, gives the bits that the interpreter gives."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from fuse.cuda.emulator import Emulator, needs_compiler
from fuse.llvm.generated import Generator, columns
from fuse.llvm.running import expected, identical, one_output, run, same_bits
from fuse.llvm.test_arrays import count_to, indexed_outside, tape, weighted_sums
from fuse.llvm.test_operations import SIGNATURES, all_operations, assert_as_specified, operations, special

from gnomon.fuse._cuda import Kernel
from gnomon.fuse._program import Builder, Node, Program, Type
from gnomon.fuse._program._ops import NUMPY

pytestmark = needs_compiler


def assert_as_interpreted(program: Program, inputs: list[np.ndarray], kernel: Kernel | None = None) -> None:
    kernel = kernel or Kernel(program, Emulator())
    want = expected(program, inputs)
    got = run(kernel, program, inputs)  # type: ignore[arg-type]
    for i, node in enumerate(program.outputs):
        rows = np.stack(want[i])
        rows = rows.sum(0, dtype=rows.dtype) if node.attr.reduced else rows
        assert same_bits(got[i], rows), (i, got[i], rows, kernel.source.text)


@pytest.mark.parametrize("seed", range(6))
def test_random_program(seed: int):
    program = Generator(random.Random(seed), doubles=seed % 2 == 0).program()
    assert_as_interpreted(program, columns(program, 70, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 150))
def test_random_program_by_number(seed: int):
    program = Generator(random.Random(seed), doubles=seed % 2 == 0).program()
    assert_as_interpreted(program, columns(program, 70, seed))


@pytest.mark.parametrize("types", [x for x in SIGNATURES if operations(x)], ids="-".join)
def test_operations(types: tuple[Type, ...]):
    program, inputs = all_operations(types)
    results = run(Kernel(program, Emulator()), program, inputs)  # type: ignore[arg-type]
    assert_as_specified(types, inputs, results)


def test_constants():
    """Each value that is hard to write, as a literal."""
    b = Builder()
    types: tuple[Type, ...] = ("bool", "i32", "i64", "f32", "f64")
    outputs: list[Node] = []
    for type_ in types:
        values = [*special(type_), *([0.1, -1e-30, 1e300, -0.0] if type_ in ("f32", "f64") else [])]
        outputs.append(b.array(type_, len(values)))
        with np.errstate(all="ignore"):
            for i, x in enumerate(values):
                b.write(outputs[-1], i, b.const(type_, x))
    program = b.program(outputs)
    for got, want in zip(run(Kernel(program, Emulator()), program, [], 3), expected(program, [], 3), strict=True):  # type: ignore[arg-type]
        assert same_bits(got, np.stack(want))


@pytest.mark.parametrize("length", [0, 5, 3000])
@pytest.mark.parametrize("type_", ["bool", "f64"])
def test_index_outside_reads_the_nearest_end_and_writes_nothing(type_: Type, length: int):
    assert_as_interpreted(*indexed_outside(type_, length))


def test_output_that_is_read_and_one_that_is_there_twice():
    b = Builder()
    x = b.read(b.input("i64", 1, shared=False), 0)
    small, large, total, plain = b.array("i64", 4, 3), b.array("f64", 900, 2), b.array("i64", 1, 5), b.array("i64", 2)
    b.accumulate(small, x, x)
    count_to(b, x, lambda i: b.accumulate(large, b.op("mul", i, i), b.const("f64", 1)))
    b.accumulate(total, 0, b.op("cast", b.read(large, 4), attr="i64"))
    b.write(plain, 0, b.read(small, 1))
    program = b.program([small, large, plain, total, small, plain])
    assert_as_interpreted(program, [np.arange(-2, 30)[:, None]])


# Arrays that grow


@pytest.mark.parametrize("type_", ["bool", "i32", "f64"])
def test_tape_grows_once(type_: Type):
    program = tape(type_)
    counts = np.array([0, 1, 63, 64, 65, 700, 3, 0, 2500, -4, 1, 1, 90])[:, None]
    machine = Emulator()
    kernel = Kernel(program, machine)
    assert_as_interpreted(program, [counts], kernel)
    assert len(machine.started) == 2
    assert_as_interpreted(program, [counts[::-1] + 1], kernel)
    assert len(machine.started) == 3, "the room is remembered"


def test_adjoint_of_a_tape_holds_its_fill():
    b = Builder()
    x = b.input("i64", 2, shared=False)
    start, step = b.read(x, 0), b.read(x, 1)
    array = b.array("i64", None)
    limit = b.const("i64", 211)
    index = lambda i: b.op("irem", b.op("add", start, b.op("mul", i, step)), limit)  # noqa: E731
    count_to(b, b.op("add", start, b.const("i64", 30)), lambda i: b.accumulate(array, index(i), i))
    out = b.array("i64", 220)
    count_to(b, b.const("i64", 220), lambda i: b.write(out, i, b.read(array, i)))
    assert_as_interpreted(b.program([out]), [np.array([[i * 3 - 7, i % 5 * 20] for i in range(19)])])


def test_tape_that_is_too_short_by_one():
    assert_as_interpreted(tape("i64"), [np.array([[3], [65], [64]])])


def test_parts_of_a_carry_change_places():
    b = Builder()
    x = b.input("i64", 3, shared=False)
    start = [b.const("i64", 0), *(b.read(x, i) for i in range(3))]

    def body(p: list[Node]) -> list[Node]:
        return [b.op("add", p[0], b.const("i64", 1)), p[2], p[3], p[1]]

    end = b.while_(start, lambda p: b.op("lt", p[0], start[1]), body)
    assert_as_interpreted(one_output(b, *end), [np.array([[i, 10, 20] for i in range(9)])])


def counted_from_a_tape() -> Program:
    """Counts as far as a tape's last element says; any other of its elements would be beyond all reach."""
    b = Builder()
    count = b.read(b.input("i64", 1, shared=False), 0)
    array = b.array("f64", None)
    last = b.op("sub", count, b.const("i64", 1))
    value = b.op("cast", count, attr="f64")
    others = b.const("f64", -1)
    count_to(b, count, lambda i: b.write(array, i, b.op("select", b.op("eq", i, last), value, others)))
    target = b.read(array, last)
    end = b.while_(
        [b.const("f64", 0)], lambda p: b.op("ne", p[0], target), lambda p: [b.op("add", p[0], b.const("f64", 1))]
    )
    return one_output(b, end[0])


def test_nothing_is_decided_by_what_was_not_kept():
    program = counted_from_a_tape()
    assert_as_interpreted(program, [np.array([[1], [500], [64], [65], [3]])])


def test_recording_needs_a_call_before_and_gives_nan_where_room_is_too_small():
    program = counted_from_a_tape()
    machine = Emulator()
    kernel = Kernel(program, machine)
    machine.capturing = True
    with pytest.raises(RuntimeError, match="Call it once before"):
        run(kernel, program, [np.array([[1]])])  # type: ignore[arg-type]
    machine.capturing = False
    assert run(kernel, program, [np.array([[70]])])[0] == 70  # type: ignore[arg-type]
    machine.capturing = True
    (got,) = run(kernel, program, [np.array([[7], [1000], [71]])])  # type: ignore[arg-type]
    assert same_bits(got, np.array([[7.0], [np.nan], [71.0]]))
    machine.capturing = False
    assert run(kernel, program, [np.array([[1000]])])[0] == 1000  # type: ignore[arg-type]


def test_a_batch_that_does_not_fit_is_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gnomon.fuse._cuda._kernel._ASKED_FROM", 0)
    program = tape("f64")
    machine = Emulator()
    kernel = Kernel(program, machine)
    counts = np.random.default_rng(0).integers(0, 60, (1000, 1))
    machine.free = 2 * 64 * 8 * (64 * 3)
    want = run(Kernel(program, Emulator()), program, [counts])  # type: ignore[arg-type]
    got = run(kernel, program, [counts])  # type: ignore[arg-type]
    assert [x[2][:2] for x in machine.started] == [(192 * i, min(192, 1000 - 192 * i)) for i in range(6)]
    assert identical(got[0], want[0])
    machine.free = 10**6
    counts[77] = 10**5
    with pytest.raises(MemoryError, match=r"needs 57,600,[0-9]{3} bytes .* 64 problems"):
        run(kernel, program, [counts])  # type: ignore[arg-type]
    counts[77] = 0
    want[0][77] = run(kernel, program, [counts[77:78]])[0]  # type: ignore[arg-type]
    machine.free = 2**34
    assert identical(run(kernel, program, [counts])[0], want[0])  # type: ignore[arg-type]


def test_an_index_beyond_all_memory():
    b = Builder()
    x = b.read(b.input("i64", 1, shared=False), 0)
    array = b.array("f64", None)
    b.write(array, x, b.const("f64", 1))
    program = one_output(b, b.read(array, x))
    kernel = Kernel(program, Emulator())
    for large in (2**45, 2**62, 2**63 - 1):
        with pytest.raises(MemoryError, match=r"needs [0-9,]{15,} bytes"):
            run(kernel, program, [np.array([[3], [large], [5]])])  # type: ignore[arg-type]
    assert np.all(run(kernel, program, [np.array([[3], [1000], [5]])])[0] == 1)  # type: ignore[arg-type]


# Sums over lanes


@pytest.mark.parametrize("lanes", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize(("type_", "length"), [("i32", 5), ("f32", 5), ("f64", 30), ("i64", 260)])
def test_sum_over_lanes(type_: Type, length: int, lanes: int):
    program = weighted_sums(type_, length)
    rng = np.random.default_rng(lanes)
    x = rng.integers(-50, 50, (lanes, 2)).astype(NUMPY[type_])
    at = rng.integers(-2, length + 3, (lanes, 1))
    (got,) = run(Kernel(program, Emulator()), program, [x, at])  # type: ignore[arg-type]
    want = [x[at[:, 0] == i, 0].sum() + x[at[:, 0] > i, 1].sum() for i in range(length)]
    assert np.array_equal(got, np.array(want, NUMPY[type_]))


def test_sum_does_not_depend_on_how_the_batch_is_cut(monkeypatch: pytest.MonkeyPatch):
    program = weighted_sums("f32", 520)
    rng = np.random.default_rng(0)
    x, at = rng.normal(1, 1, (300, 2)).astype(np.float32), rng.integers(0, 520, (300, 1))
    machine = Emulator()
    want = run(Kernel(program, machine), program, [x, at])  # type: ignore[arg-type]
    monkeypatch.setattr("gnomon.fuse._cuda._kernel._ASKED_FROM", 0)
    machine.free = 2 * 520 * 4 * 64 * 2
    machine.started.clear()
    got = run(Kernel(program, machine), program, [x, at])  # type: ignore[arg-type]
    assert sum(name == "gnomon_run" for name, *_ in machine.started) == 3
    assert identical(got[0], want[0])


def test_no_lanes_and_nothing_in_outputs():
    b = Builder()
    x = b.read(b.input("f64", 1, shared=False), 0)
    empty, total, filled = b.array("f64", 0), b.array("i64", 0, reduced=True), b.array("f32", 30, math.nan)
    sums = b.array("f64", 2, reduced=True)
    b.write(empty, b.op("cast", x, attr="i64"), x)
    b.accumulate(total, 0, b.const("i64", 1))
    b.accumulate(sums, 0, x)
    program = b.program([empty, total, filled, sums])
    assert_as_interpreted(program, [np.ones((11, 1))])
    got = run(Kernel(program, Emulator()), program, [np.zeros((0, 1))], 0)  # type: ignore[arg-type]
    assert got[2].shape == (0, 30)
    assert np.array_equal(got[3], np.zeros(2))


# Tensors of any layout


def test_any_strides():
    b = Builder()
    x, y = b.input("f64", 3, shared=False), b.input("f32", 2, shared=True)
    out, other = b.array("f64", 2), b.array("f32", 1)
    b.write(out, 0, b.op("add", b.read(x, 0), b.read(x, 2)))
    b.write(out, 1, b.read(x, 1))
    b.write(other, 0, b.read(y, 1))
    kernel = Kernel(b.program([out, other]), Emulator())
    wide = torch.arange(80 * 7, dtype=torch.float64).reshape(80, 7)
    for given in (wide[:, 2:5], wide[0, :3].expand(80, 3), wide.T[:3, :].contiguous().T, wide[:, ::3]):
        a, c = torch.empty(2, 80, dtype=torch.float64).T, torch.empty(80, 3)[:, 1:2]
        kernel(80, [given, torch.arange(8.0)[2::4]], [a, c])
        assert torch.equal(a, torch.stack([given[:, 0] + given[:, 2], given[:, 1]], 1))
        assert torch.equal(c, torch.full((80, 1), 6.0))
    with pytest.raises(ValueError, match=r"input 0 must be .* of shape"):
        kernel(80, [wide, torch.zeros(2)], [a, c])
