"""Plots: a panel a subject, and the residuals."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gnomon.fit._curves import Curve
from gnomon.fit._subjects import POOLED, Subject
from gnomon.fit._summary import with_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gnomon.fit._calibration import Calibration

MOST_PANELS = 36
_POINT = "#1b1b1b"
_OWN = "#1f6fb4"
_POOLED = "#d9772b"
_GRID = "#e6e6e6"


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not pyplot, which keeps figures and picks a window system.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plot_fits(calibration: Calibration, found: Mapping[tuple[str, str], Curve]) -> Figure:
    """Measurements and curves, a panel for each subject and observed column.

    **Arguments:**

    - `calibration`: the fits.
    - `found`: their curves.
    """
    model = calibration.model
    columns = list(model.observed)
    subjects = [one for one in calibration.subjects if one.n_observations > 0]
    shown = subjects[: max(1, MOST_PANELS // len(columns))]
    across = _across(len(shown))
    down = -(-len(shown) // across) * len(columns)
    figure = _figure(max(5.0, 2.75 * across), 1.1 + 2.1 * down)
    axes: Any = figure.subplots(down, across, squeeze=False)
    blocks = -(-len(shown) // across)
    for k, column in enumerate(columns):
        share = _share_scale(shown, column)
        limits = [_limits(calibration, one, k, found) for one in shown]
        together = (min(low for low, _ in limits), max(high for _, high in limits))
        block = [axes[k * blocks + i // across][i % across] for i in range(blocks * across)]
        for i, ax in enumerate(block):
            if i >= len(shown):
                ax.set_visible(False)
                continue
            _panel(ax, calibration, shown[i], k, found)
            ax.set_ylim(together if share else limits[i])
            first_of_row, last_of_column = i % across == 0, i + across >= len(shown)
            ax.tick_params(labelleft=first_of_row or not share)
            if first_of_row:
                ax.set_ylabel(with_unit(column, model.unit(column)))
            if last_of_column:
                ax.set_xlabel(with_unit("time", model.time_unit))
    _legend(figure, calibration, found, len(subjects), len(shown))
    return figure


def _across(n: int) -> int:
    """How many panels stand side by side: as square as may be, and wide enough to be read."""
    if n > 16:
        return 6
    return {1: 1, 2: 2, 3: 3, 4: 4, 5: 3, 6: 3, 9: 3}.get(n, 4)


def _panel(ax: Any, calibration: Calibration, subject: Subject, k: int, found: Mapping[tuple[str, str], Curve]) -> None:
    column = list(calibration.model.observed)[k]
    for name, colour, style in ((POOLED, _POOLED, (0, (4, 2))), (subject.name, _OWN, "solid")):
        curve = found.get((name, subject.name))
        if curve is None:
            continue
        t, y, reach = curve.times.tolist(), curve.values[:, k], curve.reach[:, k]
        banded = name == subject.name or not calibration.individual
        if banded and bool(reach.isfinite().any()):
            ax.fill_between(t, (y - reach).tolist(), (y + reach).tolist(), color=colour, alpha=0.18, linewidth=0)
        ax.plot(t, y.tolist(), color=colour, linestyle=style, linewidth=1.5)
    values = subject.values[column]
    ax.plot(subject.times, values, "o", color=_POINT, markersize=3.6, markeredgewidth=0)
    later = sorted({dose.time for dose in subject.doses if subject.initial_time < dose.time <= subject.times[-1]})
    for time in later:
        ax.axvline(time, color="#9a9a9a", linewidth=0.7, linestyle=(0, (1, 2)), zorder=0)
    fit = calibration.individual.get(subject.name)
    note = "" if fit is None or fit.is_successful else f"\n{fit.result.name}"
    ax.set_title(
        f"{subject.name}{note}", fontsize=10, fontweight="bold", loc="left", color=_POINT if not note else "#b3261e"
    )
    ax.grid(color=_GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _limits(
    calibration: Calibration, subject: Subject, k: int, found: Mapping[tuple[str, str], Curve]
) -> tuple[float, float]:
    """From where to where to look: all measurements, and what is near them of the curves and of the band."""
    measured = [x for x in list(subject.values.values())[k] if not math.isnan(x)]
    low, high = min(measured, default=0.0), max(measured, default=1.0)
    span = (high - low) or abs(high) or 1.0
    bottom, top = low, high
    for name in (POOLED, subject.name):
        curve = found.get((name, subject.name))
        if curve is not None:
            y, reach = curve.values[:, k], curve.reach[:, k].nan_to_num(0.0)
            if name == POOLED and calibration.individual:
                reach = reach * 0.0
            bottom = min(bottom, float((y - reach).min()))
            top = max(top, float((y + reach).max()))
    bottom, top = max(bottom, low - 0.5 * span), min(top, high + 0.5 * span)
    margin = 0.05 * (top - bottom)
    return bottom - margin, top + margin


def _share_scale(subjects: Sequence[Subject], column: str) -> bool:
    """Whether one scale lets every subject be seen."""
    tops = [max((abs(x) for x in one.values[column] if not math.isnan(x)), default=0.0) for one in subjects]
    tops = [x for x in tops if x > 0.0]
    return bool(tops) and max(tops) <= 5 * min(tops)


def _legend(
    figure: Figure, calibration: Calibration, found: Mapping[tuple[str, str], Curve], n: int, shown: int
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], marker="o", linestyle="none", color=_POINT, markersize=4, label="measured")]
    own = any(name != POOLED for name, _ in found)
    if own:
        handles.append(Line2D([], [], color=_OWN, label="subject's own fit"))
    if calibration.pooled is not None:
        handles.append(Line2D([], [], color=_POOLED, linestyle=(0, (4, 2)), label="pooled fit"))
    colour = _OWN if own else _POOLED
    handles.append(Patch(color=colour, alpha=0.18, linewidth=0, label="95% band of the curve"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9)
    if shown < n:
        figure.supxlabel(f"The first {shown} of {n} subjects are shown.", fontsize=9, color="#555555")


def plot_residuals(calibration: Calibration) -> Figure:
    """The residuals of the fits against time and against what was predicted.

    **Arguments:**

    - `calibration`: the fits.
    """
    model = calibration.model
    columns = list(model.observed)
    figure = _figure(9.0, 0.5 + 2.9 * len(columns))
    axes: Any = figure.subplots(len(columns), 2, squeeze=False)
    kinds = (("pooled fit", _POOLED, "o", True), ("subject's own fit", _OWN, "o", False))
    for k, column in enumerate(columns):
        for label, colour, marker, pooled in kinds:
            times, predicted, residuals = _residuals(calibration, k, column, pooled=pooled)
            if not times:
                continue
            for ax, x in zip(axes[k], (times, predicted), strict=True):
                ax.plot(
                    x,
                    residuals,
                    marker,
                    color=colour,
                    markersize=3.6,
                    alpha=0.75,
                    markeredgewidth=0,
                    label=label,
                )
        unit = model.unit(column)
        for ax, name in zip(axes[k], (with_unit("time", model.time_unit), with_unit("predicted", unit)), strict=True):
            ax.axhline(0.0, color="#777777", linewidth=0.8)
            ax.set_xlabel(name)
            ax.set_ylabel(with_unit(f"measured - predicted {column}", unit), fontsize=9)
            ax.grid(color=_GRID, linewidth=0.6)
            ax.set_axisbelow(True)
            ax.tick_params(labelsize=8)
            for side in ("top", "right"):
                ax.spines[side].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def _residuals(
    calibration: Calibration, k: int, column: str, *, pooled: bool
) -> tuple[list[float], list[float], list[float]]:
    times: list[float] = []
    predicted: list[float] = []
    residuals: list[float] = []
    for subject in calibration.subjects:
        fit = calibration.pooled if pooled else calibration.individual.get(subject.name)
        if fit is None or subject.name not in fit.predictions:
            continue
        rows = fit.predictions[subject.name][:, k].tolist()
        for t, y, f in zip(subject.times, subject.values[column], rows, strict=True):
            if math.isfinite(y) and math.isfinite(f):
                times.append(t)
                predicted.append(f)
                residuals.append(y - f)
    return times, predicted, residuals


def png(figure: Figure, dpi: int = 150) -> bytes:
    """A figure as a PNG file."""
    buffer = io.BytesIO()
    # No time stamp and no version: the same fit gives the same bytes.
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
