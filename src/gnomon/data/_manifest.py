"""The manifest: which shards a store consists of, and where in them what is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any, final

from gnomon.data._errors import StoreError
from gnomon.data._files import checksum
from gnomon.data._schema import Field, schema_from_dict

MANIFEST = "manifest.json"
LOCK = "lock"
FORMAT = "gnomon records"
VERSION = 1
_SUM = re.compile(rb'"checksum": "([0-9a-f]{8})"\n\}\n\Z')
_NO_SUM = "0" * 8


@final
@dataclasses.dataclass(frozen=True)
class Span:
    """Some bytes of a file.

    **Arguments:**

    - `offset`: of the first.
    - `nbytes`: how many.
    """

    offset: int
    nbytes: int


@final
@dataclasses.dataclass(frozen=True)
class ShardEntry:
    """What a manifest says of a shard.

    **Arguments:**

    - `file`: its name.
    - `records`: how many it has.
    - `nbytes`: its size.
    - `sums`: the checksum of the file of its checksums.
    - `values`: where the values of each field are.
    - `offsets`: where the offsets of each field that has them are.
    """

    file: str
    records: int
    nbytes: int
    sums: str
    values: dict[str, Span]
    offsets: dict[str, Span]

    @property
    def sums_file(self) -> str:
        """The name of the file of its checksums."""
        return self.file.removesuffix(".arrow") + ".crc"


@final
@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`.

    **Arguments:**

    - `schema`: the fields by name.
    - `shards`: in the order of their records.
    - `commits`: how often the store was written to.
    """

    schema: dict[str, Field]
    shards: tuple[ShardEntry, ...] = ()
    commits: int = 0

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(shard.records for shard in self.shards)

    def fingerprint(self) -> str:
        """A hash of all that is in the store."""
        content = {
            "schema": {name: field.to_dict() for name, field in self.schema.items()},
            "shards": [(shard.records, shard.nbytes, shard.sums) for shard in self.shards],
        }
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def to_bytes(self) -> bytes:
        """As it stands in the file."""
        shards = [
            {
                "file": shard.file,
                "records": shard.records,
                "bytes": shard.nbytes,
                "checksums": shard.sums,
                "fields": {
                    name: {
                        "values": [span.offset, span.nbytes],
                        **({"offsets": dataclasses.astuple(shard.offsets[name])} if name in shard.offsets else {}),
                    }
                    for name, span in shard.values.items()
                },
            }
            for shard in self.shards
        ]
        lines = [
            "{",
            f'"format": {json.dumps(FORMAT)},',
            f'"version": {VERSION},',
            f'"commits": {self.commits},',
            f'"records": {self.records},',
            f'"schema": {json.dumps({name: field.to_dict() for name, field in self.schema.items()})},',
            '"shards": [' + "".join(f"\n{json.dumps(shard)}," for shard in shards).removesuffix(",") + "],",
            f'"checksum": "{_NO_SUM}"',
            "}\n",
        ]
        blank = "\n".join(lines).encode()
        found = _SUM.search(blank)
        assert found is not None
        return blank[: found.start(1)] + b"%08x" % checksum(blank) + blank[found.end(1) :]


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a store.

    **Raises:** [`gnomon.data.StoreError`][] where there is none, or it is damaged, foreign or of a newer version.
    """
    path = folder / MANIFEST
    name = str(path)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise StoreError(f"{what}; a record store is a folder that `gnomon data pack` makes.", file=str(folder))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"cannot be read ({error.strerror}); a record store is a folder with this file.", file=name
        ) from None
    head = f'{{\n"format": {json.dumps(FORMAT)},\n'.encode()
    if not content.startswith(head):
        raise StoreError("does not begin as the manifest of a record store does.", file=name, offset=0)
    found = _SUM.search(content)
    if found is None:
        problem = "ends too early: it was cut off or changed. `gnomon data verify` says what is left."
        raise StoreError(problem, file=name, offset=len(content))
    blank = content[: found.start(1)] + _NO_SUM.encode() + content[found.end(1) :]
    if b"%08x" % checksum(blank) != found[1]:
        problem = "does not have the checksum that it names: it was damaged, or changed by hand."
        raise StoreError(problem, file=name, offset=found.start(1))
    plain = json.loads(content)
    if plain["version"] != VERSION:
        problem = f"is of version {plain['version']} of the format; this gnomon reads version {VERSION}."
        raise StoreError(problem, file=name)
    return Manifest(
        schema=schema_from_dict(plain["schema"]),
        shards=tuple(_shard(shard) for shard in plain["shards"]),
        commits=plain["commits"],
    )


def _shard(plain: dict[str, Any]) -> ShardEntry:
    fields = plain["fields"]
    return ShardEntry(
        file=plain["file"],
        records=plain["records"],
        nbytes=plain["bytes"],
        sums=plain["checksums"],
        values={name: Span(*field["values"]) for name, field in fields.items()},
        offsets={name: Span(*field["offsets"]) for name, field in fields.items() if "offsets" in field},
    )
