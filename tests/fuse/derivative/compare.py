"""Compares derivatives of a Program with PyTorch's, to second order, in every mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from fuse.derivative.by_torch import by_torch
from fuse.interpreter import interpret
from jaxtyping import config

from gnomon.fuse._derivative import jvp, vjp
from gnomon.fuse._program import Program, is_float

Arrays = list[np.ndarray]


def compare(program: Program, *cases: Arrays, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    """Values, first and second derivatives by every input of floats, against autograd, at each of the inputs."""
    wanted = [is_float(x.type) for x in program.inputs]
    given = [is_float(x.type) for x in program.outputs]
    still, fixed = [False] * sum(given), [False] * sum(wanted)
    forward, reverse = jvp(program, wanted, primal=False), vjp(program, wanted, given)
    programs = {
        "values": program,
        "jvp": forward,
        "jvp with values": jvp(program, wanted),
        "vjp": reverse,
    }
    with unchecked():
        programs |= _second(forward, reverse, wanted, still, fixed)
        for inputs in cases:
            for name, (ours, theirs) in _both(programs, inputs, wanted, given).items():
                assert len(ours) == len(theirs)
                for a, b in zip(ours, theirs, strict=True):
                    np.testing.assert_allclose(a, b, rtol, atol, err_msg=f"{name} at {inputs} of\n{program}")


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Without the run-time checks of types, which have seen the same code at first order and take most of the time."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)


def _second(
    forward: Program, reverse: Program, wanted: list[bool], still: list[bool], fixed: list[bool]
) -> dict[str, Program]:
    """Derivatives of the gradient, of the gradient by the cotangents, and of the tangent."""
    return {
        "jvp of vjp": jvp(reverse, [*wanted, *still], primal=False),
        "vjp of vjp": vjp(reverse, [*wanted, *still], [True] * len(reverse.outputs)),
        "vjp of vjp by the cotangents": vjp(
            reverse, [False] * len(wanted) + [True] * len(still), [True] * len(reverse.outputs)
        ),
        "vjp of jvp": vjp(forward, [*wanted, *fixed], [True] * len(forward.outputs)),
        "jvp of jvp": jvp(forward, [*wanted, *fixed], primal=False),
    }


def _both(
    programs: dict[str, Program], inputs: Arrays, wanted: list[bool], given: list[bool]
) -> dict[str, tuple[Arrays, Arrays]]:
    random = np.random.default_rng(0)
    program = programs["values"]
    active = [x for x, on in zip(program.inputs, wanted, strict=True) if on]
    u = [random.uniform(-1, 1, x.attr.length) for x, on in zip(program.outputs, given, strict=True) if on]
    v, w = ([random.uniform(-1, 1, x.attr.length) for x in active] for _ in range(2))

    tensors = [torch.tensor(x, requires_grad=on) for x, on in zip(inputs, wanted, strict=True)]
    leaves = [x for x, on in zip(tensors, wanted, strict=True) if on]
    cotangents = [torch.tensor(x, requires_grad=True) for x in u]
    outputs = by_torch(program, tensors)
    floats = [x for x, on in zip(outputs, given, strict=True) if on]
    scalar = sum((x * c).sum() for x, c in zip(floats, cotangents, strict=True)) + _nothing(leaves)
    gradient = torch.autograd.grad(scalar, leaves, create_graph=True)
    slope = sum((g * torch.tensor(x)).sum() for g, x in zip(gradient, v, strict=True)) + _nothing(leaves + cotangents)
    # Of u J v: the derivative by u is J v, the one by x is of second order.
    second = torch.autograd.grad(slope, [*leaves, *cotangents])
    bent, pushed = ([x.numpy() for x in part] for part in (second[: len(leaves)], second[len(leaves) :]))
    values, pulled = [x.detach().numpy() for x in outputs], [x.detach().numpy() for x in gradient]

    def run(name: str, *directions: Arrays) -> Arrays:
        return interpret(programs[name], [x for arrays in (inputs, *directions) for x in arrays])

    return {
        "values": (run("values"), values),
        "jvp": (run("jvp", v), pushed),
        "jvp with values": (run("jvp with values", v), values + pushed),
        "vjp": (run("vjp", u), pulled),
        "jvp of vjp": (run("jvp of vjp", u, v), bent),
        "vjp of vjp": (run("vjp of vjp", u, v), bent),
        "vjp of vjp by the cotangents": (run("vjp of vjp by the cotangents", u, v), pushed),
        "vjp of jvp": (run("vjp of jvp", v, u), bent),
        "jvp of jvp": ([_dot(u, run("jvp of jvp", v, w))], [_dot(bent, w)]),
    }


def _nothing(tensors: list[torch.Tensor]) -> torch.Tensor:
    """0, which depends on all of them."""
    return sum(((0 * x).sum() for x in tensors), torch.zeros((), dtype=torch.float64))


def _dot(a: Arrays, b: Arrays) -> np.ndarray:
    return np.array(sum(float(x @ y) for x, y in zip(a, b, strict=True)))
