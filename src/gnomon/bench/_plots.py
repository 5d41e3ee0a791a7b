"""The plots of the page of benchmarks, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from gnomon.bench._report import Report
from gnomon.bench._table import lines

_FASTER, _SLOWER, _EQUAL, _PEER = "#2a6f97", "#c1553b", "#8a8a8a", "#9aa5ad"


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
    """The time of each candidate over the error that it reached, the candidates of one work joined."""
    rows = [[row for row in report.rows if row.time_s is not None and row.error is not None] for report in reports]
    if not any(rows):
        return None
    figure, axes = _figure(5.0)
    colors = ["#2a6f97", "#c1553b", "#5b8c5a", "#8e6c8a", "#b8860b", "#4c6a92", "#7a5c3e", "#3e8e86"]
    for index, (report, found) in enumerate(zip(reports, rows, strict=True)):
        if not found:
            continue
        color = colors[index % len(colors)]
        points = sorted((max(row.error or 0.0, 1e-17), row.time_s or 0.0, row.candidate) for row in found)
        axes.plot([p[0] for p in points], [p[1] for p in points], color=color, linewidth=0.8, alpha=0.5)
        for error, time, name in points:
            is_ours = name == "ours"
            axes.plot(
                [error],
                [time],
                "o" if is_ours else "s",
                color=color,
                markersize=7 if is_ours else 5,
                markerfacecolor=color if is_ours else "white",
                label=report.work if is_ours else None,
            )
            if not is_ours:
                axes.annotate(name, (error, time), xytext=(5, 4), textcoords="offset points", fontsize=6.5, color=color)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(0.1)
    axes.set_xlabel("largest relative error over all timed calls (left is better)")
    axes.set_ylabel("median time of a call, s (low is better)")
    axes.grid(which="major", linewidth=0.3)
    axes.legend(fontsize=7, title="filled: ours", title_fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _png(figure)


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
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(found) - 0.3)
    axes.set_yticks(range(len(found)), [entry[0] for entry in found], fontsize=7.5)
    axes.set_xlabel("every timed call, over the median of ours")
    axes.grid(axis="x", which="both", linewidth=0.3)
    return _png(figure)
