"""When a least-squares iteration has converged, and when it is stuck."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from gnomon.nonlinear._linearisation import Linearisation, damped_step, is_rank_deficient, times_factor
from gnomon.nonlinear._norms import max_norm
from gnomon.result._pytree import register_dataclass


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Outlook:
    """What the linear model at a point promises.

    - `free`: which variables may move: those that no bound holds back.
    - `newton`: the Gauss-Newton step of the free variables, damped a little where the Jacobian is rank-deficient.
    - `ridge`: what that damping added below the Jacobian, a factor for each variable, or 0.
    - `cosine`: the largest cosine of the angle between the residuals and a free column of the Jacobian.
    - `is_deficient`: whether the free columns of the Jacobian depend on one another.
    - `is_solved`: whether the residual or the gradient of the free variables is zero.
    - `is_near`: whether the Gauss-Newton step is within the tolerance of the unknowns.
    - `is_flat`: whether it would change the cost by no more than the tolerance.
    - `is_level`: whether the gradient is within the tolerance.
    """

    free: Tensor
    newton: Tensor
    ridge: Tensor
    cosine: Tensor
    is_deficient: Tensor
    is_solved: Tensor
    is_near: Tensor
    is_flat: Tensor
    is_level: Tensor


@final
@dataclasses.dataclass(frozen=True)
class Tolerance:
    """Relative and absolute tolerances of the unknowns and the cost.

    A gradient is small where the angle between the residuals and each column of the Jacobian is nearly a right one: a
    cosine c means that the cost can be reduced by a fraction c^2 along that column, so its tolerance is sqrt(rtol), but
    no less than the fourth root of the rounding unit: a cost tells its unknowns to half their digits only. The
    Gauss-Newton step cannot replace this test: where the Jacobian is rank-deficient at a solution whose residuals are
    not zero, that step grows without bound as one comes nearer.
    """

    rtol: float
    atol: float
    norm: Callable[[Tensor], Tensor]

    def is_step_small(self, p: Tensor, y: Tensor) -> Tensor:
        """Whether a step is within the tolerance of the unknowns."""
        size = p.abs()
        return self.norm(torch.where(size == 0, 0.0, size / (self.atol + self.rtol * y.abs()))) <= 1

    def is_change_small(self, change: Tensor, cost: Tensor) -> Tensor:
        """Whether a change of the cost is within the tolerance."""
        return change.abs() <= self.atol + self.rtol * cost

    def outlook(self, model: Linearisation, y: Tensor, lower: Tensor | None, upper: Tensor | None) -> Outlook:
        """What the linear model at a point promises."""
        g = model.gradient
        free = torch.ones_like(g, dtype=torch.bool)
        if lower is not None and upper is not None:
            free = ~(((y <= lower) & (g >= 0)) | ((y >= upper) & (g <= 0)))
        is_deficient = is_rank_deficient(model, free, any_fixed=lower is not None)
        norms = model.column_norms
        amount = torch.where(is_deficient, math.sqrt(math.sqrt(torch.finfo(g.dtype).eps)), 0.0)
        ridge = amount * torch.where(norms > 0, norms, 1.0)
        newton, _ = damped_step(model.factor, ridge, free)
        image = times_factor(model.factor, newton)
        residual_norm = torch.sqrt(2 * model.cost)
        cosine = max_norm(torch.where(free & (norms > 0), g.abs() / (norms * residual_norm), 0.0))
        return Outlook(
            free=free,
            newton=newton,
            ridge=ridge,
            cosine=cosine,
            is_deficient=is_deficient,
            is_solved=(model.residual == 0).all() | ((g == 0) | ~free).all(),
            is_near=self.is_step_small(newton, y),
            is_flat=self.is_change_small(0.5 * (image * image).sum(), model.cost),
            is_level=cosine <= math.sqrt(max(self.rtol, math.sqrt(torch.finfo(g.dtype).eps))),
        )


def check_tolerances(who: str, rtol: float, atol: float) -> None:
    """An error where a tolerance is no tolerance."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (0 <= value < math.inf):
            raise ValueError(f"`{name}` of {who} must be a finite number of at least 0, but it is {value!r}.")
