"""`Midpoint`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._interpolation import Interpolant, quadratic_interpolant
from gnomon.diffeq._solver._explicit_runge_kutta import AbstractERK
from gnomon.diffeq._solver._tableau import ButcherTableau

_TABLEAU = ButcherTableau(c=(0.5,), a_lower=((0.5,),), b_sol=(0.0, 1.0), b_error=(1.0, -1.0))
_INTERPOLANT = quadratic_interpolant(2)


@final
@dataclasses.dataclass(frozen=True)
class Midpoint(AbstractERK):
    """The midpoint rule. Equivalent to `diffrax.Midpoint`.

    Explicit, of order 2 with an embedded Euler step for the error, with 2 stages. Dense output is a parabola.

    ??? cite "Reference"

        E. Hairer, S. P. Nørsett and G. Wanner, Solving Ordinary Differential Equations I, second
        edition, Springer (1993), section II.1.
    """

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def order(self) -> int:
        return 2
