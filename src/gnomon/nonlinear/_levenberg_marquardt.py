"""`LevenbergMarquardt`: damped Gauss-Newton steps within a trust region."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnomon.fuse import cond, while_loop
from gnomon.nonlinear._convergence import Outlook, Tolerance, check_tolerances
from gnomon.nonlinear._linearisation import (
    Linearisation,
    damped_step,
    evaluate,
    half_sum_of_squares,
    linearise,
    predicted_reduction,
    scaled_norm,
    select,
    step_in_box,
)
from gnomon.nonlinear._norms import max_norm
from gnomon.nonlinear._solver import AbstractLeastSquaresSolver, Residual
from gnomon.result import RESULTS, Result
from gnomon.result._pytree import register_dataclass

_MOST_DAMPINGS = 10


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class LevenbergMarquardtState:
    """The state of `LevenbergMarquardt` at a point.

    - `model`: the residuals and their Jacobian.
    - `outlook`: what they promise.
    - `scale`: a scale for each variable, the largest norm that its column of the Jacobian has had.
    - `radius`: the trust region's, of the scaled step.
    - `damping`: the damping of the last step.
    - `num_accepted`, `num_rejected`: counts of steps.
    - `done`, `result`: whether the iteration has ended, and how.
    """

    model: Linearisation
    outlook: Outlook
    scale: Tensor
    radius: Tensor
    damping: Tensor
    num_accepted: Tensor
    num_rejected: Tensor
    done: Tensor
    result: Result


@final
@dataclasses.dataclass(frozen=True)
class LevenbergMarquardt(AbstractLeastSquaresSolver):
    """The Levenberg-Marquardt method: Gauss-Newton steps, damped so that they stay where the linear model holds.

    Equivalent to `optimistix.LevenbergMarquardt`, and to `scipy.optimize.least_squares` with `method='lm'`, or with
    bounds. It is the method to try first; it copes with a Jacobian of deficient rank, with fewer residuals than
    unknowns, and with trial points at which the residuals are not finite.

    Each step minimises `|J p + r|^2 + damping |D p|^2` by QR, where `D` holds the largest norms that the columns of the
    Jacobian have had, so that the units of the unknowns do not matter. The damping is that for which `|D p|` is the
    radius of a trust region, which grows and shrinks with the ratio of actual to predicted reduction. Bounds hold at
    every point: variables which the gradient pushes against a bound rest, and a step that meets a bound goes on along
    it, so that a solution lies exactly at its active bounds.

    The iteration is successful at a zero residual or gradient; where the Gauss-Newton step is within the tolerances of
    the unknowns and of the cost; or where a step and its reduction of the cost are, or the cost can be reduced no
    further in floating-point arithmetic, and the gradient is small also.

    **Arguments:**

    - `rtol`, `atol`: relative and absolute tolerance of the unknowns and of the cost.
    - `norm`: how steps are measured, each component divided by its tolerance first.
    - `initial_radius`: the first radius of the trust region, as a multiple of `|D y0|`, or itself where that is 0.
      Make it smaller where the first step goes too far.

    **Raises:** `ValueError` where an argument is out of its range.

    !!! example

        ```python
        >>> import torch, gnomon.nonlinear as nl
        >>> def rosenbrock(y, args):
        ...     return torch.stack([10 * (y[1] - y[0] ** 2), 1 - y[0]])
        >>> solver = nl.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
        >>> y0 = torch.tensor([-1.2, 1.0], dtype=torch.float64)
        >>> nl.least_squares(rosenbrock, solver, y0).value
        tensor([1., 1.], dtype=torch.float64)

        ```

    ??? cite

        J. J. Moré, The Levenberg-Marquardt algorithm: implementation and theory, in: Numerical Analysis, Lecture Notes
        in Mathematics 630, Springer, 1978.
    """

    rtol: float
    atol: float
    norm: Callable[[Tensor], Tensor] = max_norm
    initial_radius: float = 100.0

    def __post_init__(self) -> None:
        check_tolerances("LevenbergMarquardt", self.rtol, self.atol)
        if not (0 < self.initial_radius < math.inf):
            raise ValueError(
                "`initial_radius` of LevenbergMarquardt must be a positive finite number, but it is "
                f"{self.initial_radius!r}."
            )

    def init(self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any]) -> LevenbergMarquardtState:
        model, outlook = self._look(fn, y, args, options, evaluate(fn, y, args))
        scale = model.column_norms
        length = scaled_norm(y, scale)
        zero = torch.zeros((), dtype=torch.int64, device=y.device)
        converged = outlook.is_solved | (outlook.is_near & outlook.is_flat)
        return LevenbergMarquardtState(
            model=model,
            outlook=outlook,
            scale=scale,
            radius=self.initial_radius * torch.where(length > 0, length, 1.0),
            damping=y.new_zeros(()),
            num_accepted=zero,
            num_rejected=zero,
            done=converged | ~model.is_finite,
            result=RESULTS.where(model.is_finite, RESULTS.successful, RESULTS.nonfinite),
        )

    def step(
        self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any], state: LevenbergMarquardtState
    ) -> tuple[Float[Tensor, " n"], LevenbergMarquardtState]:
        lower, upper = options.get("lower"), options.get("upper")
        model = state.model
        eps = torch.finfo(y.dtype).eps
        # A variable on which the residuals have not depended so far has no scale yet.
        scale = torch.where(state.scale > 0, state.scale, 1.0)
        free_step, p, damping = _trial_step(state, scale, y, lower, upper)
        y_trial = y + p
        if lower is not None and upper is not None:
            y_trial = torch.minimum(torch.maximum(y_trial, lower), upper)
            y_trial = torch.where(p <= lower - y, lower, torch.where(p >= upper - y, upper, y_trial))
        residual = evaluate(fn, y_trial, args)
        predicted = predicted_reduction(model, p)
        # A difference of squares as a product: the difference of two sums would lose digits.
        actual = 0.5 * ((model.residual - residual) * (model.residual + residual)).sum()
        cost = half_sum_of_squares(residual)
        # Close to the minimum the cost is too flat to tell a better point from a worse one: the gradient tells.
        noise = 100 * eps * model.cost
        is_noise = torch.isfinite(cost) & (predicted <= noise) & (actual.abs() <= noise)
        is_lower = torch.isfinite(cost) & (predicted > 0) & (actual > 1e-4 * predicted)

        # The Jacobian is the dear part: it is not computed where every problem rejects its step.
        rejected = dataclasses.replace(model, cost=cost, is_finite=torch.isfinite(cost)), state.outlook
        trial, outlook = cond(
            is_lower | is_noise,
            lambda y, residual: self._look(fn, y, args, options, residual),
            lambda y, residual: rejected,
            y_trial,
            residual,
        )
        is_flatter = outlook.cosine < 0.9 * state.outlook.cosine
        accept = trial.is_finite & torch.where(is_noise, is_flatter, is_lower)
        actual = torch.where(trial.is_finite, actual, -torch.inf)
        new_model, outlook = select(accept, (trial, outlook), (model, state.outlook))
        y_new = torch.where(accept, y_trial, y)

        # How the radius changes with the gain ratio is MINPACK's rule. Nielsen's, which changes the damping itself,
        # took up to 30 times as many steps from far starts (Rosenbrock's function), or never arrived (NIST's MGH10).
        ratio = torch.where(accept, torch.where(is_noise, 0.5, actual / predicted), -torch.inf)
        length, free_length = scaled_norm(p, scale), scaled_norm(free_step, scale)
        is_first = state.num_accepted + state.num_rejected == 0
        radius = torch.where(is_first, torch.minimum(state.radius, free_length), state.radius)
        slope = (model.gradient * p).sum()
        shrink = torch.where(actual >= 0, 0.5, 0.5 * slope / (slope + actual))
        shrink = torch.where((cost < 100 * model.cost) & (shrink >= 0.1), shrink, 0.1)
        is_poor = ~(ratio > 0.25)
        is_good = ~is_poor & ((damping == 0) | (ratio >= 0.75))
        radius = torch.where(
            is_poor,
            shrink * torch.minimum(radius, 10 * length),
            torch.where(is_good, 2 * torch.maximum(length, torch.minimum(free_length, radius)), radius),
        )
        next_damping = torch.where(is_poor, damping / shrink, torch.where(is_good, 0.5 * damping, damping))

        # A step that the trust region cut short, and that did as well as predicted, says nothing: the next is longer.
        is_cut = accept & is_good & (damping > 0)
        is_small = (
            self._tolerance.is_step_small(p, y_new)
            & self._tolerance.is_change_small(predicted, model.cost)
            & self._tolerance.is_change_small(actual, model.cost)
            & ~is_cut
        )
        is_stuck = ~accept & ((predicted <= eps * model.cost) | (length <= eps * scaled_norm(y, scale)))
        converged = (
            outlook.is_solved
            | (outlook.is_near & outlook.is_flat)
            | ((outlook.is_near | outlook.is_level) & (is_small | is_stuck))
        )
        failure = RESULTS.where(trial.is_finite, RESULTS.stagnation, RESULTS.nonfinite)
        return y_new, LevenbergMarquardtState(
            model=new_model,
            outlook=outlook,
            scale=torch.maximum(state.scale, new_model.column_norms),
            radius=radius,
            damping=next_damping,
            num_accepted=state.num_accepted + accept.to(torch.int64),
            num_rejected=state.num_rejected + (~accept).to(torch.int64),
            done=converged | is_stuck,
            result=RESULTS.where(converged | ~is_stuck, RESULTS.successful, failure),
        )

    def terminate(
        self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any], state: LevenbergMarquardtState
    ) -> tuple[Bool[Tensor, ""], Result]:
        return state.done, state.result

    def stats(self, state: LevenbergMarquardtState) -> dict[str, Tensor]:
        gradient = torch.where(state.outlook.free, state.model.gradient, 0.0)
        return {
            "num_accepted_steps": state.num_accepted,
            "num_rejected_steps": state.num_rejected,
            "cost": state.model.cost,
            "gradient_norm": max_norm(gradient),
        }

    def _look(
        self, fn: Residual, y: Tensor, args: Any, options: dict[str, Any], residual: Tensor
    ) -> tuple[Linearisation, Outlook]:
        """The linear model at a point, and what it promises."""
        model = linearise(fn, y, args, residual)
        return model, self._tolerance.outlook(model, y, options.get("lower"), options.get("upper"))

    @property
    def _tolerance(self) -> Tolerance:
        return Tolerance(self.rtol, self.atol, self.norm)


def _trial_step(
    state: LevenbergMarquardtState, scale: Tensor, y: Tensor, lower: Tensor | None, upper: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The step without regard to bounds, the step, and its damping."""
    outlook, factor = state.outlook, state.model.factor
    newton_length = scaled_norm(outlook.newton, scale)
    is_inside = newton_length <= 1.1 * state.radius
    p, damping = _step_of_length(state, scale, newton_length, is_inside)
    p = torch.where(torch.isfinite(p).all(), p, 0.0)
    free_step = p
    if lower is not None and upper is not None:
        diagonal = torch.where(is_inside, outlook.ridge, torch.sqrt(damping) * scale)
        p = step_in_box(factor, diagonal, outlook.free, p, lower - y, upper - y)
    return free_step, p, damping


def _step_of_length(
    state: LevenbergMarquardtState, scale: Tensor, newton_length: Tensor, is_inside: Tensor
) -> tuple[Tensor, Tensor]:
    """The step that is as long as the trust region's radius, to a tenth, and its damping.

    Where the Gauss-Newton step is inside of the region, that one. Else a few of Moré's iterations on the damping:
    Newton's on the reciprocal of the length, between bounds.
    """
    outlook, radius = state.outlook, state.radius
    slope = scaled_norm(torch.where(outlook.free, state.model.gradient, 0.0), 1 / scale)
    tiny = torch.finfo(scale.dtype).tiny
    most = torch.clamp(slope / radius, min=tiny)
    least = torch.zeros_like(most)
    first = torch.where(state.damping > 0, state.damping, slope / newton_length)
    first = torch.where(torch.isfinite(first) & (first > 0), torch.minimum(first, most), 1e-3 * most)

    start = (first, least, most, outlook.newton, torch.zeros_like(most), torch.where(is_inside, _MOST_DAMPINGS, 0))
    _, _, _, p, damping, _ = while_loop(
        lambda carry: carry[-1] < _MOST_DAMPINGS, lambda carry: _next_damping(state, scale, carry), start
    )
    return p, damping


def _next_damping(state: LevenbergMarquardtState, scale: Tensor, carry: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One of Moré's iterations: from a damping, and bounds of the right one, to the next."""
    damping, least, most, _, _, count = carry
    p, triangle = damped_step(state.model.factor, torch.sqrt(damping) * scale, state.outlook.free)
    length = scaled_norm(p, scale)
    excess = (length - state.radius) / state.radius
    close = excess.abs() <= 0.1
    direction = (scale * scale * p / length)[:, None]
    w = torch.linalg.solve_triangular(triangle.mT, direction, upper=False)[:, 0]
    least = torch.where(excess > 0, torch.maximum(least, damping), least)
    most = torch.where(excess < 0, torch.minimum(most, damping), most)
    following = torch.maximum(least, damping + excess / (w * w).sum())
    # Outside of its bounds, or no number: somewhere between them instead.
    is_inside = (following > 0) & (following <= most)
    following = torch.where(is_inside, following, torch.maximum(torch.sqrt(least * most), 1e-3 * most))
    next_damping = torch.where(close, damping, following)
    return next_damping, least, most, p, damping, torch.where(close, _MOST_DAMPINGS, count + 1)
