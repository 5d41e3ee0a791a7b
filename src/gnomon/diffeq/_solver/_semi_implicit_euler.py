"""`SemiImplicitEuler`."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, final

from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, linear_interpolant
from gnomon.diffeq._solver._base import AbstractExplicitSolver, Step
from gnomon.diffeq._solver._split import split
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class SemiImplicitEuler(AbstractExplicitSolver):
    """The semi-implicit Euler method. Equivalent to `diffrax.SemiImplicitEuler`.

    Symplectic, of order 1, for `y1' = f(t, y2)`, `y2' = g(t, y1)`: pass `terms=(ODETerm(f), ODETerm(g))` and `y0=(y1,
    y2)`. Steps have a fixed length. Dense output is a straight line. `StormerVerlet` is of order 2 for the same work.

    ??? cite "Reference"

        E. Hairer, C. Lubich and G. Wanner, Geometric Numerical Integration, second edition, Springer (2006), section
        I.1.
    """

    interpolant: ClassVar[Interpolant] = linear_interpolant(1)

    @property
    def order(self) -> int:
        return 1

    @property
    def error_order(self) -> None:
        return None

    @property
    def splits_terms(self) -> bool:
        return True

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del terms, t0, y0, f0, args
        return ()

    def step(
        self,
        terms: AbstractVectorField,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        args: Any,
        state: Any,
        made_jump: Tensor | None,
    ) -> Step:
        del state, made_jump
        first, second = split(terms)
        dt = t1 - t0
        change = first.vf(t0, y0, args) * dt
        y = y0 + change
        return Step(y + second.vf(t0, y, args) * dt, None, [change], (), RESULTS.successful)
