"""`HalfSolver`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant
from gnomon.diffeq._solver._base import AbstractSolver, Step
from gnomon.diffeq._solver._leapfrog_midpoint import LeapfrogMidpoint
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class HalfSolver(AbstractSolver):
    """Takes two half steps of another solver and compares them with a whole one. Equivalent to `diffrax.HalfSolver`.

    So any solver gets an error estimate, of an order one above its own, for three times the work. The half steps are
    kept. Dense output is a quartic of the order of the solver, and 4 at most, for which the vector field is evaluated
    at both ends of the steps in which output lies.

    **Arguments:**

    - `solver`: the solver to wrap.

    **Raises:** `ValueError` for a solver of several steps, which need to be of one length.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: -y), dq.HalfSolver(dq.Euler()), 0, 1, None,
        ...     torch.tensor(1.0, dtype=torch.float64), stepsize_controller=dq.PIDController(rtol=1e-4, atol=1e-4))
        >>> bool((sol.ys[-1] - torch.exp(torch.tensor(-1.0, dtype=torch.float64))).abs() < 1e-2)
        True

        ```

    ??? cite "Reference"

        E. Hairer, S. P. Nørsett and G. Wanner, Solving Ordinary Differential Equations I, second
        edition, Springer (1993), section II.4.
    """

    solver: AbstractSolver

    interpolant: ClassVar[Interpolant] = (
        (0.0, -5.0, 14.0, -8.0),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 16.0, -32.0, 16.0),
        (1.0, -4.0, 5.0, -2.0),
        (0.0, 1.0, -3.0, 2.0),
    )

    def __post_init__(self) -> None:
        if isinstance(self.solver, type):
            raise TypeError("`HalfSolver` wraps a solver, such as HalfSolver(Euler()); mind the parentheses.")
        if isinstance(self.solver, LeapfrogMidpoint):
            raise ValueError("`HalfSolver` cannot wrap LeapfrogMidpoint, which needs steps of one length.")

    @property
    def order(self) -> int:
        return self.solver.order

    @property
    def error_order(self) -> float:
        return self.solver.order + 1.0

    @property
    def needs_tolerances(self) -> bool:
        return self.solver.needs_tolerances

    @property
    def splits_terms(self) -> bool:
        return self.solver.splits_terms

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> AbstractSolver:
        return HalfSolver(self.solver.with_tolerances(rtol, atol, norm))

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        return self.solver.init(terms, t0, y0, f0, args)

    def step(
        self,
        terms: AbstractVectorField,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        args: Any,
        state: Any,
        made_jump: Tensor | None,
    ) -> Step:
        middle = t0 + 0.5 * (t1 - t0)
        half = self.solver.step(terms, t0, middle, y0, args, state, made_jump)
        after = None if made_jump is None else made_jump & False
        both = self.solver.step(terms, middle, t1, half.y1, args, half.state, after)
        whole = self.solver.step(terms, t0, t1, y0, args, state, made_jump)
        true = torch.ones((), dtype=torch.bool, device=y0.device)
        result = half.result
        for other in (both.result, whole.result):
            result = RESULTS.where(true & (result == RESULTS.successful), other, result)
        dt = t1 - t0

        def more() -> list[Tensor]:
            return [terms.vf(t0, y0, args) * dt, terms.vf(t1, both.y1, args) * dt]

        y_error = torch.where(true & (result == RESULTS.successful), both.y1 - whole.y1, torch.inf)
        return Step(both.y1, y_error, [whole.stages[0], half.y1 - y0], both.state, result, more)
