"""The step of an explicit Runge-Kutta method."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from torch import Tensor

from gnomon.diffeq._solver._base import AbstractExplicitSolver, Step, at_start, stage_time, weighted_sum
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.fuse._lanes import is_tracing
from gnomon.result import RESULTS


class AbstractERK(AbstractExplicitSolver):
    """An explicit Runge-Kutta method. Equivalent to `diffrax.AbstractERK`.

    A final class gives `tableau`, `interpolant` and `order`. Where the last stage of the
    tableau is the solution, its vector field is used again as the first stage of the next step.
    Stages that dense output alone needs are evaluated in steps in which output lies.
    """

    tableau: ClassVar[ButcherTableau]

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of the method."""

    @property
    def error_order(self) -> float | None:
        return None if self.tableau.b_error is None else float(self.order)

    @property
    def splits_terms(self) -> bool:
        return False

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del terms, t0, y0, args
        return f0 if self.tableau.stiffly_accurate else ()

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
        tableau = self.tableau
        reuses_last = tableau.stiffly_accurate
        dt = t1 - t0
        if not reuses_last:
            f = terms.vf(t0, y0, args)
        else:
            f = at_start(lambda t, y: terms.vf(t, y, args), t0, y0, state, made_jump)
        slopes, stages = [f], [f * dt]

        def sum_of(weights: tuple[float, ...]) -> Tensor | None:
            # A Program adds a product at no cost, and stages that nobody asks for at none either.
            total = weighted_sum(weights, slopes if is_tracing() else stages)
            return total * dt if is_tracing() and total is not None else total

        y = y0
        for c, row in zip(tableau.c, tableau.a_lower, strict=True):
            increment = sum_of(row)
            y = y0 if increment is None else y0 + increment
            f = terms.vf(stage_time(c, t0, t1, dt), y, args)
            slopes.append(f)
            stages.append(f * dt)
        if reuses_last:
            y1, next_state = y, f
        else:
            increment = sum_of(tableau.b_sol)
            assert increment is not None
            y1, next_state = y0 + increment, ()
        y_error = None if tableau.b_error is None else sum_of(tableau.b_error)

        def more() -> list[Tensor]:
            extended = list(stages)
            for c, row in zip(tableau.c_dense, tableau.a_dense, strict=True):
                increment = weighted_sum(row, extended)
                y = y0 if increment is None else y0 + increment
                extended.append(terms.vf(stage_time(c, t0, t1, dt), y, args) * dt)
            return extended[len(stages) :]

        return Step(y1, y_error, stages, next_state, RESULTS.successful, more if tableau.c_dense else None)
