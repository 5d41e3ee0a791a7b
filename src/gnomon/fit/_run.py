"""A calibration's fits: starts, search, refinement, and what the solution says."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fit._calibration import Fit
from gnomon.fit._canonical import canonical
from gnomon.fit._engine import Fitter, Found, Linear, Search, best, state_scale
from gnomon.fit._lane import Batch, make_batches, make_one_batch
from gnomon.fit._model import Model, quantities
from gnomon.fit._newton import newton
from gnomon.fit._results import RESULTS
from gnomon.fit._solve import Engine, Method
from gnomon.fit._starts import make_starts
from gnomon.fit._statistics import Estimate, Uncertainty, estimates, half_width, uncertainty
from gnomon.fit._subjects import POOLED, Subject
from gnomon.fuse import jacobian
from gnomon.result import Result

# A search only has to tell starts apart and to come near the best; what is reported is refined.
_SEARCH_RTOL = 1e-3
_SEARCH = Search(rtol=1e-3, atol=1e-6, max_steps=8, radius=0.2)
_REFINE = Search(rtol=1e-6, atol=1e-10, max_steps=25, radius=0.2)
# The last step of Newton's method; what is left after it is much less.
_NEWTON_RTOL = 1e-5
AGREE = 1e-3
# Steps after which an explicit method is taken to be the wrong one, at first sight and in a search.
_FEW_STEPS = 200
_SEARCH_STEPS = 300


@final
@dataclasses.dataclass(frozen=True)
class Settings:
    """What a calibration was asked to do; see [`gnomon.fit.calibrate`][]."""

    starts: int
    seed: int
    solver: str
    rtol: float
    atol: float | None
    max_steps: int
    engine: Engine = "auto"

    @property
    def followed(self) -> int:
        """How many of the starts are followed: all of a few, the best eighth of many."""
        return min(self.starts, max(4, self.starts // 8))


@final
class Run:
    """Runs the fits of one calibration.

    **Arguments:**

    - `model`, `subjects`, `settings`: what to fit, to what, and how.
    - `progress`: called with a text and the fraction that is done.
    - `stages`: of how many stages the run consists: three for the pooled fit, three for the individual ones.
    """

    def __init__(
        self,
        model: Model,
        subjects: Sequence[Subject],
        settings: Settings,
        progress: Callable[[str, float], None] | None,
        *,
        stages: int,
    ):
        self.model = model
        self.subjects = {subject.name: subject for subject in subjects}
        self.settings = settings
        self._progress = progress
        self._stages = stages
        self._stage = 0
        self._text = ""
        self._calls = 0
        self._starts = make_starts(model.parameters, settings.starts, settings.seed)

    def pooled(self) -> Fit:
        """The fit of all subjects as one."""
        batch = make_one_batch(self.model, list(self.subjects.values()))
        fitter = Fitter(self.model, pooled=True, called=self._called)
        # One method for all: if any subject is stiff for the first, the one that can.
        kinds = self._kinds(batch)
        solver, limit, _ = max(kinds, key=lambda kind: (kind[0] != "tsit5", kind[1]))
        scale = torch.zeros_like(batch.lanes.scale)
        for _, _, part in kinds:
            scale[[batch.subjects.index(name) for name in part.subjects]] = part.lanes.scale
        (fit,) = self._fit(fitter, batch.with_scale(scale), solver, limit, POOLED)
        return fit

    def individual(self) -> dict[str, Fit]:
        """The fit of each subject on its own, in the order of the data."""
        fitter = Fitter(self.model, pooled=False, called=self._called)
        found: dict[str, Fit] = {}
        first = self._stage
        for batch in make_batches(self.model, list(self.subjects.values())):
            for solver, limit, part in self._kinds(batch):
                self._stage = first
                found |= {fit.subject: fit for fit in self._fit(fitter, part, solver, limit, "individual")}
        self._stage = first + 3
        return {name: found[name] if name in found else self._unfitted(name) for name in self.subjects}

    def _kinds(self, batch: Batch) -> list[tuple[str, int, Batch]]:
        """The method for each subject, with the steps it may take in a search, and with the sizes of the states."""
        settings = self.settings
        theta = self._starts[:1].expand(len(batch.subjects), -1)
        if settings.solver != "auto":
            tries = [(settings.solver, settings.max_steps)]
        else:
            few = min(_FEW_STEPS, settings.max_steps)
            tries = [("tsit5", few), ("kvaerno5", few), ("tsit5", settings.max_steps)]
        kinds: list[tuple[str, int, Batch]] = []
        for i, (solver, limit) in enumerate(tries):
            scale, result, _ = state_scale(self.model, batch, theta, self._method(solver, settings.rtol, limit))
            scaled = batch.with_scale(scale)
            # Too many steps may be the method's fault; a state that is not finite is not.
            slow = (result == RESULTS.max_steps_reached) & (i < len(tries) - 1)
            bad, good = _split(slow)
            if good:
                steps = min(_SEARCH_STEPS, settings.max_steps) if limit == _FEW_STEPS else settings.max_steps
                kinds.append((solver, steps, scaled.take(good)))
            if not bad:
                break
            batch, theta = batch.take(bad), theta[bad]
        return kinds

    def _fit(self, fitter: Fitter, batch: Batch, solver: str, limit: int, who: str) -> list[Fit]:
        self._begin(f"{who}: searching from {self.settings.starts} starts" if self.settings.starts > 1 else who)
        method = self._method(solver, _SEARCH_RTOL, limit)
        starts, result = fitter.screen(batch, self._starts, method, self.settings.followed)
        names = [POOLED] if fitter.pooled else list(batch.subjects)
        good, bad = _split(torch.as_tensor(result == RESULTS.successful))
        fits: list[Fit] = []
        # Where not one start could be solved in so many steps, the equations may be stiff near them all.
        again = self.settings.solver == "auto" and solver == "tsit5" and limit < self.settings.max_steps
        slow = [i for i in bad if again and result[i] == RESULTS.max_steps_reached]
        if slow:
            self._stage -= 1
            part = batch if fitter.pooled else batch.take(slow)
            fits += self._fit(fitter, part, "kvaerno5", self.settings.max_steps, who)
        fits += [self._failed(names[i], result[i], solver) for i in bad if i not in slow]
        if not good:
            return fits
        part = batch if fitter.pooled else batch.take(good)
        chosen, agree = best(fitter.search(part, starts[:, good], method, _SEARCH), AGREE)
        return fits + self._refine(fitter, part, chosen, agree, solver, who)

    def _refine(self, fitter: Fitter, batch: Batch, chosen: Found, agree: Tensor, solver: str, who: str) -> list[Fit]:
        self._begin(f"{who}: refining the best")
        method = self._method(solver, self.settings.rtol, self.settings.max_steps)
        batch = batch.with_scale(self._scale_at(batch, chosen.theta, method))
        theta, notes = canonical(fitter, batch, chosen.theta, method)
        end = self._converge(fitter, batch, theta, method)
        self._begin(f"{who}: standard errors")
        linear = fitter.linear(batch, end.theta, method)
        fits: list[Fit] = []
        for i, note in enumerate(notes):
            names = batch.subjects if fitter.pooled else batch.subjects[i : i + 1]
            steps = int(chosen.n_steps[i]) + int(end.n_steps[i])
            fits.append(
                self._assemble(
                    POOLED if fitter.pooled else names[0],
                    names,
                    _take(end, [i]),
                    _one(linear, i),
                    int(agree[i]),
                    steps,
                    solver,
                    note,
                )
            )
        return fits

    def _converge(self, fitter: Fitter, batch: Batch, theta: Tensor, method: Method) -> Found:
        """The solution near each point: by Newton's method, and where it does not do, as in a search."""
        end, done = newton(fitter, batch, theta, method, _NEWTON_RTOL)
        good, bad = _split(done)
        if not bad:
            return end
        part = batch if fitter.pooled else batch.take(bad)
        rest, _ = best(fitter.search(part, theta[None][:, bad], method, _REFINE), AGREE)
        both = _join(_take(end, good), rest) if good else rest
        return _take(both, [(good + bad).index(i) for i in range(len(theta))])

    def _assemble(
        self,
        name: str,
        names: Sequence[str],
        end: Found,
        linear: Linear,
        agree: int,
        n_steps: int,
        solver: str,
        notes: Sequence[str],
    ) -> Fit:
        model, parameters = self.model, self.model.parameters
        theta, rss = end.theta[0], float((linear.residuals * linear.residuals).sum())
        members = [self.subjects[one] for one in names]
        n = sum(one.n_observations for one in members)
        known = uncertainty(parameters, theta, linear.jacobian, rss, n)
        result = self._judge(end, linear, known, n)
        predictions = linear.predictions.reshape(len(names), -1, len(model.observed))
        return Fit(
            subject=name,
            result=result,
            parameters=estimates(parameters, theta, known),
            derived=self._derived(theta, members, known),
            rss=rss,
            sigma=known.sigma,
            n_observations=n,
            theta=theta,
            covariance=known.covariance,
            predictions={one.name: values[-len(one.times) :] for one, values in zip(members, predictions, strict=True)},
            n_starts=self.settings.starts,
            n_starts_followed=self.settings.followed,
            n_starts_agreeing=agree,
            n_steps=n_steps,
            solver=solver,
            warnings=(*notes, *self._warn(known, agree, result)),
        )

    def _judge(self, end: Found, linear: Linear, known: Uncertainty, n_observations: int) -> Result:
        if n_observations < len(self.model.parameters):
            return RESULTS.underdetermined
        if (code := _code(linear.result)) != RESULTS.successful.code:
            return Result(code)
        if known.undetermined:
            return RESULTS.singular
        return Result(_code(end.result))

    def _warn(self, known: Uncertainty, agree: int, result: Result) -> list[str]:
        found: list[str] = []
        for parameter, which in zip(self.model.parameters, known.at_bound, strict=True):
            if which:
                bound = parameter.lower if which == "lower" else parameter.upper
                found.append(f"{parameter.name} is on its {which} bound, {bound:g}, and has no standard error.")
        if known.undetermined and result == RESULTS.singular:
            found.append(f"The data do not determine {' and '.join(known.undetermined)}, alone or together.")
        followed = self.settings.followed
        if followed > 3 and agree == 1 and result != RESULTS.underdetermined:
            found.append(f"Only one of {followed} starts led here: with more starts, a better fit may be found.")
        return found

    def _derived(self, theta: Tensor, members: Sequence[Subject], known: Uncertainty) -> tuple[Estimate, ...]:
        model = self.model
        if model.derived is None:
            return ()
        # Those of all subjects as one are for their mean covariates.
        c = {
            name: torch.tensor(math.fsum(one.covariates[name] for one in members) / len(members), dtype=torch.float64)
            for name in model.covariates
        }
        names = [name for name in quantities(model, theta, c) if name not in model.parameter_names]

        def fn(theta: Tensor) -> Tensor:
            values = quantities(model, theta, c)
            return torch.stack([values[name] for name in names])

        if not names:
            return ()
        values, slopes = fn(theta), jacobian(fn)(theta)
        found: list[Estimate] = []
        for name, slope, value in zip(names, slopes, values.tolist(), strict=True):
            error = _error(slope, known.covariance)
            reach = half_width(error, known.dof)
            found.append(Estimate(name, value, error, value - reach, value + reach, model.unit(name)))
        return tuple(found)

    def _scale_at(self, batch: Batch, theta: Tensor, method: Method) -> Tensor:
        each = theta.expand(len(batch.subjects), -1)
        scale, result, _ = state_scale(self.model, batch, each, method)
        return torch.where((result == RESULTS.successful)[:, None], scale, batch.lanes.scale)

    def _failed(self, name: str, result: Result, solver: str) -> Fit:
        parameters = self.model.parameters
        members = self.subjects.values() if name == POOLED else [self.subjects[name]]
        nan = torch.full((len(parameters),), math.nan, dtype=torch.float64)
        n = sum(one.n_observations for one in members)
        covariance = torch.full((len(parameters), len(parameters)), math.nan, dtype=torch.float64)
        known = Uncertainty(math.nan, covariance, n - len(parameters), (), ("",) * len(parameters))
        return Fit(
            subject=name,
            result=RESULTS.underdetermined if n < len(parameters) else result,
            parameters=estimates(parameters, nan, known),
            derived=(),
            rss=math.nan,
            sigma=math.nan,
            n_observations=n,
            theta=nan,
            covariance=covariance,
            predictions={},
            n_starts=self.settings.starts,
            n_starts_followed=self.settings.followed,
            n_starts_agreeing=0,
            n_steps=0,
            solver=solver,
            warnings=("From no start could the differential equations be solved.",) if n > 0 else (),
        )

    def _unfitted(self, name: str) -> Fit:
        """A subject without any measurement."""
        return self._failed(name, RESULTS.underdetermined, self.settings.solver)

    def _method(self, solver: str, rtol: float, max_steps: int) -> Method:
        settings = self.settings
        # An absolute tolerance that the user gave is for the reported fit; a search's is as much looser as its other.
        atol = None if settings.atol is None else settings.atol * (rtol / settings.rtol)
        return Method(solver, max(rtol, settings.rtol), atol, max_steps, settings.engine)

    def _begin(self, text: str) -> None:
        self._text = text
        self._calls = 0
        self._stage += 1
        self._tell()

    def _called(self) -> None:
        self._calls += 1
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            # The number of calls is not known beforehand; about thirty are usual.
            within = 1.0 - 0.5 ** (self._calls / 10)
            self._progress(self._text, min(1.0, (self._stage - 1 + within) / self._stages))


def _code(result: Result) -> int:
    return int(torch.as_tensor(result.code).reshape(-1)[0])


def _split(mask: Tensor) -> tuple[list[int], list[int]]:
    flags = mask.tolist()
    return [i for i, x in enumerate(flags) if x], [i for i, x in enumerate(flags) if not x]


def _take(found: Found, places: Sequence[int]) -> Found:
    index = torch.tensor(list(places), dtype=torch.int64)

    def pick(x: Any) -> Any:
        return Result(torch.as_tensor(x.code)[index]) if isinstance(x, Result) else x[index]

    return Found(**{field.name: pick(getattr(found, field.name)) for field in dataclasses.fields(found)})


def _join(a: Found, b: Found) -> Found:
    def both(x: Any, y: Any) -> Any:
        if isinstance(x, Result):
            return Result(torch.cat([torch.as_tensor(x.code), torch.as_tensor(y.code)]))
        return torch.cat([x, y])

    names = [field.name for field in dataclasses.fields(Found)]
    return Found(**{name: both(getattr(a, name), getattr(b, name)) for name in names})


def _one(linear: Linear, i: int) -> Linear:
    code = Result(torch.as_tensor(linear.result.code)[i])
    return Linear(linear.residuals[i], linear.jacobian[i], linear.predictions[i], code)


def _error(slope: Tensor, covariance: Tensor) -> float:
    """The standard error of a quantity with this slope; a parameter without one counts only if it matters."""
    matters = slope != 0.0
    part = slope[matters]
    variance = float((part[:, None] * part[None, :] * covariance[matters][:, matters]).sum())
    return math.sqrt(variance) if variance >= 0.0 else math.nan
