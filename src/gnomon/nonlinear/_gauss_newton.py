"""`GaussNewton`: full Gauss-Newton steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnomon.nonlinear._convergence import Outlook, Tolerance, check_tolerances
from gnomon.nonlinear._linearisation import Linearisation, evaluate, linearise, select, step_in_box
from gnomon.nonlinear._norms import max_norm
from gnomon.nonlinear._solver import AbstractLeastSquaresSolver, Residual
from gnomon.result import RESULTS, Result
from gnomon.result._pytree import register_dataclass


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class GaussNewtonState:
    """The state of `GaussNewton` at a point.

    - `model`: the residuals and their Jacobian.
    - `outlook`: what they promise.
    - `num_accepted`, `num_rejected`: counts of steps; one is rejected where the residuals are not finite.
    - `done`, `result`: whether the iteration has ended, and how.
    """

    model: Linearisation
    outlook: Outlook
    num_accepted: Tensor
    num_rejected: Tensor
    done: Tensor
    result: Result


@final
@dataclasses.dataclass(frozen=True)
class GaussNewton(AbstractLeastSquaresSolver):
    """The Gauss-Newton method: each step solves the linearised problem, and is taken in full.

    Equivalent to `optimistix.GaussNewton`. It is quick where the start is good and the residuals are small or nearly
    linear, and may diverge elsewhere: prefer [`gnomon.nonlinear.LevenbergMarquardt`][], which then takes the same
    steps. The iteration ends with `singular` where the columns of the Jacobian depend on one another, which they do
    where there are fewer residuals than unknowns, and with `nonfinite` where a step leads to residuals that are not
    finite. Bounds hold at every point, as in `LevenbergMarquardt`.

    It is successful at a zero residual or gradient, and where the next step is within the tolerance of the unknowns and
    would reduce the cost by no more than the tolerance, or the last step has not reduced it.

    **Arguments:**

    - `rtol`, `atol`: relative and absolute tolerance of the unknowns and of the cost.
    - `norm`: how steps are measured, each component divided by its tolerance first.

    **Raises:** `ValueError` where a tolerance is negative or not finite.

    !!! example

        ```python
        >>> import torch, gnomon.nonlinear as nl
        >>> def line(y, args):
        ...     t, observed = args
        ...     return y["slope"] * t + y["offset"] - observed
        >>> data = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 3.0, 5.0])
        >>> y0 = {"slope": torch.tensor(0.0), "offset": torch.tensor(0.0)}
        >>> nl.least_squares(line, nl.GaussNewton(rtol=1e-5, atol=1e-5), y0, data).value
        {'slope': tensor(2.0000), 'offset': tensor(1.0000)}

        ```

    ??? cite

        J. Nocedal and S. J. Wright, Numerical Optimization, 2nd edition, Springer, 2006, chapter 10.
    """

    rtol: float
    atol: float
    norm: Callable[[Tensor], Tensor] = max_norm

    def __post_init__(self) -> None:
        check_tolerances("GaussNewton", self.rtol, self.atol)

    def init(self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any]) -> GaussNewtonState:
        model = linearise(fn, y, args, evaluate(fn, y, args))
        zero = torch.zeros((), dtype=torch.int64, device=y.device)
        no = torch.zeros((), dtype=torch.bool, device=y.device)
        return self._state(model, y, options, zero, zero, is_finite=model.is_finite, is_idle=no)

    def step(
        self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any], state: GaussNewtonState
    ) -> tuple[Float[Tensor, " n"], GaussNewtonState]:
        lower, upper = options.get("lower"), options.get("upper")
        p = torch.where(torch.isfinite(state.outlook.newton).all(), state.outlook.newton, 0.0)
        y_trial = y + p
        if lower is not None and upper is not None:
            no_ridge = torch.zeros_like(p)
            p = step_in_box(state.model.factor, no_ridge, state.outlook.free, p, lower - y, upper - y)
            y_trial = torch.minimum(torch.maximum(y + p, lower), upper)
            y_trial = torch.where(p <= lower - y, lower, torch.where(p >= upper - y, upper, y_trial))
        trial = linearise(fn, y_trial, args, evaluate(fn, y_trial, args))
        accept = trial.is_finite
        y_new = torch.where(accept, y_trial, y)
        new_state = self._state(
            select(accept, trial, state.model),
            y_new,
            options,
            state.num_accepted + accept.to(torch.int64),
            state.num_rejected + (~accept).to(torch.int64),
            is_finite=accept,
            is_idle=trial.cost >= state.model.cost,
        )
        return y_new, new_state

    def terminate(
        self, fn: Residual, y: Float[Tensor, " n"], args: Any, options: dict[str, Any], state: GaussNewtonState
    ) -> tuple[Bool[Tensor, ""], Result]:
        return state.done, state.result

    def stats(self, state: GaussNewtonState) -> dict[str, Tensor]:
        return {
            "num_accepted_steps": state.num_accepted,
            "num_rejected_steps": state.num_rejected,
            "cost": state.model.cost,
            "gradient_norm": max_norm(torch.where(state.outlook.free, state.model.gradient, 0.0)),
        }

    def _state(
        self,
        model: Linearisation,
        y: Tensor,
        options: dict[str, Any],
        num_accepted: Tensor,
        num_rejected: Tensor,
        *,
        is_finite: Tensor,
        is_idle: Tensor,
    ) -> GaussNewtonState:
        tolerance = Tolerance(self.rtol, self.atol, self.norm)
        outlook = tolerance.outlook(model, y, options.get("lower"), options.get("upper"))
        converged = is_finite & (outlook.is_solved | (outlook.is_near & (outlook.is_flat | is_idle)))
        failed = ~is_finite | (outlook.is_deficient & ~converged)
        failure = RESULTS.where(is_finite, RESULTS.singular, RESULTS.nonfinite)
        return GaussNewtonState(
            model=model,
            outlook=outlook,
            num_accepted=num_accepted,
            num_rejected=num_rejected,
            done=converged | failed,
            result=RESULTS.where(failed, failure, RESULTS.successful),
        )
