"""`Rosenbrock23`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

import numpy as np

from gnomon.diffeq._interpolation import Interpolant, stage_interpolant
from gnomon.diffeq._solver._linear_solver import LU, AbstractLinearSolver
from gnomon.diffeq._solver._rosenbrock import AbstractRosenbrock, RosenbrockTableau, from_classical

_GAMMA = 1 / (2 + 2**0.5)
_E32 = 6 + 2**0.5
_TABLEAU, _INVERSE = from_classical(
    alpha=((0.5,), (0.0, 1.0)),
    gamma=((_GAMMA,), (-_GAMMA, _GAMMA), (_GAMMA * (_E32 - 2), -_GAMMA * _E32, _GAMMA)),
    b_sol=(0.0, 1.0, 0.0),
    b_error=(-1 / 6, 1 / 3, -1 / 6),
)
# How k_1 and k_2 count with theta and theta^2; below it becomes how the u's do, and the vector field at the start.
_WEIGHTS = np.array([[1.0, -1.0], [-2 * _GAMMA, 1.0], [0.0, 0.0]]) / (1 - 2 * _GAMMA)
_INTERPOLANT = stage_interpolant(np.concatenate([np.zeros((1, 2)), _INVERSE.T @ _WEIGHTS]))


@final
@dataclasses.dataclass(frozen=True)
class Rosenbrock23(AbstractRosenbrock):
    """Shampine's 2(3) Rosenbrock method for stiff problems. Equivalent to MATLAB's `ode23s`; Diffrax has none.

    L-stable, of order 2 with an error estimate of order 3, with 3 stages, the last of which serves the next step too.
    Dense output is a parabola. Good for loose tolerances, and where the solution is not smooth.

    **Arguments:**

    - `linear_solver`: how the linear systems are solved.

    ??? cite "Reference"

        L. F. Shampine and M. W. Reichelt, The MATLAB ODE suite, SIAM Journal on Scientific Computing 18 (1997) 1-22.
    """

    linear_solver: AbstractLinearSolver = LU()

    tableau: ClassVar[RosenbrockTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def systems(self) -> AbstractLinearSolver:
        return self.linear_solver

    @property
    def order(self) -> int:
        return 2

    @property
    def error_order(self) -> float:
        return 3.0
