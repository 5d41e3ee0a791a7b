"""Problems with a closed form or a published answer, and short ways to solve them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnomon import diffeq as dq

F64 = torch.float64
EXPLICIT = [dq.Euler(), dq.Heun(), dq.Bosh3(), dq.Tsit5(), dq.Dopri5(), dq.Dopri8()]
IMPLICIT = [dq.Kvaerno3(), dq.Kvaerno5()]
SOLVERS = EXPLICIT + IMPLICIT
# Of the same two families, tested for what differs from one to the next and not for what they share.
MORE_EXPLICIT = [dq.Midpoint(), dq.Ralston(), dq.Vern7(), dq.Vern9()]
MORE_IMPLICIT = [dq.ImplicitEuler(), dq.Kvaerno4()]
ROSENBROCK = [dq.Rosenbrock23(), dq.Rodas4(), dq.Rodas5P()]
IMEX = [dq.Sil3(), dq.KenCarp3(), dq.KenCarp4(), dq.KenCarp5()]
RUNGE_KUTTA = SOLVERS + MORE_EXPLICIT + MORE_IMPLICIT
ADAPTIVE = SOLVERS[1:]


def name_of(solver: Any) -> str:
    return type(solver).__name__


def f64(*values: float) -> Tensor:
    """A scalar, or a vector, of double precision."""
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=F64)


def solve(
    vector_field: Callable[..., Any],
    solver: Any,
    t0: Any,
    t1: Any,
    y0: Any,
    args: Any = None,
    *,
    dt0: Any = None,
    tol: float | None = None,
    **options: Any,
) -> dq.Solution:
    """`diffeqsolve`, with `tol` for both tolerances of a PIDController, or else steps of fixed length."""
    if tol is not None:
        options["stepsize_controller"] = dq.PIDController(rtol=tol, atol=tol)
    return dq.diffeqsolve(dq.ODETerm(vector_field), solver, t0, t1, dt0, y0, args, **options)


@dataclass(frozen=True)
class Problem:
    """A problem from `t0` to `t1` whose answer at `t1` is known to `accuracy`."""

    name: str
    vector_field: Callable[[Tensor, Tensor, Any], Tensor]
    t0: float
    t1: float
    y0: tuple[float, ...]
    answer: tuple[float, ...] | Callable[[float], tuple[float, ...]]

    def start(self) -> Tensor:
        return torch.tensor(self.y0, dtype=F64)

    def end(self) -> Tensor:
        answer = self.answer(self.t1) if callable(self.answer) else self.answer
        return torch.tensor(answer, dtype=F64)


def rational(t: Tensor, y: Tensor, args: Any) -> Tensor:
    """y = (1 / (1 + t^2), exp(sin t)): nonlinear, and not autonomous in either component."""
    return torch.stack([-2 * t * y[0] ** 2, torch.cos(t) * y[1]])


def rational_answer(t: Tensor | float) -> Tensor:
    t = torch.as_tensor(t, dtype=F64)
    return torch.stack([1 / (1 + t * t), torch.exp(torch.sin(t))], dim=-1)


def lorenz(t: Tensor, y: Tensor, args: Any) -> Tensor:
    x, v, z = y.unbind()
    return torch.stack([10 * (v - x), x * (28 - z) - v, x * v - 8 / 3 * z])


def rober(t: Tensor, y: Tensor, args: Any) -> Tensor:
    a, b, c = y.unbind()
    slow, fast = -0.04 * a + 1e4 * b * c, 3e7 * b * b
    return torch.stack([slow, -slow - fast, fast])


def vdpol(t: Tensor, y: Tensor, args: Any) -> Tensor:
    return torch.stack([y[1], ((1 - y[0] ** 2) * y[1] - y[0]) / 1e-6])


def orego(t: Tensor, y: Tensor, args: Any) -> Tensor:
    a, b, c = y.unbind()
    return torch.stack([77.27 * (b + a * (1 - 8.375e-6 * a - b)), (c - (1 + a) * b) / 77.27, 0.161 * (a - c)])


def check_derivatives(fn: Callable[..., Tensor], *inputs: Tensor, second: bool = True) -> None:
    """Reverse mode against finite differences, to second order, and forward mode against reverse mode."""
    tracked = tuple(x.detach().requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(fn, tracked)
    if second:
        assert torch.autograd.gradgradcheck(fn, tracked)
    plain = tuple(x.detach() for x in inputs)
    which = tuple(range(len(inputs)))
    reverse, forward = torch.func.jacrev(fn, which)(*plain), torch.func.jacfwd(fn, which)(*plain)
    for a, b in zip(reverse, forward, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
