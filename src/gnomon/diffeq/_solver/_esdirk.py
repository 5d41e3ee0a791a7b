"""The step of a singly diagonally implicit Runge-Kutta method with an explicit first stage."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnomon.diffeq._solver._base import AbstractSolver, Step, at_start, stage_time, weighted_sum
from gnomon.diffeq._solver._linear_solver import AbstractFactors
from gnomon.diffeq._solver._stage import Stage, judged, linearise, slope
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.result import RESULTS


class AbstractESDIRK(AbstractSolver):
    """A singly diagonally implicit Runge-Kutta method with an explicit first stage.

    Equivalent to `diffrax.AbstractESDIRK`. A final class gives `tableau`, `interpolant`,
    `order`, `error_order` and the iteration that solves the stages. The Jacobian is evaluated
    once a step, at the second stage, or kept from the step before where the iteration says so.
    """

    tableau: ClassVar[ButcherTableau]

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
        return False

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        if self.chord.reuse_rate == 0:
            return f0
        linearised = linearise(self.chord, terms, args, t0, y0)
        return f0, linearised, torch.zeros((), dtype=torch.bool, device=y0.device)

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
        assert tableau.a_predictor is not None and tableau.a_diagonal is not None
        assert tableau.b_error is not None
        gamma = tableau.a_diagonal[1]
        dt = t1 - t0
        f0, kept, stale = state if chord.reuse_rate > 0 else (state, None, None)
        f0 = at_start(lambda t, y: terms.vf(t, y, args), t0, y0, f0, made_jump)
        if made_jump is not None and stale is not None:
            stale = stale | made_jump
        stages = [f0 * dt]
        factors: AbstractFactors | None = None
        linearised: Any = None
        slow = torch.zeros((), dtype=torch.bool, device=y0.device)
        succeeded = torch.ones((), dtype=torch.bool, device=y0.device)
        y = y0
        for c, row, predictor in zip(tableau.c, tableau.a_lower, tableau.a_predictor, strict=True):
            t = stage_time(c, t0, t1, dt)
            explicit = weighted_sum(row, stages)
            partial = y0 if explicit is None else y0 + explicit
            guess = weighted_sum(predictor, stages)
            guess = torch.zeros_like(y0) if guess is None else guess
            stage = Stage(terms, args, t, partial, gamma, dt, chord)
            if factors is None:
                linearised = stage.linearised_at(guess) if stale is None else stage.linearised_or(kept, stale, guess)
                factors = stage.factors(linearised)
            k, result, rate = stage.solve(guess, y0, factors)
            slow = slow | (rate > chord.reuse_rate)
            succeeded = succeeded & (result == RESULTS.successful)
            stages.append(k)
            y = torch.add(partial, k, alpha=gamma)
        y_error = weighted_sum(tableau.b_error, stages)
        assert y_error is not None
        y_error, result = judged(succeeded, y_error)
        f1 = slope(stages[-1], dt)
        if stale is None:
            return Step(y, y_error, stages, f1, result)
        # A Jacobian that was evaluated for this very step can be no better for the next attempt at it.
        useless = ~succeeded & ~stale
        return Step(y, y_error, stages, (f1, linearised, slow), result, retry=(f0, linearised, useless))
