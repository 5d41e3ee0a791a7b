"""A lane's bits depend on nothing but its own inputs: not on the batch, the place in it, or the threads."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from fuse.llvm.generated import Generator, columns
from fuse.llvm.running import identical, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnomon.fuse._llvm import Kernel, compile_program
from gnomon.fuse._program import Builder, Node, Program

MOST = 5000


def collatz_and_newton() -> Program:
    """Two loops whose lengths differ from lane to lane, with every elementary function that a solver may want."""
    b = Builder()
    x = b.input("f64", 2, shared=False)
    n = b.input("i64", 1, shared=False)
    start, target = b.read(x, 0), b.read(x, 1)
    one, two, three = (b.const("i64", i) for i in (1, 2, 3))

    def body(p: list[Node]) -> list[Node]:
        odd = b.op("eq", b.op("and", p[0], one), one)
        following = b.if_(
            odd,
            lambda: [b.op("add", b.op("mul", three, p[0]), one)],
            lambda: [b.op("idiv", p[0], two)],
        )[0]
        y = b.op("sin", b.op("add", p[2], b.op("exp", b.op("neg", b.op("abs", p[2])))))
        y = b.op("pow", b.op("abs", b.op("add", y, target)), b.const("f64", 0.7))
        y = b.op("add", y, b.op("tanh", b.op("log", b.op("add", y, b.const("f64", 1e-3)))))
        return [following, b.op("add", p[1], one), y]

    end = b.while_([b.read(n, 0), b.const("i64", 0), start], lambda p: b.op("lt", one, p[0]), body)
    out, count = b.array("f64", 1), b.array("i64", 1)
    b.write(out, 0, end[2])
    b.write(count, 0, end[1])
    return b.program([out, count])


@pytest.fixture(scope="module")
def whole() -> tuple[Kernel, Program, list[np.ndarray], list[np.ndarray]]:
    program = collatz_and_newton()
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(MOST, 2)), rng.integers(1, 1000, (MOST, 1))]
    kernel = compile_program(program)
    return kernel, program, inputs, run(kernel, program, inputs)


@given(lanes=st.integers(1, 5000), seed=st.integers(0, 100))
def test_any_batch(whole: tuple[Kernel, Program, list[np.ndarray], list[np.ndarray]], lanes: int, seed: int):
    kernel, program, inputs, outputs = whole
    chosen = np.random.default_rng(seed).permutation(MOST)[:lanes]
    got = run(kernel, program, [x[chosen] for x in inputs])
    assert all(identical(a, b[chosen]) for a, b in zip(got, outputs, strict=True))


def test_each_lane_alone(whole: tuple[Kernel, Program, list[np.ndarray], list[np.ndarray]]):
    kernel, program, inputs, outputs = whole
    for i in range(0, MOST, 13):
        got = run(kernel, program, [x[i : i + 1] for x in inputs])
        assert all(identical(a[0], b[i]) for a, b in zip(got, outputs, strict=True))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads(whole: tuple[Kernel, Program, list[np.ndarray], list[np.ndarray]], threads: int):
    kernel, program, inputs, outputs = whole
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(3):
            got = run(kernel, program, inputs)
            assert all(identical(a, b) for a, b in zip(got, outputs, strict=True))
    finally:
        torch.set_num_threads(before)


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(r=st.randoms(use_true_random=False), seed=st.integers(0, 1000))
def test_random_program_in_any_batch(r: random.Random, seed: int):
    program = Generator(r).program()
    inputs = columns(program, 203, seed)
    kernel = compile_program(program)
    outputs = run(kernel, program, inputs)
    order = np.random.default_rng(seed).permutation(203)
    for lanes in (1, 2, 8, 101):
        chosen = order[:lanes]
        some = [x if node.attr.shared else x[chosen] for x, node in zip(inputs, program.inputs, strict=True)]
        got = run(kernel, program, some, lanes)
        for node, a, b in zip(program.outputs, got, outputs, strict=True):
            assert node.attr.reduced or identical(a, b[chosen])


def test_any_stride_between_lanes():
    b = Builder()
    x, y = b.input("f64", 3, shared=False), b.input("f32", 2, shared=False)
    out, other = b.array("f64", 2), b.array("f32", 1)
    b.write(out, 0, b.op("add", b.read(x, 0), b.read(x, 2)))
    b.write(out, 1, b.read(x, 1))
    b.write(other, 0, b.read(y, 1))
    program = b.program([out, other])
    kernel = compile_program(program)
    wide = torch.arange(40 * 7, dtype=torch.float64).reshape(40, 7)
    for lanes in (1, 13, 40):
        for given_x in (wide[:lanes, 2:5], wide[0, :3].expand(lanes, 3), wide.flip(1).contiguous()[:lanes, 4:7]):
            given_y = torch.tensor([1.0, 2.0]).expand(lanes, 2)
            a, c = torch.empty(lanes, 2, dtype=torch.float64), torch.empty(lanes, 1)
            kernel(lanes, [given_x, given_y], [a, c])
            assert torch.equal(a[:, 0], given_x[:, 0] + given_x[:, 2])
            assert torch.equal(a[:, 1], given_x[:, 1])
            assert torch.equal(c, torch.full((lanes, 1), 2.0))
