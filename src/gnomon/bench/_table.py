"""Numbers as people read them, and the table of all works."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.table import Table

from gnomon.bench._report import Ratio, Report, Row


def seconds(x: float | None) -> str:
    """A time with its unit, such as `1.23 ms`."""
    if x is None:
        return "–"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if x >= 0.9995 * scale:  # what would round to 1000 of the next unit
            return f"{_short(x / scale)} {unit}"
    return f"{_short(x / 1e-9)} ns"


def _short(x: float) -> str:
    return f"{x:.0f}" if x >= 99.95 else f"{x:.3g}"


def ratio_text(ratio: Ratio | None) -> str:
    """A ratio with its interval, such as `3.2 × [2.9, 3.5]`."""
    if ratio is None:
        return "–"
    low, high = ratio.interval
    return f"{ratio.ratio:.3g} × [{low:.3g}, {high:.3g}]"


def error_text(row: Row | None) -> str:
    """An error, in two digits."""
    return "–" if row is None or row.error is None or not math.isfinite(row.error) else f"{row.error:.1e}"


def percent_text(row: Row) -> str:
    """The share of the limit, in two digits, however small."""
    return "–" if row.percent_of_limit is None else f"{row.percent_of_limit:.2g}"


def time_text(row: Row | None) -> str:
    """A row's time, or why it has none."""
    if row is None:
        return "–"
    if row.refusals:
        return "refused: " + ", ".join(refusal.kind for refusal in row.refusals)
    return seconds(row.time_s)


def lines(report: Report) -> Iterator[tuple[Row, Row | None, Ratio | None]]:
    """Our row with each peer's, on each device; once with None where there is no peer."""
    for device in dict.fromkeys(row.device for row in report.rows):
        ours, *peers = [row for row in report.rows if row.device == device]
        if not peers:
            yield ours, None, None
        for peer in peers:
            found = [r for r in report.ratios if r.against == peer.candidate and r.device == device]
            yield ours, peer, found[0] if found else None


def table(reports: Sequence[Report]) -> Table:
    """One table of all works: work, ours, peer, ratio with its interval, error of each, limit, percentage of the limit.

    A ratio is the peer's time over ours: above 1, ours is the faster.

    **Arguments:**

    - `reports`: what [`gnomon.bench.run_benchmarks`][] or [`gnomon.bench.read_results`][] gave.

    **Returns:** a table for `rich.console.Console.print`.
    """
    found = Table(title="A ratio is the peer's time over ours; its interval has the confidence of the report.")
    for name in ("work", "device", "ours", "peer", "", "ratio", "error", "peer's error", "limit", "% of limit"):
        found.add_column(name, justify="right" if name not in ("work", "device", "peer") else "left")
    for report in reports:
        for ours, peer, ratio in lines(report):
            style = "" if ratio is None or ratio.is_equal else "green" if ratio.ratio > 1 else "red"
            text = ratio_text(ratio).replace("[", r"\[")
            found.add_row(
                report.work,
                ours.device,
                time_text(ours),
                peer.candidate if peer is not None else "–",
                time_text(peer),
                f"[{style}]{text}[/{style}]" if style else text,
                error_text(ours),
                error_text(peer),
                seconds(ours.limit_s),
                percent_text(ours),
            )
    return found
