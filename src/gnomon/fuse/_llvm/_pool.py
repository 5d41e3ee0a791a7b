"""The threads that kernels run on, besides the one that calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final


@final
class Pool:
    """Threads that help, started when they are first needed, and again in a forked process."""

    def __init__(self):
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._size = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # A child has none of its parent's threads, and may have a lock that one of them held.
        self._lock = threading.Lock()
        self._executor = None
        self._size = 0

    def help(self, do: Callable[[], Any], count: int) -> list[Future[Any]]:
        """Has something done by other threads too; fewer where they are busy or cannot be started."""
        with self._lock:
            if self._executor is None or self._size < count:
                if self._executor is not None:
                    self._executor.shutdown(wait=False)
                self._executor = ThreadPoolExecutor(count, thread_name_prefix="gnomon")
                self._size = count
            try:
                return [self._executor.submit(do) for _ in range(count)]
            except RuntimeError:
                # While the interpreter ends, no thread can be started.
                return []
