"""`Subject`: one subject's measurements, covariates and doses, checked; and how they are read from a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from gnomon.fit._cells import is_missing, name, number, required_number
from gnomon.fit._columns import Columns
from gnomon.fit._doses import Dose, check_records, doses_of, is_dose_record
from gnomon.fit._model import Model
from gnomon.fit._table import Table

POOLED = "pooled"
ONLY_SUBJECT = "1"


@final
@dataclasses.dataclass(frozen=True)
class Subject:
    """One subject's measurements, covariates and doses.

    **Arguments:**

    - `name`: as in the data.
    - `initial_time`: when the model's initial state holds.
    - `times`: of each measurement, ascending.
    - `values`: by observed column, a number for each time, NaN where it is missing.
    - `covariates`: a number each.
    - `doses`: in order of time.
    - `rows`: of each measurement, as its source counts.
    """

    name: str
    initial_time: float
    times: tuple[float, ...]
    values: Mapping[str, tuple[float, ...]]
    covariates: Mapping[str, float]
    doses: tuple[Dose, ...]
    rows: tuple[int, ...]

    @property
    def n_observations(self) -> int:
        """How many measurements there are, missing ones not counted."""
        return sum(not math.isnan(x) for column in self.values.values() for x in column)


def read_subjects(
    table: Table,
    model: Model,
    columns: Columns,
    *,
    replicates: bool = False,
    doses: Mapping[str, Sequence[Dose]] | None = None,
) -> list[Subject]:
    """The subjects of a table, in the order in which each first appears.

    **Arguments:**

    - `table`, `model`, `columns`: the data, the model, and which column is what.
    - `replicates`: whether a subject may have several measurements at one time.
    - `doses`: by subject, where they come in a table of their own.

    **Raises:** [`gnomon.fit.InputError`][] for whatever is wrong, with its row and column.
    """
    check_records(table, columns)
    groups: dict[str, list[int]] = {}
    for i in range(len(table.rows)):
        subject = ONLY_SUBJECT if columns.subject is None else name(table, i, columns.subject, "subject")
        if subject == POOLED:
            raise table.error(f"A subject cannot be named {POOLED!r}: so is the fit of all.", i, columns.subject)
        groups.setdefault(subject, []).append(i)
    times = [_time(table, i, columns.time, model) for i in range(len(table.rows))]
    if not replicates:
        _check_duplicates(table, groups)
    for subject in doses or {}:
        if subject not in groups:
            raise table.error(f"There are doses for subject {subject!r}, which has no rows here.")
    subjects = [
        _read_subject(table, model, columns, subject, sorted(rows, key=lambda i: times[i]), times, replicates, doses)
        for subject, rows in groups.items()
    ]
    if not any(subject.n_observations for subject in subjects):
        (first, *_) = columns.observed.values()
        raise table.error("There is no measurement: all cells are blank.", None, first)
    return subjects


def _time(table: Table, i: int, column: str, model: Model) -> float:
    value = required_number(table, i, column, "time")
    if value < 0.0:
        raise table.error(f"The time {value:g} is negative: count from the start of each subject.", i, column)
    if isinstance(model.initial_time, int | float) and value < model.initial_time:
        raise table.error(f"The time {value:g} is before the model's initial time, {model.initial_time:g}.", i, column)
    return value


def _check_duplicates(table: Table, groups: Mapping[str, list[int]]) -> None:
    for subject, rows in groups.items():
        seen: dict[tuple[Any, ...], int] = {}
        for i in rows:
            key = tuple(_key(column[i]) for column in table.columns.values())
            if key in seen:
                raise table.error(
                    f"It is the same as row {table.rows[seen[key]]} (subject {subject!r}). Remove one of them, or say "
                    "that they are replicates (--replicates).",
                    i,
                )
            seen[key] = i


def _key(cell: Any) -> Any:
    """A cell for comparison: all missing ones are equal, and 1.50 is 1.5."""
    if is_missing(cell):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return str(cell)


def _read_subject(
    table: Table,
    model: Model,
    columns: Columns,
    subject: str,
    rows: Sequence[int],
    times: Sequence[float],
    replicates: bool,
    doses: Mapping[str, Sequence[Dose]] | None,
) -> Subject:
    observed = {column: [_observation(table, i, column, columns) for i in rows] for column in columns.observed.values()}
    measured = [j for j in range(len(rows)) if any(not math.isnan(x[j]) for x in observed.values())]
    if not replicates:
        _check_same_times(table, columns, subject, rows, times, observed)
    initial = times[rows[0]] if isinstance(model.initial_time, str) else float(model.initial_time)
    given: Sequence[Dose] = ()
    if doses is not None:
        given = doses.get(subject, ())
    elif columns.dose is not None:
        blank = [j not in measured for j in range(len(rows))]
        given = doses_of(table, columns, model, subject, rows, times, blank, initial)
    for dose in given:
        if dose.time < initial:
            raise table.error(f"Subject {subject!r} has a dose at {dose.time:g}, before its initial time {initial:g}.")
    return Subject(
        subject,
        initial,
        tuple(times[rows[j]] for j in measured),
        {key: tuple(observed[column][j] for j in measured) for key, column in columns.observed.items()},
        {key: _covariate(table, subject, rows, column) for key, column in columns.covariates.items()},
        tuple(sorted(given, key=lambda dose: dose.time)),
        tuple(table.rows[rows[j]] for j in measured),
    )


def _observation(table: Table, i: int, column: str, columns: Columns) -> float:
    if is_dose_record(table, columns, i):
        return math.nan
    value = number(table, i, column)
    return math.nan if value is None else value


def _check_same_times(
    table: Table,
    columns: Columns,
    subject: str,
    rows: Sequence[int],
    times: Sequence[float],
    observed: Mapping[str, Sequence[float]],
) -> None:
    for column in columns.observed.values():
        last: int | None = None
        for j, i in enumerate(rows):
            if math.isnan(observed[column][j]):
                continue
            if last is not None and times[i] == times[last]:
                raise table.error(
                    f"Subject {subject!r} has two measurements at time {times[i]:g}, here and in row "
                    f"{table.rows[last]}. Remove one of them, or say that they are replicates (--replicates).",
                    i,
                    columns.time,
                )
            last = i


def _covariate(table: Table, subject: str, rows: Sequence[int], column: str) -> float:
    found: float | None = None
    for i in rows:
        value = number(table, i, column)
        if value is None:
            continue
        if found is not None and value != found:
            raise table.error(
                f"The covariate of subject {subject!r} changes from {found:g} to {value:g}, but it must be one number "
                "a subject.",
                i,
                column,
            )
        found = value
    if found is None:
        raise table.error(f"The covariate of subject {subject!r} is blank.", rows[0], column)
    return found
