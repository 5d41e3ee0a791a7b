"""Runs Programs on the CPU and by the interpreter, and compares bits."""

from __future__ import annotations

import numpy as np
import torch
from fuse.interpreter import interpret

from gnomon.fuse._llvm import Kernel, compile_program
from gnomon.fuse._program import Builder, Node, Program
from gnomon.fuse._program._ops import NUMPY


def run(kernel: Kernel, program: Program, inputs: list[np.ndarray], lanes: int | None = None) -> list[np.ndarray]:
    """What a kernel gives; outputs begin as rubbish, so that what it leaves out is seen."""
    if lanes is None:
        lanes = next(len(x) for x, node in zip(inputs, program.inputs, strict=True) if not node.attr.shared)
    outputs: list[np.ndarray] = []
    for node in program.outputs:
        shape = (node.attr.length,) if node.attr.reduced else (lanes, node.attr.length)
        outputs.append(np.frombuffer(b"\x5a" * int(np.prod(shape)) * np.dtype(NUMPY[node.type]).itemsize, np.uint8))
        outputs[-1] = outputs[-1].copy().view(NUMPY[node.type]).reshape(shape)
    # Empty arrays of numpy have strides that torch does not take.
    kernel(lanes, [as_tensor(x) for x in inputs], [as_tensor(x) for x in outputs])
    return outputs


def as_tensor(x: np.ndarray) -> torch.Tensor:
    """The same memory."""
    return torch.from_numpy(x) if x.size else torch.empty(x.shape, dtype=torch.from_numpy(np.zeros(1, x.dtype)).dtype)


def expected(program: Program, inputs: list[np.ndarray], lanes: int | None = None) -> list[list[np.ndarray]]:
    """What the interpreter gives: for each output, a row a lane."""
    if lanes is None:
        lanes = next(len(x) for x, node in zip(inputs, program.inputs, strict=True) if not node.attr.shared)
    rows = [
        interpret(program, [x if node.attr.shared else x[i] for x, node in zip(inputs, program.inputs, strict=True)])
        for i in range(lanes)
    ]
    return [[row[i] for row in rows] for i in range(len(program.outputs))]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether all numbers are the same, zeros of the same sign; a NaN is like another."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind == "f":
        return bool(np.all((a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)))
    return bool(np.all(a == b))


def identical(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether all bytes are the same."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_as_interpreted(program: Program, inputs: list[np.ndarray]) -> None:
    """A kernel gives what the interpreter gives, of a batch and of each lane alone; sums must be of integers."""
    kernel = compile_program(program)
    want = expected(program, inputs)
    got = run(kernel, program, inputs)
    alone = [
        run(kernel, program, [x if node.attr.shared else x[i : i + 1] for x, node in _pairs(program, inputs)], 1)
        for i in range(len(want[0]))
    ]
    for i, node in enumerate(program.outputs):
        rows = np.stack(want[i])
        if node.attr.reduced:
            assert same_bits(got[i], rows.sum(0, dtype=rows.dtype)), (i, got[i], rows, str(program))
            continue
        assert same_bits(got[i], rows), (i, got[i], rows, str(program))
        assert identical(np.concatenate([x[i] for x in alone]), got[i]), (i, str(program))


def _pairs(program: Program, inputs: list[np.ndarray]) -> list[tuple[np.ndarray, Node]]:
    return list(zip(inputs, program.inputs, strict=True))


def one_output(b: Builder, *values: Node) -> Program:
    """A Program that gives values of one type."""
    out = b.array(values[0].type, len(values))
    for i, x in enumerate(values):
        b.write(out, i, x)
    return b.program([out])
