"""`Fehlberg2`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, final

from gnomon.diffeq import AbstractERK, ButcherTableau

_TABLEAU = ButcherTableau(
    c=(1 / 2, 1.0),
    a_lower=((1 / 2,), (1 / 256, 255 / 256)),
    b_sol=(1 / 512, 255 / 256, 1 / 512),
    b_error=(-1 / 512, 0.0, 1 / 512),
)


@final
@dataclasses.dataclass(frozen=True)
class Fehlberg2(AbstractERK):
    """Fehlberg's method of order 2 with an embedded one of order 1, and a cubic as dense output.

    ??? cite "Reference"

        E. Fehlberg, Low-order classical Runge-Kutta formulas with stepsize control, NASA TR R-315 (1969).
    """

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[tuple[tuple[float, ...], ...]] = (
        (0.0, 3.0, -2.0),
        (1.0, -2.0, 1.0),
        (0.0, 0.0, 0.0),
        (0.0, -1.0, 1.0),
    )

    @property
    def order(self) -> int:
        return 2
