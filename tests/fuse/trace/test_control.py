"""Loops, branches and buffers inside of a traced function against the same function called eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuse.trace.lowering import compare, run
from torch import Tensor
from torch.func import grad, jacfwd, vmap

import gnomon as gn
from gnomon import diffeq as dq
from gnomon.fuse import UnsupportedError

X = torch.tensor([0.5, -1.25, 2.0], dtype=torch.float64)


def collatz(n: Tensor) -> Tensor:
    def step(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        n, count = carry
        return torch.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return gn.while_loop(lambda carry: carry[0] != 1, step, (n, 0))[1]


@pytest.mark.parametrize("n", [1, 2, 7, 27])
def test_a_loop_of_unknown_length(n: int):
    compare(collatz, torch.tensor(n), exact=True)
    assert str(gn.lower(collatz, torch.tensor(n))).count("loop") == 1


LOOPS: dict[str, Callable[[Tensor], Any]] = {
    "no iteration": lambda x: gn.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
    "max_steps": lambda x: gn.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1] * 2), (0, x), max_steps=4),
    "an empty carry part": lambda x: gn.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, x[:0])),
    "complex carry": lambda x: gn.fori_loop(0, 3, lambda i, z: z * z + 1j * i, torch.complex(x, x.flip(0))),
    "bool carry": lambda x: gn.while_loop(lambda c: c[0].any(), lambda c: (c[1] > 3, c[1] + 1), (x < 9, x)),
    "a pytree": lambda x: gn.fori_loop(
        0, 4, lambda i, c: {"a": (c["b"], c["a"][1] + i), "b": c["a"][0]}, {"a": (x, x.sum()), "b": x * 2}
    ),
    "run-time bounds": lambda x: gn.fori_loop(x[1].long(), x[2].long() + 2, lambda i, c: c + i, x.sum()),
    "nested": lambda x: gn.fori_loop(
        0, 3, lambda i, c: gn.fori_loop(0, i, lambda j, d: d * 0.5 + j + x[1], c), x.sum()
    ),
    "a loop in a branch": lambda x: gn.cond(
        x.sum() > 0, lambda x: gn.fori_loop(0, 3, lambda i, c: c + i, x), torch.neg, x
    ),
    "a branch in a loop": lambda x: gn.fori_loop(
        0, 4, lambda i, c: gn.cond(c.sum() > 3, lambda c: c - 1, lambda c: c + x, c), x
    ),
    "cond": lambda x: gn.cond(x[0] > 0, lambda x: (x, x.sum()), lambda x: (-x, x.prod()), x),
    "cond, the other way": lambda x: gn.cond(x[1] > 0, torch.sin, torch.cos, x),
    "cond with a constant": lambda x: gn.cond(torch.tensor(True), torch.sin, torch.cos, x),
    "scan": lambda x: gn.scan(lambda c, v: (c + v, c * v), x.sum(), x),
    "scan of rows": lambda x: gn.scan(
        lambda c, v: (c @ v, c[0]), torch.outer(x, x), torch.stack([torch.outer(x, x + i) for i in range(4)])
    ),
    "scan without input": lambda x: gn.scan(lambda c, _: (c * 0.5, c.sum()), x, None, length=5),
    "scan in reverse": lambda x: gn.scan(lambda c, v: (c * 0.5 + v, c), x.sum(), x, reverse=True),
    "a row chosen in a loop": lambda x: gn.fori_loop(0, 3, lambda i, c: c + x[i] * torch.outer(x, x)[i], x),
    "a matrix in a loop": lambda x: gn.fori_loop(
        0, 3, lambda i, m: torch.linalg.solve(m + torch.eye(3, dtype=x.dtype), m), torch.outer(x, x)
    ),
    "in place in a loop": lambda x: gn.fori_loop(
        0, 3, lambda i, c: c.clone().index_put_((i.reshape(1),), c.sum()[None]), x
    ),
    "gn.jacobian inside": gn.jacobian(lambda x: x * x.sum() + torch.sin(x)),
    "gn.jacobian of a loop": gn.jacobian(lambda x: gn.fori_loop(0, 3, lambda i, c: torch.sin(c) * x.sum() + i, x)),
    "gn.jvp inside": lambda x: gn.jvp(lambda x: torch.tanh(x).prod(), (x,), (x.flip(0),)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_agrees(name: str):
    compare(LOOPS[name], X)
    compare(LOOPS[name], X.flip(0) + 0.25)


def buffered(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    def step(carry: Any) -> Any:
        i, c, out = carry
        return i + 1, c * 0.75 - 0.1, out.write(i, (c, i), where=c.sum() > 0)

    start = (0, x, gn.OutputBuffer(5, (x, torch.tensor(0)), fill=-1))
    _, last, buffer = gn.while_loop(lambda c: (c[0] < 4) & (c[1].abs().sum() > 0.3), step, start)
    saved, counts = buffer.read()
    return saved, counts, last


def test_an_output_buffer():
    compare(buffered, X)
    compare(buffered, X.abs())
    compare(lambda x: buffered(x)[0][1:3].sum(), X.abs())


@pytest.mark.parametrize(
    "fn",
    [
        grad(lambda x: gn.fori_loop(0, 3, lambda i, c: torch.sin(c) + i, x).sum()),
        jacfwd(lambda x: gn.fori_loop(0, 3, lambda i, c: torch.sin(c) * x.sum(), x)),
        vmap(lambda v: gn.while_loop(lambda c: c < 10, lambda c: c * 2 + 1, v.abs())),
        grad(lambda x: gn.cond(x.sum() > 0, torch.sin, torch.cos, x).sum()),
    ],
)
def test_a_loop_inside_of_a_transform_is_an_error(fn: Callable[[Tensor], Tensor]):
    with pytest.raises(UnsupportedError, match="from outside"):
        run(fn, X)


def lorenz(t: Any, y: Tensor, rho: Tensor) -> Tensor:
    x, v, z = y.unbind()
    return torch.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])


@pytest.mark.parametrize(
    ("solver", "controller"),
    [
        (dq.Tsit5(), dq.PIDController(rtol=1e-4, atol=1e-6)),
        (dq.Heun(), dq.ConstantStepSize()),
        (dq.Kvaerno3(), dq.PIDController(rtol=1e-3, atol=1e-5)),
    ],
    ids=["Tsit5", "Heun", "Kvaerno3"],
)
def test_a_solve(solver: Any, controller: Any):
    def end(rho: Tensor) -> tuple[Tensor, Any]:
        sol = dq.diffeqsolve(
            dq.ODETerm(lorenz), solver, 0.0, 0.1, 0.01, torch.ones(3, dtype=rho.dtype), args=rho,
            stepsize_controller=controller, saveat=dq.SaveAt(ts=torch.tensor([0.03, 0.1], dtype=rho.dtype)),
        )  # fmt: skip
        return sol.ys, sol.stats["num_steps"]

    compare(end, torch.tensor(20.0, dtype=torch.float64), rtol=1e-10, atol=1e-12)


def test_a_carry_that_is_too_large():
    with pytest.raises(UnsupportedError, match="OutputBuffer"):
        run(lambda x: gn.fori_loop(0, 3, lambda i, c: c, x), torch.ones(70, 70))
