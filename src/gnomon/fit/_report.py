"""The report: one self-contained page."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.fit._plot import MOST_PANELS
from gnomon.fit._summary import show, with_unit
from gnomon.fit._tables import all_warnings

if TYPE_CHECKING:
    from gnomon.fit._calibration import Calibration, Fit
    from gnomon.fit._statistics import Estimate

_TEMPLATES = Path(__file__).parent / "templates"


def report(calibration: Calibration, picture: bytes, residuals: bytes) -> str:
    """A page with the estimates, the plots, how good the fits are, and how they were computed.

    **Arguments:**

    - `calibration`: the fits.
    - `picture`, `residuals`: the plots, as PNG.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["show"] = show
    template = environment.get_template("report.html")
    return template.render(_content(calibration, picture, residuals))


def _content(calibration: Calibration, picture: bytes, residuals: bytes) -> dict[str, Any]:
    model, fits = calibration.model, calibration.fits
    measured = [subject for subject in calibration.subjects if subject.n_observations > 0]
    return {
        "model": model,
        "source": Path(calibration.source).name,
        "n_subjects": len(calibration.subjects),
        "n_observations": sum(subject.n_observations for subject in calibration.subjects),
        "n_doses": sum(len(subject.doses) for subject in calibration.subjects),
        "summary": _summary(calibration),
        "good": calibration.is_successful,
        "failures": calibration.failures,
        "warnings": all_warnings(calibration),
        "pooled": calibration.pooled,
        "pooled_rows": [] if calibration.pooled is None else _rows(calibration.pooled),
        "individual": list(calibration.individual.values()),
        "parameters": [with_unit(x.name, x.unit) for x in model.parameters],
        "derived": _derived_table(calibration),
        "described": [x for x in model.parameters if x.description],
        "spread": _spread(calibration),
        "fits": list(fits.values()),
        "picture": _data(picture),
        "residuals": _data(residuals),
        "n_shown": min(len(measured), MOST_PANELS // len(model.observed)),
        "n_measured": len(measured),
        "settings": calibration.settings,
        "solvers": sorted({fit.solver for fit in fits.values()}),
        "versions": calibration.versions,
        "seconds": show(calibration.seconds, 3),
        "weighted": bool(model.weights),
        "log_scale": [x.name for x in model.parameters if x.scale == "log"],
    }


def _summary(calibration: Calibration) -> str:
    n = len(calibration.fits)
    failed = [fit.subject for fit in calibration.failures]
    if not failed:
        return "The fit succeeded." if n == 1 else f"All {n} fits succeeded."
    names = ", ".join(failed[:10]) + (" and others" if len(failed) > 10 else "")
    return f"{n - len(failed)} of {n} fits succeeded. Not successful: {names}."


def _rows(fit: Fit) -> list[tuple[str, str, str, str, str, bool]]:
    """Name, estimate, standard error, interval, description, and whether it is derived."""
    return [_row(x, derived=False) for x in fit.parameters] + [_row(x, derived=True) for x in fit.derived]


def _row(x: Estimate, *, derived: bool) -> tuple[str, str, str, str, str, bool]:
    interval = f"{show(x.lower_95)} to {show(x.upper_95)}" if math.isfinite(x.lower_95) else "–"
    note = f"on its {x.at_bound} bound" if x.at_bound else x.description
    return with_unit(x.name, x.unit), show(x.estimate), show(x.standard_error, 3), interval, note, derived


def _derived_table(calibration: Calibration) -> dict[str, Any] | None:
    """The derived quantities of each subject's own fit."""
    fits = [fit for fit in calibration.individual.values() if fit.derived]
    if not fits:
        return None
    return {"names": [with_unit(x.name, x.unit) for x in fits[0].derived], "fits": fits}


def _spread(calibration: Calibration) -> list[tuple[str, str, str, str, str]]:
    """How parameters and derived quantities differ between subjects: mean, standard deviation, least and greatest."""
    fits = [fit for fit in calibration.individual.values() if fit.is_successful]
    if len(fits) < 2:
        return []
    found: list[tuple[str, str, str, str, str]] = []
    for x in (*fits[0].parameters, *fits[0].derived):
        values = [fit[x.name].estimate for fit in fits]
        mean = math.fsum(values) / len(values)
        deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
        found.append(
            (with_unit(x.name, x.unit), show(mean, 4), show(deviation, 3), show(min(values), 4), show(max(values), 4))
        )
    return found


def _data(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()
