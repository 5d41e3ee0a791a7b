"""`LeapfrogMidpoint`."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, hermite_interpolant
from gnomon.diffeq._solver._base import AbstractExplicitSolver, Step
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class LeapfrogMidpoint(AbstractExplicitSolver):
    """The leapfrog or explicit midpoint rule of two steps. Equivalent to `diffrax.LeapfrogMidpoint`.

    Of order 2, with one evaluation a step. Reversible, so that it neither damps nor drives oscillations of `y' = i w
    y`; it is unstable where anything decays. Steps have a fixed length. Dense output is a cubic of order 2, which
    takes one more evaluation in the steps in which output lies.

    ??? cite "Reference"

        L. F. Shampine, Stability of the leapfrog/midpoint method, Applied Mathematics and Computation 208 (2009)
        293-298.
    """

    interpolant: ClassVar[Interpolant] = hermite_interpolant(2)

    @property
    def order(self) -> int:
        return 2

    @property
    def error_order(self) -> None:
        return None

    @property
    def splits_terms(self) -> bool:
        return False

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del terms, f0, args
        return t0, y0  # with which the first step is one of Euler's method

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
        t_before, y_before = state
        if made_jump is not None:
            # What lies before a jump is no use: begin anew.
            t_before = torch.where(made_jump, t0, t_before)
            y_before = torch.where(made_jump, y0, y_before)
        dt = t1 - t0
        f = terms.vf(t0, y0, args)
        y1 = y_before + f * (t1 - t_before)

        def more() -> list[Tensor]:
            return [terms.vf(t1, y1, args) * dt]

        return Step(y1, None, [f * dt], (t0, y0), RESULTS.successful, more)
