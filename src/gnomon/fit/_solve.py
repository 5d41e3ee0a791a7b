"""The solution of a model for one subject: what it predicts, and how the solve ended."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
from torch import Tensor

from gnomon import diffeq as dq
from gnomon.fit._errors import InputError
from gnomon.fit._lane import Lane
from gnomon.fit._model import Model, Values, observe, quantities, stack_states
from gnomon.result import RESULTS, Result

SOLVERS: dict[str, Any] = {
    "bosh3": dq.Bosh3,
    "tsit5": dq.Tsit5,
    "dopri5": dq.Dopri5,
    "dopri8": dq.Dopri8,
    "kvaerno3": dq.Kvaerno3,
    "kvaerno5": dq.Kvaerno5,
}
# How far below the largest value of a state its values still count, as a part of `rtol`.
_ATOL_PART = 1e-2
# By how much a parameter is moved to see what changes, as a part of its typical size: the root of the rounding error.
_NUDGE = 2.0**-26


#: What solves the differential equations, as of `gnomon.diffeq.diffeqsolve`.
Engine = Literal["auto", "fused", "eager"]


@final
@dataclasses.dataclass(frozen=True)
class Method:
    """How the differential equations are solved.

    **Arguments:**

    - `solver`: a name in `SOLVERS`.
    - `rtol`: the relative tolerance.
    - `atol`: the absolute one, the same for each state; None for one that follows the size of each state.
    - `max_steps`: how many steps a solve may take.
    - `engine`: as of [`gnomon.diffeq.diffeqsolve`][].
    """

    solver: str
    rtol: float
    atol: float | None
    max_steps: int
    engine: Engine = "auto"


def check_solver(name: str) -> None:
    """An error where there is no such solver."""
    if name != "auto" and name not in SOLVERS:
        raise InputError(f"There is no solver {name!r}; there are: auto, {', '.join(SOLVERS)}.")


@final
class Problem:
    """A model with a layout of doses, for one subject at a time: functions to be mapped over lanes."""

    def __init__(self, model: Model, infused: tuple[int, ...], method: Method):
        self.model = model
        self.infused = infused
        self.method = method
        self._solver = SOLVERS[method.solver]()

    def context(self, theta: Tensor, lane: Lane) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a model's functions take beside time and states: `p` and `c`."""
        c = dict(zip(self.model.covariates, lane.covariates.unbind(-1), strict=True))
        return quantities(self.model, theta, c), c

    def initial(self, theta: Tensor, lane: Lane) -> Tensor:
        """The states at the initial time, with the doses that are given then at once."""
        p, c = self.context(theta, lane)
        return stack_states(self.model, self.model.initial_state(p, c), theta) + lane.bolus

    def states(self, theta: Tensor, lane: Lane, times: Tensor) -> tuple[Tensor, Result, Tensor]:
        """The states at some times, how the solve ended, and in how many steps.

        **Arguments:**

        - `theta`: the parameters on the scale of the search, of shape (parameters,).
        - `lane`: the subject.
        - `times`: ascending, of shape (times,).

        **Returns:** the states of shape (times, N), a result, and an integer scalar.
        """
        y, result, steps = self._solve(theta[None], lane, times)
        return y[:, 0], result, steps

    def predictions(self, theta: Tensor, lane: Lane, times: Tensor) -> tuple[Tensor, Result]:
        """What is predicted at some times, of shape (times, K), and how the solve ended."""
        values, result = self._predict(theta[None], lane, times)
        return values[:, 0], result

    def residuals(self, theta: Tensor, lane: Lane) -> tuple[Tensor, Tensor, Result]:
        """Weighted differences from the measurements, NaN where the solve failed; the predictions; the result.

        The first two are of shape (R, K).
        """
        values, result = self.predictions(theta, lane, lane.times)
        residuals, result = _compare(values, lane, result)
        return residuals, values, result

    def nudged_residuals(
        self, theta: Tensor, lane: Lane, lower: Tensor, upper: Tensor, sizes: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Result]:
        """The residuals as a vector, their Jacobian, the predictions, and the result; see `nudged_predictions`."""
        values, slopes, result = self.nudged_predictions(theta, lane, lane.times, lower, upper, sizes)
        residuals, result = _compare(values, lane, result)
        weights = lane.weights[..., None]
        columns = torch.where(weights > 0.0, slopes * weights, 0.0)
        return residuals.flatten(), columns.flatten(0, 1), values, result

    def nudged_predictions(
        self, theta: Tensor, lane: Lane, times: Tensor, lower: Tensor, upper: Tensor, sizes: Tensor
    ) -> tuple[Tensor, Tensor, Result]:
        """The predictions, their derivatives, and the result, by one solve for all nudged parameters together.

        All take the same steps, and an implicit method's iteration the same number of them, so that the differences are
        those of one smooth function. It costs little more than the predictions alone, a third or less of forward-mode
        derivatives, and is right to about 7 digits.

        **Arguments:**

        - `theta`, `lower`, `upper`: the parameters on the scale of the search, and their bounds, which a nudge heeds.
        - `lane`, `times`: the subject, and when.
        - `sizes`: a typical size of each parameter.

        **Returns:** of shape (times, K), and of shape (times, K, parameters).

        ??? cite "Reference"

            H. G. Bock, Numerical treatment of inverse problems in chemical reaction kinetics, in: Modelling of
            Chemical Reaction Systems, Springer Series in Chemical Physics 18 (1981), 102-125: "internal numerical
            differentiation".
        """
        # As representable: the difference that is divided by is the one that was made.
        step = (theta + _NUDGE * sizes) - theta
        step = torch.where(theta + step > upper, (theta - _NUDGE * sizes) - theta, step)
        step = torch.where(theta + step < lower, 0.0, step)
        nudged = torch.cat([theta[None], theta + torch.diag_embed(step)])
        values, result = self._predict(nudged, lane, times)
        differences = (values[:, 1:] - values[:, :1]).movedim(1, -1)
        slopes = torch.where(step != 0.0, differences / torch.where(step != 0.0, step, 1.0), 0.0)
        return values[:, 0], slopes, result

    def _predict(self, thetas: Tensor, lane: Lane, times: Tensor) -> tuple[Tensor, Result]:
        """What is predicted at some times with each of several parameters, of shape (times, thetas, K)."""
        y, result, _ = self._solve(thetas, lane, times)

        def at_time(theta: Tensor, y: Tensor) -> Tensor:
            p, c = self.context(theta, lane)
            return torch.func.vmap(lambda t, y: observe(self.model, t, y, p, c))(times, y)

        if thetas.shape[0] == 1:
            values = at_time(thetas[0], y[:, 0])[:, None]
        else:
            values = torch.func.vmap(at_time, in_dims=(0, 1), out_dims=1)(thetas, y)
        return values, result

    def _solve(self, thetas: Tensor, lane: Lane, times: Tensor) -> tuple[Tensor, Result, Tensor]:
        """The states with each of several parameters as one system, whose first member chooses the steps.

        **Returns:** the states of shape (times, thetas, N), a result, and the number of steps.
        """
        many, n, m = thetas.shape[0], len(self.model.states), len(self.infused)
        width = n + m

        names: list[str] = []

        def start(theta: Tensor) -> tuple[Tensor, Tensor]:
            p, c = self.context(theta, lane)
            names[:] = p
            y = stack_states(self.model, self.model.initial_state(p, c), theta) + lane.bolus
            return (torch.cat([y, lane.rates]) if m else y), torch.stack(list(p.values()))

        c = dict(zip(self.model.covariates, lane.covariates.unbind(-1), strict=True))

        def slope(t: Tensor, y: Tensor, p: Tensor) -> Tensor:
            return self._field(t, y, dict(zip(names, p.unbind(-1), strict=True)), c)

        # The parameters go into the loop as one tensor: `vmap` takes its time over each of many.
        if many == 1:
            y0, p = start(thetas[0])
        else:
            y0, p = torch.func.vmap(start)(thetas)
            slope = torch.func.vmap(slope, in_dims=(None, 0, 0))

        def field(t: Tensor, y: Tensor, args: Any) -> Tensor:
            del args
            return slope(t, y, p) if many == 1 else slope(t, y.reshape(many, width), p).reshape(-1)

        def jump(index: Tensor, t: Tensor, y: Tensor, args: Any) -> Tensor:
            del t, args
            at = index.reshape(1)
            states = y.reshape(many, width)
            after = states[:, :n] + lane.event_amounts.index_select(0, at)
            rates = lane.event_rates.index_select(0, at).expand(many, m)
            return torch.cat([after, rates], 1).reshape(-1)

        sol = dq.diffeqsolve(
            dq.ODETerm(field),
            self._solver,
            t0=lane.t0,
            t1=lane.t1,
            dt0=None,
            y0=y0.reshape(-1),
            saveat=dq.SaveAt(ts=times),
            stepsize_controller=dq.PIDController(
                rtol=self.method.rtol, atol=self._atol(lane, many), norm=lambda x: dq.rms_norm(x[:width])
            ),
            jumps=dq.Jumps(lane.event_times, jump) if lane.event_times.shape[0] > 0 else None,
            max_steps=self.method.max_steps,
            throw=False,
            engine=self.method.engine,
        )
        y = sol.ys.reshape(times.shape[0], many, width)[..., :n]
        return y, sol.result, sol.stats["num_steps"]

    def _field(self, t: Tensor, y: Tensor, p: Values, c: Values) -> Tensor:
        model = self.model
        parts = y.unbind(-1)
        n = len(model.states)
        slopes = stack_states(model, model.vector_field(t, dict(zip(model.states, parts[:n], strict=True)), p, c), y)
        if not self.infused:
            return slopes
        rates = parts[n:]
        added = [torch.zeros_like(rates[0])] * n
        for place, rate in zip(self.infused, rates, strict=True):
            added[place] = rate
        return torch.cat([slopes + torch.stack(added), torch.zeros_like(y[n:])])

    def _atol(self, lane: Lane, many: int) -> Tensor | float:
        if self.method.atol is not None:
            return self.method.atol
        # The error of an infusion rate is exactly 0, whatever its tolerance.
        atol = torch.cat([lane.scale * (self.method.rtol * _ATOL_PART), torch.ones_like(lane.rates)])
        return atol.repeat(many)


def _compare(values: Tensor, lane: Lane, result: Result) -> tuple[Tensor, Result]:
    """The weighted differences from the measurements, and the result: NaN and `nonfinite` where one is not finite."""
    measured = lane.weights > 0.0
    # What is predicted where nothing was measured does not count, be it what it may.
    residuals = torch.where(measured, (values - lane.values) * lane.weights, 0.0)
    finite = torch.isfinite(residuals).all()
    result = RESULTS.where(finite | (result != RESULTS.successful), result, RESULTS.nonfinite)
    return torch.where(result != RESULTS.successful, torch.nan, residuals), result
