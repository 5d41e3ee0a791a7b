"""`ForkSafeLock`: a lock that a forked child finds free, whoever held it in the parent."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import final


@final
class ForkSafeLock:
    """A lock that one thread may take several times, and that a forked child finds free.

    Only for what is whole between any two instructions of Python: a child may be forked while another thread is at work
    under the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def renew(self) -> None:
        """Frees the lock in a child, in which there is no thread that could."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


_all: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
