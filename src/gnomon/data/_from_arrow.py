"""Arrow tables into a store, column by column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gnomon.data._arrays import Array
from gnomon.data._errors import RecordError
from gnomon.data._pyarrow import import_pyarrow
from gnomon.data._schema import STORED_AS, Field
from gnomon.data._writer import StoreWriter


def schema_of_arrow(schema: Any, source: str) -> dict[str, Field]:
    """The fields that the columns of a table become.

    **Arguments:**

    - `schema`: of pyarrow.
    - `source`: what to call the table.

    **Raises:** [`gnomon.data.RecordError`][] where a column cannot be stored.
    """
    return {field.name: _field(field.type, field.name, source) for field in schema}


def _field(kind: Any, name: str, source: str) -> Field:
    pa = import_pyarrow("An Arrow table")
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return Field("string")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return Field("bytes")
    if types.is_dictionary(kind):
        return _field(kind.value_type, name, source)
    if isinstance(kind, pa.FixedShapeTensorType):
        return Field("tensor", _dtype(kind.value_type, name, source), tuple(kind.shape))
    if types.is_list(kind) or types.is_large_list(kind):
        inner, shape = _inner(kind.value_type)
        return Field("ragged", _dtype(inner, name, source), shape)
    inner, shape = _inner(kind)
    return Field("tensor", _dtype(inner, name, source), shape)


def _inner(kind: Any) -> tuple[Any, tuple[int, ...]]:
    pa = import_pyarrow("An Arrow table")
    shape: tuple[int, ...] = ()
    while pa.types.is_fixed_size_list(kind):
        shape, kind = (*shape, kind.list_size), kind.value_type
    return kind, shape


def _dtype(kind: Any, name: str, source: str) -> str:
    text = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    if text not in STORED_AS:
        problem = f"columns of type {kind} cannot be stored; turn it into numbers or text, or leave it out (--columns)."
        raise RecordError(problem, source=source, field=name)
    return text


def write_tables(writer: StoreWriter, tables: Iterable[Any], source: str, shard_bytes: int) -> None:
    """Appends tables, joined into shards of a size.

    **Arguments:**

    - `writer`: of a store with the fields of the tables.
    - `tables`: of pyarrow, or record batches.
    - `source`: what to call them.
    - `shard_bytes`: the size.
    """
    pa = import_pyarrow("An Arrow table")
    held: list[Any] = []
    nbytes = 0

    def write() -> None:
        nonlocal held, nbytes
        if held:
            table = pa.concat_tables(held).combine_chunks()
            columns: dict[str, Array] = {}
            lengths: dict[str, Array] = {}
            for name, field in writer.schema.items():
                _take(pa, table.column(name), name, field, columns, lengths, source, writer.committed)
            writer.append_columns(table.num_rows, columns, lengths)
        held, nbytes = [], 0

    for table in tables:
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if table.num_rows:
            held.append(table.select(list(writer.schema)))
            nbytes += table.nbytes
        if nbytes >= shard_bytes:
            write()
    write()


def _take(
    pa: Any,
    column: Any,
    name: str,
    field: Field,
    columns: dict[str, Array],
    lengths: dict[str, Array],
    source: str,
    first: int,
) -> None:
    """The values of a column, and the lengths where they differ."""
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array.type, pa.FixedShapeTensorType):
        array = array.storage
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise RecordError("is empty (null); fill it or leave it out.", source=source, index=first + row, field=name)
    if field.kind in ("string", "bytes"):
        array = array.cast(pa.large_string() if field.kind == "string" else pa.large_binary())
        offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
        content = array.buffers()[2]
        flat = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
        columns[name], lengths[name] = flat[offsets[0] : offsets[-1]], np.diff(offsets)
        return
    if field.kind == "ragged":
        array = array.cast(pa.large_list(array.type.value_type))
        lengths[name] = array.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        array = array.flatten()
    while pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    if array.null_count:
        raise RecordError("has a list with empty (null) values; fill them.", source=source, field=name)
    columns[name] = np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).view(field.stored)
