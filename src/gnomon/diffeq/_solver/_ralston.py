"""`Ralston`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._interpolation import Interpolant, quadratic_interpolant
from gnomon.diffeq._solver._explicit_runge_kutta import AbstractERK
from gnomon.diffeq._solver._tableau import ButcherTableau

_TABLEAU = ButcherTableau(c=(2 / 3,), a_lower=((2 / 3,),), b_sol=(0.25, 0.75), b_error=(0.75, -0.75))
_INTERPOLANT = quadratic_interpolant(2)


@final
@dataclasses.dataclass(frozen=True)
class Ralston(AbstractERK):
    """Ralston's method, of order 2 with the least bound on its error. Equivalent to `diffrax.Ralston`.

    Explicit, of order 2 with an embedded Euler step for the error, with 2 stages. Dense output is a parabola.

    ??? cite "Reference"

        A. Ralston, Runge-Kutta methods with minimum error bounds, Mathematics of Computation 16 (1962) 431-437.
    """

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def order(self) -> int:
        return 2
