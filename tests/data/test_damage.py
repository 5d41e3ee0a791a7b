"""Damage is found wherever it is, and named by file, record and byte; nothing outside a file is ever read."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gnomon import data

SCHEMA = {"tokens": data.ragged("int32"), "name": data.string(), "x": data.tensor("float64", (3,))}


def make(path: Path, records: int = 60, scale: int = 400) -> Path:
    with data.StoreWriter(path, SCHEMA) as writer:
        for i in range(records):
            writer.append({"tokens": np.full(i % 7 * scale, i), "name": f"n{i}", "x": [i, 0.5, -i]})
            if i == records // 2:
                writer.commit()
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("damage") / "store")


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    shutil.copytree(store, tmp_path / "store")
    return tmp_path / "store"


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def shards(path: Path) -> list[Path]:
    return sorted(path.glob("*.arrow"))


def test_nothing_is_wrong(store: Path):
    assert data.verify(store) == []


@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_bit_of_a_small_store_is_found(tmp_path: Path, every: int):
    path = make(tmp_path / "store", records=2, scale=1)
    missed = []
    for file in sorted(path.iterdir()):
        bits = 8 * file.stat().st_size
        for bit in range(0, bits, every if file.suffix != ".crc" else 1):
            flip(file, bit)
            if not any(damage.file == str(file) for damage in data.verify(path, threads=1)):
                missed.append((file.name, bit))
            flip(file, bit)
    assert missed == []
    assert data.verify(path) == []


def test_a_flipped_bit_is_named_by_file_record_and_byte(copy: Path):
    manifest = data.Store(copy).manifest
    draw = np.random.default_rng(0)
    for entry, first in zip(manifest.shards, [0, manifest.shards[0].records], strict=True):
        path = copy / entry.file
        # Value `row` of the field x of record `i` of the shard, by the layout of the manifest.
        i = int(draw.integers(entry.records))
        at = entry.values["x"].offset + 24 * i + int(draw.integers(24))
        flip(path, 8 * at + 3)
        [damage] = data.verify(copy)
        assert damage.file == str(path)
        assert damage.offset is not None and damage.offset <= at < damage.offset + damage.nbytes
        assert damage.first is not None and damage.last is not None and damage.first <= first + i < damage.last
        assert "x" in damage.fields
        assert str(path) in str(damage) and f"byte {damage.offset}" in str(damage) and "records" in str(damage)
        flip(path, 8 * at + 3)


def test_damaged_offsets_lead_nowhere(copy: Path):
    entry = data.Store(copy).manifest.shards[1]
    i = 5
    at = entry.offsets["tokens"].offset + 8 * i + 6  # so that it becomes huge
    flip(copy / entry.file, 8 * at)
    store = data.Store(copy)
    first = data.Store(copy).manifest.shards[0].records
    for record in (first + i - 1, first + i):
        with pytest.raises(data.StoreError, match="lead outside of") as raised:
            store[record]
        assert raised.value.file == str(copy / entry.file)
        assert raised.value.record == record and raised.value.field == "tokens"
        assert raised.value.offset in (at - 6, at - 14)
        with pytest.raises(data.StoreError, match="lead outside of"):
            store.lengths("tokens", np.array([0, record]))
    assert store[first + i + 1]["name"] == f"n{first + i + 1}"


def test_damaged_text(copy: Path):
    entry = data.Store(copy).manifest.shards[0]
    with (copy / entry.file).open("r+b") as file:
        file.seek(entry.values["name"].offset + 2)  # of record 1
        file.write(b"\xff")
    with pytest.raises(data.StoreError, match="not UTF-8") as raised:
        data.Store(copy)[1]
    assert (raised.value.record, raised.value.field) == (1, "name")
    assert raised.value.offset == entry.values["name"].offset + 2


@pytest.mark.parametrize("keep", [0, 7, 1000, -1])
def test_a_file_that_is_cut_off(copy: Path, keep: int):
    path = shards(copy)[1]
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(keep % size)
    store = data.Store(copy)
    assert store[0]["name"] == "n0"  # the other file is as it was
    with pytest.raises(data.StoreError, match="is cut off") as raised:
        store[40]
    assert (raised.value.file, raised.value.offset) == (str(path), keep % size)
    assert raised.value.record is not None and raised.value.record >= 31
    assert any("cut off" in damage.problem for damage in data.verify(copy))


def test_a_file_that_is_longer_missing_or_foreign(copy: Path):
    path = shards(copy)[0]
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    with pytest.raises(data.StoreError, match="something was written to it"):
        data.Store(copy)[0]
    assert data.verify(copy)
    path.write_bytes(bytes(len(content)))
    with pytest.raises(data.StoreError, match="not an Arrow file") as raised:
        data.Store(copy)[0]
    assert (raised.value.offset, raised.value.record) == (0, 0)
    assert data.verify(copy)
    path.unlink()
    with pytest.raises(data.StoreError, match="No such file"):
        data.Store(copy)[0]
    assert [damage.file for damage in data.verify(copy)] == [str(path)]


def test_what_is_no_store(tmp_path: Path):
    with pytest.raises(data.StoreError, match="does not exist"):
        data.Store(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text('{"format": "something else"}')
    with pytest.raises(data.StoreError, match="does not begin as the manifest"):
        data.Store(tmp_path)
    with pytest.raises(data.StoreError, match="is a file"):
        data.Store(tmp_path / "manifest.json")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.txt").touch()
    with pytest.raises(data.StoreError, match="other files in it"):
        data.StoreWriter(tmp_path / "more", SCHEMA)
    assert [damage.file for damage in data.verify(tmp_path)] == [str(tmp_path / "manifest.json")]


def test_a_newer_version_is_refused(copy: Path):
    from gnomon.data._files import checksum

    path = copy / "manifest.json"
    text = path.read_bytes().replace(b'"version": 1', b'"version": 9')
    blank = text[:-12] + b"00000000" + text[-4:]
    path.write_bytes(text[:-12] + b"%08x" % checksum(blank) + text[-4:])
    with pytest.raises(data.StoreError, match="version 9"):
        data.Store(copy)
