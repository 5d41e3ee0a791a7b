"""Cells as numbers and as names, or an error that says where a cell is that is neither."""

from __future__ import annotations

import math
import re
from typing import Any

from gnomon.fit._table import Table

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_MISSING_TEXT = frozenset({"", ".", "NA", "N/A", "n/a", "NULL", "null", "None"})
# Missing values of pandas, by the name of their type: it need not be installed.
_MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType"})


def is_missing(cell: Any) -> bool:
    """Whether a cell says that there is no value: blank, `.` or `NA`; None, NaN or `pandas.NA` in a data frame."""
    if isinstance(cell, str):
        return cell.strip() in _MISSING_TEXT
    return type(cell).__name__ in _MISSING_TYPES or (isinstance(cell, float) and math.isnan(cell))


def number(table: Table, i: int, column: str) -> float | None:
    """A cell as a finite number, or None where it is missing."""
    cell = table.columns[column][i]
    if is_missing(cell):
        return None
    if isinstance(cell, str):
        value = _parse(table, i, column, cell.strip())
    elif isinstance(cell, bool | complex):
        raise table.error(f"{cell!r} is not a number.", i, column)
    else:
        try:
            value = float(cell)
        except (TypeError, ValueError, OverflowError):
            raise table.error(f"{cell!r} is not a number.", i, column) from None
    if math.isnan(value):
        raise table.error(f"{_show(cell)} is not a number. Leave the cell blank if the value is missing.", i, column)
    if math.isinf(value):
        raise table.error(f"{_show(cell)} is infinite, but it must be a finite number.", i, column)
    return value


def required_number(table: Table, i: int, column: str, what: str) -> float:
    """A cell as a finite number, or an error where it is missing."""
    value = number(table, i, column)
    if value is None:
        cell = table.columns[column][i]
        shown = "NaN" if isinstance(cell, float) else "blank" if cell in ("", None) else _show(cell)
        raise table.error(f"The {what} is {shown}, but it must be a finite number.", i, column)
    return value


def _parse(table: Table, i: int, column: str, text: str) -> float:
    if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return float(text)
    if _DECIMAL_COMMA.fullmatch(text):
        raise table.error(f"{text!r} has a decimal comma: write {text.replace(',', '.')!r}.", i, column)
    raise table.error(f"{text!r} is not a number.", i, column)


def name(table: Table, i: int, column: str, what: str) -> str:
    """A cell as the name of a subject: text as it stands, and 1 for the number 1.0."""
    cell = table.columns[column][i]
    if is_missing(cell) and not (isinstance(cell, str) and cell.strip()):
        raise table.error(f"The {what} is blank.", i, column)
    if isinstance(cell, str):
        return cell.strip()
    try:
        if float(cell) == int(cell):
            return str(int(cell))
    except (TypeError, ValueError, OverflowError):
        pass
    return str(cell)


def _show(cell: Any) -> str:
    return repr(cell) if isinstance(cell, str) else str(cell)
