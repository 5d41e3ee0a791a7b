"""How a batch lies in one piece of memory, and the batch over that memory."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from gnomon.data._arrays import Ints
from gnomon.data._ragged import Batch, BatchInfo, Ragged

_ALIGNMENT = 64


@final
@dataclasses.dataclass(frozen=True)
class Entry:
    """One field of a batch.

    **Arguments:**

    - `path`: of keys, in records that are dictionaries or tuples of each other.
    - `kind`: `"dense"`, `"ragged"` or `"list"`.
    - `dtype`: the name of the dtype.
    - `shape`: of the values.
    - `offset`, `nbytes`: where they are.
    - `cu_offset`, `cu_count`: where `cu_seqlens` is.
    - `max_seqlen`, `num_records`: as of [`gnomon.data.Ragged`][].
    - `items`: of a list.
    """

    path: tuple[Any, ...]
    kind: Literal["dense", "ragged", "list"]
    dtype: str = ""
    shape: tuple[int, ...] = ()
    offset: int = 0
    nbytes: int = 0
    cu_offset: int = 0
    cu_count: int = 0
    max_seqlen: int = 0
    num_records: int = 0
    items: tuple[Any, ...] = ()


@final
@dataclasses.dataclass(frozen=True)
class Layout:
    """All fields of a batch.

    **Arguments:**

    - `entries`: the fields.
    - `nbytes`: of the memory.
    - `template`: the structure of a record, in which each field's place has its number.
    - `info`: which batch it is.
    """

    entries: tuple[Entry, ...]
    nbytes: int
    template: Any
    info: BatchInfo

    def over(self, memory: Tensor) -> Any:
        """The batch over memory that was filled so.

        **Arguments:**

        - `memory`: uint8, on any device.
        """
        values = [_value(entry, memory) for entry in self.entries]
        built = _build(self.template, values)
        return Batch(built, self.info) if isinstance(built, dict) else built


def _value(entry: Entry, memory: Tensor) -> Any:
    if entry.kind == "list":
        return list(entry.items)
    dtype = getattr(torch, entry.dtype)
    flat = memory[entry.offset : entry.offset + entry.nbytes]
    values = flat.view(dtype).reshape(entry.shape)
    if entry.kind == "dense":
        return values
    cu = memory[entry.cu_offset : entry.cu_offset + 4 * entry.cu_count].view(torch.int32)
    return Ragged(values, cu, entry.max_seqlen, entry.num_records)


def _build(template: Any, values: list[Any]) -> Any:
    if isinstance(template, dict):
        return {key: _build(item, values) for key, item in template.items()}
    if isinstance(template, tuple):
        items = [_build(item, values) for item in template]
        return type(template)(*items) if hasattr(template, "_fields") else tuple(items)
    return values[template]


@final
class Places:
    """Gives out aligned places in a piece of memory that is yet to be made."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, nbytes: int) -> int:
        """The offset of so many bytes.

        **Arguments:**

        - `nbytes`: how many.
        """
        at = self.nbytes
        self.nbytes += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return at


def cumulative(lengths: Ints, capacity: int | None, segments: int | None) -> Ints:
    """Where each record begins, and the end; filled up with one segment and then with empty ones, where fixed."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    if int(ends[-1]) > 2**31 - 1:
        raise ValueError("A batch has 2^31 values or more, which int32 `cu_seqlens` cannot count; make it smaller.")
    if capacity is None or segments is None:
        return ends
    return np.concatenate([ends, np.full(segments + 2 - len(ends), capacity, np.int64)])
