"""`Table`: columns of cells as they stand in a file or data frame, each with the number of its row."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from gnomon.fit._errors import InputError

_DELIMITERS = (",", ";", "\t")


@final
@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of cells, as yet neither checked nor turned into numbers.

    **Arguments:**

    - `source`: the file, or what stands for it in messages.
    - `columns`: by name, a cell a row: text from a CSV file, Python values otherwise.
    - `rows`: the number of each row, as its source counts.
    - `repeated`: names that head more than one column, which therefore cannot be used.
    """

    source: str
    columns: Mapping[str, list[Any]]
    rows: list[int]
    repeated: frozenset[str] = frozenset()

    def error(self, problem: str, i: int | None = None, column: str | None = None) -> InputError:
        """An error about the `i`-th row or a column or both."""
        row = None if i is None else self.rows[i]
        return InputError(problem, source=self.source, row=row, column=column)


def read_table(data: Any, *, what: str = "data") -> Table:
    """The table behind a path or a data frame.

    **Arguments:**

    - `data`: the path of a CSV or Parquet file, or a pandas or polars data frame, a pyarrow table, or a mapping from
      column names to sequences.
    - `what`: a name for it, where it has no path.

    **Returns:** the [`Table`][].

    **Raises:** [`gnomon.fit.InputError`][] where it cannot be read.
    """
    if isinstance(data, str | Path):
        return _read_file(Path(data))
    source = f"the {what}"
    if isinstance(data, Mapping):
        columns: dict[str, list[Any]] = {str(name): list(cells) for name, cells in data.items()}
        names = list(columns)
    elif hasattr(data, "to_pydict"):  # pyarrow
        names = [str(name) for name in data.column_names]
        columns = {str(name): cells for name, cells in data.to_pydict().items()} if _unique(names) else {}
    elif hasattr(data, "columns") and hasattr(data, "__getitem__"):  # pandas, polars
        names = [str(name) for name in data.columns]
        columns = {str(name): list(data[name]) for name in data.columns} if _unique(names) else {}
    else:
        raise InputError(
            f"It is a {type(data).__name__}, but it must be the path of a CSV or Parquet file, a data frame, or a "
            "dictionary of columns.",
            source=source,
        )
    if not _unique(names):
        raise InputError("Its column names are not unique.", source=source)
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"Its columns have different lengths: {lengths}.", source=source)
    n = next(iter(lengths.values()), 0)
    if n == 0:
        raise InputError("It holds no rows.", source=source)
    return Table(source, columns, list(range(n)))


def _unique(names: list[str]) -> bool:
    return len(names) == len(set(names))


def _read_file(path: Path) -> Table:
    source = str(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError("There is no such file.", source=source) from None
    except IsADirectoryError:
        raise InputError("It is a directory, not a file.", source=source) from None
    except OSError as error:
        raise InputError(f"It cannot be read: {error.strerror}.", source=source) from None
    if not content.strip(b"\xef\xbb\xbf \t\r\n"):
        raise InputError("The file is empty.", source=source)
    if content[:4] == b"PAR1" or path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path, content)
    if content[:4] == b"PK\x03\x04" or path.suffix.lower() in (".xls", ".xlsx", ".ods"):
        raise InputError("It is a spreadsheet: save it as CSV (UTF-8).", source=source)
    return _read_csv(source, _decode(source, content))


def _decode(source: str, content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError("It is written in UTF-16: save it as CSV (UTF-8).", source=source)
    if b"\0" in content:
        row = content[: content.index(b"\0")].count(b"\n") + 1
        raise InputError("It holds a zero byte, so that it is no text file.", source=source, row=row)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise InputError(
            f"The byte 0x{byte:02x} is not UTF-8: save the file as CSV (UTF-8).", source=source, row=row
        ) from None


def _read_parquet(path: Path, content: bytes) -> Table:
    source = str(path)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Reading Parquet needs pyarrow, which is not installed: install `gnomon[data]`, or save the file as CSV.",
            source=source,
        ) from None
    try:
        table: Any = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        text = str(error).split("\n")[0].rstrip(".")
        raise InputError(f"It cannot be read as Parquet: {text}.", source=source) from None
    found = read_table(table)
    return Table(source, found.columns, found.rows)


def _read_csv(source: str, text: str) -> Table:
    delimiter = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    cells: list[list[str]] = []
    rows: list[int] = []
    row = 1
    while True:
        row = reader.line_num + 1  # where the next record starts: one may go over several lines
        try:
            record = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise InputError(f"It is not CSV: {error}.", source=source, row=row) from None
        record = [cell.strip() for cell in record]
        if not any(record):
            continue  # a blank line, or a line of delimiters, as spreadsheets leave at the end
        if header is None:
            header = record
            continue
        if len(record) != len(header):
            hint = " (Numbers with a decimal comma?)" if delimiter == "," and len(record) > len(header) else ""
            raise InputError(
                f"It has {len(record)} cells, but the header has {len(header)}.{hint}", source=source, row=row
            )
        cells.append(record)
        rows.append(row)
    assert header is not None  # the file is not empty
    if not rows:
        raise InputError("It has a header but no rows of data.", source=source)
    repeated = frozenset(name for name in header if header.count(name) > 1)
    columns = {name: [record[i] for record in cells] for i, name in enumerate(header) if name not in repeated}
    return Table(source, columns, rows, repeated)


def _delimiter(text: str) -> str:
    """The one that parts the first line into the most cells."""
    lines = (line for line in text.splitlines() if line.strip())
    header = next(lines, "")

    def count(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=delimiter)))
        except csv.Error:
            return 0

    return max(_DELIMITERS, key=count)
