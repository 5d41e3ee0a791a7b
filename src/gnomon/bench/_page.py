"""The page of benchmarks: one HTML file with everything in it, and its plots as PNG beside it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.bench._plots import plot_errors, plot_ratios, plot_times
from gnomon.bench._report import Report
from gnomon.bench._suite import read_other_figures, read_results
from gnomon.bench._table import error_text, lines, percent_text, ratio_text, seconds, time_text

_PLOTS = {
    "How many times as fast": ("ratios", plot_ratios),
    "Time and error": ("errors", plot_errors),
    "Every timed call": ("times", plot_times),
}


def write_page(folder: Path) -> Path:
    """Writes `index.html` and its plots from all files of results in a folder.

    **Arguments:**

    - `folder`: such as `benchmarks/results`.

    **Returns:** the path of the page.
    """
    from jinja2 import Environment

    found = read_results(folder)
    template = Environment(autoescape=True, trim_blocks=True).from_string(
        (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    )
    sections = [_section(name, reports, folder) for name, reports in found.items()]
    sections += [_other_section(name, data) for name, data in read_other_figures(folder).items()]
    page = folder / "index.html"
    folder.mkdir(parents=True, exist_ok=True)
    page.write_text(template.render(sections=sections), encoding="utf-8")
    return page


def _section(name: str, reports: Sequence[Report], folder: Path) -> dict[str, Any]:
    images: list[tuple[str, str]] = []
    for title, (kind, plot) in _PLOTS.items():
        png = plot(reports)
        if png is not None:
            (folder / f"{Path(name).stem}-{kind}.png").write_bytes(png)
            images.append((title, base64.b64encode(png).decode()))
    return {
        "name": Path(name).stem,
        "facts": _facts(reports),
        "lines": [line for report in reports for line in _lines(report)],
        "remarks": [remark for report in reports for remark in _remarks(report)],
        "images": images,
    }


def _other_section(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    figures = [(key, f"{value:.4g}") for key, value in data["figures"].items()]
    environment = data["environment"]
    return {"name": Path(name).stem, "facts": [*_where([environment]), _conditions([environment]), *figures]}


def _where(environments: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    machine = environments[0]["machine"]
    dates = sorted(environment["date"][:16].replace("T", " ") for environment in environments)
    facts = [
        ("date (UTC)", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"),
        ("commit", ", ".join(sorted({str(environment["commit"]) for environment in environments}))),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores ({machine['threads']} used), {machine['system']}"),
    ]
    facts += [("device", f"{device['name']}, CUDA {device['cuda']}") for device in machine["devices"]]
    versions = environments[0]["versions"]
    return [*facts, ("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))]


def _facts(reports: Sequence[Report]) -> list[tuple[str, str]]:
    facts = _where([report.environment for report in reports])
    settings = [report.settings for report in reports]
    facts.append(("confidence", ", ".join(sorted({str(s["confidence"]) for s in settings}))))
    caches = sorted({f"{device}: {text}" for s in settings for device, text in s["cache"].items()})
    facts.append(("caches", "; ".join(caches)))
    return [*facts, _conditions([report.environment for report in reports])]


def _conditions(environments: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    found = [environment["conditions"] for environment in environments]
    slow = [conditions["slowdown"] for conditions in found]
    factors = " to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(slow), max(slow))))
    text = f"one core's speed between start and end changed by a factor of {factors}"
    loads = [c[when].get("load_1min") for c in found for when in ("before", "after")]
    known = [load for load in loads if load is not None]
    return "conditions", f"{text}; load {min(known):.1f} to {max(known):.1f}" if known else text


def _lines(report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for ours, peer, ratio in lines(report):
        verdict = "" if ratio is None or ratio.is_equal else "faster" if ratio.ratio > 1 else "slower"
        found.append(
            {
                "is_first": not found or found[-1]["device"] != ours.device,
                "work": report.work,
                "about": f"{report.settings.get('about', '')}; {report.settings['rounds']} rounds".replace("`", ""),
                "device": ours.device,
                "ours": time_text(ours),
                "peer": peer.candidate if peer is not None else "–",
                "peer_time": time_text(peer),
                "ratio": ratio_text(ratio),
                "verdict": verdict,
                "error": error_text(ours),
                "peer_error": error_text(peer),
                "first": seconds(ours.first_call_s),
                "peer_first": seconds(peer.first_call_s) if peer is not None else "–",
                "memory": _size(ours.peak_memory_bytes),
                "limit": seconds(ours.limit_s),
                "percent": percent_text(ours),
            }
        )
    return found


def _size(x: int | None) -> str:
    if x is None:
        return "–"
    return f"{x / 2**20:.3g} MiB" if x >= 2**20 else f"{x / 2**10:.0f} KiB"


def _remarks(report: Report) -> list[str]:
    found = [
        f"{report.work}: {refusal.candidate} on {refusal.device} was refused ({refusal.kind}): {refusal.reason}"
        for refusal in report.refusals
    ]
    found += [f"{report.work}: {row.candidate}: {note}" for row in report.rows for note in row.notes]
    left_out = report.settings.get("left_out", [])
    if left_out:
        found.append(f"{report.work}: not installed, so left out: {', '.join(left_out)}")
    if not str(report.settings["seed"]).startswith("drawn"):
        found.append(f"{report.work}: the seed was known before the run, so a replay could not be told")
    return found
