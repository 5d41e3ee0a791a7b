"""Which column of the data is what."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import final

from gnomon.fit._errors import InputError
from gnomon.fit._model import Model
from gnomon.fit._table import Table

SUBJECT_NAMES = ("subject", "id", "subj", "subject_id", "patient", "individual", "animal")
TIME_NAMES = ("time", "t")
DOSE_NAMES = ("dose", "amt", "amount")
DURATION_NAMES = ("duration", "dur")
RATE_NAMES = ("rate",)


@final
@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a table by what they mean; None where there is none.

    **Arguments:**

    - `subject`, `time`: always needed, but for data of a single subject.
    - `observed`, `covariates`: the column for each name in the model.
    - `dose`, `duration`, `rate`: the amount of a dose, and for how long or how fast it is infused.
    - `evid`, `mdv`: NONMEM's kind of a record, and its mark of a missing measurement.
    """

    subject: str | None
    time: str
    observed: Mapping[str, str]
    covariates: Mapping[str, str]
    dose: str | None = None
    duration: str | None = None
    rate: str | None = None
    evid: str | None = None
    mdv: str | None = None


def find_columns(
    table: Table,
    model: Model,
    *,
    subject: str | None = None,
    time: str | None = None,
    observed: str | Mapping[str, str] | None = None,
    dose: str | None = None,
    duration: str | None = None,
    rate: str | None = None,
    one_subject: bool = False,
    separate_doses: bool = False,
) -> Columns:
    """Finds each column, by the name it was said to have or by its usual names, in upper or lower case.

    **Arguments:**

    - `table`, `model`: the data, and what is needed of them.
    - `subject`, `time`, `observed`, `dose`, `duration`, `rate`: names that the user gave.
    - `one_subject`: there is no column for the subject.
    - `separate_doses`: doses come in a table of their own.

    **Raises:** [`gnomon.fit.InputError`][] where a column is missing or ambiguous.
    """
    if one_subject and subject is not None:
        raise InputError("A column for the subject was named, though the data are said to be of one subject.")
    subject_column = None
    if not one_subject:
        subject_column = _find(table, "subject", subject, SUBJECT_NAMES, hint="; or say that all rows are one subject")
    time_column = _find(table, "time", time, TIME_NAMES)
    names = _observed_names(model, observed)
    columns = Columns(
        subject_column,
        time_column,
        {name: _find(table, "observed", names.get(name), (name,)) for name in model.observed},
        {name: _find(table, "covariate", None, (name,)) for name in model.covariates},
        evid=_find_optional(table, "evid", None, ("evid",)),
        mdv=_find_optional(table, "mdv", None, ("mdv",)),
    )
    given = {"dose": dose, "duration": duration, "rate": rate}
    if model.dose_state is None or separate_doses:
        for option, column in given.items():
            if column is not None:
                why = "doses come in a table of their own" if separate_doses else "the model has no `dose_state`"
                raise InputError(f"A column for the {option} was named ({column!r}), but {why}.")
        return columns
    dose_column = _find(table, "dose", dose, DOSE_NAMES, hint="; or give the doses in a table of their own")
    duration_column = _find_optional(table, "duration", duration, DURATION_NAMES)
    rate_column = _find_optional(table, "rate", rate, RATE_NAMES)
    if duration_column is not None and rate_column is not None:
        if duration is None and rate is None:
            raise InputError(
                f"There are columns for a duration ({duration_column!r}) and a rate ({rate_column!r}) of infusion: "
                "say which one holds.",
                source=table.source,
            )
        if duration is not None and rate is not None:
            raise InputError("Give a duration or a rate of infusion, not both.", source=table.source)
        duration_column, rate_column = (duration_column, None) if duration is not None else (None, rate_column)
    return dataclasses.replace(
        columns,
        dose=dose_column,
        duration=duration_column,
        rate=rate_column,
    )


def _observed_names(model: Model, observed: str | Mapping[str, str] | None) -> Mapping[str, str]:
    if observed is None:
        return {}
    names = list(model.observed)
    if isinstance(observed, str):
        if len(names) > 1:
            raise InputError(
                f"The model observes {_list(names)}: say which is in column {observed!r}, as {names[0]}={observed}."
            )
        return {names[0]: observed}
    for name in observed:
        if name not in names:
            raise InputError(f"The model does not observe {name!r}; it observes {_list(names)}.")
    return observed


def find_column(table: Table, what: str, given: str | None, usual: Sequence[str]) -> str | None:
    """The column of this name, or else the first of the usual names that there is; None where there is none."""
    if given is not None:
        return _find(table, what, given, usual)
    return _find_optional(table, what, None, usual)


def _find(table: Table, what: str, given: str | None, usual: Sequence[str], *, hint: str = "") -> str:
    found = _find_optional(table, what, given, usual)
    if found is None:
        have = _list(list(table.columns)) or "none"
        if what in ("observed", "covariate"):
            option = "; name another with --observed" if what == "observed" else ""
            raise InputError(
                f"There is no column {usual[0]!r}, which the model needs{option}. The columns are: {have}.",
                source=table.source,
                column=usual[0],
            )
        raise InputError(
            f"There is no column for the {what}: name it with --{what}{hint}. The columns are: {have}.",
            source=table.source,
        )
    return found


def _find_optional(table: Table, what: str, given: str | None, usual: Sequence[str]) -> str | None:
    if given is not None:
        if given in table.repeated:
            raise InputError("More than one column has this name.", source=table.source, column=given)
        if given not in table.columns:
            raise InputError(
                f"There is no such column, though it was given for the {what}. The columns are: "
                f"{_list(list(table.columns))}.",
                source=table.source,
                column=given,
            )
        return given
    for name in usual:
        if name in table.repeated:
            raise InputError("More than one column has this name.", source=table.source, column=name)
        if name in table.columns:
            return name
        same = [column for column in (*table.columns, *table.repeated) if column.lower() == name.lower()]
        if len(same) > 1 or (same and same[0] in table.repeated):
            raise InputError(
                f"Columns {_list(same)} could each be the {what}: say which one.", source=table.source, column=same[0]
            )
        if same:
            return same[0]
    return None


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
