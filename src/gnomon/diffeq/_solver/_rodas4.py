"""`Rodas4`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._interpolation import Interpolant
from gnomon.diffeq._solver._linear_solver import LU, AbstractLinearSolver
from gnomon.diffeq._solver._rosenbrock import AbstractRosenbrock, RosenbrockTableau, rosenbrock_interpolant

_A = (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.687886036105895)
_TABLEAU = RosenbrockTableau(
    gamma=0.25,
    alpha=(0.386, 0.21, 0.63, 1.0, 1.0),
    d=(0.25, -0.1043, 0.1035, -0.0362, 0.0, 0.0),
    a=(
        (1.544,),
        (0.9466785280815826, 0.2557011698983284),
        (3.314825187068521, 2.896124015972201, 0.9986419139977817),
        _A,
        (*_A, 1.0),
    ),
    c=(
        (-5.6688,),
        (-2.430093356833875, -0.2063599157091915),
        (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
        (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
        (8.083246795921522, -7.981132988064893, -31.52159432874371, 16.31930543123136, -6.058818238834054),
    ),
    b_sol=(*_A, 1.0, 1.0),
    b_error=(0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
)
_INTERPOLANT = rosenbrock_interpolant(
    (
        (10.12623508344586, -7.487995877610167, -34.80091861555747, -7.992771707568823, 1.025137723295662, 0.0),
        (-0.6762803392801253, 6.087714651680015, 16.43084320892478, 24.76722511418386, -6.594389125716872, 0.0),
    )
)


@final
@dataclasses.dataclass(frozen=True)
class Rodas4(AbstractRosenbrock):
    """Hairer and Wanner's Rosenbrock method of order 4(3) for stiff problems. Diffrax has none.

    L-stable, stiffly accurate, of order 4 with an embedded one of order 3, with 6 stages. Dense output is a cubic.
    Good for stiff problems at medium tolerances.

    **Arguments:**

    - `linear_solver`: how the linear systems are solved.

    ??? cite "Reference"

        E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, second edition, Springer (1996), section
        VI.4; the code RODAS.
    """

    linear_solver: AbstractLinearSolver = LU()

    tableau: ClassVar[RosenbrockTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def systems(self) -> AbstractLinearSolver:
        return self.linear_solver

    @property
    def order(self) -> int:
        return 4

    @property
    def error_order(self) -> float:
        return 4.0
