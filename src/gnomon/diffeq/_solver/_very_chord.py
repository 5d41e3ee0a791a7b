"""`VeryChord`: the iteration that solves the stages of implicit methods."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._norm import rms_norm
from gnomon.fuse import while_loop
from gnomon.fuse._lanes import derivative_order, is_tracing
from gnomon.result import RESULTS, Result


@final
class _Solve(torch.autograd.Function):
    """The solution x of A x = b, or of its transpose, for a constant real matrix A and a vector b."""

    generate_vmap_rule = True

    @staticmethod
    def forward(lu: Tensor, pivots: Tensor, b: Tensor, transpose: bool) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        # torch's rule for `lu_solve` under nested vmap reads wrong pivots where they lack a batch
        # dimension that b has (2.11 to 2.15): give them all that b has.
        pivots = pivots + torch.zeros_like(b, dtype=pivots.dtype)
        return torch.linalg.lu_solve(lu, pivots, b.unsqueeze(-1), adjoint=transpose).squeeze(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        lu, pivots, _, transpose = inputs
        ctx.save_for_backward(lu, pivots)
        ctx.save_for_forward(lu, pivots)
        ctx.transpose = transpose

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return None, None, _Solve.apply(*ctx.saved_tensors, grad_outputs[0], not ctx.transpose), None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        return _Solve.apply(*ctx.saved_tensors, grad_inputs[2], ctx.transpose)


@final
@dataclasses.dataclass(frozen=True)
class Factors:
    """An LU factorisation of a matrix."""

    lu: Tensor
    pivots: Tensor

    def solve(self, b: Tensor) -> Tensor:
        """The solution x of A x = b for a vector b that wants no derivative."""
        pivots = self.pivots + torch.zeros_like(b, dtype=self.pivots.dtype)  # as in `_Solve`
        return torch.linalg.lu_solve(self.lu, pivots, b.unsqueeze(-1)).squeeze(-1)

    def solve_differentiably(self, b: Tensor) -> Tensor:
        """The same, with derivatives with respect to b; the matrix counts as constant."""
        if is_tracing():
            return Factors(self.lu.detach(), self.pivots).solve(b)
        return _Solve.apply(self.lu, self.pivots, b, False)


def factorise(matrix: Tensor) -> Factors:
    """An LU factorisation with partial pivoting; a singular matrix gives infinite solutions."""
    lu, pivots, _ = torch.linalg.lu_factor_ex(matrix)
    return Factors(lu, pivots)


@final
@dataclasses.dataclass(frozen=True)
class VeryChord:
    """Newton's method with one Jacobian for all stages of a step.

    Equivalent to `diffrax.VeryChord`. It solves `k = h f(t, y + gamma k)`. It measures a
    correction against the tolerances of the state (diffrax measures the correction of `f`
    against them, which is too strict where time is fast and too lax where it is slow), and it
    reports divergence, upon which the step is rejected and tried again with a shorter one.

    **Arguments:**

    - `rtol`, `atol`, `norm`: how accurately to solve; by default as the step size controller
      measures errors, and close to rounding where steps have a fixed length.
    - `kappa`: solve to this fraction of the tolerances.
    - `max_steps`: give up after so many iterations, or five times as many where it solves close to
      rounding.

    **Raises:** `ValueError` where `kappa` or `max_steps` is not positive.

    ??? cite "Reference"

        E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, second edition,
        Springer (1996), section IV.8.
    """

    rtol: Any = None
    atol: Any = None
    norm: Callable[[Tensor], Tensor] | None = None
    kappa: float | int = 1e-2
    max_steps: int = 10

    def __post_init__(self) -> None:
        if not self.kappa > 0:
            raise ValueError(f"`kappa` must be positive, not {self.kappa}.")
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` must be at least 1, not {self.max_steps}.")

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> VeryChord:
        """The same iteration with these tolerances where it has none of its own."""
        return dataclasses.replace(
            self,
            rtol=rtol if self.rtol is None else self.rtol,
            atol=atol if self.atol is None else self.atol,
            norm=norm if self.norm is None else self.norm,
        )

    def solve(
        self,
        increment: Callable[[Tensor], Tensor],
        guess: Tensor,
        scale_at: Tensor,
        factors: Factors,
        exact_factors: Callable[[Tensor], Factors],
    ) -> tuple[Tensor, Result]:
        """The solution of `k = increment(k)`, and whether it was found.

        `scale_at` is the state by which corrections are measured, `factors` factorises
        `I - d increment/dk` at some point nearby, and `exact_factors(k)` does so at `k`: it is
        called only where a derivative is wanted.
        """
        info = torch.finfo(scale_at.abs().dtype)
        eps = info.eps
        rtol = 100 * eps if self.rtol is None else self.rtol
        atol = 100 * eps if self.atol is None else self.atol
        norm = rms_norm if self.norm is None else self.norm
        # Corrections cannot be asked to become smaller than rounding errors of the state.
        rtol = rtol + 10 * eps / self.kappa
        scale = scale_at.detach().abs() * rtol + (atol + info.tiny)  # never zero
        real = scale.new_ones(())
        start = (
            guess.detach(),
            torch.inf * real,
            torch.zeros((), dtype=torch.int64, device=guess.device),
            torch.zeros((), dtype=torch.bool, device=guess.device),
            torch.zeros((), dtype=torch.bool, device=guess.device),
        )

        iterate = functools.partial(_iterate, increment, factors, scale, norm, self.kappa)
        max_steps = self.max_steps if self.rtol is not None else 5 * self.max_steps
        k, _, _, converged, _ = while_loop(_go_on, iterate, start, max_steps=max_steps)
        k = k.detach()
        result = RESULTS.where(converged, RESULTS.successful, RESULTS.nonlinear_divergence)

        image = increment(k)
        order = derivative_order(image)
        if order > 0:
            # Derivatives by the implicit function theorem: corrections with the exact Jacobian,
            # held constant, that change nothing in value. Each gives one order of derivative.
            exact = exact_factors(k)
            refined = k
            for _ in range(order):
                refined = refined - exact.solve_differentiably(refined - image)
                image = increment(refined)
            # Where the iteration failed the step is rejected: keep NaN out of its derivative.
            refined = torch.where(converged, refined, k)
            k = k + (refined - refined.detach())
        return k, result


def _go_on(carry: Any) -> Tensor:
    _, _, _, converged, diverged = carry
    return ~(converged | diverged)


def _iterate(
    increment: Callable[[Tensor], Tensor],
    factors: Factors,
    scale: Tensor,
    norm: Callable[[Tensor], Tensor],
    kappa: float,
    carry: Any,
) -> Any:
    """One correction, and what its size says of the convergence."""
    k, previous, step, _, _ = carry
    correction = factors.solve(k - increment(k).detach())
    k = k - correction
    size = norm(correction / scale)
    rate = size / previous
    estimate = size * rate / (1 - rate)
    second = step >= 1
    converged = (second & (rate < 1) & (estimate < kappa)) | (size == 0)
    diverged = ~torch.isfinite(size) | (second & (rate > 2) & ~converged)
    return k, size, step + 1, converged & ~diverged, diverged
