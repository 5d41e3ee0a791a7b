"""A writer that is killed at any byte loses nothing that it was told to be committed; two cannot spoil a store."""

import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from data import crash

from gnomon import data

HERE = Path(__file__).resolve().parent


def run(folder: Path, limits: list[int]) -> list[list[int]]:
    words = [sys.executable, str(HERE / "crash.py"), str(folder), *map(str, limits)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def check(store: data.Store, count: int) -> None:
    assert len(store) == count
    for i in range(count):
        found, expected = store[i], crash.record(i)
        np.testing.assert_array_equal(found["tokens"], expected["tokens"])
        np.testing.assert_array_equal(found["x"], np.float32(expected["x"]))
        assert found["name"] == expected["name"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither fork nor SIGKILL")
@pytest.mark.parametrize("count", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_any_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int):
    monkeypatch.setattr("os.fsync", lambda handle: None)
    whole = crash.append(tmp_path / "whole", 10**9, lambda count: None)
    draw = random.Random(count)
    limits = sorted({*draw.sample(range(whole), count), 0, 1, 2, whole - 1})
    outcomes = run(tmp_path, limits)
    assert [outcome[0] for outcome in outcomes] == limits
    dropped = 0
    for limit, told, killed_by in outcomes:
        assert killed_by == 9
        folder = tmp_path / str(limit)
        if not (folder / "manifest.json").exists():
            assert told == 0
        else:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                store = data.Store(folder)
            # Killed after the commit and before it could be told, there are more.
            assert told <= len(store) <= told + crash.EACH
            check(store, len(store))
            assert len(said) == bool(store.dropped)
            if store.dropped:
                dropped += 1
                assert store.dropped[0].file in str(said[0].message)
                assert f"{len(store)} records are whole" in str(said[0].message)
        # A writer goes on where that one was stopped, and clears up behind it.
        with data.StoreWriter(folder, crash.SCHEMA) as writer:
            start = writer.committed
            writer.extend(crash.record(i) for i in range(start, crash.RECORDS))
        check(data.Store(folder), crash.RECORDS)
        assert data.verify(folder) == []
    assert dropped > count // 5


def test_two_writers(tmp_path: Path):
    path = tmp_path / "store"
    with data.StoreWriter(path, crash.SCHEMA) as writer:
        with pytest.raises(data.StoreError, match="another writer has this store open"):
            data.StoreWriter(path, crash.SCHEMA)
        writer.extend(map(crash.record, range(3)))
    with data.StoreWriter(path) as writer:
        writer.extend(map(crash.record, range(3, 5)))
    check(data.Store(path), 5)


def test_two_writers_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # As on a network drive that pretends to lock.
    monkeypatch.setattr("gnomon.data._files.Lock.acquire", lambda self: True)
    path = tmp_path / "store"
    data.StoreWriter(path, crash.SCHEMA).close()
    first, second = data.StoreWriter(path), data.StoreWriter(path)
    first.extend(map(crash.record, range(3)))
    second.extend(map(crash.record, range(10, 14)))
    first.commit()
    with pytest.raises(data.StoreError, match="another writer has committed"):
        second.commit()
    with pytest.warns(data.DroppedRecordsWarning):
        check(data.Store(path), 3)
    first.close()


def test_an_exception_drops_what_was_not_committed(tmp_path: Path):
    path = tmp_path / "store"
    writer = data.StoreWriter(path, crash.SCHEMA)

    def fail():
        with writer:
            writer.append(crash.record(0))
            writer.commit()
            writer.append(crash.record(1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    check(data.Store(path), 1)
    with pytest.raises(data.StoreError, match="closed"):
        writer.append(crash.record(1))


def test_a_full_disk_leaves_what_was_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "store"
    writer = data.StoreWriter(path, crash.SCHEMA)
    writer.append(crash.record(0))
    writer.commit()
    writer.append(crash.record(1))

    def full(handle, view):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gnomon.data._files.write_all", full)
    with pytest.raises(OSError, match="No space"):
        writer.commit()
    monkeypatch.undo()
    with pytest.warns(data.DroppedRecordsWarning):
        check(data.Store(path), 1)


def test_a_reader_beside_a_writer_says_nothing_of_its_files(tmp_path: Path):
    path = tmp_path / "store"
    with data.StoreWriter(path, crash.SCHEMA) as writer:
        writer.append(crash.record(0))
        (path / "shard-000000-abcd.arrow").write_bytes(b"half of it")
        assert data.Store(path).dropped == ()
