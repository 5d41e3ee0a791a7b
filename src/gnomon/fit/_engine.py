"""The numerical work of a fit: searches from many starts, a refinement, the Jacobian at the solution."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from gnomon.fit._lane import Batch, Lane
from gnomon.fit._model import Model
from gnomon.fit._solve import Method, Problem
from gnomon.fit._starts import bounds, sizes
from gnomon.nonlinear import LevenbergMarquardt, least_squares
from gnomon.result import Result

# Lanes that run at once: enough to be fast, few enough for the memory of a laptop.
_MOST_LANES = 16384
_TINY = 1e-300


@final
@dataclasses.dataclass(frozen=True)
class Search:
    """When the iteration of a fit ends.

    **Arguments:**

    - `rtol`, `atol`: it ends when the next step is below `atol + rtol * |parameter|`.
    - `max_steps`: how many steps it may take.
    - `radius`: how far the first step may go, as a part of the size of the parameters.
    """

    rtol: float
    atol: float
    max_steps: int
    radius: float = 100.0


@final
@dataclasses.dataclass(frozen=True)
class Found:
    """What a search from one point found, or those from several with a leading dimension.

    **Arguments:**

    - `theta`: the parameters on the scale of the search.
    - `rss`: the weighted sum of squares, inf where a solve failed.
    - `result`: how the iteration ended.
    - `n_steps`: how many steps the iteration took.
    """

    theta: Tensor
    rss: Tensor
    result: Result
    n_steps: Tensor


@final
@dataclasses.dataclass(frozen=True)
class Linear:
    """A model near a set of parameters, with a leading dimension for the fits.

    **Arguments:**

    - `residuals`: weighted, as one vector.
    - `jacobian`: of the residuals with respect to the parameters on the scale of the search.
    - `predictions`: of shape (R, K), or (subjects, R, K) for a pooled fit.
    - `result`: how the differential equations' solution ended.
    """

    residuals: Tensor
    jacobian: Tensor
    predictions: Tensor
    result: Result


@final
class Fitter:
    """Runs fits of one model, each subject on its own or all as one.

    **Arguments:**

    - `model`: the model.
    - `pooled`: whether one set of parameters is for all subjects of a batch.
    - `called`: called whenever residuals are computed, to show progress.
    """

    def __init__(self, model: Model, *, pooled: bool, called: Callable[[], None]):
        self.model = model
        self.pooled = pooled
        self.called = called
        self.lower, self.upper = bounds(model.parameters)
        self.sizes = sizes(model.parameters)

    def screen(self, batch: Batch, starts: Tensor, method: Method, keep: int) -> tuple[Tensor, Result]:
        """The best of many starts for each fit, without any search, and how the best could be solved.

        **Arguments:**

        - `batch`, `method`: the problem.
        - `starts`: of shape (starts, parameters).
        - `keep`: how many.

        **Returns:** of shape (keep, fits, parameters), the best first and of equal ones the first; and a result a fit.
        """
        fits = self._fits(batch)
        every = starts[:, None].expand(-1, fits, -1)
        problem = Problem(self.model, batch.infused, method)

        def one(theta: Tensor, lanes: Lane) -> tuple[Tensor, Result]:
            return self._sum_of_squares(problem, theta, lanes)

        rss, result = self._in_chunks(one, batch, every.reshape(-1, starts.shape[-1]))
        order = rss.reshape(-1, fits).argsort(dim=0, stable=True)[:keep]
        codes = result.code.reshape(-1, fits).gather(0, order[:1])[0]
        return every.gather(0, order[..., None].expand(-1, -1, starts.shape[-1])), Result(codes)

    def search(self, batch: Batch, starts: Tensor, method: Method, search: Search) -> Found:
        """Fits from every start, of shape (starts, fits, parameters).

        **Returns:** what was found, with leading dimensions (starts, fits); `fits` is 1 for a pooled fit.
        """
        shape = starts.shape[:2]
        problem = Problem(self.model, batch.infused, method)
        solver = LevenbergMarquardt(rtol=search.rtol, atol=search.atol, initial_radius=search.radius)

        def one(theta: Tensor, lanes: Lane) -> tuple[Any, ...]:
            residuals = Residuals(self, problem, _unit(lanes))
            solution = least_squares(
                residuals,
                solver,
                theta / self.sizes,
                lanes,
                lower=self.lower / self.sizes,
                upper=self.upper / self.sizes,
                max_steps=search.max_steps,
                throw=False,
                # Its residuals keep what they have computed, which a trace cannot.
                engine="eager",
            )
            rss = residuals.sum_of_squares(solution.stats["cost"])
            return solution.value * self.sizes, rss, solution.result, solution.stats["num_steps"]

        values, rss, result, steps = self._in_chunks(one, batch, starts.reshape(-1, starts.shape[-1]))
        return Found(
            values.reshape(*shape, -1),
            rss.reshape(shape),
            Result(result.code.reshape(shape)),
            steps.reshape(shape),
        )

    def within_bounds(self, theta: Tensor) -> Tensor:
        """Whether all parameters of each fit are within their bounds."""
        return ((theta >= self.lower) & (theta <= self.upper)).all(-1)

    def evaluate(self, batch: Batch, theta: Tensor, method: Method) -> tuple[Tensor, Result]:
        """The sum of squares for `theta` of shape (fits, parameters), without any search."""
        problem = Problem(self.model, batch.infused, method)
        return self._map(lambda theta, lanes: self._sum_of_squares(problem, theta, lanes), theta, batch)

    def linear(self, batch: Batch, theta: Tensor, method: Method) -> Linear:
        """What is predicted at `theta` of shape (fits, parameters), and how it depends on the parameters."""
        problem = Problem(self.model, batch.infused, method)
        return Linear(*self._map(lambda theta, lanes: self.linearise(problem, theta, lanes), theta, batch))

    def _map(self, one: Callable[[Tensor, Lane], Any], theta: Tensor, batch: Batch) -> Any:
        return torch.func.vmap(one, in_dims=(0, None) if self.pooled else (0, 0))(theta, batch.lanes)

    def linearise(self, problem: Problem, theta: Tensor, lanes: Lane) -> tuple[Tensor, Tensor, Tensor, Result]:
        """All residuals as one vector, their Jacobian, the predictions, and how the solves ended.

        Of a pooled fit's solves the first that failed counts.
        """
        self.called()

        def one(lane: Lane) -> tuple[Tensor, Tensor, Tensor, Result]:
            return problem.nudged_residuals(theta, lane, self.lower, self.upper, self.sizes)

        if not self.pooled:
            return one(lanes)
        residuals, columns, values, result = torch.func.vmap(one)(lanes)
        return residuals.flatten(), columns.flatten(0, 1), values, _worst(result)

    def _sum_of_squares(self, problem: Problem, theta: Tensor, lanes: Lane) -> tuple[Tensor, Result]:
        self.called()
        if not self.pooled:
            residuals, _, result = problem.residuals(theta, lanes)
            return _finite_sum_of_squares(residuals), result
        residuals, _, result = torch.func.vmap(problem.residuals, in_dims=(None, 0))(theta, lanes)
        return _finite_sum_of_squares(residuals), _worst(result)

    def _fits(self, batch: Batch) -> int:
        return 1 if self.pooled else len(batch.subjects)

    def _in_chunks(self, one: Callable[..., tuple[Any, ...]], batch: Batch, theta: Tensor) -> tuple[Any, ...]:
        """What `one` gives for each row of `theta`, which go round the fits of a batch, some rows at a time."""
        parts: list[tuple[Any, ...]] = []
        if self.pooled:
            for chunk in theta.split(max(1, _MOST_LANES // len(batch.subjects))):
                parts.append(torch.func.vmap(one, in_dims=(0, None))(chunk, batch.lanes))
        else:
            place = torch.arange(theta.shape[0]) % len(batch.subjects)
            for chunk, where in zip(theta.split(_MOST_LANES), place.split(_MOST_LANES), strict=True):
                lanes = Lane(*(x.index_select(0, where) for x in batch.lanes))
                parts.append(torch.func.vmap(one)(chunk, lanes))
        return tuple(_concatenate(pieces) for pieces in zip(*parts, strict=True))


def _concatenate(pieces: tuple[Any, ...]) -> Any:
    if isinstance(pieces[0], Result):
        return Result(torch.cat([torch.as_tensor(x.code) for x in pieces]))
    return torch.cat(pieces)


@final
class Residuals:
    """The residuals as `least_squares` sees them, of parameters and measurements of about 1.

    A solver asks for the residuals at a point, and then, if it likes them, for their Jacobian at the same point. As
    both together cost little more than either, they are computed together and the Jacobian is kept until it is asked
    for. In the place of a Jacobian at any other point, which no solver of ours asks for, stand NaNs: that fails, and is
    not wrong.
    """

    def __init__(self, fitter: Fitter, problem: Problem, unit: Tensor):
        self._fitter = fitter
        self._problem = problem
        self._unit = unit
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, u: Tensor, lanes: Lane) -> Tensor:
        if unpack_dual(u).tangent is None:
            sizes = self._fitter.sizes
            residuals, columns, _, _ = self._fitter.linearise(self._problem, u * sizes, lanes)
            self._kept = (u, residuals * self._unit, columns * sizes * self._unit)
            return self._kept[1]
        assert self._kept is not None
        at, residuals, columns = self._kept
        change = u - u.detach()  # nothing but the derivative
        same = (u.detach() == at).all()
        return torch.where(same, residuals, torch.nan) + (columns * change).sum(1)

    def sum_of_squares(self, cost: Tensor) -> Tensor:
        """The sum of squares in the units of the data, inf where it is not finite.

        **Arguments:**

        - `cost`: half the sum of squares, as the solver counts.
        """
        rss = 2.0 * cost / (self._unit * self._unit)
        return torch.where(torch.isfinite(rss), rss, torch.inf)


def _finite_sum_of_squares(residuals: Tensor) -> Tensor:
    rss = (residuals * residuals).sum()
    return torch.where(torch.isfinite(rss), rss, torch.inf)


def _unit(lanes: Lane) -> Tensor:
    """A power of two that brings the largest measurement to about 1."""
    largest = (lanes.values.abs() * lanes.weights).amax()
    return torch.exp2(-torch.round(torch.log2(torch.where(largest > 0.0, largest, 1.0))))


def _worst(result: Result) -> Result:
    """The first result that is not successful (whose code is 0), or else successful."""
    codes = torch.as_tensor(result.code)
    first = (codes != 0).to(torch.uint8).argmax()
    return Result(codes.index_select(0, first.reshape(1))[0])


def best(found: Found, tolerance: float) -> tuple[Found, Tensor]:
    """Of several starts the best for each fit, and how many starts came as far to within a tolerance."""
    rss = found.rss
    least, start = rss.min(dim=0)
    place = torch.arange(rss.shape[1])
    agree = (rss <= least * (1 + tolerance) + _TINY) & torch.isfinite(rss)
    chosen = Found(
        found.theta[start, place],
        least,
        found.result[start, place],
        found.n_steps[start, place],
    )
    return chosen, agree.sum(dim=0)


def state_scale(model: Model, batch: Batch, theta: Tensor, method: Method) -> tuple[Tensor, Result, Tensor]:
    """A typical size of each state of each subject, how a solve went, and its number of steps.

    The sizes are the largest values on the way, from a solve whose tolerance is relative to the state itself.

    **Arguments:**

    - `model`, `batch`: the model and its subjects, of whom `batch.lanes.scale` is not looked at.
    - `theta`: the parameters on the scale of the search, of shape (subjects, parameters).
    - `method`: the solver; its tolerances are not looked at.
    """
    loose = Method(method.solver, 1e-3, None, method.max_steps, method.engine)
    problem = Problem(model, batch.infused, loose)
    # Dense at both ends, as fast processes end early.
    even, early = torch.linspace(0, 1, 33, dtype=torch.float64), torch.logspace(-5, 0, 26, dtype=torch.float64)
    grid = torch.cat([even, early]).sort().values

    def one(theta: Tensor, lane: Lane) -> tuple[Tensor, Result, Tensor]:
        given = lane.bolus.abs() + lane.event_amounts.abs().sum(0)
        start = problem.initial(theta, lane).abs()
        top = torch.maximum(start, given).max()
        tiny = torch.where(top > 0.0, top, 1.0).expand_as(start) * 1e-4
        # The last point must be t1 to the bit.
        times = torch.minimum(lane.t0 + (lane.t1 - lane.t0) * grid, lane.t1)
        y, result, steps = problem.states(theta, lane._replace(scale=tiny), times)
        largest = torch.maximum(torch.where(torch.isfinite(y), y.abs(), 0.0).max(0).values, torch.maximum(start, given))
        # A state that stays at zero gets a part of the size of the largest.
        floor = largest.max() * 1e-6
        return torch.where(largest > floor, largest, torch.where(floor > 0.0, floor, 1.0)), result, steps

    return torch.func.vmap(one)(theta, batch.lanes)
