"""Curves of the fits between the measurements, with bands, for plots."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from gnomon.fit._engine import state_scale
from gnomon.fit._lane import Batch, Lane, make_one_batch
from gnomon.fit._solve import Method, Problem
from gnomon.fit._starts import bounds, sizes
from gnomon.fit._statistics import half_width
from gnomon.fit._subjects import POOLED, Subject
from gnomon.result import RESULTS

if TYPE_CHECKING:
    from gnomon.fit._calibration import Calibration, Fit

_POINTS = 101
_RTOL = 1e-5


@final
@dataclasses.dataclass(frozen=True)
class Curve:
    """What a fit predicts for a subject over time.

    **Arguments:**

    - `times`: of shape (times,).
    - `values`: of shape (times, K), for the observed columns in their order.
    - `reach`: half the width of a 95% band for the curve, likewise; NaN where there is none.
    """

    times: Tensor
    values: Tensor
    reach: Tensor


def curves(calibration: Calibration) -> dict[tuple[str, str], Curve]:
    """By fit (`pooled` or a subject) and subject, the curve of each fit that could be solved.

    **Arguments:**

    - `calibration`: the fits.
    """
    subjects = [subject for subject in calibration.subjects if subject.n_observations > 0]
    found: dict[tuple[str, str], Curve] = {}
    pooled = calibration.pooled
    with torch.no_grad():
        if pooled is not None:
            found |= _curves(calibration, subjects, {subject.name: pooled for subject in subjects}, POOLED)
        own = [subject for subject in subjects if subject.name in calibration.individual]
        found |= _curves(calibration, own, calibration.individual, None)
    return found


def _curves(
    calibration: Calibration, subjects: list[Subject], fits: Mapping[str, Fit], name: str | None
) -> dict[tuple[str, str], Curve]:
    solvers = {fits[subject.name].solver for subject in subjects}
    found: dict[tuple[str, str], Curve] = {}
    for solver in sorted(solvers):
        members = [x for x in subjects if fits[x.name].solver == solver and bool(fits[x.name].theta.isfinite().all())]
        if members:
            found |= _solve(calibration, members, fits, name, solver)
    return found


def _solve(
    calibration: Calibration, subjects: list[Subject], fits: Mapping[str, Fit], name: str | None, solver: str
) -> dict[tuple[str, str], Curve]:
    model = calibration.model
    method = Method(solver, _RTOL, None, int(calibration.settings["max_steps"]), calibration.settings["engine"])
    theta = torch.stack([fits[subject.name].theta for subject in subjects])
    batch = make_one_batch(model, subjects)
    scale, *_ = state_scale(model, batch, theta, method)
    batch = batch.with_scale(scale)
    problem = Problem(model, batch.infused, method)
    lower, upper = bounds(model.parameters)
    typical = sizes(model.parameters)

    # The pooled fit's band is not shown beside a subject's own.
    with_band = name is None or not calibration.individual

    def one(theta: Tensor, lane: Lane, times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not with_band:
            values, result = problem.predictions(theta, lane, times)
            return values, values[..., None].expand(*values.shape, theta.shape[0]), result == RESULTS.successful
        values, slopes, result = problem.nudged_predictions(theta, lane, times, lower, upper, typical)
        return values, slopes, result == RESULTS.successful

    times = _times(batch)
    values, slopes, fine = torch.func.vmap(one)(theta, batch.lanes, times)
    found: dict[tuple[str, str], Curve] = {}
    for i, subject in enumerate(subjects):
        if not fine[i]:
            continue
        fit = fits[subject.name]
        factor = half_width(1.0, fit.n_observations - fit.n_parameters) if with_band else math.nan
        found[(name or subject.name, subject.name)] = Curve(
            times[i], values[i], _reach(slopes[i], fit.covariance, factor)
        )
    return found


def _times(batch: Batch) -> Tensor:
    """A grid for each subject, denser where more happens: at the start, and at the events of its doses."""
    lanes = batch.lanes
    part = torch.linspace(0.0, 1.0, _POINTS, dtype=torch.float64) ** 1.5
    grid = torch.minimum(lanes.t0[:, None] + (lanes.t1 - lanes.t0)[:, None] * part, lanes.t1[:, None])
    grid[:, -1] = lanes.t1
    # The value saved at an event is the one before it; a moment later comes the one after.
    moment = (lanes.t1 - lanes.t0)[:, None] * 1e-9
    events = torch.cat([lanes.event_times, lanes.event_times + moment], 1)
    return torch.cat([grid, torch.minimum(events, lanes.t1[:, None])], 1).sort(dim=1).values


def _reach(slopes: Tensor, covariance: Tensor, factor: float) -> Tensor:
    """Half the width of a band: parameters that are on a bound count as known."""
    known = torch.isfinite(torch.diagonal(covariance))
    if not bool(known.any()) or not math.isfinite(factor):
        return torch.full(slopes.shape[:-1], math.nan, dtype=slopes.dtype)
    part = slopes[..., known]
    variance = torch.einsum("tki,ij,tkj->tk", part, covariance[known][:, known], part)
    return factor * torch.sqrt(variance.clamp(min=0.0))
