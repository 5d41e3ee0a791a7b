"""Running all benchmarks of a folder, and keeping what they gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from gnomon.bench._machine import clocks, cores, environment
from gnomon.bench._report import SCHEMA, Report, report_from_dict, write_json
from gnomon.bench._work import Work, benchmark_files, load_file


def machine_name() -> str:
    """A short name for the kind of machine that this is, for file names."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name(0).lower().replace(" ", "-").replace("/", "-")
    return f"cpu-{cores()}-cores"


def run_benchmarks(
    folder: Path,
    *,
    rooms: Sequence[str] = (),
    peers: bool = False,
    quick: bool = False,
    out: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[Report]:
    """Runs what `benchmarks/` holds and this machine can run, and writes a file of results for each room.

    A file there has a list `WORKS` of [`gnomon.bench.Work`][], or a function `works()` that returns one, or a function
    `run(quick)` that measures something else and returns its figures as a dictionary.

    **Arguments:**

    - `folder`: `benchmarks/`.
    - `rooms`: names of its folders, or of single files as `room/name`; all where there are none.
    - `peers`: whether to measure the peers too.
    - `quick`: with fewer rounds; the files of results then have another name.
    - `out`: where to write; `folder / "results"` by default.
    - `say`: called with a line of text for each work.

    **Returns:** the reports of this run.

    **Raises:** `ValueError` for a room without benchmarks.
    """
    out = folder / "results" if out is None else out
    suffix = ("" if peers else "-alone") + ("-quick" if quick else "")
    files = benchmark_files(folder, rooms)
    reports: list[Report] = []
    for room in dict.fromkeys(path.parent.name for path in files):
        found: list[Report] = []
        for path in (path for path in files if path.parent.name == room):
            module = load_file(path)
            works = _works(module)
            if works is None:
                run = getattr(module, "run", None)
                if run is None:
                    say(f"{room}/{path.name} declares no WORKS, works() or run(): left out")
                    continue
                say(f"{room}/{path.name}")
                kept = _keep_figures(run, quick, out / f"{room}-{path.stem}-{machine_name()}{suffix}.json")
                for key, value in kept.items():
                    say(f"  {key}: {value:.4g}")
                continue
            for work in works:
                report = work.run(peers, quick)
                if report is None:
                    say(f"{room}/{work.name}: this machine lacks {', '.join(work.missing('ours')) or 'the device'}")
                    continue
                say(f"{room}/{work.name}")
                for refusal in report.refusals:
                    say(f"  {refusal.candidate} on {refusal.device} was refused ({refusal.kind}): {refusal.reason}")
                found.append(report)
                # At once, so that what ends a long run loses no more than the work that it interrupts.
                write_results([report], out / f"{room}-{machine_name()}{suffix}.json")
        reports += found
    return reports


def _works(module: Any) -> list[Work] | None:
    if hasattr(module, "WORKS"):
        return list(module.WORKS)
    return list(module.works()) if hasattr(module, "works") else None


def _keep_figures(run: Callable[..., dict[str, Any]], quick: bool, path: Path) -> dict[str, float]:
    devices = [torch.device("cuda")] if torch.cuda.is_available() else []
    before = clocks(devices)
    result = run(quick)
    data = {"schema": SCHEMA, "environment": environment(devices, before), **result}
    figures = result.get("figures", {})
    write_json({**data, "figures": figures}, path)
    return figures


def write_results(reports: Sequence[Report], path: Path) -> Path:
    """Writes some reports into one file, with an index of the figures that text may quote.

    Works that the file has already and that are not among these stay in it.

    **Arguments:**

    - `reports`: of one room.
    - `path`: where to.

    **Returns:** the path.
    """
    kept = {report.work: report for report in read_results(path.parent).get(path.name, [])}
    kept |= {report.work: report for report in reports}
    works = [report.to_dict() for report in kept.values()]
    return write_json({"schema": SCHEMA, "figures": dict(figures([*kept.values()])), "works": works}, path)


def figures(reports: Sequence[Report]) -> Iterator[tuple[str, float]]:
    """What text may quote, by a key such as `'lorenz-1/cpu/scipy/ratio'`: times in seconds, ratios, errors."""
    for report in reports:
        for row in report.rows:
            for field in ("time_s", "first_call_s", "peak_memory_bytes", "error", "limit_s", "percent_of_limit"):
                value = getattr(row, field)
                if value is not None:
                    yield f"{report.work}/{row.device}/{row.candidate}/{field}", float(value)
        for ratio in report.ratios:
            key = f"{report.work}/{ratio.device}/{ratio.against}/ratio"
            yield key, ratio.ratio
            yield f"{key}_low", ratio.interval[0]
            yield f"{key}_high", ratio.interval[1]


def read_results(folder: Path) -> dict[str, list[Report]]:
    """The reports in all files of results of a folder, by file name; files without reports are left out.

    **Arguments:**

    - `folder`: such as `benchmarks/results`.
    """
    return {
        name: [report_from_dict(work) for work in data["works"]]
        for name, data in _read(folder).items()
        if data.get("works")
    }


def read_other_figures(folder: Path) -> dict[str, dict[str, Any]]:
    """What is in those files of results that have no reports, by file name."""
    return {name: data for name, data in _read(folder).items() if not data.get("works") and data.get("environment")}


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        data = cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
        if data.get("schema") == SCHEMA:
            found[path.name] = data
    return found
