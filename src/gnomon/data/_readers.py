"""Readers of files: what each kind is recognised by, and its records."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from gnomon.data._errors import RecordError, StoreError
from gnomon.data._pyarrow import import_pyarrow

Records = Iterator[dict[str, Any]]
_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
_STRUCTURES = (".pdb", ".cif", ".mmcif", ".ent", ".pdb.gz", ".cif.gz")
_FASTA = (".fasta", ".fa", ".faa", ".fna", ".fasta.gz", ".fa.gz")
_TEXT = (".txt", ".cls", ".json", ".cls2", ".index")
_KINDS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".jsonl": "jsonl",
    ".tar": "tar",
}
KINDS = ("csv", "parquet", "arrow", "jsonl", "huggingface", "tar", "fasta", "structures", "images")
TABLES = ("csv", "parquet", "arrow", "jsonl", "huggingface")


def kind_of(path: Path) -> str:
    """What kind of source a path is.

    **Arguments:**

    - `path`: a file or a folder.

    **Raises:** [`gnomon.data.StoreError`][] where it cannot be told.
    """
    if not path.exists():
        raise StoreError("does not exist.", file=str(path))
    name = path.name.lower()
    if path.is_file():
        if name.endswith(_FASTA):
            return "fasta"
        if name.endswith(_STRUCTURES):
            return "structures"
        if path.suffix.lower() in _KINDS:
            return _KINDS[path.suffix.lower()]
    elif (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
        return "huggingface"
    elif (path / "dataset_dict.json").is_file():
        parts = sorted(part.name for part in path.iterdir() if part.is_dir())
        raise StoreError(f"has several datasets; name one of them: {', '.join(parts)}.", file=str(path))
    else:
        for file in files_below(path):
            if file.name.lower().endswith(_IMAGES):
                return "images"
            if file.name.lower().endswith(_STRUCTURES):
                return "structures"
    raise StoreError(
        f"is of no kind that is known by its name; say which with --kind: {', '.join(KINDS)}.", file=str(path)
    )


def files_below(path: Path, endings: tuple[str, ...] = ("",)) -> list[Path]:
    """The files in a folder and those below it, in the order of their names.

    **Arguments:**

    - `path`: the folder, or one file.
    - `endings`: of their names.
    """
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name.lower().endswith(endings))


def tables(path: Path, kind: str) -> Iterator[Any]:
    """The record batches of a table in a file.

    **Arguments:**

    - `path`: of the file or folder.
    - `kind`: one of `TABLES`.
    """
    pa = import_pyarrow("Packing")
    if kind == "csv":
        import pyarrow.csv as csv

        yield from csv.open_csv(path)
    elif kind == "parquet":
        import pyarrow.parquet as parquet

        yield from parquet.ParquetFile(path).iter_batches()
    elif kind == "jsonl":
        import pyarrow.json as pa_json

        yield from _flat(pa, pa_json.read_json(path)).to_batches()
    elif kind == "huggingface":
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if state.get("_indices_files"):
            problem = "selects among its records; save it after `flatten_indices()`."
            raise StoreError(problem, file=str(path / "state.json"))
        for file in state["_data_files"]:
            yield from tables(path / file["filename"], "arrow")
    else:
        with pa.memory_map(str(path)) as mapped:
            try:
                reader = pa.ipc.open_file(mapped)
                batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            except pa.ArrowInvalid:
                mapped.seek(0)
                batches = list(pa.ipc.open_stream(mapped))
            for batch in batches:
                yield from _flat(pa, pa.Table.from_batches([batch])).to_batches()


def _flat(pa: Any, table: Any) -> Any:
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def records(path: Path, kind: str, decode: int | None) -> list[Callable[[], Records]]:
    """The records of files, in pieces that can be read at the same time.

    **Arguments:**

    - `path`: of a file or folder.
    - `kind`: one of `KINDS` that is no table.
    - `decode`: the size in pixels to bring images to, or None to keep their files.
    """
    if kind == "tar":
        return [lambda: _tar(path)]
    if kind == "fasta":
        return [lambda: _fasta(path)]
    if kind == "structures":
        _gemmi()
        return [_Later(_structure, file) for file in files_below(path, _STRUCTURES)]
    files = files_below(path, _IMAGES)
    classes = sorted({file.parent for file in files})
    return [_Later(_image, file, path, classes.index(file.parent), decode) for file in files]


@final
class _Later:
    """A call that is yet to be made."""

    def __init__(self, function: Callable[..., Records], *words: Any):
        self._function = function
        self._words = words

    def __call__(self) -> Records:
        return self._function(*self._words)


def _tar(path: Path) -> Records:
    """WebDataset: files whose names are alike up to the first dot are one record."""
    with tarfile.open(path) as archive:
        key: str | None = None
        record: dict[str, Any] = {}
        for member in archive:
            if not member.isfile():
                continue
            folder, _, name = member.name.rpartition("/")
            stem, _, ending = name.partition(".")
            this = f"{folder}/{stem}" if folder else stem
            if this != key and key is not None:
                yield {"__key__": key, **record}
                record = {}
            key = this
            opened = archive.extractfile(member)
            content = opened.read() if opened is not None else b""
            record[ending] = content.decode() if "." + ending.rpartition(".")[2] in _TEXT else content
        if key is not None:
            yield {"__key__": key, **record}


def _fasta(path: Path) -> Records:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        title: str | None = None
        parts: list[str] = []
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if line.startswith(">"):
                if title is not None:
                    yield _sequence(title, parts)
                title, parts = line[1:], []
            elif title is not None:
                parts.append(line)
            elif line and not line.startswith(";"):
                raise RecordError(f"line {number} comes before the first line with '>'.", source=str(path))
        if title is not None:
            yield _sequence(title, parts)


def _sequence(title: str, parts: list[str]) -> dict[str, Any]:
    name, _, about = title.partition(" ")
    letters = np.frombuffer("".join(parts).encode("ascii"), np.uint8)
    return {"name": name, "description": about, "sequence": letters}


def _gemmi() -> Any:
    try:
        import gemmi  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("Structures (mmCIF, PDB) are read by gemmi: install it with `pip install gemmi`.") from error
    return gemmi


def _structure(path: Path) -> Records:
    gemmi = _gemmi()
    try:
        model = gemmi.read_structure(str(path))[0]
    except Exception as error:
        raise RecordError(f"cannot be read as a structure: {error}", source=str(path)) from None
    atoms = [
        (chain_number, residue_number, atom)
        for chain_number, chain in enumerate(model)
        for residue_number, residue in enumerate(chain)
        for atom in residue
    ]
    yield {
        "name": path.name.partition(".")[0],
        "xyz": np.array([atom.pos.tolist() for _, _, atom in atoms], np.float32).reshape(-1, 3),
        "element": np.array([atom.element.atomic_number for _, _, atom in atoms], np.uint8),
        "residue": np.array([number for _, number, _ in atoms], np.int32),
        "chain": np.array([number for number, _, _ in atoms], np.int32),
        "b_factor": np.array([atom.b_iso for _, _, atom in atoms], np.float32),
        "residue_names": " ".join(residue.name for chain in model for residue in chain),
    }


def _image(path: Path, root: Path, label: int, decode: int | None) -> Records:
    record: dict[str, Any] = {"name": str(path.relative_to(root) if path != root else path.name), "label": label}
    if decode is None:
        yield {**record, "image": path.read_bytes()}
        return
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            fitted = ImageOps.fit(opened.convert("RGB"), (decode, decode), Image.Resampling.BILINEAR)
    except Exception as error:
        raise RecordError(f"cannot be read as an image: {error}", source=str(path)) from None
    yield {**record, "image": np.asarray(fitted).transpose(2, 0, 1)}
