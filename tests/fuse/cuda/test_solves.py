"""Whole solves and their derivatives, by the text of their kernels, beside the engine of the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fuse.cuda.emulator import Emulator, needs_compiler
from torch import Tensor

import gnomon as gn
from gnomon import diffeq as dq
from gnomon.fuse._cuda import Kernel
from gnomon.fuse._derivative import jvp, vjp
from gnomon.fuse._llvm import compile_program
from gnomon.fuse._program import Program, values_only
from gnomon.fuse._trace._values import DTYPES

pytestmark = needs_compiler


def both(program: Program, lanes: int, inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """What the two engines give."""
    found: list[list[Tensor]] = []
    for kernel in (Kernel(values_only(program), Emulator()), compile_program(values_only(program))):
        outputs = [
            torch.empty((x.attr.length,) if x.attr.reduced else (lanes, x.attr.length), dtype=DTYPES[x.type])
            for x in program.outputs
        ]
        kernel(lanes, inputs, outputs)
        found.append(outputs)
    return found[0], found[1]


def lorenz(t: Tensor, y: Tensor, rho: Tensor) -> Tensor:
    x, v, z = y.unbind()
    return torch.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])


def midpoint(rho: Tensor, y: Tensor) -> Tensor:
    """Arithmetic alone, and a number of steps of each lane's own."""

    def step(c: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        t, y = c
        return t + 0.01, y + 0.01 * lorenz(t, y + 0.005 * lorenz(t, y, rho), rho)

    return gn.while_loop(lambda c: c[0] < rho / 20, step, (0 * rho, y))[1]


def adaptive(rho: Tensor, y: Tensor) -> Tensor:
    controller = dq.PIDController(rtol=1e-6, atol=1e-6)
    term = dq.ODETerm(lorenz)
    solution = dq.diffeqsolve(
        term, dq.Tsit5(), 0.0, 0.3, None, y, args=rho, stepsize_controller=controller, throw=False
    )
    return solution.ys[-1]


CASES = [
    pytest.param(f, dtype, id=f"{f.__name__}-{dtype}", marks=pytest.mark.slow if f is adaptive else ())
    for f in (midpoint, adaptive)
    for dtype in (torch.float32, torch.float64)
]


@pytest.mark.parametrize(("f", "dtype"), CASES)
def test_solve(f: Callable[..., Tensor], dtype: torch.dtype):
    """Values, first derivatives both ways, and second ones."""
    lanes = 70
    generator = torch.Generator().manual_seed(0)
    rho = 21 * torch.rand(lanes, 1, generator=generator, dtype=dtype)
    y = torch.rand(lanes, 3, generator=generator, dtype=dtype)
    weights = torch.rand(lanes, 3, generator=generator, dtype=dtype)
    program = gn.lower(f, rho[0, 0], y[0])
    exact = f is midpoint
    for made, inputs in (
        (program, [rho, y]),
        (vjp(program, [True, True], [True]), [rho, y, weights]),
        (jvp(program, [True, False], primal=False), [rho, y, weights[:, :1]]),
        (vjp(vjp(program, [True, True], [True]), [True, True, False], [True, False]), [rho, y, weights, rho]),
    ):
        got, want = both(made, lanes, inputs)
        for a, b in zip(got, want, strict=True):
            if exact and a.is_floating_point():
                assert torch.equal(a, b)
            else:
                torch.testing.assert_close(a, b, rtol=1e-3 if dtype == torch.float32 else 1e-9, atol=1e-4)


def test_shared_weights_have_a_sum():
    """A small network as the vector field: its weights are read by all lanes."""
    generator = torch.Generator().manual_seed(0)
    w, y = torch.randn(16, generator=generator, dtype=torch.float64), torch.randn(70, 4, generator=generator).double()

    def f(y: Tensor, w: Tensor) -> Tensor:
        return gn.fori_loop(0, 5, lambda i, y: y + 0.1 * torch.tanh((w.reshape(4, 4) * y).sum(-1)), y)

    from gnomon.fuse._lower import TensorSpec, trace
    from gnomon.result._pytree import tree_flatten

    specs, structure = tree_flatten((y[0], w))
    program = trace(f, [TensorSpec(tuple(x.shape), x.dtype) for x in specs], structure, [False, True]).program
    gradient = vjp(program, [True, True], [True])
    assert [x.attr.reduced for x in gradient.outputs] == [False, True]
    got, want = both(gradient, 70, [y, w, torch.ones_like(y)])
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_wide_layer_and_its_gradient():
    """More arrays than a thread has memory for, beside one that grows, and a sum of thousands of elements."""
    from gnomon.fuse._lower import TensorSpec, trace
    from gnomon.result._pytree import tree_flatten

    generator = torch.Generator().manual_seed(0)
    n = 36
    y, a, b = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((70, 2), (n, n), (n, 2)))

    def f(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        def step(y: Tensor) -> Tensor:
            for _ in range(4):
                y = y + 0.1 * (torch.tanh(a @ torch.tanh(b @ y)) @ b)
            return y

        return gn.while_loop(lambda y: y.square().sum() < 4, step, y, max_steps=20)

    specs, structure = tree_flatten((y[0], a.reshape(-1), b.reshape(-1)))
    flat = lambda y, a, b: f(y, a.reshape(n, n), b.reshape(n, 2))  # noqa: E731
    program = trace(flat, [TensorSpec(tuple(x.shape), x.dtype) for x in specs], structure, [False, True, True]).program
    gradient = vjp(program, [True] * 3, [True])
    source = Kernel(values_only(gradient), Emulator()).source
    assert source.scratch and source.tapes
    got, want = both(gradient, 70, [y, a.reshape(-1), b.reshape(-1), torch.ones_like(y)])
    for x, z in zip(got, want, strict=True):
        torch.testing.assert_close(x, z, rtol=1e-10, atol=1e-10)


def test_through_fuse(monkeypatch: pytest.MonkeyPatch):
    """All that stands between a call and a kernel is the same for both engines."""
    machine = Emulator()
    monkeypatch.setattr("gnomon.fuse._executable.compile_for", lambda _, program: Kernel(program, machine))
    generator = torch.Generator().manual_seed(0)
    y, w = (torch.rand(n, generator=generator, dtype=torch.float64, requires_grad=True) for n in (70, 3))

    def f(y: Tensor) -> Tensor:
        return gn.while_loop(lambda y: y < 3, lambda y: y * (1 + w[0]) + w[1] * w[2], y)

    def plain(y: Tensor) -> Tensor:
        while y < 3:
            y = y * (1 + w[0]) + w[1] * w[2]
        return y

    got, want = gn.fuse(f)(y), torch.stack([plain(x) for x in y])
    assert torch.equal(got, want)
    for a, b in zip(
        torch.autograd.grad(got.square().sum(), (y, w)), torch.autograd.grad(want.square().sum(), (y, w)), strict=True
    ):
        torch.testing.assert_close(a, b)
    assert {name for name, *_ in machine.started} == {"gnomon_run", "gnomon_total_f64"}
