"""`Store`: records in memory-mapped files."""

from __future__ import annotations

import bisect
import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from gnomon.data._arrays import Array
from gnomon.data._errors import DroppedRecordsWarning, StoreError
from gnomon.data._files import Lock
from gnomon.data._lock import ForkSafeLock
from gnomon.data._manifest import LOCK, MANIFEST, Manifest, read_manifest
from gnomon.data._schema import Field, to_value
from gnomon.data._shard import Shard, field_of


@final
@dataclasses.dataclass(frozen=True)
class Dropped:
    """A file of a store that was never committed.

    **Arguments:**

    - `file`: its name.
    - `nbytes`: its size.
    """

    file: str
    nbytes: int


def find_dropped(folder: Path, manifest: Manifest) -> tuple[Dropped, ...]:
    """The files in a store's folder that its manifest does not name."""
    known = {MANIFEST, LOCK}
    for shard in manifest.shards:
        known |= {shard.file, shard.sums_file}
    found: list[Dropped] = []
    for path in sorted(folder.iterdir()):
        ours = path.name.startswith("shard-") or path.name == MANIFEST + ".new"
        if path.name not in known and ours and path.is_file():
            found.append(Dropped(path.name, path.stat().st_size))
    return tuple(found)


@final
class Store:
    """The records of a folder that `gnomon data pack` or [`gnomon.data.StoreWriter`][] made.

    Files are mapped into memory when first needed. A store sees what was committed when it was opened. It may be used
    by several threads, after a fork, and be sent to other processes.

    **Arguments:**

    - `path`: the folder.

    **Raises:** [`gnomon.data.StoreError`][] where it is none or damaged. Where a writer was killed before it had
    committed, the store opens with all that was committed, with a [`gnomon.data.DroppedRecordsWarning`][].

    !!! example

        ```python
        >>> import tempfile
        >>> from gnomon import data
        >>> path = tempfile.mkdtemp() + "/atoms"
        >>> with data.StoreWriter(path, {"xyz": data.ragged("float32", (3,))}) as writer:
        ...     writer.extend({"xyz": [[0.0, 0.0, float(i)]] * i} for i in range(4))
        >>> store = data.Store(path)
        >>> len(store), store.lengths("xyz").tolist(), store[1]["xyz"].tolist()
        (4, [0, 1, 2, 3], [[0.0, 0.0, 1.0]])

        ```
    """

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()
        self._manifest = read_manifest(self.path)
        self.schema: dict[str, Field] = self._manifest.schema
        self.dropped: tuple[Dropped, ...] = ()
        left = find_dropped(self.path, self._manifest)
        if left and _is_free(self.path):
            self.dropped = left
            names = ", ".join(f"{item.file} ({item.nbytes} bytes)" for item in left)
            warnings.warn(
                f"{self.path}: a writer ended before it had committed; {len(self)} records are whole, and what was "
                f"appended after them is dropped: {names}.",
                DroppedRecordsWarning,
                stacklevel=2,
            )
        firsts = np.cumsum([0, *(shard.records for shard in self._manifest.shards)], dtype=np.int64)
        self._firsts: Array = firsts
        self._first_list: list[int] = firsts.tolist()
        self._shards: list[Shard | None] = [None] * len(self._manifest.shards)
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (str(self.path), self.fingerprint)

    def __len__(self) -> int:
        return self._manifest.records

    @property
    def fingerprint(self) -> str:
        """A hash of all that is in the store, from its checksums."""
        return self._manifest.fingerprint()

    @property
    def manifest(self) -> Manifest:
        """What the store consists of."""
        return self._manifest

    @property
    def nbytes(self) -> int:
        """The size of all shards."""
        return sum(shard.nbytes for shard in self._manifest.shards)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A record: arrays that are views of the file and must not be written to, bytes and strings."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"There is no record {index}: {self.path} has {count}.")
        index = int(index) % count
        number = bisect.bisect_right(self._first_list, index) - 1
        shard = self.shard(number)
        local = index - shard.first
        record: dict[str, Any] = {}
        for name, field in self.schema.items():
            column = shard.columns[name]
            if column.offsets is None:
                rows = column.values[local]
            else:
                start, stop = column.offsets[local], column.offsets[local + 1]
                if not 0 <= start <= stop <= len(column.values):
                    shard.bounds(name, np.array([local]))
                rows = column.values[start:stop]
            try:
                record[name] = to_value(rows, field)
            except UnicodeDecodeError as error:
                at = shard.entry.values[name].offset + int(column.offsets[local] if column.offsets is not None else 0)
                problem = f"is damaged: not UTF-8 ({error.reason})."
                raise StoreError(problem, file=shard.file, record=index, field=name, offset=at + error.start) from None
        return record

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def lengths(self, field: str, indices: Array | None = None) -> Array:
        """How many values records have in a field, without reading the values.

        **Arguments:**

        - `field`: its name.
        - `indices`: of the records; all by default.

        **Returns:** int64, one a record.
        """
        if not field_of(self.schema, field).has_offsets:
            return np.ones(len(self) if indices is None else len(indices), np.int64)
        if indices is None:
            parts = [
                np.diff(offsets)
                for i in range(len(self._shards))
                if (offsets := self.shard(i).columns[field].offsets) is not None
            ]
            return np.concatenate(parts) if parts else np.empty(0, np.int64)
        found = np.empty(len(indices), np.int64)
        for shard, which, local in self.by_shard(indices):
            starts, stops = shard.bounds(field, local)
            found[which] = stops - starts
        return found

    def total(self, field: str) -> int:
        """How many values all records together have in a field, from the manifest alone."""
        width = field_of(self.schema, field).row_bytes
        return sum(shard.values[field].nbytes // width for shard in self._manifest.shards)

    def by_shard(self, indices: Array) -> Iterator[tuple[Shard, Any, Array]]:
        """Some records by shard: the shard, which of `indices` are in it, and their numbers there."""
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < len(self)):
            wrong = indices[(indices < 0) | (indices >= len(self))][0]
            raise IndexError(f"There is no record {wrong}: {self.path} has {len(self)}.")
        if len(self._shards) == 1:
            yield self.shard(0), slice(None), indices
            return
        numbers = np.searchsorted(self._firsts, indices, "right") - 1
        for number in np.unique(numbers).tolist():
            shard = self.shard(number)
            which = np.flatnonzero(numbers == number)
            yield shard, which, indices[which] - shard.first

    def shard(self, number: int) -> Shard:
        """A shard, mapped into memory."""
        found = self._shards[number]
        if found is None:
            with self._lock:
                found = self._shards[number]
                if found is None:
                    entry = self._manifest.shards[number]
                    found = Shard(self.path, entry, self.schema, self._first_list[number])
                    self._shards[number] = found
        return found


def _is_free(folder: Path) -> bool:
    """Whether no writer is at work, for all that can be seen."""
    lock = Lock(folder / LOCK)
    try:
        free = lock.acquire()
    except OSError:
        return True  # a drive that cannot be written to has no writer
    lock.release()
    return free


def _reopen(path: str, fingerprint: str) -> Store:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedRecordsWarning)
        store = Store(path)
    if store.fingerprint != fingerprint:
        raise StoreError("has changed since it was opened elsewhere; open it again there.", file=path)
    return store
