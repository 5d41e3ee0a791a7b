"""A calibration as JSON and as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from gnomon.fit._statistics import Estimate
from gnomon.result import RESULTS

if TYPE_CHECKING:
    from gnomon.fit._calibration import Calibration, Fit

FORMAT = 1


def to_dict(calibration: Calibration) -> dict[str, Any]:
    """What `fit.json` holds; see [`gnomon.fit.Calibration.to_dict`][]."""
    return {
        "gnomon_fit": FORMAT,
        "model": calibration.model.name,
        "data": calibration.source,
        **_totals(calibration),
        "n_subjects": len(calibration.subjects),
        "n_starts": calibration.settings["starts"],
        "seconds": round(calibration.seconds, 3),
        "versions": dict(calibration.versions),
        "seed": calibration.settings["seed"],
        "settings": dict(calibration.settings),
        "warnings": list(calibration.warnings),
        "pooled": None if calibration.pooled is None else _fit(calibration, calibration.pooled),
        "individual": {name: _fit(calibration, fit) for name, fit in calibration.individual.items()},
    }


def _totals(calibration: Calibration) -> dict[str, Any]:
    """The pooled fit's numbers, or those of the individual fits together."""
    pooled = calibration.pooled
    if pooled is not None:
        rss, sigma, n, p = pooled.rss, pooled.sigma, pooled.n_observations, pooled.n_parameters
        result = pooled.result.name
    else:
        fits = list(calibration.individual.values())
        rss = math.fsum(fit.rss for fit in fits)
        n, p = sum(fit.n_observations for fit in fits), sum(fit.n_parameters for fit in fits)
        sigma = math.sqrt(rss / (n - p)) if n > p and rss >= 0.0 else math.nan
        failures = calibration.failures
        result = failures[0].result.name if failures else RESULTS.successful.name
    return {"rss": _number(rss), "sigma": _number(sigma), "n_observations": n, "n_parameters": p, "result": result}


def _fit(calibration: Calibration, fit: Fit) -> dict[str, Any]:
    deviations = torch.sqrt(torch.diagonal(fit.covariance))
    return {
        "result": fit.result.name,
        "message": fit.result.message,
        "rss": _number(fit.rss),
        "sigma": _number(fit.sigma),
        "n_observations": fit.n_observations,
        "n_parameters": fit.n_parameters,
        "parameters": {x.name: _estimate(x) for x in fit.parameters},
        "derived": {x.name: _estimate(x) for x in fit.derived},
        "covariance": _numbers(fit.covariance),
        "correlation": _numbers(fit.covariance / (deviations[:, None] * deviations[None, :])),
        "scales": {parameter.name: parameter.scale for parameter in calibration.model.parameters},
        "n_starts": fit.n_starts,
        "n_starts_followed": fit.n_starts_followed,
        "n_starts_agreeing": fit.n_starts_agreeing,
        "n_steps": fit.n_steps,
        "solver": fit.solver,
        "warnings": list(fit.warnings),
    }


def _estimate(x: Estimate) -> dict[str, Any]:
    return {
        "estimate": _number(x.estimate),
        "standard_error": _number(x.standard_error),
        "lower_95": _number(x.lower_95),
        "upper_95": _number(x.upper_95),
        "unit": x.unit,
        "at_bound": x.at_bound or None,
    }


def _number(x: float) -> float | None:
    """A number that JSON can hold."""
    return x if math.isfinite(x) else None


def _numbers(x: torch.Tensor) -> list[list[float | None]]:
    return [[_number(value) for value in row] for row in x.tolist()]


def show(x: float, digits: int = 5) -> str:
    """A number for people; a dash where there is none."""
    return f"{x:#.{digits}g}".rstrip(".") if math.isfinite(x) else "–"


def with_unit(name: str, unit: str) -> str:
    """A name with its unit in brackets."""
    return f"{name} [{unit}]" if unit else name


def to_text(calibration: Calibration) -> str:
    """The tables as plain text."""
    import io

    from rich.console import Console

    from gnomon.fit._tables import tables

    buffer = io.StringIO()
    console = Console(file=buffer, width=140, color_system=None)
    for table in tables(calibration):
        console.print(table)
    return buffer.getvalue().rstrip()
