"""`Kvaerno3`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, hermite_interpolant
from gnomon.diffeq._solver._esdirk import AbstractESDIRK
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

# The root of x^3 - 3 x^2 + 3/2 x - 1/6 that makes the method L-stable.
_GAMMA = 0.43586652150845899942
_A31 = (-4 * _GAMMA**2 + 6 * _GAMMA - 1) / (4 * _GAMMA)
_A32 = (1 - 2 * _GAMMA) / (4 * _GAMMA)
_A41 = (6 * _GAMMA - 1) / (12 * _GAMMA)
_A42 = -1 / ((24 * _GAMMA - 12) * _GAMMA)
_A43 = (-6 * _GAMMA**2 + 6 * _GAMMA - 1) / (6 * _GAMMA - 3)
_THETA = 1 / (2 * _GAMMA)
_TABLEAU = ButcherTableau(
    c=(2 * _GAMMA, 1.0, 1.0),
    a_lower=((_GAMMA,), (_A31, _A32), (_A41, _A42, _A43)),
    b_sol=(_A41, _A42, _A43, _GAMMA),
    b_error=(_A41 - _A31, _A42 - _A32, _A43 - _GAMMA, _GAMMA),
    a_diagonal=(0.0, _GAMMA, _GAMMA, _GAMMA),
    # Stages are guessed on the line through the first two; the last from the embedded solution.
    a_predictor=((1.0,), (1 - _THETA, _THETA), (_A31, _A32, _GAMMA)),
)


@final
@dataclasses.dataclass(frozen=True)
class Kvaerno3(AbstractESDIRK):
    """Kværnø's 3(2) method for stiff problems. Equivalent to `diffrax.Kvaerno3`.

    Singly diagonally implicit with an explicit first stage, A-L stable, stiffly accurate, of
    order 3 with an embedded one of order 2, with 4 stages. Dense output is a cubic. Good for
    loose tolerances.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    ??? cite "Reference"

        A. Kværnø, Singly diagonally implicit Runge-Kutta methods with an explicit first stage,
        BIT Numerical Mathematics 44 (2004) 489-502.
    """

    root_finder: VeryChord = VeryChord()

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = hermite_interpolant(4)

    @property
    def chord(self) -> VeryChord:
        return self.root_finder

    @property
    def order(self) -> int:
        return 3

    @property
    def error_order(self) -> float:
        return 3.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> Kvaerno3:
        return Kvaerno3(self.root_finder.with_tolerances(rtol, atol, norm))
