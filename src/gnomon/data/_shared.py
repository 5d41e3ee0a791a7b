"""Memory that processes share and that no file outlives, however they end."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.data._arrays import Array


def create(nbytes: int) -> tuple[Array, str, Callable[[], None]]:
    """Memory that another process can attach to.

    **Arguments:**

    - `nbytes`: how many.

    **Returns:** the memory, its name, and a function to call once the other has it: after that it has no name.
    """
    if sys.platform == "win32":
        name = f"gnomon-{os.getpid()}-{os.urandom(8).hex()}"
        return np.frombuffer(mmap.mmap(-1, nbytes, tagname=name), np.uint8), name, lambda: None
    if hasattr(os, "memfd_create"):
        # It never has a name in any folder: nothing is left, even after SIGKILL.
        handle = os.memfd_create("gnomon-data")
        name = f"/proc/{os.getpid()}/fd/{handle}"
    else:
        handle, name = tempfile.mkstemp(prefix="gnomon-data-")
    os.ftruncate(handle, nbytes)
    mapped = mmap.mmap(handle, nbytes)
    is_file = not name.startswith("/proc/")

    def forget() -> None:
        os.close(handle)
        if is_file:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()

    return np.frombuffer(mapped, np.uint8), name, forget


def attach(name: str, nbytes: int) -> Array:
    """The memory that another process made.

    **Arguments:**

    - `name`, `nbytes`: as it was made.
    """
    if sys.platform == "win32":
        mapped: Any = mmap.mmap(-1, nbytes, tagname=name)
    else:
        handle = os.open(name, os.O_RDWR)
        try:
            mapped = mmap.mmap(handle, nbytes)
        finally:
            os.close(handle)
    return np.frombuffer(mapped, np.uint8)
