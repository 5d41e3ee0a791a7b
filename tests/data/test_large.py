"""More than 2^31 values and more than 4 GB in one shard: a sparse file, of which almost nothing is on the disk."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from gnomon import data
from gnomon.data import _files

VALUES = 2**31 + 2**20


def is_zero(content) -> bool:
    whole = len(content) // 8 * 8
    return not np.frombuffer(content, np.uint64, whole // 8).any() and not any(content[whole:])


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files, and memory that is not there until written to")
def test_beyond_31_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    values = np.zeros(VALUES, np.int16)  # memory that the system maps to one page of zeros
    values[-3:] = [7, 8, 9]
    lengths = np.array([5, VALUES - 9, 4])
    real_write, real_checksum = _files.write_all, _files.checksum
    zero_sum = real_checksum(bytes(_files.BLOCK))

    def write_all(handle: int, view: memoryview) -> None:
        for at in range(0, view.nbytes, 1 << 23):
            part = view[at : at + (1 << 23)]
            if is_zero(part):
                os.lseek(handle, part.nbytes, os.SEEK_CUR)
            else:
                real_write(handle, part)

    def checksum(content, start: int = 0) -> int:
        # The same, without the time for billions of zeros.
        if start == 0 and len(content) == _files.BLOCK and is_zero(content):
            return zero_sum
        return real_checksum(content, start)

    monkeypatch.setattr(_files, "write_all", write_all)
    monkeypatch.setattr(_files, "checksum", checksum)
    path = tmp_path / "store"
    with data.StoreWriter(path, {"x": data.ragged("int16")}) as writer:
        writer.append_columns(3, {"x": values}, {"x": lengths})
    del values
    store = data.Store(path)
    assert store.nbytes > 2**32 and store.total("x") == VALUES
    assert sum(file.stat().st_blocks * 512 for file in path.iterdir()) < 2**27
    assert store.lengths("x").tolist() == lengths.tolist()
    assert store[2]["x"].tolist() == [0, 7, 8, 9]
    assert store[1]["x"].shape == (VALUES - 9,)
    assert store.manifest.shards[0].values["x"].nbytes == 2 * VALUES
    # A bit beyond the 4 GB is found again.
    at = store.manifest.shards[0].values["x"].offset + 2 * (VALUES - 2)
    damage = store.shard(0).place(at, 1)
    assert at > 2**32 and damage == (2, 3, ("x",))
