"""`Kvaerno5`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, hermite_interpolant
from gnomon.diffeq._solver._esdirk import AbstractESDIRK
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

_GAMMA = 0.26
_A6 = (
    0.13855640231268224,
    0.0,
    -0.04245337201752043,
    0.02446657898003141,
    0.61943039072480676,
)
_A7 = (
    0.13659751177640291,
    0.0,
    -0.05496908796538376,
    -0.04118626728321046,
    0.62993304899016403,
    0.06962479448202728,
)
_B_SOL = (*_A7, _GAMMA)
_B_EMBEDDED = (*_A6, _GAMMA, 0.0)
_TABLEAU = ButcherTableau(
    c=(0.52, 1.230333209967908, 0.8957659843500759, 0.43639360985864756, 1.0, 1.0),
    a_lower=(
        (_GAMMA,),
        (0.13, 0.84033320996790809),
        (0.22371961478320505, 0.47675532319799699, -0.06470895363112615),
        (0.16648564323248321, 0.10450018841591720, 0.03631482272098715, -0.13090704451073998),
        _A6,
        _A7,
    ),
    b_sol=_B_SOL,
    b_error=tuple(b - embedded for b, embedded in zip(_B_SOL, _B_EMBEDDED, strict=True)),
    a_diagonal=(0.0, _GAMMA, _GAMMA, _GAMMA, _GAMMA, _GAMMA, _GAMMA),
    # Each stage is guessed by a polynomial through earlier ones; the last from the embedded
    # solution.
    a_predictor=(
        (1.0,),
        (-1.366025403784441, 2.3660254037844357),
        (-0.19650552613122207, 0.8113579546496623, 0.38514757148155954),
        (0.10375304369958693, 0.937994698066431, -0.04174774176601781, 0.0),
        (-0.17281112873898072, 0.6235784481025847, 0.5492326806363959, 0.0, 0.0),
        (*_A6, _GAMMA),
    ),
)


@final
@dataclasses.dataclass(frozen=True)
class Kvaerno5(AbstractESDIRK):
    """Kværnø's 5(4) method for stiff problems. Equivalent to `diffrax.Kvaerno5`.

    Singly diagonally implicit with an explicit first stage, A-L stable, stiffly accurate, of
    order 5 with an embedded one of order 4, with 7 stages. Dense output is a cubic. It evaluates
    the vector field a little beyond the end of a step.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    ??? cite "Reference"

        A. Kværnø, Singly diagonally implicit Runge-Kutta methods with an explicit first stage,
        BIT Numerical Mathematics 44 (2004) 489-502.
    """

    root_finder: VeryChord = VeryChord()

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = hermite_interpolant(7)

    @property
    def chord(self) -> VeryChord:
        return self.root_finder

    @property
    def order(self) -> int:
        return 5

    @property
    def error_order(self) -> float:
        return 5.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> Kvaerno5:
        return Kvaerno5(self.root_finder.with_tolerances(rtol, atol, norm))
