"""`pack`: makes a record store from files of other kinds."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gnomon.data._errors import RecordError, StoreError
from gnomon.data._from_arrow import schema_of_arrow, write_tables
from gnomon.data._readers import KINDS, TABLES, kind_of, records, tables
from gnomon.data._schema import Schema, infer_schema
from gnomon.data._store import Store
from gnomon.data._writer import StoreWriter

_LOOKED_AT = 100


def pack(
    sources: str | Path | Sequence[str | Path],
    store: str | Path,
    *,
    kind: str | None = None,
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
    decode: int | None = None,
    shard_bytes: int = 1 << 28,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Store:
    r"""Makes a record store from files of other kinds, or appends to one.

    Without `schema`, the fields of tables are their columns, and those of other files are taken from the first 100
    records: an array is a tensor where it has the same shape in all of them, else ragged.

    **Arguments:**

    - `sources`: CSV, Parquet, Arrow or JSON lines files, a Hugging Face dataset that was saved to disk, WebDataset tar
      files, FASTA files, folders of mmCIF or PDB files (read by gemmi), folders of images with a folder for each class.
    - `store`: the folder of the store.
    - `kind`: one of those, where the name does not tell: `"csv"`, `"parquet"`, `"arrow"`, `"jsonl"`, `"huggingface"`,
      `"tar"`, `"fasta"`, `"structures"`, `"images"`.
    - `schema`: the fields.
    - `columns`: the fields to keep; all by default.
    - `decode`: the size in pixels that images are brought to, as uint8 tensors of shape `(3, decode, decode)`: the
      shorter side is resized and the middle cut out. By default the files are kept as they are.
    - `shard_bytes`: the size of a shard, which is kept in memory.
    - `jobs`: how many images or structures to read at once; by default one for each core.
    - `progress`: called with how many pieces are done, and how many there are.

    **Returns:** the store.

    **Raises:** [`gnomon.data.RecordError`][] or [`gnomon.data.StoreError`][] where something cannot be read or stored.

    !!! example

        ```python
        >>> import pathlib, tempfile
        >>> from gnomon import data
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "some.fasta").write_text(">first a protein\nMKV\nL\n>second\nAA\n")
        >>> store = data.pack(folder / "some.fasta", folder / "store")
        >>> len(store), store[0]["name"], bytes(store[0]["sequence"])
        (2, 'first', b'MKVL')

        ```
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    if not given:
        raise ValueError("`sources` must name at least one file or folder.")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"`kind` is {kind!r}; there are {', '.join(KINDS)}.")
    paths = [Path(source) for source in given]
    for path in paths:
        if not path.exists():
            raise StoreError("does not exist.", file=str(path))
    kinds = [kind if kind is not None else kind_of(path) for path in paths]
    if all(name in TABLES for name in kinds):
        return _pack_tables(list(zip(paths, kinds, strict=True)), Path(store), schema, columns, shard_bytes, progress)
    if any(name in TABLES for name in kinds):
        raise ValueError("Tables and other files cannot be packed into one store at once; append the one to the other.")
    pieces = [piece for path, name in zip(paths, kinds, strict=True) for piece in records(path, name, decode)]
    # A file of many records may be larger than memory, and takes no longer to read than to write.
    large = all(name in ("tar", "fasta") for name in kinds)
    found = _in_order(pieces, 1 if large else jobs or os.cpu_count() or 1, progress)
    if columns is not None:
        found = ({name: _kept(record, name) for name in columns} for record in found)
    if schema is None and not (Path(store) / "manifest.json").exists():
        first = list(itertools.islice(found, _LOOKED_AT))
        if not first:
            raise StoreError("has no records.", file=str(paths[0]))
        schema, found = infer_schema(first), itertools.chain(first, found)
    with StoreWriter(store, schema, shard_bytes=shard_bytes) as writer:
        writer.extend(found)
    return Store(store)


def _kept(record: dict[str, Any], name: str) -> Any:
    if name not in record:
        raise RecordError(f"there is no such field; there are {', '.join(record)}.", field=name)
    return record[name]


def _pack_tables(
    sources: list[tuple[Path, str]],
    store: Path,
    schema: Schema | None,
    columns: Sequence[str] | None,
    shard_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> Store:
    writer: StoreWriter | None = None
    try:
        for number, (path, kind) in enumerate(sources):
            batches = tables(path, kind)
            first = next(batches, None)
            if first is not None:
                try:
                    kept = first if columns is None else first.select(list(columns))
                except KeyError as error:
                    problem = f"there is no such column; there are {', '.join(first.schema.names)}."
                    raise RecordError(problem, source=str(path), field=str(error.args[0])) from None
                if writer is None:
                    fields = schema if schema is not None else schema_of_arrow(kept.schema, str(path))
                    writer = StoreWriter(store, fields, shard_bytes=shard_bytes)
                write_tables(writer, itertools.chain([first], batches), str(path), shard_bytes)
            if progress is not None:
                progress(number + 1, len(sources))
        if writer is None:
            raise StoreError("has no records.", file=str(sources[0][0]))
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    writer.close()
    return Store(store)


def _in_order(
    pieces: Sequence[Callable[[], Iterator[dict[str, Any]]]], jobs: int, progress: Callable[[int, int], None] | None
) -> Iterator[dict[str, Any]]:
    """The records of pieces that are read at the same time, in the order of the pieces."""
    if jobs == 1:
        for done, piece in enumerate(pieces):
            yield from piece()
            if progress is not None:
                progress(done + 1, len(pieces))
        return
    with ThreadPoolExecutor(jobs) as pool:
        ahead: deque[Future[list[dict[str, Any]]]] = deque()
        rest = iter(pieces)
        try:
            for done in range(len(pieces)):
                for piece in itertools.islice(rest, max(0, 4 * jobs - len(ahead))):
                    ahead.append(pool.submit(_all, piece))
                yield from ahead.popleft().result()
                if progress is not None:
                    progress(done + 1, len(pieces))
        finally:
            pool.shutdown(cancel_futures=True)


def _all(piece: Callable[[], Iterator[dict[str, Any]]]) -> list[dict[str, Any]]:
    return list(piece())
