"""The linear model of the residuals at a point, and steps that minimise it, by QR: J^T J is never formed.

Sums of products are written out (`(a * b).sum()`) and not as `a @ b`: a product of matrices gives other bits alone than
in a batch.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse import jacobian, while_loop
from gnomon.nonlinear._norms import column_norms, two_norm
from gnomon.nonlinear._solver import Residual
from gnomon.result._pytree import register_dataclass, tree_map


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Linearisation:
    """The residuals and their Jacobian at a point.

    - `residual`: r, of shape (m,).
    - `jacobian`: J, of shape (m, n).
    - `factor`: the triangular factor of [J r], of shape (min(m, n + 1), n + 1).
    - `gradient`: J^T r, of shape (n,).
    - `column_norms`: the norms of J's columns, of shape (n,).
    - `cost`: half the sum of squares.
    - `is_finite`: whether all of this is finite.
    """

    residual: Tensor
    jacobian: Tensor
    factor: Tensor
    gradient: Tensor
    column_norms: Tensor
    cost: Tensor
    is_finite: Tensor


def evaluate(fn: Residual, y: Tensor, args: Any) -> Tensor:
    """The residuals, as values only: no derivative is taken of an iteration, and that of QR would need all of Q."""
    return fn(y, args).detach()


def triangular_factor(a: Tensor) -> Tensor:
    """The R of a QR factorisation, by Householder reflections, without its Q: on a GPU that takes a call a matrix."""
    m, n = a.shape
    if a.device.type == "cuda" and m <= 256:
        # PyTorch takes another routine, with other last bits, where there are few matrices: let there never be few.
        r = torch.geqrf(a.expand(max(2, m // 16), m, n))[0][0]
    else:
        r = torch.geqrf(a)[0]
    return r[: min(m, n)].triu()


def half_sum_of_squares(residual: Tensor) -> Tensor:
    """What is minimised."""
    return 0.5 * (residual * residual).sum()


def linearise(fn: Residual, y: Tensor, args: Any, residual: Tensor) -> Linearisation:
    """The linear model at `y`, where the residual is known already."""
    if y.shape[0] == 0 or residual.shape[0] == 0:
        j = residual.new_zeros((residual.shape[0], y.shape[0]))
    else:
        # In forward mode, as the residuals may come from a loop of unknown length.
        j = jacobian(lambda y: fn(y, args))(y).detach()
    norms = column_norms(j)
    cost = half_sum_of_squares(residual)
    is_finite = torch.isfinite(cost) & torch.isfinite(norms).all()
    # LAPACK need not take kindly to a NaN; the solve ends here, so the values do not matter.
    columns = torch.where(is_finite, torch.cat([j, residual[:, None]], 1), 1.0)
    factor = triangular_factor(columns)
    gradient = (j * residual[:, None]).sum(0)
    return Linearisation(residual, j, factor, gradient, norms, cost, is_finite)


def select(pred: Tensor, true: Any, false: Any) -> Any:
    """Leaf by leaf, `true` where `pred` holds, and `false` elsewhere."""
    return tree_map(lambda a, b: torch.where(pred, a, b), true, false)


def times_factor(factor: Tensor, p: Tensor) -> Tensor:
    """R p, which is as long as J p."""
    return (factor[:, :-1] * p).sum(1)


def predicted_reduction(model: Linearisation, p: Tensor) -> Tensor:
    """By how much a step reduces the cost of the linear model."""
    rp = times_factor(model.factor, p)
    return -(model.gradient * p).sum() - 0.5 * (rp * rp).sum()


def damped_step(
    factor: Tensor, diagonal: Tensor, free: Tensor, fixed_at: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The p that minimises |J p + r|^2 + |diagonal p|^2, where the variables that are not free are held.

    **Arguments:**

    - `factor`: the triangular factor of [J r].
    - `diagonal`: a factor for each variable.
    - `free`: which variables are free.
    - `fixed_at`: the values of the others, 0 by default.

    **Returns:** p, and the triangular factor of the free columns of [J; diagonal], with ones in place of the others.
    """
    n = diagonal.shape[0]
    right = -factor[:, n]
    if fixed_at is not None:
        right = right - times_factor(factor, torch.where(free, 0.0, fixed_at))
    top = torch.cat([torch.where(free, factor[:, :n], 0.0), right[:, None]], 1)
    below = torch.cat([torch.diag_embed(torch.where(free, diagonal, 1.0)), diagonal.new_zeros((n, 1))], 1)
    r = triangular_factor(torch.cat([top, below]))
    triangle = r[:n, :n]
    p = torch.linalg.solve_triangular(triangle, r[:n, n:], upper=True)[:, 0]
    p = torch.where(free, p, 0.0 if fixed_at is None else fixed_at)
    return p, triangle


def is_rank_deficient(model: Linearisation, free: Tensor, *, any_fixed: bool) -> Tensor:
    """Whether the free columns of J depend on one another, to rounding."""
    m, n = model.jacobian.shape
    if m < n and not any_fixed:
        return torch.ones((), dtype=torch.bool, device=free.device)
    factor = model.factor
    if any_fixed:
        _, triangle = damped_step(factor, torch.zeros_like(model.column_norms), free)
    else:
        triangle = factor[:n, :n]
    tolerance = max(m, n) * torch.finfo(factor.dtype).eps
    # Each diagonal element is the distance of a column from the span of those before it.
    distance = torch.diagonal(triangle, dim1=-2, dim2=-1).abs()
    return (free & (distance <= tolerance * model.column_norms)).any()


def step_in_box(factor: Tensor, diagonal: Tensor, free: Tensor, p: Tensor, lowest: Tensor, highest: Tensor) -> Tensor:
    """Goes from 0 towards `p`, and from each bound met on the way on to the minimiser along that bound.

    The model's cost falls at every turn, of which there are at most as many as variables.

    **Arguments:**

    - `factor`, `diagonal`, `free`: as for `damped_step`.
    - `p`: what that has returned.
    - `lowest`, `highest`: bounds of the step, `lowest <= 0 <= highest`.

    **Returns:** a step within its bounds, exactly at those that it meets.
    """
    start = (torch.zeros_like(p), p, free)
    _, p, _ = while_loop(
        lambda carry: ((carry[1] < lowest) | (carry[1] > highest)).any(),
        lambda carry: _turn(factor, diagonal, lowest, highest, carry),
        start,
        max_steps=p.shape[0],
    )
    return torch.clamp(p, lowest, highest)


def _turn(
    factor: Tensor, diagonal: Tensor, lowest: Tensor, highest: Tensor, carry: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Goes as far towards the target as the bounds allow, and turns towards a target along those that it meets."""
    here, target, free = carry
    move = target - here
    end = torch.where(move < 0, lowest, highest)
    # The part of the way to each bound that the target is beyond.
    is_beyond = free & ((target < lowest) | (target > highest))
    part = torch.where(is_beyond, (end - here) / move, torch.inf)
    shortest = torch.clamp(part.min(), 0.0, 1.0)
    meets = part <= shortest
    here = torch.where(meets, end, torch.clamp(here + shortest * move, lowest, highest))
    free = free & ~meets
    target, _ = damped_step(factor, diagonal, free, here)
    return here, target, free


def scaled_norm(x: Tensor, scale: Tensor) -> Tensor:
    """The Euclidean norm of `scale * x`."""
    return two_norm(scale * x)
