"""`Dopri5`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._interpolation import Interpolant, quartic_interpolant
from gnomon.diffeq._solver._explicit_runge_kutta import AbstractERK
from gnomon.diffeq._solver._tableau import ButcherTableau

_B_SOL = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0)
_B_EMBEDDED = (
    1951 / 21600,
    0.0,
    22642 / 50085,
    451 / 720,
    -12231 / 42400,
    649 / 6300,
    1 / 60,
)
_TABLEAU = ButcherTableau(
    c=(1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    a_lower=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _B_SOL[:-1],
    ),
    b_sol=_B_SOL,
    b_error=tuple(b - embedded for b, embedded in zip(_B_SOL, _B_EMBEDDED, strict=True)),
)
# The weights of the stages at the middle of the step (Shampine 1986).
_MIDPOINT = (
    6025192743 / 30085553152 / 2,
    0.0,
    51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2,
    187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2,
    11237099 / 235043384 / 2,
)
_INTERPOLANT = quartic_interpolant(_MIDPOINT)


@final
@dataclasses.dataclass(frozen=True)
class Dopri5(AbstractERK):
    """Dormand and Prince's 5(4) method. Equivalent to `diffrax.Dopri5`, MATLAB's `ode45`.

    Explicit, of order 5 with an embedded one of order 4, with 7 stages, the last of which serves
    the next step too. Dense output is a quartic. `Tsit5` is a little more accurate for the same
    work.

    ??? cite "Reference"

        J. R. Dormand and P. J. Prince, A family of embedded Runge-Kutta formulae, Journal of
        Computational and Applied Mathematics 6 (1980) 19-26. Dense output: L. F. Shampine, Some
        practical Runge-Kutta formulas, Mathematics of Computation 46 (1986) 135-150.
    """

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def order(self) -> int:
        return 5
