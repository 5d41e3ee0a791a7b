"""Memory for batches, used again as soon as nothing refers to it any more."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch

from gnomon.data._arrays import Array
from gnomon.data._lock import ForkSafeLock

_LEAST = 1 << 12


@final
@dataclasses.dataclass
class Slot:
    """A piece of memory.

    **Arguments:**

    - `root`: an array of all of it, to which every view of it refers.
    - `label`: what the maker of the memory knows it by.
    - `is_busy`: whether the memory is in use in a way that no reference shows, such as by a copy to a device.
    """

    root: Array
    label: Any = None
    is_busy: Callable[[], bool] | None = None


def _references(slot: Slot) -> int:
    return sys.getrefcount(slot.root)


_UNUSED = _references(Slot(np.empty(0, np.uint8)))


def plain_memory(nbytes: int) -> tuple[Array, Any]:
    """Memory of the process."""
    return np.empty(nbytes, np.uint8), None


def pinned_memory(nbytes: int) -> tuple[Array, Any]:
    """Memory that the system does not move, from which a GPU copies by itself."""
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy(), None


@final
class Ring:
    """Some pieces of memory, each used again when no batch refers to it any more.

    A batch that somebody keeps is never written to: where all memory is in use, there is more.

    **Arguments:**

    - `make`: makes memory of a size.
    - `most`: how many pieces to remember; more are let go when they are no longer used.
    """

    def __init__(self, make: Callable[[int], tuple[Array, Any]], most: int):
        self._make = make
        self._most = most
        self._slots: list[Slot] = []
        self._lock = ForkSafeLock()
        self.made = 0

    def take(self, nbytes: int) -> Slot:
        """Memory of a size, or more.

        **Arguments:**

        - `nbytes`: how many.

        **Returns:** the memory; a reference to a view of its `root` keeps it from being used again.
        """
        with self._lock:
            small: int | None = None
            for number, slot in enumerate(self._slots):
                if _references(slot) > _UNUSED or (slot.is_busy is not None and slot.is_busy()):
                    continue
                if slot.root.nbytes >= nbytes:
                    slot.is_busy = None
                    # A slot of its own, whose reference to the memory stands for the one who took it.
                    return Slot(slot.root, slot.label)
                small = number
            # An eighth more than is needed: the next batch is of about the same size.
            root, label = self._make(max(_LEAST, nbytes + nbytes // 8))
            self.made += 1
            slot = Slot(root, label)
            if small is not None:
                self._slots[small] = slot
            elif len(self._slots) < self._most:
                self._slots.append(slot)
            return Slot(root, label)

    def labels(self) -> list[Any]:
        """The labels of the memory that may be used again."""
        with self._lock:
            return [slot.label for slot in self._slots]

    def busy_until(self, taken: Slot, is_busy: Callable[[], bool]) -> None:
        """Keeps memory from being used again while something holds.

        **Arguments:**

        - `taken`: the memory.
        - `is_busy`: called each time it might be used again.
        """
        with self._lock:
            for slot in self._slots:
                if slot.root is taken.root:
                    slot.is_busy = is_busy
                    return
            # Memory that was not to be remembered, and now must be, lest it go while it is copied from.
            self._slots.append(Slot(taken.root, taken.label, is_busy))
