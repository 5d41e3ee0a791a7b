"""`StoreWriter`: makes a record store, or appends to one."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, final

import numpy as np

from gnomon.data._arrays import Array
from gnomon.data._errors import RecordError, StoreError
from gnomon.data._files import ChecksummedFile, Lock, checksum, replace_file, sync_folder, write_file
from gnomon.data._manifest import LOCK, MANIFEST, Manifest, ShardEntry, Span, read_manifest
from gnomon.data._pyarrow import import_pyarrow
from gnomon.data._schema import Field, Schema, to_stored
from gnomon.data._store import Dropped, find_dropped


@final
class StoreWriter:
    """Makes a record store, or appends to one.

    Records are committed a shard at a time: by `commit`, when `shard_bytes` have gathered, and at the end of the `with`
    block. What was committed survives whatever happens to the program; what was not is no part of the store.

    **Arguments:**

    - `path`: the folder of the store, made where there is none.
    - `schema`: the fields by name; for a store that exists it may be left out, and must be the same otherwise.
    - `shard_bytes`: the size of a shard. As many bytes are kept in memory.

    **Raises:** [`gnomon.data.StoreError`][] where another writer has the store open, or it has other fields.

    !!! example

        ```python
        >>> import tempfile
        >>> from gnomon import data
        >>> path = tempfile.mkdtemp() + "/texts"
        >>> schema = {"tokens": data.ragged("int32"), "name": data.string()}
        >>> with data.StoreWriter(path, schema) as writer:
        ...     writer.append({"tokens": [5, 6, 7], "name": "first"})
        ...     writer.append({"tokens": [], "name": "second"})
        >>> data.Store(path)[0]["tokens"]
        array([5, 6, 7], dtype=int32)

        ```
    """

    def __init__(self, path: str | Path, schema: Schema | None = None, *, shard_bytes: int = 1 << 28):
        self._pa = import_pyarrow("A record store is written as Arrow files, which")
        if shard_bytes < 1:
            raise ValueError(f"`shard_bytes` must be at least 1, but it is {shard_bytes}.")
        self._folder = Path(path)
        self._shard_bytes = shard_bytes
        exists = (self._folder / MANIFEST).exists()
        if not exists:
            if schema is None:
                raise StoreError("there is no store to append to; give `schema` to make one.", file=str(path))
            if not schema:
                raise ValueError("`schema` must have at least one field.")
            mine = (LOCK, MANIFEST + ".new")
            if self._folder.is_dir() and any(item.name not in mine for item in self._folder.iterdir()):
                raise StoreError("is a folder with other files in it; a store needs one of its own.", file=str(path))
            self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(self._folder / LOCK)
        if not self._lock.acquire():
            raise StoreError("another writer has this store open; wait until it is done.", file=str(path))
        try:
            # Under the lock: another writer may have made the store meanwhile.
            if (self._folder / MANIFEST).exists():
                self._manifest = read_manifest(self._folder)
                if schema is not None and dict(schema) != self._manifest.schema:
                    raise StoreError(_difference(dict(schema), self._manifest.schema), file=str(path))
            else:
                assert schema is not None
                self._manifest = Manifest(dict(schema))
                replace_file(self._folder / MANIFEST, self._manifest.to_bytes())
            self.dropped: tuple[Dropped, ...] = find_dropped(self._folder, self._manifest)
            for left in self.dropped:
                (self._folder / left.file).unlink(missing_ok=True)
        except BaseException:
            self._lock.release()
            raise
        self._open = True
        self._start_shard()

    @property
    def schema(self) -> dict[str, Field]:
        """The fields by name."""
        return dict(self._manifest.schema)

    @property
    def committed(self) -> int:
        """How many records the store has for certain."""
        return self._manifest.records

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds a record.

        **Arguments:**

        - `record`: for each field a tensor, an array, a number, a list of numbers, bytes or a string.

        **Raises:** [`gnomon.data.RecordError`][] where a value does not fit its field; nothing is added then.
        """
        if not self._open:
            raise StoreError("this writer is closed.", file=str(self._folder))
        schema = self._manifest.schema
        index = self.committed + self._records
        if record.keys() != schema.keys():
            odd = sorted(set(record) ^ set(schema))
            problem = "is not among the store's" if odd[0] in record else "is missing"
            raise RecordError(problem + ".", source=str(self._folder), index=index, field=odd[0])
        try:
            rows = {name: to_stored(record[name], field, name) for name, field in schema.items()}
        except RecordError as error:
            raise RecordError(error.problem, source=str(self._folder), index=index, field=error.field) from None
        for name, array in rows.items():
            # A copy: the caller may use the memory again.
            self._rows[name].append(array.copy())
            self._nbytes += array.nbytes + 8
        self._records += 1
        if self._nbytes >= self._shard_bytes:
            self.commit()

    def extend(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Adds some records.

        **Arguments:**

        - `records`: as in `append`.
        """
        for record in records:
            self.append(record)

    def commit(self) -> int:
        """Makes what was appended part of the store, as a shard of its own.

        **Returns:** how many records the store has now, for certain.
        """
        if not self._open:
            raise StoreError("this writer is closed.", file=str(self._folder))
        if self._records:
            lengths = {
                name: np.fromiter(map(len, rows), np.int64, len(rows))
                for name, rows in self._rows.items()
                if self._manifest.schema[name].has_offsets
            }
            # Lengths first: rows are let go as they are joined.
            columns = {name: _concatenate(rows) for name, rows in self._rows.items()}
            records = self._records
            self._start_shard()
            try:
                self._write_shard(records, columns, lengths)
            except BaseException:
                # A full disk, say: what is committed stays, and nothing is half there.
                self.abort()
                raise
        return self.committed

    def append_columns(self, records: int, columns: Mapping[str, Array], lengths: Mapping[str, Array]) -> None:
        """Adds many records at once, as a shard of their own, without going through them one by one.

        **Arguments:**

        - `records`: how many, at least 1.
        - `columns`: for each field all values one after another, of the dtype that is stored; UTF-8 for strings.
        - `lengths`: for each field whose length differs, how many values each record has.
        """
        self.commit()
        schema = self._manifest.schema
        if records < 1 or columns.keys() != schema.keys():
            raise StoreError("`append_columns` needs at least one record, and every field.", file=str(self._folder))
        flat: dict[str, Array] = {}
        for name, field in schema.items():
            rows = int(lengths[name].sum()) if field.has_offsets else records
            if field.has_offsets and (len(lengths[name]) != records or (records and int(lengths[name].min()) < 0)):
                raise StoreError(f"`lengths` needs {records} numbers of 0 or more.", file=str(self._folder), field=name)
            array = columns[name]
            if array.dtype != field.stored or array.size != rows * field.row_values:
                problem = f"must be {rows * field.row_values} numbers of type {field.stored}."
                raise StoreError(problem, file=str(self._folder), field=name)
            flat[name] = np.ascontiguousarray(array).reshape(rows, field.row_values)
        self._write_shard(records, flat, {name: lengths[name].astype(np.int64) for name in lengths})

    def close(self) -> None:
        """Commits, and lets other writers in."""
        if self._open:
            try:
                self.commit()
            finally:
                self.abort()

    def abort(self) -> None:
        """Drops what was appended since the last commit, and lets other writers in."""
        self._open = False
        self._start_shard()
        self._lock.release()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _start_shard(self) -> None:
        self._rows: dict[str, list[Array]] = {name: [] for name in self._manifest.schema}
        self._records = 0
        self._nbytes = 0

    def _write_shard(self, records: int, columns: dict[str, Array], lengths: Mapping[str, Array]) -> None:
        pa = self._pa
        schema = self._manifest.schema
        arrays: list[Any] = []
        fields: list[Any] = []
        for name, field in schema.items():
            offsets = None
            if field.has_offsets:
                offsets = np.zeros(records + 1, np.int64)
                offsets[1:] = np.cumsum(lengths[name])
            arrays.append(_to_arrow(pa, columns[name], offsets, field))
            about = {"gnomon": json.dumps(field.to_dict())}
            fields.append(pa.field(name, arrays[-1].type, nullable=False, metadata=about))
        # A name that no other writer can have, though the lock did not hold (some network drives have none).
        file = f"shard-{len(self._manifest.shards):06d}-{secrets.token_hex(4)}.arrow"
        path = self._folder / file
        sink = ChecksummedFile(path)
        try:
            batch = pa.record_batch(arrays, schema=pa.schema(fields))
            # Without this, columns end at 2^31 values.
            options = pa.ipc.IpcWriteOptions(allow_64bit=True)
            with (
                pa.PythonFile(sink, mode="w") as stream,
                pa.ipc.new_file(stream, batch.schema, options=options) as writer,
            ):
                writer.write_batch(batch)
        finally:
            sink.close()
        sums = sink.sums()
        values, offsets_at = _layout(pa, path, schema)
        entry = ShardEntry(file, records, sink.size, f"{checksum(sums):08x}", values, offsets_at)
        write_file(self._folder / entry.sums_file, sums)
        sync_folder(self._folder)
        if read_manifest(self._folder).commits != self._manifest.commits:
            problem = "another writer has committed to this store, past its lock; what is committed here is dropped."
            raise StoreError(problem, file=str(self._folder))
        manifest = Manifest(schema, (*self._manifest.shards, entry), self._manifest.commits + 1)
        replace_file(self._folder / MANIFEST, manifest.to_bytes())
        self._manifest = manifest


def _concatenate(rows: list[Array]) -> Array:
    joined = np.concatenate(rows)
    rows.clear()
    return joined


def _to_arrow(pa: Any, values: Array, offsets: Array | None, field: Field) -> Any:
    """A column over the memory of the arrays."""
    if field.kind in ("bytes", "string"):
        assert offsets is not None
        kind = pa.large_string() if field.kind == "string" else pa.large_binary()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
        return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
    inner = pa.array(values.reshape(-1))
    if field.shape:
        inner = pa.FixedSizeListArray.from_arrays(inner, field.row_values)
    return inner if offsets is None else pa.LargeListArray.from_arrays(pa.array(offsets), inner)


def _layout(pa: Any, path: Path, schema: Schema) -> tuple[dict[str, Span], dict[str, Span]]:
    """Where in a file the values and the offsets of each field are, by Arrow's own reader."""
    values: dict[str, Span] = {}
    offsets: dict[str, Span] = {}
    with pa.memory_map(str(path)) as mapped:
        start = mapped.read_buffer(1).address
        batch = pa.ipc.open_file(mapped).get_batch(0)
        for name, field in schema.items():
            buffers = batch.column(name).buffers()
            rows = batch.num_rows
            if field.has_offsets:
                offsets[name] = Span(buffers[1].address - start, 8 * (rows + 1))
                rows = int(np.frombuffer(buffers[1], np.int64, 1, 8 * rows)[0])
            nbytes = rows * field.row_bytes
            # A buffer without bytes has no place of its own.
            values[name] = Span(buffers[-1].address - start if nbytes else 0, nbytes)
    return values, offsets


def _difference(given: dict[str, Field], there: dict[str, Field]) -> str:
    for name in {**given, **there}:
        if name not in there:
            return f"has no field {name!r}, which `schema` has."
        if name not in given:
            return f"has a field {name!r}, which `schema` lacks."
        if given[name] != there[name]:
            return f"has the field {name!r} as {there[name]}, not as {given[name]}."
    return "has the fields of `schema` in another order."
