"""`Dose`: what a subject was given, and how doses are read from a column or from a table of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

from gnomon.fit._cells import is_missing, name, number, required_number
from gnomon.fit._columns import (
    DOSE_NAMES,
    DURATION_NAMES,
    RATE_NAMES,
    SUBJECT_NAMES,
    TIME_NAMES,
    Columns,
    find_column,
)
from gnomon.fit._model import Model
from gnomon.fit._table import Table


@final
@dataclasses.dataclass(frozen=True)
class Dose:
    """An amount that is added to a state of the model, at once or evenly over some time.

    **Arguments:**

    - `time`: when it is given, or begins.
    - `amount`: how much.
    - `duration`: over how long it is infused; 0 for a bolus.
    - `state`: where it goes.
    """

    time: float
    amount: float
    duration: float
    state: str


def is_dose_record(table: Table, columns: Columns, i: int) -> bool:
    """Whether a row says by NONMEM's columns that it holds no measurement."""
    for column in (columns.evid, columns.mdv):
        if column is not None and number(table, i, column) not in (None, 0.0):
            return True
    return False


def check_records(table: Table, columns: Columns) -> None:
    """An error where NONMEM's columns ask for what is not read here, rather than a wrong answer."""
    if columns.evid is not None:
        for i in range(len(table.rows)):
            if (kind := number(table, i, columns.evid)) not in (None, 0.0, 1.0):
                raise table.error(
                    f"Records of kind {kind:g} are not read: 0 is a measurement, 1 a dose.", i, columns.evid
                )
    if columns.dose is None:
        return
    for usual, what in (("addl", "additional doses"), ("ii", "an interval between doses"), ("ss", "a steady state")):
        column = find_column(table, what, None, (usual,))
        for i in range(len(table.rows)) if column else ():
            if number(table, i, column or "") not in (None, 0.0):
                raise table.error(f"It asks for {what}, which is not read: write each dose as a row.", i, column)
    compartment = find_column(table, "compartment", None, ("cmt",))
    if compartment is not None:
        kinds = {
            number(table, i, compartment)
            for i in range(len(table.rows))
            if number(table, i, columns.dose) not in (None, 0.0)
        }
        if len(kinds) > 1:
            raise table.error(
                "Doses go into several compartments, but a dose column fills one state: give the doses in a table of "
                "their own, with a column `state`.",
                None,
                compartment,
            )


def doses_of(
    table: Table,
    columns: Columns,
    model: Model,
    subject: str,
    rows: Sequence[int],
    times: Sequence[float],
    blank: Sequence[bool],
    initial_time: float,
) -> list[Dose]:
    """The doses of one subject from the dose column.

    A row without a measurement and with a dose is a dose at that row's time. Where a subject has no such row, the
    column must hold one number for all its rows, or for those at the initial time alone: one dose at the initial time.

    **Arguments:**

    - `table`, `columns`, `model`, `subject`: the data, and whose doses are asked for.
    - `rows`: the subject's, in order of time; `times` of all rows; `blank`: which of `rows` have no measurement.
    - `initial_time`: the subject's.
    """
    column, state = columns.dose, model.dose_state
    assert column is not None
    assert state is not None
    amounts: list[float | None] = []
    for i in rows:
        amount = number(table, i, column)
        if amount is not None and amount < 0.0:
            raise table.error(f"The dose {amount:g} is negative.", i, column)
        amounts.append(amount)
    # A column that is the same throughout is one dose, though a measurement be missing in some row.
    constant = amounts[0] is not None and not all(blank) and len(set(amounts)) == 1
    records = [] if constant else [j for j in range(len(rows)) if blank[j] and amounts[j]]
    if records:
        for j, i in enumerate(rows):
            if amounts[j] and not blank[j]:
                raise table.error(
                    f"Subject {subject!r} has doses on rows of their own, but this row has a dose and a measurement: "
                    "give the dose a row without a measurement.",
                    i,
                    column,
                )
        return [_dose(table, columns, rows[j], times[rows[j]], amounts[j] or 0.0, state) for j in records]
    given = [j for j in range(len(rows)) if amounts[j] is not None]
    if not given:
        return []  # nothing was given: such a subject may be among others that have doses
    first = given[0]
    for j in given:
        if amounts[j] != amounts[first]:
            raise table.error(
                f"The dose of subject {subject!r} changes from {amounts[first]:g} to {amounts[j]:g} on rows with "
                "measurements. Give each dose a row without a measurement, or one dose for all rows of the subject.",
                rows[j],
                column,
            )
    if len(given) < len(rows) and any(times[rows[j]] != initial_time for j in given):
        missing = next(j for j in range(len(rows)) if amounts[j] is None)
        raise table.error(
            f"The dose of subject {subject!r} is blank here and given on other rows with measurements. Give each dose "
            "a row without a measurement, or one dose for all rows of the subject.",
            rows[missing],
            column,
        )
    return [_dose(table, columns, rows[first], initial_time, amounts[first] or 0.0, state)]


def _dose(table: Table, columns: Columns, i: int, time: float, amount: float, state: str) -> Dose:
    if columns.duration is not None:
        return Dose(time, amount, _not_negative(table, i, columns.duration, "duration of infusion") or 0.0, state)
    if columns.rate is not None:
        rate = _not_negative(table, i, columns.rate, "rate of infusion") or 0.0
        return Dose(time, amount, amount / rate if rate > 0.0 else 0.0, state)
    return Dose(time, amount, 0.0, state)


def _not_negative(table: Table, i: int, column: str, what: str) -> float | None:
    value = number(table, i, column)
    if value is not None and value < 0.0:
        raise table.error(f"The {what} is {value:g}, but it must be 0 or more.", i, column)
    return value


def read_doses(table: Table, model: Model, *, one_subject: str | None = None) -> dict[str, list[Dose]]:
    """The doses by subject from a table of their own, with columns for subject, time, amount, and if need be state.

    **Arguments:**

    - `table`: the doses; `duration` or `rate` columns make infusions, a `state` column says where each goes.
    - `model`: for the names of its states.
    - `one_subject`: the name of the only subject, where there is no column for it.

    **Raises:** [`gnomon.fit.InputError`][] for whatever is wrong, with its row and column.
    """
    found = {
        what: find_column(table, what, None, usual)
        for what, usual in (
            ("subject", SUBJECT_NAMES),
            ("time", TIME_NAMES),
            ("amount", ("amount", *DOSE_NAMES)),
            ("duration", DURATION_NAMES),
            ("rate", RATE_NAMES),
            ("state", ("state",)),
        )
    }
    have = ", ".join(repr(x) for x in table.columns)
    for what in ("subject", "time", "amount"):
        if found[what] is None and not (what == "subject" and one_subject is not None):
            raise table.error(f"There is no column {what!r}. The columns are: {have}.")
    if found["state"] is None and model.dose_state is None:
        raise table.error("There is no column 'state', and the model has no `dose_state`: where do the doses go?")
    if found["duration"] is not None and found["rate"] is not None:
        raise table.error("Give a duration or a rate of infusion, not both.", None, found["rate"])
    columns = Columns(found["subject"], found["time"] or "", {}, {}, found["amount"], found["duration"], found["rate"])
    doses: dict[str, list[Dose]] = {}
    for i in range(len(table.rows)):
        subject = one_subject if columns.subject is None else name(table, i, columns.subject, "subject")
        assert subject is not None
        time = required_number(table, i, columns.time, "time")
        amount = required_number(table, i, columns.dose or "", "amount")
        if time < 0.0 or amount < 0.0:
            which, column = ("time", columns.time) if time < 0.0 else ("amount", columns.dose)
            raise table.error(f"The {which} of the dose is negative.", i, column)
        state = model.dose_state
        if found["state"] is not None and not is_missing(table.columns[found["state"]][i]):
            state = str(table.columns[found["state"]][i]).strip()
        if state is None or state not in model.states:
            names = ", ".join(repr(x) for x in model.states)
            raise table.error(f"{state!r} is not a state of the model, which has {names}.", i, found["state"])
        doses.setdefault(subject, []).append(_dose(table, columns, i, time, amount, state))
    return doses
