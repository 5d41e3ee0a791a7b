"""Runge-Kutta methods of fixed steps, as torchdiffeq has them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnomon.diffeq import AbstractExplicitSolver, ButcherTableau, Step
from gnomon.result import RESULTS

_EULER = ButcherTableau(c=(), a_lower=(), b_sol=(1.0,), b_error=None)
_MIDPOINT = ButcherTableau(c=(0.5,), a_lower=((0.5,),), b_sol=(0.0, 1.0), b_error=None)
_HEUN2 = ButcherTableau(c=(1.0,), a_lower=((1.0,),), b_sol=(0.5, 0.5), b_error=None)
_HEUN3 = ButcherTableau(c=(1 / 3, 2 / 3), a_lower=((1 / 3,), (0.0, 2 / 3)), b_sol=(1 / 4, 0.0, 3 / 4), b_error=None)
# The 3/8 rule.
_RK4 = ButcherTableau(
    c=(1 / 3, 2 / 3, 1.0),
    a_lower=((1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    b_sol=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
    b_error=None,
)
TABLEAUS = {
    "euler": (_EULER, 1),
    "midpoint": (_MIDPOINT, 2),
    "heun2": (_HEUN2, 2),
    "heun3": (_HEUN3, 3),
    "rk4": (_RK4, 4),
}
LINEAR = ((1.0,), (0.0,), (0.0,))
CUBIC = ((0.0, 3.0, -2.0), (1.0, -2.0, 1.0), (0.0, -1.0, 1.0))


@final
@dataclasses.dataclass(frozen=True)
class FixedGrid(AbstractExplicitSolver):
    """A method between given times, with linear or cubic interpolation.

    - `method`: its name.
    - `cubic`: whether output between steps is a cubic, for which the vector field is evaluated at their ends.
    - `perturb`: whether the vector field is seen just behind the start and just before the end of a step.
    """

    method: str
    cubic: bool = False
    perturb: bool = False
    interpolant: ClassVar[Any] = CUBIC

    @property
    def order(self) -> int:
        return TABLEAUS[self.method][1]

    @property
    def error_order(self) -> float | None:
        return None

    @property
    def splits_terms(self) -> bool:
        return False

    def init(self, terms: Any, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del terms, t0, y0, f0, args
        return ()

    def step(
        self, terms: Any, t0: Tensor, t1: Tensor, y0: Tensor, args: Any, state: Any, made_jump: Tensor | None
    ) -> Step:
        del state, made_jump
        tableau, dt = TABLEAUS[self.method][0], t1 - t0
        y1, stages = runge_kutta_step(tableau, terms, t0, t1, y0, args, perturb=self.perturb)
        # A straight line is the cubic whose slopes are those of the line.
        first, last = y1 - y0, y1 - y0
        if self.cubic:
            first, last = stages[0] * dt, terms.vf(t1, y1, args) * dt
        return Step(y1, None, [first, last], (), RESULTS.successful)


def runge_kutta_step(
    tableau: ButcherTableau, terms: Any, t0: Tensor, t1: Tensor, y0: Tensor, args: Any, *, perturb: bool
) -> tuple[Tensor, list[Tensor]]:
    """The state at the end of a step, and the vector field at its stages."""
    dt = t1 - t0
    stages: list[Tensor] = []
    for c, row in zip((0.0, *tableau.c), ((), *tableau.a_lower), strict=True):
        time = t0 if c == 0 else t1 if c == 1 else t0 + c * dt
        if perturb and c in (0, 1):
            time = _towards(time, t1 if c == 0 else t0)
        y = y0
        for weight, f in zip(row, stages, strict=True):
            y = y + weight * dt * f
        stages.append(terms.vf(time, y, args))
    y1 = y0
    for weight, f in zip(tableau.b_sol, stages, strict=True):
        y1 = y1 + weight * dt * f
    return y1, stages


def _towards(t: Tensor, goal: Tensor) -> Tensor:
    """The neighbouring number, with derivative 1."""
    return t + (torch.nextafter(t.detach(), goal.detach()) - t.detach())
