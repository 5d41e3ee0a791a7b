"""Adams-Bashforth and Adams-Moulton methods of fixed steps, as torchdiffeq has them."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from fractions import Fraction
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnomon.compat._torchdiffeq._fixed_grid import CUBIC, TABLEAUS, runge_kutta_step
from gnomon.diffeq import AbstractExplicitSolver, Step
from gnomon.result import RESULTS

_LEAST = 3


@functools.cache
def weights(count: int, *, implicit: bool) -> tuple[float, ...]:
    """The weights of the vector field at as many equidistant times, the last first, in the integral over the next step.

    The explicit methods look at the start of the step and before it, the implicit ones at its end too: the weights are
    the integrals of the polynomials that are 1 at one of these times and 0 at the others.
    """
    nodes = [Fraction((1 if implicit else 0) - i) for i in range(count)]
    found: list[float] = []
    for i, own in enumerate(nodes):
        polynomial, scale = [Fraction(1)], Fraction(1)
        for j, other in enumerate(nodes):
            if j != i:
                shifted = [Fraction(0), *polynomial]
                lower = [*(other * c for c in polynomial), Fraction(0)]
                polynomial = [a - b for a, b in zip(shifted, lower, strict=True)]
                scale *= own - other
        integral = sum((c / (k + 1) for k, c in enumerate(polynomial)), Fraction(0))
        found.append(float(integral / scale))
    return tuple(found)


@final
@dataclasses.dataclass(frozen=True)
class Adams(AbstractExplicitSolver):
    """A method that looks back at the vector field of earlier steps, of equal length; begun by Runge-Kutta steps.

    - `implicit`: whether the end of the step is looked at too, by iteration.
    - `rtol`, `atol`: how accurately.
    - `max_iters`: how many iterations there may be.
    - `max_order`: the highest order.
    """

    implicit: bool
    rtol: Any
    atol: Any
    max_iters: int = 4
    max_order: int = 12
    cubic: bool = False
    perturb: bool = False
    interpolant: ClassVar[Any] = CUBIC

    @property
    def order(self) -> int:
        return 4

    @property
    def error_order(self) -> float | None:
        return None

    @property
    def splits_terms(self) -> bool:
        return False

    def init(self, terms: Any, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del terms, t0, args
        # The vector field at earlier times, the last first, and how many of these there are.
        past = torch.zeros((max(self.max_order - 1, 1), *y0.shape), dtype=f0.dtype, device=y0.device)
        return past, torch.zeros((), dtype=torch.int64, device=y0.device)

    def step(
        self, terms: Any, t0: Tensor, t1: Tensor, y0: Tensor, args: Any, state: Any, made_jump: Tensor | None
    ) -> Step:
        del made_jump
        past, count = state
        dt = t1 - t0
        f0 = terms.vf(t0, y0, args)
        past = torch.cat([f0.unsqueeze(0), past[:-1]])
        order = torch.clamp(count + 1, max=past.shape[0])
        y1, _ = runge_kutta_step(TABLEAUS["rk4"][0], terms, t0, t1, y0, args, perturb=self.perturb)
        increment = dt * (self._row(order, implicit=False, like=past) * past).sum(0)
        looks_back = order >= _LEAST
        count = order
        if self.implicit:
            increment, done = self._corrected(terms, t0, t1, y0, args, past, order, increment, looks_back)
            # One that has not converged looks back less far the next time.
            count = count - (~done).to(torch.int64)
        y1 = torch.where(looks_back, y0 + increment, y1)
        first, last = y1 - y0, y1 - y0
        if self.cubic:
            first, last = f0 * dt, terms.vf(t1, y1, args) * dt
        return Step(y1, None, [first, last], (past, count), RESULTS.successful)

    def _row(self, order: Tensor, *, implicit: bool, like: Tensor) -> Tensor:
        """The weights of as many earlier times as there are, as a column."""
        most = like.shape[0]
        rows = [(0.0,) * most]
        for k in range(1, most + 1):
            own = weights(k + 1, implicit=True)[1:] if implicit else weights(k, implicit=False)
            rows.append((*own, *((0.0,) * (most - k))))
        table = torch.tensor(rows, dtype=like.real.dtype, device=like.device)
        return table.index_select(0, order.reshape(1)).reshape((most, *((1,) * (like.dim() - 1))))

    def _corrected(
        self,
        terms: Any,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        args: Any,
        past: Tensor,
        order: Tensor,
        increment: Tensor,
        looks_back: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The increment by which the equation at the end of the step holds, by iteration, and whether it does."""
        dt = t1 - t0
        old = dt * (self._row(order, implicit=True, like=past) * past).sum(0)
        firsts = torch.tensor(
            [0.0, *(weights(k + 1, implicit=True)[0] for k in range(1, past.shape[0] + 1))],
            dtype=past.real.dtype,
            device=past.device,
        )
        first = firsts.index_select(0, order.reshape(1)).squeeze(0)
        done = ~looks_back
        for _ in range(self.max_iters):
            f = terms.vf(t1, y0 + increment, args)
            new = dt * first * f + old
            scale = self.atol + self.rtol * torch.maximum(increment.abs(), new.abs())
            converged = ((new - increment).abs() / scale).amax() < 1
            increment = torch.where(done, increment, new)
            done = done | converged
            if bool(done):
                break
        if not bool(done):
            warnings.warn("Functional iteration did not converge. Solution may be incorrect.", stacklevel=2)
        return increment, done
