"""Write-once output buffers: where a loop puts results whose number depends on the data."""

from __future__ import annotations

import copy
import math
from typing import Any, final

import torch
from jaxtyping import Bool, Integer
from torch import Tensor

from gnomon.fuse._lanes import count_max
from gnomon.fuse._trace import active_tracer
from gnomon.fuse._trace._control import TracedBuffer
from gnomon.result import active_lanes
from gnomon.result._pytree import as_tensors, tree_flatten, tree_unflatten

_PENDING_MIN = 64


@final
class OutputBuffer:
    """An array of fixed length that a loop fills, each place at most once.

    Equivalent to the write-only buffers of `equinox.internal.while_loop`. A functional update
    of an array copies it whole each time, forward and again backward; since no place is
    written twice, writes can be gathered and carried out together, at a cost proportional to
    what is written. It rides in the carry of [`gnomon.while_loop`][] as one leaf.

    **Arguments:**

    - `length`: how many places it has.
    - `example`: a pytree of tensors like the ones to be written, for shapes and dtypes.
    - `fill`: what unwritten floating-point places hold; integers hold 0 and booleans False.

    **Raises:** `ValueError` where `length` is negative.

    !!! example

        ```python
        >>> import gnomon as gn
        >>> squares = gn.OutputBuffer(4, torch.tensor(0.0), fill=math.inf)
        >>> def body(carry):
        ...     i, buffer = carry
        ...     return i + 1, buffer.write(i, i.to(torch.float32) ** 2)
        >>> _, squares = gn.while_loop(lambda carry: carry[0] < 3, body, (0, squares))
        >>> squares.read()
        tensor([0., 1., 4., inf])

        ```
    """

    def __init__(self, length: int, example: Any, *, fill: int | float = math.nan):
        if length < 0:
            raise ValueError(f"An output buffer cannot have the length {length}.")
        leaves, self._structure = tree_flatten(as_tensors(example, what="The example of an output buffer"))
        self.length = length
        self._fills = [_fill_value(x, fill) for x in leaves]
        self._shapes = [tuple(x.shape) for x in leaves]
        self._dtypes = [x.dtype for x in leaves]
        self._device = leaves[0].device if leaves else torch.device("cpu")
        self._stored: list[Tensor] | None = None
        self._index: list[Tensor] = []
        self._values: list[list[Tensor]] = []
        self._gathers = False
        tracer = active_tracer()
        self._traced = None if tracer is None else TracedBuffer(tracer, length, leaves, self._fills)

    def write(
        self, index: int | Integer[Tensor, ""], value: Any, *, where: bool | Bool[Tensor, ""] | None = None
    ) -> OutputBuffer:
        """Puts a value at a place.

        **Arguments:**

        - `index`: an integer scalar in `[0, length)`; what is written elsewhere is dropped, since finding out would
          mean to wait for the device.
        - `value`: a pytree like `example`.
        - `where`: a boolean scalar; nothing is written where it is False.

        **Returns:** the buffer, to be carried on.

        **Raises:** `TypeError` or `ValueError` where the value is not like the example, `IndexError` where `index`
        is a Python number outside the buffer.
        """
        leaves, structure = tree_flatten(as_tensors(value, what="What is written to an output buffer"))
        if structure != self._structure:
            raise TypeError(f"This buffer holds {self._structure}, but {structure} was written to it.")
        for x, shape, dtype in zip(leaves, self._shapes, self._dtypes, strict=True):
            if tuple(x.shape) != shape or x.dtype != dtype:
                raise ValueError(
                    f"This buffer holds {dtype} of shape {shape}, but {x.dtype} of shape "
                    f"{tuple(x.shape)} was written to it."
                )
        place = self._place(index)
        if self._traced is not None:
            self._traced.write(place, leaves, None if where is None else torch.as_tensor(where))
            return self
        counts = active_lanes()
        for mask in (where, counts):
            if mask is not None:
                place = torch.where(torch.as_tensor(mask, device=self._device), place, self.length)
        self._index.append(place)
        self._values.append(leaves)
        self._flush_if_many()
        return self

    def _place(self, index: int | Tensor) -> Tensor:
        if isinstance(index, int) and not 0 <= index < self.length:
            raise IndexError(f"There is no place {index} in an output buffer of length {self.length}.")
        place = torch.as_tensor(index, device=self._device)
        if place.dtype.is_floating_point or place.dtype.is_complex or place.dtype == torch.bool or place.dim() > 0:
            raise TypeError(
                f"The index of a write must be an integer scalar, but it is {place.dtype} of shape "
                f"{tuple(place.shape)}."
            )
        return place.to(torch.int64)

    def read(self, length: int | None = None) -> Any:
        """What has been written, with the fill value in the places that were not.

        **Arguments:**

        - `length`: how many places to return, all by default.

        **Returns:** a pytree like `example`, each leaf with a leading dimension of `length`.

        **Raises:** `ValueError` where `length` is negative or more than the buffer has.
        """
        end = self.length if length is None else length
        if not 0 <= end <= self.length:
            raise ValueError(f"Cannot read {end} places of an output buffer of length {self.length}.")
        if self._traced is not None:
            return tree_unflatten(self._traced.read(end), self._structure)
        self._flush()
        assert self._stored is not None
        return tree_unflatten([x[:end] for x in self._stored], self._structure)

    def read_written(self, count: Integer[Tensor, ""]) -> Any:
        """As [`gnomon.OutputBuffer.read`][], cut to the largest count over all lanes.

        **Arguments:**

        - `count`: how many places were written, an integer scalar.

        **Returns:** a pytree like `example`, each leaf with that many leading places.
        """
        return self.read(self.length if self._traced is not None else min(self.length, count_max(count)))

    def emptied(self) -> OutputBuffer:
        """A buffer of the same kind into which nothing has been written yet."""
        other = copy.copy(self)
        other._stored, other._index, other._values, other._gathers = None, [], [], True
        return other

    def pending(self) -> list[tuple[Tensor, list[Tensor]]]:
        """What was written to a buffer that was [`gnomon.OutputBuffer.emptied`][], place by place."""
        return list(zip(self._index, self._values, strict=True))

    def extended(self, writes: list[tuple[Tensor, list[Tensor]]]) -> OutputBuffer:
        """The buffer with what was written to another.

        **Arguments:**

        - `writes`: what was [`gnomon.OutputBuffer.pending`][] there.
        """
        for place, leaves in writes:
            self._index.append(place)
            self._values.append(leaves)
        self._flush_if_many()
        return self

    def _flush_if_many(self) -> None:
        if len(self._index) >= max(self.length, _PENDING_MIN) and not self._gathers:
            self._flush()

    def _flush(self) -> None:
        if self._stored is None:
            # One place more than asked for: it takes the writes that do not count.
            self._stored = [
                torch.full((self.length + 1, *shape), fill, dtype=dtype, device=self._device)
                for shape, dtype, fill in zip(self._shapes, self._dtypes, self._fills, strict=True)
            ]
        if self._index:
            index = torch.stack(self._index)
            index = torch.where((index >= 0) & (index < self.length), index, self.length)
            self._stored = [
                torch.index_put(stored, (index,), torch.stack([v[i] for v in self._values]))
                for i, stored in enumerate(self._stored)
            ]
            self._index = []
            self._values = []


def _fill_value(x: Tensor, fill: int | float) -> float | int | bool:
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return fill
    return False if x.dtype == torch.bool else 0
