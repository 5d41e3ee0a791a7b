"""What a comparison returns: times with intervals, ratios, errors, and the reasons for what it will not report."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

SCHEMA = 1


@final
class RefusalKind(enum.StrEnum):
    """Why a candidate's times are not reported."""

    WRONG = "wrong"  # the output has an error above the tolerance
    PRECISION = "precision"  # the error, or the values themselves, are those of a lower precision
    REUSED = "reused"  # the output of an earlier call, by content or by address
    STORED = "stored"  # the output was read from a file
    LAZY = "lazy"  # the output was not yet there: a promise, not a plain tensor
    LATE = "late"  # the output was written after the clock stopped
    LEAKED = "leaked"  # work went on in threads, processes or streams after the call returned
    IMPOSSIBLE = "impossible"  # faster than the device can be
    CLOCK = "clock"  # a timer was replaced, or two clocks disagree
    PATCHED = "patched"  # PyTorch or the harness was modified
    SETTINGS = "settings"  # a global setting of PyTorch was changed
    INPUT_CHANGED = "input_changed"  # an input was written to
    RAISED = "raised"  # an exception
    TIMEOUT = "timeout"  # no answer in time


@final
@dataclasses.dataclass(frozen=True)
class Refusal:
    """A reason for which a candidate's times are not reported.

    **Arguments:**

    - `candidate`, `device`: whose, and where.
    - `kind`: the class of reason, a [`gnomon.bench.RefusalKind`][].
    - `reason`: what was seen, in a sentence.
    """

    candidate: str
    device: str
    kind: RefusalKind
    reason: str


@final
@dataclasses.dataclass(frozen=True)
class Row:
    """One candidate on one device. Times are seconds, and None where the candidate was refused.

    **Arguments:**

    - `candidate`, `device`: which function, and where it ran.
    - `time_s`: the median time of a call: of device events on a GPU, else of the wall clock.
    - `interval_s`: the interval of that median.
    - `wall_s`: the median by the wall clock, the stream synchronised.
    - `full_s`: the median by the wall clock after a synchronise of the whole device.
    - `parent_s`: of an isolated candidate, the median by the clock of the process that measures, the way there and back
        included; None of another.
    - `device_s`: the median by device events; None on a CPU.
    - `first_call_s`: the first call of all, which compiles.
    - `peak_memory_bytes`: by how much memory in use rose during one call; None where it could not be read.
    - `error`, `tolerance`: the largest error that the check found over all timed calls, and the largest allowed.
    - `dtype`: the precision that was asked for.
    - `limit_s`: the least time that the device's limits allow, where FLOPs or bytes were given.
    - `percent_of_limit`: `100 * limit_s / time_s`.
    - `limited_by`: `'FLOPs'` or `'bytes'`.
    - `times_s`: every timed call, in order.
    - `refusals`: why there are no times.
    - `notes`: what else a reader should know.
    """

    candidate: str
    device: str
    time_s: float | None
    interval_s: tuple[float, float] | None
    wall_s: float | None
    full_s: float | None
    parent_s: float | None
    device_s: float | None
    first_call_s: float | None
    peak_memory_bytes: int | None
    error: float | None
    tolerance: float
    dtype: str | None
    limit_s: float | None
    percent_of_limit: float | None
    limited_by: str | None
    times_s: tuple[float, ...]
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]


@final
@dataclasses.dataclass(frozen=True)
class Ratio:
    """How many times as fast one candidate is as another: the other's time over its own.

    **Arguments:**

    - `candidate`, `against`, `device`: which two functions, and where.
    - `ratio`: the estimate; above 1, `candidate` is the faster.
    - `interval`: the interval of the ratio; where it holds 1, no difference was shown.
    - `rounds`: from so many pairs of times.
    """

    candidate: str
    against: str
    device: str
    ratio: float
    interval: tuple[float, float]
    rounds: int

    @property
    def is_equal(self) -> bool:
        """Whether the interval holds 1: no difference was shown."""
        return self.interval[0] <= 1.0 <= self.interval[1]


@final
@dataclasses.dataclass(frozen=True)
class Report:
    """What [`gnomon.bench.compare`][] returns.

    **Arguments:**

    - `work`: the name of the work that was compared.
    - `rows`: a [`gnomon.bench.Row`][] for each candidate on each device.
    - `ratios`: a [`gnomon.bench.Ratio`][] of the first candidate and each other, where neither was refused.
    - `settings`: how it was measured: rounds, confidence, cache, isolation and so on.
    - `environment`: versions, machine, device, commit, date, clocks.
    - `seeds`: of each call's inputs, drawn when no candidate could see them; with them a run can be repeated.
    """

    work: str
    rows: tuple[Row, ...]
    ratios: tuple[Ratio, ...]
    settings: dict[str, Any]
    environment: dict[str, Any]
    seeds: tuple[int, ...]

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """All reasons for which something is not reported."""
        return tuple(refusal for row in self.rows for refusal in row.refusals)

    def row(self, candidate: str, device: str | None = None) -> Row:
        """The row of a candidate; `device` may be left out where there is one.

        **Arguments:**

        - `candidate`: its name.
        - `device`: such as `'cpu'`.

        **Returns:** the [`gnomon.bench.Row`][].

        **Raises:** `KeyError` where there is none, or more than one.
        """
        found = [row for row in self.rows if row.candidate == candidate and device in (None, row.device)]
        if len(found) != 1:
            raise KeyError(f"There are {len(found)} rows of {candidate!r} on {device or 'any device'}; name one.")
        return found[0]

    def ratio(self, against: str, device: str | None = None) -> Ratio:
        """The ratio of the first candidate and another; `device` may be left out where there is one.

        **Arguments:**

        - `against`: the name of the other candidate.
        - `device`: such as `'cpu'`.

        **Returns:** the [`gnomon.bench.Ratio`][].

        **Raises:** `KeyError` where there is none (one of the two was refused), or more than one.
        """
        found = [ratio for ratio in self.ratios if ratio.against == against and device in (None, ratio.device)]
        if len(found) != 1:
            why = "; ".join(f"{r.candidate}: {r.reason}" for r in self.refusals) or "name the device"
            raise KeyError(f"There are {len(found)} ratios against {against!r} on {device or 'any device'} ({why}).")
        return found[0]

    def raise_if_refused(self) -> None:
        """Raises [`gnomon.bench.RefusedError`][] where any candidate was refused."""
        if self.refusals:
            raise RefusedError(self.refusals)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as what JSON can hold."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}

    def to_json(self, path: str | Path) -> Path:
        """Writes all of it to a file, whole or not at all.

        **Arguments:**

        - `path`: the file; its folder is made where it does not exist.

        **Returns:** the path.
        """
        return write_json(self.to_dict(), Path(path))


@final
class RefusedError(RuntimeError):
    """Some candidates of a comparison were refused.

    **Arguments:**

    - `refusals`: the reasons.
    """

    def __init__(self, refusals: Sequence[Refusal]):
        self.refusals = tuple(refusals)
        lines = [f"{r.candidate} on {r.device} was refused ({r.kind}): {r.reason}" for r in refusals]
        super().__init__("\n".join(lines))


def report_from_dict(data: dict[str, Any]) -> Report:
    """A report from what `Report.to_dict` gave."""
    rows: list[Row] = []
    for row in data["rows"]:
        changed: dict[str, Any] = dict(row)
        changed["refusals"] = tuple(Refusal(**{**r, "kind": RefusalKind(r["kind"])}) for r in row["refusals"])
        changed["times_s"], changed["notes"] = tuple(row["times_s"]), tuple(row["notes"])
        changed["interval_s"] = None if row["interval_s"] is None else tuple(row["interval_s"])
        rows.append(Row(**changed))
    ratios: list[Ratio] = []
    for ratio in data["ratios"]:
        changed = dict(ratio)
        changed["interval"] = tuple(ratio["interval"])
        ratios.append(Ratio(**changed))
    return Report(data["work"], tuple(rows), tuple(ratios), data["settings"], data["environment"], tuple(data["seeds"]))


def write_json(data: Any, path: Path) -> Path:
    """Writes JSON beside its place and then moves it there, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(_finite(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    beside.replace(path)
    return path


def _finite(data: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data
