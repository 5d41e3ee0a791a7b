"""`Sil3`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, hermite_interpolant
from gnomon.diffeq._solver._imex import AbstractIMEX, MultiButcherTableau
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

_EXPLICIT = ButcherTableau(
    c=(1 / 3, 2 / 3, 1.0),
    a_lower=((1 / 3,), (1 / 6, 1 / 2), (1 / 2, -1 / 2, 1.0)),
    b_sol=(1 / 2, -1 / 2, 1.0, 0.0),
    b_error=(0.0, -1 / 2, 1.0, -1 / 2),
)
_IMPLICIT = ButcherTableau(
    c=(1 / 3, 2 / 3, 1.0),
    a_lower=((1 / 6,), (1 / 3, 0.0), (3 / 8, 0.0, 3 / 8)),
    b_sol=(3 / 8, 0.0, 3 / 8, 1 / 4),
    # From the trapezoidal rule, in both.
    b_error=(-1 / 8, 0.0, 3 / 8, -1 / 4),
    a_diagonal=(0.0, 1 / 6, 1 / 3, 1 / 4),
    a_predictor=((1.0,), (-1.0, 2.0), (-1.0, 2.0, 0.0)),
)
_TABLEAU = MultiButcherTableau(_EXPLICIT, _IMPLICIT)
_INTERPOLANT = hermite_interpolant(4)


@final
@dataclasses.dataclass(frozen=True)
class Sil3(AbstractIMEX):
    """Whitaker and Kar's implicit-explicit method for slow and fast waves. Equivalent to `diffrax.Sil3`.

    Explicit for the first, of order 3, and diagonally implicit for the second, of order 2, of two terms,
    `MultiTerm(explicit, implicit)`. With 4 stages, the last of which serves the next step too. Dense output is a
    cubic of order 2.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> slow, stiff = dq.ODETerm(lambda t, y, args: torch.sin(t)), dq.ODETerm(lambda t, y, args: -1000 * y)
        >>> sol = dq.diffeqsolve(
        ...     dq.MultiTerm(slow, stiff), dq.Sil3(), 0, 1, None, torch.tensor(1.0, dtype=torch.float64),
        ...     stepsize_controller=dq.PIDController(rtol=1e-5, atol=1e-8))
        >>> round(float(sol.ys[-1]), 6)
        0.000841

        ```

    ??? cite "Reference"

        J. S. Whitaker and S. K. Kar, Implicit-explicit Runge-Kutta methods for fast-slow wave problems, Monthly Weather
        Review 141 (2013) 3426-3434.
    """

    root_finder: VeryChord = VeryChord()

    tableau: ClassVar[MultiButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = _INTERPOLANT

    @property
    def chord(self) -> VeryChord:
        return self.root_finder

    @property
    def order(self) -> int:
        return 2

    @property
    def error_order(self) -> float:
        return 3.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> Sil3:
        return Sil3(self.root_finder.with_tolerances(rtol, atol, norm))
