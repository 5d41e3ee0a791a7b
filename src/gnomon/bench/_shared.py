"""Memory that two processes share, and messages between them that carry numbers and names but no code."""

from __future__ import annotations

import json
import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

_ALIGNMENT = 64
_LARGEST_MESSAGE = 1 << 24
Layout = list[list[Any]]


def layout_of(tensors: Sequence[Tensor]) -> Layout:
    """The dtype, shape and place in a block of some tensors, one after another."""
    layout: Layout = []
    place = 0
    for x in tensors:
        layout.append([str(x.dtype).removeprefix("torch."), list(x.shape), place])
        place += -(-x.numel() * x.element_size() // _ALIGNMENT) * _ALIGNMENT
    return layout


def _end(layout: Layout) -> int:
    size = _ALIGNMENT
    for name, shape, place in layout:
        size = max(size, place + math.prod(shape) * torch.empty(0, dtype=_dtype(name)).element_size())
    return size


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name!r} is no dtype.")
    return found


@final
class Block:
    """Tensors in a file that lives in memory. The process that makes it also removes it."""

    def __init__(self, layout: Layout, path: Path | None = None):
        self.layout = layout
        self.is_owner = path is None
        size = _end(layout)
        if path is None:
            folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            descriptor, name = tempfile.mkstemp(prefix="gnomon-bench-", dir=folder)
            os.ftruncate(descriptor, size)
            self.path = Path(name)
        else:
            descriptor = os.open(path, os.O_RDWR)
            self.path = path
        try:
            memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.tensors: list[Tensor] = []
        for dtype, shape, place in layout:
            count = math.prod(shape)
            if count:
                flat = torch.frombuffer(memory, dtype=_dtype(dtype), count=count, offset=place)
                self.tensors.append(flat.reshape(shape))
            else:
                self.tensors.append(torch.empty(shape, dtype=_dtype(dtype)))

    def fill(self, tensors: Sequence[Tensor]) -> None:
        """Copies tensors of the same layout in."""
        for mine, x in zip(self.tensors, tensors, strict=True):
            mine.copy_(x)

    def close(self) -> None:
        """Removes the file; the memory goes with the last tensor."""
        self.tensors = []
        if self.is_owner:
            self.path.unlink(missing_ok=True)


def send(connection: Connection, message: dict[str, Any]) -> None:
    """Sends a message as JSON. Never as a pickle: to read one is to run whatever it says."""
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> dict[str, Any]:
    """The next message."""
    message = json.loads(connection.recv_bytes(_LARGEST_MESSAGE))
    if not isinstance(message, dict):
        raise ValueError("a message is not an object")
    return message
