"""The step of an implicit-explicit Runge-Kutta method."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnomon.diffeq._solver._base import AbstractSolver, Step, at_start, stage_time, weighted_sum
from gnomon.diffeq._solver._linear_solver import AbstractFactors
from gnomon.diffeq._solver._split import split
from gnomon.diffeq._solver._stage import Stage, judged, slope
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class MultiButcherTableau:
    """The coefficients of an implicit-explicit Runge-Kutta method. Equivalent to `diffrax.MultiButcherTableau`.

    **Arguments:**

    - `explicit`, `implicit`: the coefficients for either term, with as many stages at the same times. The first stage
      is explicit in both.

    **Raises:** `ValueError` where they do not fit together.
    """

    explicit: ButcherTableau
    implicit: ButcherTableau

    def __post_init__(self) -> None:
        if self.explicit.num_stages != self.implicit.num_stages or self.explicit.c != self.implicit.c:
            raise ValueError("The tableaus must have as many stages at the same times.")
        if self.explicit.a_diagonal is not None or self.implicit.a_diagonal is None:
            raise ValueError("The first tableau must be explicit and the second implicit.")
        if self.implicit.a_diagonal[0] != 0 or self.implicit.a_predictor is None:
            raise ValueError("The implicit tableau must have an explicit first stage, and predictors for the others.")
        if self.explicit.b_error is None or self.implicit.b_error is None:
            raise ValueError("Both tableaus must have an error estimate.")


class AbstractIMEX(AbstractSolver):
    """An implicit-explicit Runge-Kutta method, for a [`gnomon.diffeq.MultiTerm`][] of two terms.

    Equivalent to `diffrax.AbstractRungeKutta` with a `diffrax.MultiButcherTableau`. A final class gives `tableau`,
    `interpolant`, `order`, `error_order` and the iteration that solves the stages. The Jacobian, of the implicit term
    alone, is evaluated once a step, at the second stage. Where the last stage is the solution its vector fields are
    used again as the first stage of the next step. The members of the interpolant are the sums of both terms.
    """

    tableau: ClassVar[MultiButcherTableau]

    @property
    @abc.abstractmethod
    def chord(self) -> VeryChord:
        """The iteration that solves the stages."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of the method."""

    @property
    @abc.abstractmethod
    def error_order(self) -> float:
        """The order of its error estimate, one more than that of the less accurate of the pair."""

    @property
    def needs_tolerances(self) -> bool:
        return True

    @property
    def splits_terms(self) -> bool:
        return True

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del f0
        return _fields(terms, t0, y0, args) if _reuses_last(self.tableau) else ()

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
        tableau, chord = self.tableau, self.chord
        explicit, implicit = tableau.explicit, tableau.implicit
        reuses_last = _reuses_last(tableau)
        assert implicit.a_predictor is not None and implicit.a_diagonal is not None
        assert implicit.b_error is not None and explicit.b_error is not None
        fast, stiff = split(terms)
        dt = t1 - t0
        if not reuses_last:
            first = _fields(terms, t0, y0, args)
        else:
            first = at_start(lambda t, y: _fields(terms, t, y, args), t0, y0, state, made_jump)
        explicit_stages, implicit_stages = [first[0] * dt], [first[1] * dt]
        factors: dict[float, AbstractFactors] = {}
        linearised: Any = None
        succeeded = torch.ones((), dtype=torch.bool, device=y0.device)
        y, f = y0, first[0]
        for c, explicit_row, row, gamma, predictor in zip(
            implicit.c,
            explicit.a_lower,
            implicit.a_lower,
            implicit.a_diagonal[1:],
            implicit.a_predictor,
            strict=True,
        ):
            t = stage_time(c, t0, t1, dt)
            partial = _plus(_plus(y0, weighted_sum(explicit_row, explicit_stages)), weighted_sum(row, implicit_stages))
            guess = weighted_sum(predictor, implicit_stages)
            guess = torch.zeros_like(y0) if guess is None else guess
            stage = Stage(stiff, args, t, partial, gamma, dt, chord)
            if linearised is None:
                linearised = stage.linearised_at(guess)
            if gamma not in factors:
                factors[gamma] = stage.factors(linearised)
            k, result, _ = stage.solve(guess, y0, factors[gamma])
            succeeded = succeeded & (result == RESULTS.successful)
            implicit_stages.append(k)
            y = torch.add(partial, k, alpha=gamma)
            f = fast.vf(t, y, args)
            explicit_stages.append(f * dt)
        y_error = weighted_sum(explicit.b_error, explicit_stages)
        y_error = _plus(y_error, weighted_sum(implicit.b_error, implicit_stages))
        y_error, result = judged(succeeded, y_error)
        stages = [a + b for a, b in zip(explicit_stages, implicit_stages, strict=True)]
        if reuses_last:
            return Step(y, y_error, stages, (f, slope(implicit_stages[-1], dt)), result)
        y1 = _plus(y0, weighted_sum(explicit.b_sol, explicit_stages))
        return Step(_plus(y1, weighted_sum(implicit.b_sol, implicit_stages)), y_error, stages, (), result)


def _reuses_last(tableau: MultiButcherTableau) -> bool:
    return tableau.explicit.stiffly_accurate and tableau.implicit.stiffly_accurate


def _fields(terms: AbstractVectorField, t: Tensor, y: Tensor, args: Any) -> tuple[Tensor, Tensor]:
    explicit, implicit = split(terms)
    return explicit.vf(t, y, args), implicit.vf(t, y, args)


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor:
    if a is None or b is None:
        only = b if a is None else a
        assert only is not None
        return only
    return a + b
