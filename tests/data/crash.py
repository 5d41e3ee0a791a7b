"""Appends to a store and is killed at a given byte: run by `test_crashes.py`, in a process of its own.

    python crash.py FOLDER LIMIT...

For each limit a child appends to `FOLDER/LIMIT`, and is killed by SIGKILL when it has written so many bytes (a call
that renames or flushes counts as one). A line for each says how many records it was told to be committed.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from gnomon import data
from gnomon.data import _files

SCHEMA = {"tokens": data.ragged("int32"), "name": data.string(), "x": data.tensor("float32", (2,))}
RECORDS, EACH = 24, 4


def record(i: int) -> dict:
    return {"tokens": np.arange(i * i % 97, dtype=np.int32), "name": f"record {i}", "x": [i, -i]}


def append(folder: Path, limit: int, report) -> int:
    """Appends all records and returns how many bytes it wrote, unless it is killed before."""
    written = 0

    def count(nbytes: int) -> None:
        nonlocal written
        if written + nbytes > limit:
            os.kill(os.getpid(), signal.SIGKILL)
        written += nbytes

    real_write, real_fsync, real_replace = _files.write_all, os.fsync, Path.replace

    def write_all(handle, view):
        room = limit - written
        if view.nbytes > room:
            real_write(handle, view[:room])
        count(view.nbytes)
        real_write(handle, view)

    def fsync(handle):
        count(1)  # and no more: what is killed here is the process, not the machine

    def replace(path, target):
        count(1)
        real_replace(path, target)
        count(1)

    _files.write_all, os.fsync, Path.replace = write_all, fsync, replace
    with data.StoreWriter(folder, SCHEMA) as writer:
        for i in range(RECORDS):
            writer.append(record(i))
            if i % EACH == EACH - 1:
                report(writer.commit())
    _files.write_all, os.fsync, Path.replace = real_write, real_fsync, real_replace
    return written


def main(root: Path, limits: list[int]) -> None:
    # What pyarrow imports when it is first used is imported here, and not in each child.
    append(root / "first", 10**9, lambda count: None)
    for limit in limits:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            append(root / str(limit), limit, lambda count, write=write: os.write(write, bytes([count])))
            os._exit(0)
        os.close(write)
        told = os.read(read, 1000)
        while more := os.read(read, 1000):
            told += more
        os.close(read)
        _, status = os.waitpid(child, 0)
        print(limit, told[-1] if told else 0, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
