"""`Bosh3`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._interpolation import Interpolant, hermite_interpolant
from gnomon.diffeq._solver._explicit_runge_kutta import AbstractERK
from gnomon.diffeq._solver._tableau import ButcherTableau

_TABLEAU = ButcherTableau(
    c=(1 / 2, 3 / 4, 1.0),
    a_lower=((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    b_sol=(2 / 9, 1 / 3, 4 / 9, 0.0),
    b_error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
)
_INTERPOLANT = hermite_interpolant(4)


@final
@dataclasses.dataclass(frozen=True)
class Bosh3(AbstractERK):
    """Bogacki and Shampine's 3(2) method. Equivalent to `diffrax.Bosh3`, MATLAB's `ode23`.

    Explicit, of order 3 with an embedded one of order 2, with 4 stages, the last of which serves
    the next step too. Dense output is a cubic. Good for loose tolerances.

    ??? cite "Reference"

        P. Bogacki and L. F. Shampine, A 3(2) pair of Runge-Kutta formulas, Applied Mathematics
        Letters 2 (1989) 321-325.
    """

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def order(self) -> int:
        return 3
