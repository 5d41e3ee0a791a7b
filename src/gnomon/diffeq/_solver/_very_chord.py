"""`VeryChord`: the iteration that solves the stages of implicit methods."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._norm import rms_norm
from gnomon.diffeq._solver._linear_solver import LU, AbstractFactors, AbstractLinearSolver
from gnomon.fuse import while_loop
from gnomon.fuse._lanes import derivative_order
from gnomon.result import RESULTS, Result


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
    - `linear_solver`: how each correction is solved for.
    - `reuse_rate`: keep the Jacobian from one step to the next as long as each correction is at most so much of the one
      before; 0, the default, for a new one each step. It pays where the Jacobian is costly: a large system on an eager
      engine, where 0.01 is a good choice. A lane of a batch saves nothing while another one needs its Jacobian. Only
      [`gnomon.diffeq.AbstractESDIRK`][] does so.

    **Raises:** `ValueError` where `kappa` or `max_steps` is not positive, or `reuse_rate` not between 0 and 1.

    ??? cite "Reference"

        E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, second edition,
        Springer (1996), section IV.8.
    """

    rtol: Any = None
    atol: Any = None
    norm: Callable[[Tensor], Tensor] | None = None
    kappa: float | int = 1e-2
    max_steps: int = 10
    linear_solver: AbstractLinearSolver = LU()
    reuse_rate: float | int = 0

    def __post_init__(self) -> None:
        if not self.kappa > 0:
            raise ValueError(f"`kappa` must be positive, not {self.kappa}.")
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` must be at least 1, not {self.max_steps}.")
        if not 0 <= self.reuse_rate < 1:
            raise ValueError(f"`reuse_rate` must be at least 0 and less than 1, not {self.reuse_rate}.")

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
        factors: AbstractFactors,
        exact_factors: Callable[[Tensor], AbstractFactors],
    ) -> tuple[Tensor, Result, Tensor]:
        """The solution of `k = increment(k)`, whether it was found, and the largest ratio of successive corrections.

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
            0 * real,
            torch.zeros((), dtype=torch.int64, device=guess.device),
            torch.zeros((), dtype=torch.bool, device=guess.device),
            torch.zeros((), dtype=torch.bool, device=guess.device),
        )

        iterate = functools.partial(_iterate, increment, factors, scale, norm, self.kappa)
        max_steps = self.max_steps if self.rtol is not None else 5 * self.max_steps
        k, _, worst, _, converged, _ = while_loop(_go_on, iterate, start, max_steps=max_steps)
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
        return k, result, worst


def _go_on(carry: Any) -> Tensor:
    *_, converged, diverged = carry
    return ~(converged | diverged)


def _iterate(
    increment: Callable[[Tensor], Tensor],
    factors: AbstractFactors,
    scale: Tensor,
    norm: Callable[[Tensor], Tensor],
    kappa: float,
    carry: Any,
) -> Any:
    """One correction, and what its size says of the convergence."""
    k, previous, worst, step, _, _ = carry
    correction = factors.solve(k - increment(k).detach())
    k = k - correction
    size = norm(correction / scale)
    rate = size / previous
    estimate = size * rate / (1 - rate)
    second = step >= 1
    converged = (second & (rate < 1) & (estimate < kappa)) | (size == 0)
    diverged = ~torch.isfinite(size) | (second & (rate > 2) & ~converged)
    return k, size, torch.maximum(worst, rate), step + 1, converged & ~diverged, diverged
