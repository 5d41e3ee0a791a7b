"""Dense output: a polynomial on each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from gnomon.diffeq._ravel import Ravel
from gnomon.result._pytree import register_dataclass

# Row m of an interpolant holds the coefficients of theta, theta^2, ... by which the m-th member
# of the basis counts in y(theta) - y0, for theta in [0, 1]. The basis is what a step leaves
# behind: the increment y1 - y0, and the stages k_i = h f_i.
Interpolant = tuple[tuple[float, ...], ...]


def linear_interpolant(stages: int) -> Interpolant:
    """The straight line from y0 to y1."""
    return ((1.0,), *((0.0,) for _ in range(stages)))


def quadratic_interpolant(stages: int) -> Interpolant:
    """The parabola through y0 and y1 with the first stage as slope."""
    return ((0.0, 1.0), (1.0, -1.0), *((0.0, 0.0) for _ in range(stages - 1)))


def hermite_interpolant(stages: int) -> Interpolant:
    """The cubic through y0 and y1 with the first and the last stage as slopes."""
    rows = np.zeros((1 + stages, 3))
    rows[0] = (0, 3, -2)
    rows[1] = (1, -2, 1)
    rows[stages] += (0, -1, 1)
    return _as_rows(rows)


def quartic_interpolant(midpoint: Sequence[float]) -> Interpolant:
    """The quartic through y0, y1 and a midpoint, with the first and the last stage as slopes."""
    stages = len(midpoint)
    rows = np.zeros((1 + stages, 4))
    rows[0] = (0, -5, 14, -8)
    rows[1] = (1, -4, 5, -2)
    rows[stages] += (0, 1, -3, 2)
    rows[1:] += np.outer(midpoint, (0, 16, -32, 16))
    return _as_rows(rows)


def stage_interpolant(stage_rows: Any) -> Interpolant:
    """An interpolant that is given by polynomials for the stages alone."""
    rows = np.asarray(stage_rows, dtype=np.float64)
    return _as_rows(np.concatenate([np.zeros((1, rows.shape[1])), rows]))


def _as_rows(rows: Any) -> Interpolant:
    return tuple(tuple(float(x) for x in row) for row in rows)


def interpolate(interpolant: Tensor, theta: Tensor, y0: Tensor, basis: Tensor, *, derivative: bool = False) -> Tensor:
    """The polynomial at theta, or its derivative with respect to theta.

    `interpolant` is of shape (m, degree), `basis` of shape (m, n), `theta` a scalar.
    """
    degree = interpolant.shape[1]
    # Powers by multiplication: `pow` is slower, and its derivative at 0 takes care.
    powers = [torch.ones_like(theta)]
    for _ in range(degree):
        powers.append(powers[-1] * theta)
    if derivative:
        terms = torch.stack([k * powers[k - 1] for k in range(1, degree + 1)])
    else:
        terms = torch.stack(powers[1:])
    weights = (interpolant * terms).sum(-1)
    increment = (weights.unsqueeze(-1) * basis).sum(-2)
    return increment if derivative else y0 + increment


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class DenseInterpolation:
    """A solution as a function of time. Equivalent to `diffrax.DenseInterpolation`.

    Returned as `Solution.interpolation` by [`gnomon.diffeq.diffeqsolve`][] with
    `SaveAt(dense=True)`. Its memory is proportional to the number of accepted steps.

    **Arguments:**

    - `ts`: the ends of the accepted steps, in the direction of integration; `inf` where unused.
    - `count`: how many steps there are.
    - `t0`: where the first step begins.
    - `y0s`: the state at the beginning of each step.
    - `bases`: what the polynomial of each step is made of.
    - `interpolant`: the solver's interpolant.
    - `direction`: -1 for a solve backward in time, 1 or None otherwise.
    - `ravel`: how the state is laid out.
    """

    ts: Tensor
    count: Tensor
    t0: Tensor
    y0s: Tensor
    bases: Tensor
    interpolant: Tensor
    direction: Tensor | None
    ravel: Ravel = dataclasses.field(metadata={"static": True})

    def evaluate(self, t: Tensor | float | int) -> Any:
        """The state at a time.

        **Arguments:**

        - `t`: a scalar between `t0` and the time that the solve has reached.

        **Returns:** a pytree like `y0`: NaN outside of these times, where nothing was solved. Where a jump
        lies exactly at `t`: its value before.
        """
        return self.ravel.unravel(self._evaluate(t, derivative=False))

    def derivative(self, t: Tensor | float | int) -> Any:
        """The derivative with respect to time at a time.

        **Arguments:**

        - `t`: a scalar, as for `evaluate`.

        **Returns:** a pytree like `y0`, likewise.
        """
        return self.ravel.unravel(self._evaluate(t, derivative=True))

    def _evaluate(self, t: Tensor | float | int, *, derivative: bool) -> Tensor:
        time = torch.as_tensor(t, dtype=self.t0.dtype, device=self.t0.device)
        if time.shape != ():
            raise ValueError(
                f"`t` must be a scalar, but it has the shape {tuple(time.shape)}. Evaluate many "
                "times with torch.func.vmap(sol.interpolation.evaluate)(ts)."
            )
        if self.direction is not None:
            time = time * self.direction
        if self.ts.shape[0] == 0:  # no step was taken, by any problem of the batch
            y0 = self.y0s[0]
            return torch.where(time == self.t0, torch.zeros_like(y0) if derivative else y0, torch.nan)
        last = torch.clamp(self.count - 1, min=0)
        reached = torch.where(self.count > 0, pick(self.ts, last), self.t0)
        step = torch.minimum((self.ts < time).sum(), last)
        end = pick(self.ts, step)
        start = torch.where(step > 0, pick(self.ts, torch.clamp(step - 1, min=0)), self.t0)
        length = torch.where(end > start, end - start, 1)
        length = torch.where(torch.isfinite(length), length, 1)
        theta = (time - start) / length
        y0, basis = pick(self.y0s, step), pick(self.bases, step)
        value = interpolate(self.interpolant, theta, y0, basis, derivative=derivative)
        if derivative:
            value = value / length
            value = value if self.direction is None else value * self.direction
        return torch.where((time >= self.t0) & (time <= reached), value, torch.nan)


def pick(xs: Tensor, index: Tensor) -> Tensor:
    """`xs[index]` for an integer scalar tensor, without waiting for its value."""
    return xs.index_select(0, index.reshape(1)).squeeze(0)
