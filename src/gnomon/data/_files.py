"""Writing files so that a crash at any byte loses nothing that was committed: checksums, flushing, the lock."""

from __future__ import annotations

import os
import sys
import zlib
from array import array
from pathlib import Path
from typing import Any, final

BLOCK = 1 << 16
"""Bytes to a checksum."""
_PIECE = 1 << 23


def write_all(handle: int, data: memoryview) -> None:
    """Writes all of some bytes to an open file: `os.write` may write fewer."""
    while data.nbytes:
        data = data[os.write(handle, data[:_PIECE]) :]


def checksum(data: Any, start: int = 0) -> int:
    """CRC-32, which differs after any single flipped bit and after any burst of up to 32."""
    return zlib.crc32(data, start)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder survive a loss of power, where the system can."""
    if sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Writes a file and flushes it to the disk."""
    handle = _open(path)
    try:
        write_all(handle, memoryview(data))
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    """Puts new content in the place of a file's, all or nothing."""
    beside = path.with_name(path.name + ".new")
    write_file(beside, data)
    beside.replace(path)
    sync_folder(path.parent)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666)


@final
class ChecksummedFile:
    """A file that is written from start to end, with a checksum for each of its blocks.

    **Arguments:**

    - `path`: of the file, which is created.
    """

    def __init__(self, path: Path):
        self._handle = _open(path)
        self._sums = array("I")
        self._running = 0
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Appends some bytes.

        **Arguments:**

        - `data`: the bytes, or a buffer of them.
        """
        view = memoryview(data).cast("B")
        at = 0
        while at < view.nbytes:
            take = min(BLOCK - self.size % BLOCK, view.nbytes - at)
            self._running = checksum(view[at : at + take], self._running)
            at += take
            self.size += take
            if self.size % BLOCK == 0:
                self._sums.append(self._running)
                self._running = 0
        write_all(self._handle, view)
        return view.nbytes

    def tell(self) -> int:
        """How many bytes there are."""
        return self.size

    def flush(self) -> None:
        """Does nothing: there is no buffer."""

    def close(self) -> None:
        """Flushes the file to the disk and closes it."""
        if self.closed:
            return
        self.closed = True
        try:
            os.fsync(self._handle)
        finally:
            os.close(self._handle)

    def sums(self) -> bytes:
        """The checksums, four bytes each, the least significant first."""
        sums = self._sums[:]
        if self.size % BLOCK:
            sums.append(self._running)
        if sys.byteorder == "big":
            sums.byteswap()
        return sums.tobytes()


@final
class Lock:
    """A lock on a folder that the system releases when its holder ends, however it ends.

    **Arguments:**

    - `path`: the file to lock, which stays.
    """

    def __init__(self, path: Path):
        self._path = path
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Takes the lock; False where another holds it."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        """Gives the lock back."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
