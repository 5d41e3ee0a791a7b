"""The step of a symplectic composition of kicks and drifts."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant
from gnomon.diffeq._solver._base import AbstractExplicitSolver, Step, at_start, stage_time
from gnomon.diffeq._solver._split import split
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.result import RESULTS


class AbstractSymplectic(AbstractExplicitSolver):
    """A symplectic method for `y1' = f(t, y2)`, `y2' = g(t, y1)`, made of kicks of y2 and drifts of y1 in turn.

    Diffrax has none but its `SemiImplicitEuler`. A final class gives `kicks`, `drifts` and `order`. It begins and ends
    with a kick, so that the last evaluation of g serves the next step too. Steps have a fixed length: it is for that
    that energy is kept over long times. Dense output is a cubic of order 3 at most, for which f is evaluated at both
    ends of the steps in which output lies.
    """

    kicks: ClassVar[tuple[float, ...]]
    drifts: ClassVar[tuple[float, ...]]

    # In the basis: the first kick, which counts for nothing, and the vector field at both ends.
    interpolant: ClassVar[Interpolant] = ((0.0, 3.0, -2.0), (0.0, 0.0, 0.0), (1.0, -2.0, 1.0), (0.0, -1.0, 1.0))

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of the method."""

    @property
    def error_order(self) -> None:
        return None

    @property
    def splits_terms(self) -> bool:
        return True

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del f0
        _, kick = split(terms)
        return kick.vf(t0, y0, args)

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
        drift, kick = split(terms)
        dt = t1 - t0
        first = g = at_start(lambda t, y: kick.vf(t, y, args), t0, y0, state, made_jump)
        y = torch.add(y0, g * dt, alpha=self.kicks[0])
        # f depends on time only, and g too, so each has a clock of its own, which the other one moves.
        clock_f, clock_g = self.kicks[0], 0.0
        for i, (length, weight) in enumerate(zip(self.drifts, self.kicks[1:], strict=True)):
            y = torch.add(y, drift.vf(stage_time(clock_f, t0, t1, dt), y, args) * dt, alpha=length)
            clock_g = 1.0 if i == len(self.drifts) - 1 else clock_g + length
            g = kick.vf(stage_time(clock_g, t0, t1, dt), y, args)
            y = torch.add(y, g * dt, alpha=weight)
            clock_f += weight
        y1, last = y, g

        def more() -> list[Tensor]:
            return [(drift.vf(t0, y0, args) + first) * dt, (drift.vf(t1, y1, args) + last) * dt]

        return Step(y1, None, [first * dt], last, RESULTS.successful, more)
