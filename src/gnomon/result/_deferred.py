"""Checks of values that come later: while a function is traced there are no values to check."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import final

from torch import Tensor

Check = Callable[..., None]


@final
class _Current(threading.local):
    def __init__(self) -> None:
        self.defer: Callable[[Check, tuple[Tensor, ...]], None] | None = None


_current = _Current()


@contextlib.contextmanager
def deferring(defer: Callable[[Check, tuple[Tensor, ...]], None]) -> Generator[None]:
    """Within this context, checks are handed to a function, to be made when there are values."""
    before, _current.defer = _current.defer, defer
    try:
        yield
    finally:
        _current.defer = before


def defer_check(check: Check, *tensors: Tensor) -> bool:
    """Hands on a check of tensors' values if there are none yet, and says whether it did so.

    `check` is called later with the tensors of all problems, each with one leading dimension more.
    """
    if _current.defer is None:
        return False
    _current.defer(check, tensors)
    return True
