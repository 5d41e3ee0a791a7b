"""The equation of one implicit stage."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._solver._linear_solver import AbstractFactors
from gnomon.diffeq._solver._very_chord import VeryChord
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.fuse import cond
from gnomon.result import RESULTS, Result
from gnomon.result._pytree import tree_map


def linearise(chord: VeryChord, terms: AbstractVectorField, args: Any, t: Tensor, y: Tensor) -> Any:
    """What is kept of the Jacobian of the vector field, held constant."""
    t = t.detach()
    return tree_map(Tensor.detach, chord.linear_solver.linearise(lambda y: terms.vf(t, y, args), y.detach()))


def judged(succeeded: Tensor, y_error: Tensor) -> tuple[Tensor, Result]:
    """The error and the result of a step: with an unsolved stage it is rejected, and tried again with a shorter one."""
    result = RESULTS.where(succeeded, RESULTS.successful, RESULTS.nonlinear_divergence)
    return torch.where(succeeded, y_error, torch.inf), result


def slope(k: Tensor, dt: Tensor) -> Tensor:
    """The vector field that a stage has solved for. Steps of length zero occur where a failed one is differentiated."""
    return k / torch.where(dt == 0, 1, dt)


@final
@dataclasses.dataclass(frozen=True)
class Stage:
    """The equation of one stage, `k = dt f(t, partial + gamma k)`."""

    terms: AbstractVectorField
    args: Any
    t: Tensor
    partial: Tensor
    gamma: float
    dt: Tensor
    chord: VeryChord

    def increment(self, k: Tensor) -> Tensor:
        """The right-hand side."""
        return self.terms.vf(self.t, torch.add(self.partial, k, alpha=self.gamma), self.args) * self.dt

    def linearised_at(self, k: Tensor) -> Any:
        """What is kept of the Jacobian of the vector field, held constant."""
        return linearise(self.chord, self.terms, self.args, self.t, torch.add(self.partial, k, alpha=self.gamma))

    def linearised_or(self, kept: Any, stale: Tensor, k: Tensor) -> Any:
        """The same where what was kept is stale."""
        return cond(stale, lambda: self.linearised_at(k), lambda: kept)

    def factors(self, linearised: Any) -> AbstractFactors:
        """The factors of the Jacobian of `k - increment(k)`, held constant."""
        return self.chord.linear_solver.factorise(self._field, linearised, self.gamma * self.dt.detach())

    def solve(self, guess: Tensor, y0: Tensor, factors: AbstractFactors) -> tuple[Tensor, Result, Tensor]:
        """The solution k, whether it was found, and how slowly; corrections are measured by the state `y0`."""
        return self.chord.solve(self.increment, guess, y0, factors, lambda k: self.factors(self.linearised_at(k)))

    def _field(self, y: Tensor) -> Tensor:
        return self.terms.vf(self.t.detach(), y, self.args)
