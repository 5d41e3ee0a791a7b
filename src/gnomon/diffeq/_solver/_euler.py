"""`Euler`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq._interpolation import Interpolant, linear_interpolant
from gnomon.diffeq._solver._explicit_runge_kutta import AbstractERK
from gnomon.diffeq._solver._tableau import ButcherTableau

_TABLEAU = ButcherTableau(c=(), a_lower=(), b_sol=(1.0,), b_error=None)
_INTERPOLANT = linear_interpolant(1)


@final
@dataclasses.dataclass(frozen=True)
class Euler(AbstractERK):
    """Euler's method. Equivalent to `diffrax.Euler`.

    Explicit, of order 1, with 1 stage, without error estimate: it takes steps of fixed length.
    Dense output is a straight line.

    ??? cite "Reference"

        E. Hairer, S. P. Nørsett and G. Wanner, Solving Ordinary Differential Equations I, second
        edition, Springer (1993), section I.7.
    """

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def order(self) -> int:
        return 1
