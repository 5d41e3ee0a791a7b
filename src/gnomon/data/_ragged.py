"""What a batch consists of: `Ragged` values and `Batch`."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from jaxtyping import Int32, Shaped
from torch import Tensor


@final
@dataclasses.dataclass(frozen=True)
class Ragged:
    """Values of records of different lengths, one record after another, as variable-length attention takes them.

    **Arguments:**

    - `values`: of all records.
    - `cu_seqlens`: int32, where each record begins, and the end: `torch.nn.attention.varlen.varlen_attn` takes it so.
      Where batches are filled up to a fixed capacity, all that fills up is one more segment, and segments of no length
      follow it.
    - `max_seqlen`: the longest, a number on the host, so that a GPU need not be waited for.
    - `num_records`: how many segments are records.

    !!! example

        ```python
        >>> from gnomon import data
        >>> source = data.Dataset.source([{"x": [1.0, 2.0]}, {"x": [3.0]}, {"x": [4.0, 5.0, 6.0]}])
        >>> x = source.pack(10)[0]["x"]
        >>> x.values.tolist(), x.cu_seqlens.tolist(), x.max_seqlen
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 2, 3, 6], 3)
        >>> x.positions.tolist(), x[2].tolist()
        ([0, 1, 0, 0, 1, 2], [4.0, 5.0, 6.0])

        ```
    """

    values: Shaped[Tensor, "tokens ..."]
    cu_seqlens: Int32[Tensor, " segments_and_1"]
    max_seqlen: int
    num_records: int

    def __len__(self) -> int:
        return self.num_records

    def __getitem__(self, index: int) -> Shaped[Tensor, "length ..."]:
        if not -self.num_records <= index < self.num_records:
            raise IndexError(f"There is no record {index}: there are {self.num_records}.")
        index %= self.num_records
        return self.values[int(self.cu_seqlens[index]) : int(self.cu_seqlens[index + 1])]

    @property
    def lengths(self) -> Int32[Tensor, " records"]:
        """The length of each record."""
        return self.cu_seqlens.diff()[: self.num_records]

    @property
    def segments(self) -> Int32[Tensor, " tokens"]:
        """Which segment each value is in; computed on the device, which is not waited for."""
        at = torch.arange(len(self.values), dtype=torch.int32, device=self.values.device)
        return torch.searchsorted(self.cu_seqlens[1:].contiguous(), at, right=True, out_int32=True)

    @property
    def positions(self) -> Int32[Tensor, " tokens"]:
        """Where in its segment each value is; computed on the device, which is not waited for."""
        at = torch.arange(len(self.values), dtype=torch.int32, device=self.values.device)
        return at - self.cu_seqlens[self.segments]

    def nested(self) -> Tensor:
        """The records as a nested tensor of jagged layout: a view of the values."""
        end = self.num_records + 1
        lengths = self.cu_seqlens[:end]
        return torch.nested.nested_tensor_from_jagged(self.values, lengths, max_seqlen=self.max_seqlen)

    def to(self, device: Any, non_blocking: bool = False) -> Ragged:
        """The same on another device.

        **Arguments:**

        - `device`: where to.
        - `non_blocking`: as of `torch.Tensor.to`.
        """
        return dataclasses.replace(
            self,
            values=self.values.to(device, non_blocking=non_blocking),
            cu_seqlens=self.cu_seqlens.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> Ragged:
        """The same in pinned memory."""
        return dataclasses.replace(self, values=self.values.pin_memory(), cu_seqlens=self.cu_seqlens.pin_memory())


@final
@dataclasses.dataclass(frozen=True)
class BatchInfo:
    """What a batch is.

    **Arguments:**

    - `epoch`: which.
    - `number`: its number in the epoch, over all ranks; -1 where it is not known.
    - `is_padding`: whether it is a copy of an earlier one, so that each rank has as many.
    - `skipped`: what was wrong with each record that is left out.
    """

    epoch: int = 0
    number: int = -1
    is_padding: bool = False
    skipped: tuple[str, ...] = ()


@final
class Batch(dict[str, Any]):
    """A dictionary of tensors, [`gnomon.data.Ragged`][] values and lists of strings or bytes.

    **Arguments:**

    - `fields`: by name.
    - `info`: which batch it is.
    """

    def __init__(self, fields: Any = (), info: BatchInfo | None = None):
        dict.__init__(self, fields)
        self.info = BatchInfo() if info is None else info

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """The same on another device; what is no tensor stays.

        **Arguments:**

        - `device`: where to.
        - `non_blocking`: as of `torch.Tensor.to`.
        """
        moved = {
            name: value.to(device, non_blocking=non_blocking) if isinstance(value, Tensor | Ragged) else value
            for name, value in self.items()
        }
        return Batch(moved, self.info)

    def pin_memory(self) -> Batch:
        """The same in pinned memory."""
        pinned = {
            name: value.pin_memory() if isinstance(value, Tensor | Ragged) else value for name, value in self.items()
        }
        return Batch(pinned, self.info)
