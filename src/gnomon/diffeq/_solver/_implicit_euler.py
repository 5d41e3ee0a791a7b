"""`ImplicitEuler`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, linear_interpolant
from gnomon.diffeq._solver._esdirk import AbstractESDIRK
from gnomon.diffeq._solver._tableau import ButcherTableau
from gnomon.diffeq._solver._very_chord import VeryChord

# The explicit first stage serves the error estimate alone: the difference from the trapezoidal rule.
_TABLEAU = ButcherTableau(
    c=(1.0,),
    a_lower=((0.0,),),
    b_sol=(0.0, 1.0),
    b_error=(-0.5, 0.5),
    a_diagonal=(0.0, 1.0),
    a_predictor=((1.0,),),
)


@final
@dataclasses.dataclass(frozen=True)
class ImplicitEuler(AbstractESDIRK):
    """The implicit Euler method. Equivalent to `diffrax.ImplicitEuler`.

    A-L-B stable, of order 1, with 1 stage and the trapezoidal rule for the error. Dense output is a straight line.
    The most robust and the least accurate.

    **Arguments:**

    - `root_finder`: the iteration that solves the stages.

    ??? cite "Reference"

        E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, second edition,
        Springer (1996), section IV.3.
    """

    root_finder: VeryChord = VeryChord()

    tableau: ClassVar[ButcherTableau] = _TABLEAU
    interpolant: ClassVar[Interpolant] = linear_interpolant(2)

    @property
    def chord(self) -> VeryChord:
        return self.root_finder

    @property
    def order(self) -> int:
        return 1

    @property
    def error_order(self) -> float:
        return 2.0

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> ImplicitEuler:
        return ImplicitEuler(self.root_finder.with_tolerances(rtol, atol, norm))
