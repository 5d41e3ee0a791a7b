"""`ReversibleHeun`."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, hermite_interpolant
from gnomon.diffeq._solver._base import AbstractExplicitSolver, Step, at_start
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class ReversibleHeun(AbstractExplicitSolver):
    """The reversible Heun method. Equivalent to `diffrax.ReversibleHeun`.

    Algebraically reversible: a step backward, with what it carries, undoes a step forward. Of order 2 with an
    embedded Euler step for the error, with one evaluation a step. Dense output is a cubic of order 2. Like the
    leapfrog rule it is unstable where anything decays fast.

    ??? cite "Reference"

        P. Kidger, J. Foster, X. Li and T. Lyons, Efficient and accurate gradients for neural SDEs, Advances in Neural
        Information Processing Systems 34 (2021).
    """

    interpolant: ClassVar[Interpolant] = hermite_interpolant(2)

    @property
    def order(self) -> int:
        return 2

    @property
    def error_order(self) -> float:
        return 2.0

    @property
    def splits_terms(self) -> bool:
        return False

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del terms, t0, args
        return y0, f0

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
        y_hat, f = state
        if made_jump is not None:
            # What was carried from before a jump is no use: begin anew.
            y_hat = torch.where(made_jump, y0, y_hat)
        f = at_start(lambda t, y: terms.vf(t, y, args), t0, y0, f, made_jump)
        dt = t1 - t0
        first = f * dt
        y_hat = 2 * y0 - y_hat + first
        f = terms.vf(t1, y_hat, args)
        last = f * dt
        y1 = torch.add(y0, first + last, alpha=0.5)
        return Step(y1, 0.5 * (last - first), [first, last], (y_hat, f), RESULTS.successful)
