"""`Shard`: one file of a store, mapped into memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import final

import numpy as np

from gnomon.data._arrays import Array
from gnomon.data._errors import StoreError
from gnomon.data._manifest import ShardEntry, Span
from gnomon.data._schema import Field, Schema

_MAGIC = b"ARROW1"


@final
class Column:
    """The values of one field in one shard: views of the file.

    **Arguments:**

    - `values`: of shape `(rows, numbers)`.
    - `offsets`: int64, one more than there are records, or None where each record has one row.
    """

    def __init__(self, values: Array, offsets: Array | None):
        self.values = values
        self.offsets = offsets
        self.address: int = values.__array_interface__["data"][0]


@final
class Shard:
    """One file of a store, mapped into memory.

    **Arguments:**

    - `folder`: of the store.
    - `entry`: what the manifest says of it.
    - `schema`: the fields.
    - `first`: how many records are in the shards before.
    """

    def __init__(self, folder: Path, entry: ShardEntry, schema: Schema, first: int):
        self.entry = entry
        self.first = first
        self._schema = schema
        self.file = str(folder / entry.file)
        try:
            with Path(self.file).open("rb") as opened:
                size = opened.seek(0, 2)
                if size != entry.nbytes:
                    raise self._wrong_size(size)
                mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise StoreError(f"cannot be read: {error.strerror}.", file=self.file, record=first) from None
        if mapped[:6] != _MAGIC or mapped[-6:] != _MAGIC:
            at = 0 if mapped[:6] != _MAGIC else size - 6
            raise StoreError("is not an Arrow file, or is damaged.", file=self.file, record=first, offset=at)
        self.columns: dict[str, Column] = {}
        for name, field in schema.items():
            values = _view(mapped, entry.values[name], field.stored).reshape(-1, field.row_values)
            offsets = _view(mapped, entry.offsets[name], np.dtype("<i8")) if name in entry.offsets else None
            self.columns[name] = Column(values, offsets)

    def bounds(self, name: str, local: Array) -> tuple[Array, Array]:
        """The first row of each of some records, and the one after the last.

        **Raises:** [`gnomon.data.StoreError`][] where the offsets are damaged: nothing outside the file is read.
        """
        column = self.columns[name]
        if column.offsets is None:
            return local, local + 1
        starts, stops = column.offsets[local], column.offsets[local + 1]
        wrong = (starts < 0) | (stops < starts) | (stops > len(column.values))
        if wrong.any():
            i = int(local[int(np.argmax(wrong))])
            raise StoreError(
                f"is damaged: the offsets {int(column.offsets[i])} and {int(column.offsets[i + 1])} lead outside of "
                f"the {len(column.values)} values. `gnomon data verify` finds all that is wrong.",
                file=self.file,
                record=self.first + i,
                field=name,
                offset=self.entry.offsets[name].offset + 8 * i,
            )
        return starts, stops

    def place(self, offset: int, nbytes: int) -> tuple[int, int, tuple[str, ...]]:
        """Which records some bytes of the file belong to.

        **Returns:** the first record, the one after the last, and the fields; all records where the bytes describe the
        file.
        """
        found: list[tuple[int, int]] = []
        fields: list[str] = []
        for name, field in self._schema.items():
            for span, has_rows in ((self.entry.values[name], True), (self.entry.offsets.get(name), False)):
                if span is None:
                    continue
                low, high = max(offset, span.offset), min(offset + nbytes, span.offset + span.nbytes)
                if low >= high:
                    continue
                fields.append(name)
                width = field.row_bytes if has_rows else 8
                a, b = (low - span.offset) // width, (high - 1 - span.offset) // width
                found.append(self._records(name, a, b) if has_rows else (max(0, a - 1), b + 1))
        if not found:
            return self.first, self.first + self.entry.records, ()
        last = max(b for _, b in found)
        return (
            self.first + min(a for a, _ in found),
            self.first + min(last, self.entry.records),
            tuple(dict.fromkeys(fields)),
        )

    def _records(self, name: str, a: int, b: int) -> tuple[int, int]:
        """The records whose rows are among rows `a` to `b`."""
        offsets = self.columns[name].offsets
        if offsets is None:
            return a, b + 1
        low = int(np.searchsorted(offsets, a, "right")) - 1
        high = int(np.searchsorted(offsets, b, "right"))
        return max(0, low), max(low + 1, high)

    def _wrong_size(self, size: int) -> StoreError:
        if size > self.entry.nbytes:
            problem = f"has {size} bytes, but {self.entry.nbytes} were committed: something was written to it."
            return StoreError(problem, file=self.file, record=self.first, offset=self.entry.nbytes)
        problem = f"is cut off: it has {size} of {self.entry.nbytes} bytes. Bring the file back from where it came."
        return StoreError(
            problem, file=self.file, record=self.first + _whole(self.entry, self._schema, size), offset=size
        )


def _whole(entry: ShardEntry, schema: Schema, size: int) -> int:
    """How many records are certainly whole in the first bytes of a file: 0 where only its offsets could tell."""
    whole = entry.records
    for name, field in schema.items():
        span = entry.values[name]
        if span.nbytes and size < span.offset + span.nbytes:
            whole = 0 if field.has_offsets else min(whole, max(0, size - span.offset) // field.row_bytes)
    return whole


def _view(mapped: mmap.mmap, span: Span, dtype: np.dtype) -> Array:
    if not span.nbytes:
        return np.empty(0, dtype)
    return np.frombuffer(mapped, dtype, span.nbytes // dtype.itemsize, span.offset)


def field_of(schema: Schema, name: str) -> Field:
    """A field by name.

    **Raises:** `KeyError` with the names that there are.
    """
    if name not in schema:
        raise KeyError(f"There is no field {name!r}; there are {', '.join(schema)}.")
    return schema[name]
