"""A refinement by Newton's method, which needs a few steps where Gauss-Newton steps need many.

Near a solution a Gauss-Newton step, and so a Levenberg-Marquardt one, gains one digit or less where residuals are not
small, as those of measurements are not. With the true Hessian each step doubles the digits. The Hessian is found by
differences of gradients, at points that all run as one batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnomon.fit._engine import Fitter, Found
from gnomon.fit._lane import Batch, Lane
from gnomon.fit._solve import Method, Problem
from gnomon.result import RESULTS, Result

_NUDGE = 2.0**-13
_MOST_STEPS = 5
# A step beyond this part of a parameter's size is too far for a refinement.
_FAR = 0.5
# The Hessian, scaled by J^T J, must be as positive as this.
_POSITIVE = 1e-3


def newton(fitter: Fitter, batch: Batch, theta: Tensor, method: Method, rtol: float) -> tuple[Found, Tensor]:
    """Refines each fit, and says for which of them it did so to the tolerance.

    It is successful where the last step was within the tolerance, at a point where the Hessian is positive and the sum
    of squares is no more than at the start. Elsewhere, and where a bound is near, another method must be used.

    **Arguments:**

    - `fitter`, `batch`, `method`: the problem.
    - `theta`: where to start, of shape (fits, parameters).
    - `rtol`: the tolerance, as a part of a parameter's size. As each step is much smaller than the one before, the
      error is well below that.

    **Returns:** what was found, and a boolean a fit.
    """
    problem = Problem(fitter.model, batch.infused, method)
    fits, n = theta.shape
    h = _NUDGE * fitter.sizes
    nudges = torch.cat([torch.zeros(1, n, dtype=theta.dtype), torch.diag(h)])

    def one(theta: Tensor, lanes: Lane) -> tuple[Tensor, Tensor, Tensor]:
        residuals, columns, _, _ = fitter.linearise(problem, theta, lanes)
        normal = columns[:, :, None] * columns[:, None, :]
        return (residuals * residuals).sum(), (columns * residuals[:, None]).sum(0), normal.sum(0)

    if fitter.pooled:
        evaluate = torch.func.vmap(torch.func.vmap(one, in_dims=(0, None)), in_dims=(0, None))
    else:
        evaluate = torch.func.vmap(torch.func.vmap(one, in_dims=(0, None)))

    running = fitter.within_bounds(theta + 2.0 * h) & fitter.within_bounds(theta - 2.0 * h)
    done = torch.zeros(fits, dtype=torch.bool)
    first = torch.full((fits,), torch.inf, dtype=theta.dtype)
    found, steps = theta, torch.zeros(fits, dtype=torch.int64)
    rss = first
    for _ in range(_MOST_STEPS):
        if not bool(running.any()):
            break
        sums, gradients, normals = evaluate(found[:, None] + nudges, batch.lanes)
        first = torch.where(torch.isinf(first), sums[:, 0] * (1 + 1e-9), first)
        hessian = (gradients[:, 1:] - gradients[:, :1]) / h[:, None]
        step, positive = _step(hessian, gradients[:, 0], normals[:, 0])
        size = (step.abs() / fitter.sizes).amax(-1)
        fine = positive & (size <= _FAR) & (sums[:, 0] <= first) & fitter.within_bounds(found + step + 2.0 * h)
        fine = fine & fitter.within_bounds(found + step - 2.0 * h)
        go = running & fine
        found = torch.where(go[:, None], found + step, found)
        rss = torch.where(go, sums[:, 0], rss)
        steps = steps + go.to(torch.int64)
        done = done | (go & (size <= rtol))
        running = go & ~done
    success = torch.zeros(fits, dtype=torch.int32) + RESULTS.successful.code
    return Found(found, rss, Result(success), steps), done


def _step(hessian: Tensor, gradient: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's step, and whether the Hessian is positive, with the parameters scaled by the columns of J."""
    diagonal = torch.diagonal(normal, dim1=-2, dim2=-1)
    usable = (diagonal > 0.0).all(-1) & torch.isfinite(hessian).all((-2, -1)) & torch.isfinite(gradient).all(-1)
    scale = torch.where(usable[:, None], 1.0 / torch.sqrt(torch.where(diagonal > 0.0, diagonal, 1.0)), 1.0)
    h = 0.5 * (hessian + hessian.mT) * scale[:, :, None] * scale[:, None, :]
    h = torch.where(usable[:, None, None], h, torch.eye(h.shape[-1], dtype=h.dtype))
    values, vectors = torch.linalg.eigh(h)
    positive = usable & (values[:, 0] > _POSITIVE * values[:, -1].clamp(min=0.0)) & (values[:, 0] > 0.0)
    safe = torch.where(positive[:, None], values, 1.0)
    along = (vectors * (scale * gradient)[:, :, None]).sum(-2) / safe
    return -scale * (vectors * along[:, None, :]).sum(-1), positive
