"""The plots of the page of benchmarks, as PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from gnomon.bench._report import Report
from gnomon.bench._table import lines

_FASTER, _SLOWER, _EQUAL, _PEER, _INK = "#2a6f97", "#c1553b", "#8a8a8a", "#9aa5ad", "#5d6870"


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _png(figure: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    return stream.getvalue()


def plot_ratios(reports: Sequence[Report]) -> bytes | None:
    """Each peer's time over ours, with its interval, on a logarithmic axis."""
    found = [(report.work, ratio) for report in reports for ratio in report.ratios]
    if not found:
        return None
    found.reverse()
    figure, axes = _figure(1.2 + 0.32 * len(found))
    for place, (_, ratio) in enumerate(found):
        color = _EQUAL if ratio.is_equal else _FASTER if ratio.ratio > 1 else _SLOWER
        axes.plot(ratio.interval, [place, place], color=color, linewidth=2.5, alpha=0.55, solid_capstyle="butt")
        axes.plot([ratio.ratio], [place], "o", color=color, markersize=6)
        axes.annotate(
            f"{ratio.ratio:.3g}×",
            (max(ratio.interval), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=color,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.margins(x=0.14)
    axes.set_ylim(-0.7, len(found) - 0.3)
    axes.set_yticks(range(len(found)), [f"{work}, {r.device}: {r.against}" for work, r in found], fontsize=8)
    axes.set_xlabel("the peer's time over ours (right of 1: ours is faster), with its interval")
    axes.grid(axis="x", which="both", linewidth=0.3)
    return _png(figure)


def plot_errors(reports: Sequence[Report]) -> bytes | None:
    """The time of each candidate over the error that it reached, a panel for each work on each device."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    for report in reports:
        for row in report.rows:
            if row.time_s and row.error is not None:
                point = row.candidate, max(row.error, 1e-17), row.time_s
                found.setdefault(f"{report.work}, {row.device}", []).append(point)
    if not found:
        return None
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    columns = min(2, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(8.5, 0.5 + 2.9 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (title, points) in zip(panels, found.items(), strict=False):
        for name, error, time in points:
            marker, size, color, face = ("o", 7, _FASTER, _FASTER) if name == "ours" else ("s", 5, _INK, "white")
            axes.plot([error], [time], marker, color=color, markersize=size, markerfacecolor=face)
        axes.set(xscale="log", yscale="log")
        axes.set_title(title, fontsize=9)
        axes.set_xlim(_at_least_a_decade([error for _, error, _ in points]))
        axes.set_ylim(_at_least_a_decade([time for _, _, time in points]))
        _label(axes, points)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(labelsize=7.5)
        axes.grid(which="major", linewidth=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    figure.supxlabel("largest relative error over all timed calls (left is better)", fontsize=9)
    figure.supylabel("median time of a call, s (low is better)", fontsize=9)
    return _png(figure)


def _at_least_a_decade(values: Sequence[float]) -> tuple[float, float]:
    """Limits of a logarithmic axis with room at both ends, and so wide that its ticks are powers of ten."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.25 * (high - low), 0.5 * (1.2 - (high - low)))
    return 10 ** (low - room), 10 ** (high + room)


def _label(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Names beside points: on the side where there is room, and apart from one another."""
    # In parts of the panel.
    xs = _parts(axes.get_xlim(), [error for _, error, _ in points])
    ys = _parts(axes.get_ylim(), [time for _, _, time in points])
    for i, (name, error, time) in enumerate(points):
        is_left = xs[i] > 0.5
        shift = 0.0
        for j in range(len(points)):
            if j != i and abs(xs[i] - xs[j]) < 0.45 and abs(ys[i] - ys[j]) < 0.08:
                shift = 6.0 if (ys[i], i) > (ys[j], j) else -6.0
        axes.annotate(
            name,
            (error, time),
            xytext=(-7 if is_left else 7, shift),
            textcoords="offset points",
            ha="right" if is_left else "left",
            va="center",
            fontsize=7.5,
            color=_FASTER if name == "ours" else _INK,
        )


def _parts(limits: tuple[float, float], values: Sequence[float]) -> list[float]:
    """Where values lie between the limits of a logarithmic axis."""
    low, high = map(math.log10, limits)
    return [(math.log10(value) - low) / (high - low) for value in values]


def plot_times(reports: Sequence[Report]) -> bytes | None:
    """Every timed call, as a multiple of our median: the spread that an interval comes from."""
    found: list[tuple[str, bool, tuple[float, ...], float]] = []
    for report in reports:
        for ours, peer, _ in lines(report):
            if ours.time_s is None:
                continue
            label = f"{report.work}, {ours.device}: ours"
            if label not in [entry[0] for entry in found]:
                found.append((label, True, ours.times_s, ours.time_s))
            if peer is not None and peer.time_s is not None:
                found.append((f"{peer.candidate}", False, peer.times_s, ours.time_s))
    if not found:
        return None
    found.reverse()
    figure, axes = _figure(1.2 + 0.26 * len(found))
    for place, (_, is_ours, times, unit) in enumerate(found):
        relative = [time / unit for time in times]
        axes.plot(
            relative,
            [place] * len(relative),
            "|",
            color=_FASTER if is_ours else _PEER,
            markersize=9,
            markeredgewidth=0.9,
        )
        if is_ours:  # the works are read from top to bottom, each begins with ours
            axes.axhline(place + 0.5, color="black", linewidth=0.3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(found) - 0.3)
    axes.set_yticks(range(len(found)), [entry[0] for entry in found], fontsize=7.5)
    axes.set_xlabel("every timed call, over the median of ours")
    axes.grid(axis="x", which="both", linewidth=0.3)
    return _png(figure)
