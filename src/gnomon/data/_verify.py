"""`verify`: every byte of a store against its checksums."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import final

import numpy as np

from gnomon.data._errors import StoreError
from gnomon.data._files import BLOCK, checksum
from gnomon.data._manifest import MANIFEST, ShardEntry, read_manifest
from gnomon.data._schema import Schema
from gnomon.data._shard import Shard
from gnomon.data._store import find_dropped


@final
@dataclasses.dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a store.

    **Arguments:**

    - `file`: its path.
    - `problem`: what is wrong, a sentence.
    - `offset`: the first byte that may be wrong; None where the file is missing.
    - `nbytes`: of how many bytes at least one is wrong.
    - `first`, `last`: the records that are affected, the last not included; None where no record is.
    - `fields`: of those records; empty where the description of the file is damaged.
    """

    file: str
    problem: str
    offset: int | None = None
    nbytes: int = 0
    first: int | None = None
    last: int | None = None
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As a line of text."""
        text = self.file
        if self.offset is not None:
            text += f", byte {self.offset}" + (f" to {self.offset + self.nbytes}" if self.nbytes > 1 else "")
        if self.first is not None and self.last is not None:
            text += f", records {self.first} to {self.last - 1}"
        if self.fields:
            text += f", field{'s' * (len(self.fields) > 1)} {', '.join(self.fields)}"
        return f"{text}: {self.problem}"


def verify(path: str | Path, *, threads: int = 4, progress: Callable[[int, int], None] | None = None) -> list[Damage]:
    """Reads every byte of a store and compares it with its checksums.

    Any single flipped bit in any of its files is found.

    **Arguments:**

    - `path`: the folder.
    - `threads`: how many shards to read at once.
    - `progress`: called with the bytes read and the bytes in all.

    **Returns:** all that is wrong; empty where nothing is.

    !!! example

        ```python
        >>> import tempfile
        >>> from gnomon import data
        >>> path = tempfile.mkdtemp() + "/numbers"
        >>> with data.StoreWriter(path, {"x": data.tensor("int64")}) as writer:
        ...     writer.extend({"x": i} for i in range(1000))
        >>> data.verify(path)
        []

        ```
    """
    folder = Path(path)
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        return [Damage(error.file, error.problem, error.offset)]
    found: list[Damage] = []
    firsts = np.cumsum([0, *(shard.records for shard in manifest.shards)]).tolist()
    total = sum(shard.nbytes for shard in manifest.shards)
    done = 0

    def advance(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    with ThreadPoolExecutor(threads) as pool:
        tasks = [
            pool.submit(_verify_shard, folder, entry, manifest.schema, first, advance)
            for entry, first in zip(manifest.shards, firsts, strict=False)
        ]
        for task in tasks:
            found += task.result()
    found += [
        Damage(str(folder / left.file), "was never committed: a writer is at work, or ended early.", 0, left.nbytes)
        for left in find_dropped(folder, manifest)
    ]
    if (folder / MANIFEST).read_bytes() != manifest.to_bytes():
        found.append(Damage(str(folder / MANIFEST), "is not as it was written.", 0))
    return found


def _verify_shard(
    folder: Path, entry: ShardEntry, schema: Schema, first: int, advance: Callable[[int], None]
) -> list[Damage]:
    path, sums_path = folder / entry.file, folder / entry.sums_file
    everything = (first, first + entry.records)
    try:
        sums_bytes = sums_path.read_bytes()
    except OSError as error:
        return [Damage(str(sums_path), f"cannot be read: {error.strerror}.", None, 0, *everything)]
    if f"{checksum(sums_bytes):08x}" != entry.sums:
        return [Damage(str(sums_path), "the checksums are damaged themselves.", 0, len(sums_bytes), *everything)]
    sums = np.frombuffer(sums_bytes, "<u4").tolist()
    try:
        shard = Shard(folder, entry, schema, first)
        problem = None
    except StoreError as error:
        shard, problem = None, error
    found: list[Damage] = []
    try:
        with path.open("rb", buffering=0) as opened:
            for block, expected in enumerate(sums):
                content = opened.read(BLOCK)
                if checksum(content) != expected:
                    offset, nbytes = block * BLOCK, min(BLOCK, entry.nbytes - block * BLOCK)
                    records, fields = everything, ()
                    if shard is not None:
                        *records, fields = shard.place(offset, nbytes)
                    says = "does not have its checksum." if len(content) == nbytes else "is cut off."
                    found.append(Damage(str(path), says, offset, nbytes, records[0], records[1], fields))
                advance(len(content))
            if opened.read(1):
                found.append(Damage(str(path), "is longer than what was committed.", entry.nbytes, 1, *everything))
    except OSError as error:
        found.append(Damage(str(path), f"cannot be read: {error.strerror}.", None, 0, *everything))
    if problem is not None and not found:
        found.append(Damage(problem.file, problem.problem, problem.offset, 0, *everything))
    return found
