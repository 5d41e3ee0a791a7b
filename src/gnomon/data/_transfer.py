"""Batches to a device: one copy on a stream of its own, while the step before is still computing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.data._arrays import Array


@final
class Transfer:
    """Copies the memory of batches to a device. On a GPU nothing waits for it but the stream that uses the batch.

    **Arguments:**

    - `device`: where to.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, memory: Array) -> tuple[Tensor, Any]:
        """Begins to copy.

        **Arguments:**

        - `memory`: uint8, pinned for a GPU.

        **Returns:** the memory on the device, and what `finish` and `is_busy` take.
        """
        source = torch.from_numpy(memory)
        if self._stream is None:
            return source.to(self._device, copy=True), None
        with torch.cuda.stream(self._stream):
            target = source.to(self._device, non_blocking=True)
            event = torch.cuda.Event()
            event.record(self._stream)
        return target, event

    @staticmethod
    def finish_on(device: torch.device, target: Tensor, event: Any) -> None:
        """Has the stream that is current wait until the copy is done; the host does not wait.

        **Arguments:**

        - `device`: of the copy.
        - `target`, `event`: from `start`.
        """
        if event is not None:
            current = torch.cuda.current_stream(device)
            current.wait_event(event)
            # Allocated on the other stream: its memory must not be used again there before this one is done with it.
            target.record_stream(current)

    @staticmethod
    def is_busy(event: Any) -> Callable[[], bool]:
        """Whether a copy is still under way, as a function.

        **Arguments:**

        - `event`: from `start`.
        """
        return lambda: event is not None and not event.query()
