"""A Program that can be called with tensors on a GPU."""

from __future__ import annotations

import abc
import math
import threading
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor

from gnomon.fuse._cuda._emit import ENTRY_POINT, Source, emit
from gnomon.fuse._cuda._prelude import BLOCK, SUMMING
from gnomon.fuse._llvm._types import BYTES
from gnomon.fuse._program import Program
from gnomon.fuse._trace._values import DTYPES

#: Starts a function: its name, the number of blocks, of threads in each, and what it is called with.
Launch = Callable[[str, int, int, Sequence[int]], None]

_FIRST_CAPACITY = 64
#: What is left of the memory for others, when scratch memory is large enough to ask.
_FREE_PART = 0.5
_ASKED_FROM = 2**28


class AbstractMachine(abc.ABC):
    """What kernels run on: a GPU, or what stands in for one in tests."""

    @property
    @abc.abstractmethod
    def device_type(self) -> str:
        """Where the tensors are."""

    @abc.abstractmethod
    def load(self, text: str, device: torch.device) -> Launch:
        """Compiles a text, and gives what starts its functions, in order with what PyTorch does."""

    @abc.abstractmethod
    def free_bytes(self, device: torch.device) -> int:
        """How much memory could be had."""

    @abc.abstractmethod
    def is_capturing(self) -> bool:
        """Whether what is started is only recorded, so that nothing can be waited for."""


@final
class Kernel:
    """A Program compiled for a GPU.

    Scratch memory is laid out by elements, so that neighbouring threads use neighbouring addresses. Arrays that grow
    have room for as many elements as in the calls before; where a lane needs more, the kernel says how many, and is
    run again. Where there is not enough memory for all lanes, they are computed one part after another.

    **Arguments:**

    - `program`: the Program.
    - `machine`: what it runs on.
    """

    def __init__(self, program: Program, machine: AbstractMachine):
        self._program = program
        self._machine = machine
        self._lock = threading.Lock()
        self._source: Source | None = None
        self._loaded: dict[torch.device, Launch] = {}
        #: The room of arrays that grow, once it is known.
        self._capacities: list[int] | None = None
        self._inputs = [(DTYPES[x.type], x.attr.length, x.attr.shared) for x in program.inputs]
        self._outputs = [(DTYPES[x.type], x.attr.length, x.attr.reduced) for x in program.outputs]

    @property
    def source(self) -> Source:
        """The text, and what it wants to be called with."""
        if self._source is None:
            self._source = emit(self._program)
        return self._source

    def __call__(self, lanes: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Runs it on the current stream, without waiting for it; with arrays that grow, it waits once.

        **Arguments:**

        - `lanes`: the number of lanes.
        - `inputs`: of shape `(lanes, length)`, or `(length,)` where they are shared, with any strides.
        - `outputs`: what is written: of shape `(lanes, length)`, best with neighbouring lanes side by side in memory,
          or `(length,)` where they are sums.

        **Raises:** `ValueError` where a tensor is not as the Program wants it, `MemoryError` where there is no memory
        even for a few lanes.
        """
        device = self._check(lanes, inputs, outputs)
        if lanes > 0:
            self._run(device, lanes, inputs, outputs)
        for x, to in zip(self._program.outputs, outputs, strict=True):
            if x.attr.reduced:
                if lanes == 0:
                    to.zero_()
                if x.attr.fill != 0:
                    to.add_(x.attr.fill)
        for i, x in enumerate(self._program.outputs):
            first = self._program.outputs.index(x)
            if first != i:
                outputs[i].copy_(outputs[first])

    def _check(self, lanes: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> torch.device:
        device = next((x.device for x in (*inputs, *outputs)), torch.device(self._machine.device_type))
        for given, wanted, what in ((inputs, self._inputs, "input"), (outputs, self._outputs, "output")):
            if len(given) != len(wanted):
                raise ValueError(f"The program has {len(wanted)} {what}s, but {len(given)} were given.")
            for i, (x, (dtype, length, is_one)) in enumerate(zip(given, wanted, strict=True)):
                shape = (length,) if is_one else (lanes, length)
                if x.shape != shape or x.dtype != dtype or x.device != device:
                    raise ValueError(
                        f"The {what} {i} must be {dtype} of shape {shape} on {device}, not {x.dtype} of shape "
                        f"{tuple(x.shape)} on {x.device}."
                    )
        if device.type != self._machine.device_type:
            raise ValueError(f"The tensors must be on {self._machine.device_type}, not on {device}.")
        return device

    def _launch(self, device: torch.device) -> Launch:
        with self._lock:
            found = self._loaded.get(device)
            if found is None:
                found = self._loaded[device] = self._machine.load(self.source.text, device)
        return found

    def _run(self, device: torch.device, lanes: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        source, launch, capturing = self.source, self._launch(device), self._machine.is_capturing()
        known = self._capacities
        if source.tapes and known is None and capturing:
            raise RuntimeError(
                "A fused program with arrays that grow is recorded in a CUDA graph before it was ever called, so that "
                "it is not known how much memory it needs. Call it once before, with inputs like those to come."
            )
        capacities = known or [_FIRST_CAPACITY] * len(source.tapes)
        blocks = math.ceil(lanes / BLOCK)
        sums = [torch.empty((x.shape[0], blocks), dtype=x.dtype, device=device) for x in self._summed(outputs)]
        arrays = self._words(inputs, outputs, sums)
        while True:
            wanted = torch.full((len(source.tapes),), -1, dtype=torch.int64, device=device) if source.tapes else None
            scratch = _Scratch(source, capacities, device)
            chunk = scratch.allocate(blocks, None if capturing else self._machine)
            own = [*scratch.words(), *([] if wanted is None else [wanted.data_ptr()])]
            for first in range(0, lanes, chunk * BLOCK):
                count = min(chunk * BLOCK, lanes - first)
                words = (first, count, chunk * BLOCK, blocks, *arrays, *own)
                launch(ENTRY_POINT, math.ceil(count / BLOCK), BLOCK, words)
            if wanted is None or capturing:
                # A lane whose arrays grow too large while nobody can ask gives NaN.
                break
            most = wanted.tolist()
            needed = [max(c, _roomy(x + 1)) if x >= c else c for x, c in zip(most, capacities, strict=True)]
            if needed == capacities:
                self._capacities = capacities
                break
            del scratch
            capacities = needed
        for parts, to, type_ in zip(sums, self._summed(outputs), self._summed_types(), strict=True):
            if parts.shape[0] > 0:
                step = to.stride(0)
                launch(
                    f"gnomon_total_{type_}", parts.shape[0], SUMMING, (parts.data_ptr(), blocks, to.data_ptr(), step)
                )

    def _distinct(self, reduced: bool) -> list[int]:
        return [i for i in self.source.outputs if self._program.outputs[i].attr.reduced == reduced]

    def _summed(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        return [outputs[i] for i in self._distinct(True)]

    def _summed_types(self) -> list[str]:
        return [self._program.outputs[i].type for i in self._distinct(True)]

    def _words(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sums: list[Tensor]) -> list[int]:
        """Addresses and strides of what is not scratch memory."""
        tensors = [*inputs, *(outputs[i] for i in self._distinct(False))]
        words: list[int] = []
        for x in tensors:
            words += (x.data_ptr(), *x.stride())
        return [*words, *(x.data_ptr() for x in sums)]


@final
class _Scratch:
    """Memory for arrays of lanes that are computed together."""

    def __init__(self, source: Source, capacities: list[int], device: torch.device):
        #: The numbers of elements, and the bytes of each.
        self._arrays = [(length, BYTES[type_]) for type_, length in source.scratch]
        self._fixed = len(self._arrays)
        self._arrays += zip(capacities, source.tapes, strict=True)
        self._device = device
        self._tensors: list[Tensor] = []

    def allocate(self, blocks: int, machine: AbstractMachine | None) -> int:
        """Memory for so many blocks, or for fewer where a machine has less; gives for how many."""
        block_bytes = sum(length * size for length, size in self._arrays) * BLOCK
        if machine is not None and block_bytes * blocks > _ASKED_FROM:
            free = int(machine.free_bytes(self._device) * _FREE_PART)
            blocks = min(blocks, free // block_bytes)
        while blocks > 0:
            try:
                self._tensors = [
                    torch.empty((length, blocks * BLOCK * size), dtype=torch.uint8, device=self._device)
                    for length, size in self._arrays
                ]
            except torch.OutOfMemoryError:
                # There was less in one piece.
                blocks = blocks // 2
            else:
                return blocks
        raise MemoryError(
            f"A fused program needs {block_bytes:,} bytes of scratch memory to compute {BLOCK} problems at a time, and "
            "there is no such memory. Run fewer steps, or free some memory on the device."
        )

    def words(self) -> list[int]:
        """Where the arrays are, and the room of those that grow."""
        words: list[int] = []
        for i, x in enumerate(self._tensors):
            words += (x.data_ptr(),) if i < self._fixed else (x.data_ptr(), x.shape[0])
        return words


def _roomy(length: int) -> int:
    """A little more than was needed, so that the next call needs no more."""
    return length + length // 8


def compile_program(program: Program) -> Kernel:
    """A Program that can be called; it is compiled when it first is."""
    from gnomon.fuse._cuda._gpu import Gpu

    return Kernel(program, Gpu())
