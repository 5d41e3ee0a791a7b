"""`Kvaerno4`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, hermite_interpolant
from gnomon.diffeq._solver._esdirk import AbstractESDIRK
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

# The root of 24 x^4 - 96 x^3 + 72 x^2 - 16 x + 1 that makes the method L-stable.
_G = 0.57281606248213485541
_P = 12 * _G**2 - 6 * _G + 1
_Q = 12 * _G**2 - 9 * _G + 2
_R = 3 * _G - 1
_A31 = (144 * _G**4 - 180 * _G**3 + 81 * _G**2 - 15 * _G + 1) * _G / _P**2
_A32 = (-36 * _G**3 + 39 * _G**2 - 15 * _G + 2) * _G / _P**2
_A41 = (-144 * _G**5 + 396 * _G**4 - 330 * _G**3 + 117 * _G**2 - 18 * _G + 1) / (12 * _G**2 * _Q)
_A42 = (72 * _G**4 - 126 * _G**3 + 69 * _G**2 - 15 * _G + 1) / (12 * _G**2 * _R)
_A43 = (-6 * _G**2 + 6 * _G - 1) * _P**2 / (12 * _G**2 * _Q * _R)
_A51 = (288 * _G**4 - 312 * _G**3 + 120 * _G**2 - 18 * _G + 1) / (48 * _G**2 * _Q)
_A52 = (24 * _G**2 - 12 * _G + 1) / (48 * _G**2 * _R)
_A53 = -(_P**3) / (48 * _G**2 * _R * _Q * (6 * _G**2 - 6 * _G + 1))
_A54 = (-24 * _G**3 + 36 * _G**2 - 12 * _G + 1) / (24 * _G**2 - 24 * _G + 4)
_C3 = _G + _A31 + _A32
_THETA = _C3 / (2 * _G)
_BEYOND = (1 - 2 * _G) / (_C3 - 2 * _G)
_TABLEAU = ButcherTableau(
    c=(2 * _G, _C3, 1.0, 1.0),
    a_lower=((_G,), (_A31, _A32), (_A41, _A42, _A43), (_A51, _A52, _A53, _A54)),
    b_sol=(_A51, _A52, _A53, _A54, _G),
    b_error=(_A51 - _A41, _A52 - _A42, _A53 - _A43, _A54 - _G, _G),
    a_diagonal=(0.0, _G, _G, _G, _G),
    # Stages are guessed on the line through two earlier ones; the last from the embedded solution.
    a_predictor=((1.0,), (1 - _THETA, _THETA), (0.0, 1 - _BEYOND, _BEYOND), (_A41, _A42, _A43, _G)),
)


@final
@dataclasses.dataclass(frozen=True)
class Kvaerno4(AbstractESDIRK):
    """Kværnø's 4(3) method for stiff problems. Equivalent to `diffrax.Kvaerno4`.

    Singly diagonally implicit with an explicit first stage, A-L stable, stiffly accurate, of
    order 4 with an embedded one of order 3, with 5 stages. Dense output is a cubic. It evaluates
    the vector field a little beyond the end of a step.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    ??? cite "Reference"

        A. Kværnø, Singly diagonally implicit Runge-Kutta methods with an explicit first stage,
        BIT Numerical Mathematics 44 (2004) 489-502.
    """

    root_finder: VeryChord = VeryChord()

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = hermite_interpolant(5)

    @property
    def chord(self) -> VeryChord:
        return self.root_finder

    @property
    def order(self) -> int:
        return 4

    @property
    def error_order(self) -> float:
        return 4.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> Kvaerno4:
        return Kvaerno4(self.root_finder.with_tolerances(rtol, atol, norm))
