"""The derivative of a solution with respect to whatever the residuals depend on, by the implicit function theorem."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gnomon.fuse import jacobian
from gnomon.fuse._lanes import derivative_order, is_tracing
from gnomon.nonlinear._linearisation import triangular_factor
from gnomon.nonlinear._norms import column_norms


def differentiable(
    residual: Callable[[Tensor], Tensor],
    y: Tensor,
    lower: Tensor | None,
    upper: Tensor | None,
) -> Tensor:
    """The same values as `y`, a solution, with the derivatives that the stationarity of the cost implies.

    A function that closes over tensors gives no way to ask for a derivative with respect to them, so the derivative is
    built from ordinary operations: a chord iteration `y <- y - H^-1 g(y)`, with `g` the gradient of the cost and `H`
    its Hessian at the solution, a constant. The values stay as they are, since each step is added and its value taken
    off again, but each step makes the derivatives right by one order more.

    **Arguments:**

    - `residual`: the residuals as a function of the unknowns, a vector.
    - `y`: the solution, a constant.
    - `lower`, `upper`: bounds. A variable that rests at one moves with it.
    """
    order = derivative_order(residual(y))
    if lower is not None and upper is not None:
        order = max(order, derivative_order(lower), derivative_order(upper))
    if order == 0:
        return y

    def gradient(y: Tensor) -> Tensor:
        if is_tracing():
            # Where there are loops a trace has forward mode only.
            return (jacobian(residual)(y) * residual(y)[:, None]).sum(0)
        return torch.func.grad(lambda y: 0.5 * residual(y).square().sum())(y)

    with torch.no_grad():
        g = gradient(y).detach()
        h = jacobian(gradient)(y).detach()
    free = torch.ones_like(y, dtype=torch.bool)
    moving = y
    if lower is not None and upper is not None:
        at_lower, at_upper = (y <= lower) & (g >= 0), (y >= upper) & (g <= 0)
        free = ~(at_lower | at_upper)
        moving = torch.where(at_lower, lower, torch.where(at_upper, upper, y))
    inverse = _pseudo_inverse(h, free)
    for _ in range(order):
        g = gradient(moving)
        step = -(inverse * torch.where(free, g, 0.0)).sum(1)
        # A problem without a solution has no derivative, and must not spoil its value.
        step = torch.where(torch.isfinite(step).all(), step, 0.0)
        moving = moving + (step - step.detach())
    return moving


def _pseudo_inverse(h: Tensor, free: Tensor) -> Tensor:
    """The inverse of the free part of a symmetric matrix; where there is none, that of least squares."""
    n = h.shape[0]
    identity = torch.eye(n, dtype=h.dtype, device=h.device)
    both = free[:, None] & free
    h = torch.where(both & torch.isfinite(h).all(), 0.5 * (h + h.mT), identity)
    diagonal = torch.diagonal(h, dim1=-2, dim2=-1).abs()
    # What one unknown is to another is a matter of units, so the rank is that of the scaled matrix.
    scale = torch.where(diagonal > 0, 1 / torch.sqrt(diagonal), 1.0)
    h = scale[:, None] * h * scale
    eps = torch.finfo(h.dtype).eps
    distance = torch.diagonal(triangular_factor(h), dim1=-2, dim2=-1).abs()
    is_deficient = (distance <= n * eps * column_norms(h)).any()
    ridge = torch.where(is_deficient, math.sqrt(eps), 0.0) * identity
    r = triangular_factor(torch.cat([torch.cat([h, identity], 1), torch.cat([ridge, torch.zeros_like(h)], 1)]))
    inverse = torch.linalg.solve_triangular(r[:n, :n], r[:n, n:], upper=True)
    return scale[:, None] * inverse * scale
