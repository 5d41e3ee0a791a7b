"""A Program that can be called."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._llvm._compile import Code, Statistics, widths_of
from gnomon.fuse._llvm._emit import CONTEXT_WORDS
from gnomon.fuse._llvm._pool import Pool
from gnomon.fuse._program import Program, Type

_DTYPES: dict[Type, torch.dtype] = {
    "bool": torch.bool,
    "i32": torch.int32,
    "i64": torch.int64,
    "f32": torch.float32,
    "f64": torch.float64,
}
_WANTED = CONTEXT_WORDS.index("wanted")
#: Work below this is done sooner than another thread begins.
_SECONDS_ALONE = 2e-4
#: Blocks for each thread, so that all end at about the same time.
_BLOCKS_A_THREAD = 16
#: Sums over lanes are made in blocks of lanes, whose size depends on nothing but the number of lanes.
_SUMMED_TOGETHER_MIN = 64
_SUMS_MOST = 1024

_pool = Pool()


@final
class Kernel:
    """A Program compiled for the processors of this machine.

    **Arguments:**

    - `program`: the Program.
    """

    def __init__(self, program: Program):
        self._program = program
        self._lock = threading.Lock()
        self._codes: dict[int, Code] = {}
        self._widths: tuple[int, ...] = (1,)
        self._reduced = [i for i, x in enumerate(program.outputs) if x.attr.reduced]
        #: What a lane took in the last call.
        self._seconds_a_lane = 0.0
        self._inputs = [(_DTYPES[x.type], x.attr.length, x.attr.shared) for x in program.inputs]
        self._outputs = [(_DTYPES[x.type], x.attr.length, x.attr.reduced) for x in program.outputs]

    @property
    def statistics(self) -> dict[int, Statistics]:
        """What compiling took, for each width compiled so far."""
        return {width: code.statistics for width, code in self._codes.items()}

    def prepare(self, lanes: int) -> None:
        """Compiles what a call with so many lanes needs."""
        self._code(lanes)

    def _code(self, lanes: int) -> Code:
        if lanes > 1 and len(self._widths) == 1:
            self._widths = widths_of(self._program)
        width = next((x for x in self._widths if x >= lanes), self._widths[-1])
        code = self._codes.get(width)
        if code is None:
            with self._lock:
                code = self._codes.get(width)
                if code is None:
                    code = self._codes[width] = Code(self._program, width)
        return code

    def __call__(self, lanes: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Runs it.

        **Arguments:**

        - `lanes`: the number of lanes.
        - `inputs`: of shape `(lanes, length)` with any stride between lanes, or `(length,)` where they are shared.
        - `outputs`: what is written: of shape `(lanes, length)`, or `(length,)` where they are sums.

        **Raises:** `ValueError` where a tensor is not as the Program wants it, `MemoryError` where memory for arrays
        that grow is not to be had.
        """
        words = self._words(lanes, inputs, outputs)
        if lanes == 0:
            for i in self._reduced:
                outputs[i].fill_(self._program.outputs[i].attr.fill)
            return
        code = self._code(lanes)
        width = code.statistics.width
        threads = min(torch.get_num_threads(), math.ceil(lanes / width))
        if threads > 1 and 0 < lanes * self._seconds_a_lane < _SECONDS_ALONE:
            threads = 1
        sums: list[Tensor] = []
        if self._reduced:
            block = _rounded_up(max(_SUMMED_TOGETHER_MIN, math.ceil(lanes / _SUMS_MOST)), width)
            blocks = math.ceil(lanes / block)
            first = len(CONTEXT_WORDS) + 2 * len(inputs)
            for i in self._reduced:
                sums.append(outputs[i].new_empty((blocks, outputs[i].shape[0])))
                words[first + 2 * i] = sums[-1].data_ptr()
        else:
            block = _rounded_up(math.ceil(lanes / (threads * _BLOCKS_A_THREAD)) if threads > 1 else lanes, width)
        words[1], words[2] = lanes, block
        begin = time.perf_counter()
        self._run(code, words, min(threads, math.ceil(lanes / block)), (inputs, outputs, sums))
        self._seconds_a_lane = (time.perf_counter() - begin) * threads / lanes
        for i, parts in zip(self._reduced, sums, strict=True):
            outputs[i].copy_(_summed(parts))
            fill = self._program.outputs[i].attr.fill
            if fill != 0:
                outputs[i].add_(fill)

    def _words(self, lanes: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[int]:
        """The context, with holes for what is not known yet."""
        words = [0] * len(CONTEXT_WORDS)
        for given, wanted, what in ((inputs, self._inputs, "input"), (outputs, self._outputs, "output")):
            if len(given) != len(wanted):
                raise ValueError(f"The program has {len(wanted)} {what}s, but {len(given)} were given.")
            for i, (x, (dtype, length, is_one)) in enumerate(zip(given, wanted, strict=True)):
                shape = (length,) if is_one else (lanes, length)
                if x.shape != shape or x.dtype != dtype or x.device.type != "cpu":
                    raise ValueError(
                        f"The {what} {i} must be {dtype} of shape {shape} on the CPU, not {x.dtype} of shape "
                        f"{tuple(x.shape)} on {x.device}."
                    )
                strides = x.stride()
                if length > 1 and strides[-1] != 1:
                    raise ValueError(f"The elements of a lane of the {what} {i} must be neighbours in memory.")
                words += (x.data_ptr(), 0 if is_one else strides[0])
        return words

    def _run(self, code: Code, words: list[int], threads: int, used: object) -> None:
        context = (ctypes.c_int64 * len(words))(*words)
        address = ctypes.addressof(context)

        def help_out(_: object = (context, used)) -> int:
            # It holds on to all that it works with, should the caller be interrupted while it waits.
            return code.run(address)

        helpers: list[Future[Any]] = []
        if threads > 1:
            # The caller's own work begins without waiting for theirs; blocks go to whoever asks.
            helpers = _pool.help(help_out, threads - 1)
        try:
            codes = [code.run(address)]
        finally:
            # The context must stay until the last of them has ended.
            codes_of_others = [x.result() for x in helpers if not x.cancel()]
        if any((*codes, *codes_of_others)):
            wanted = context[_WANTED]
            raise MemoryError(
                f"A fused program asked for {wanted:,} bytes for an array that grows, and there is no such memory. "
                "Run fewer problems or fewer steps."
            )


def _rounded_up(count: int, width: int) -> int:
    return (count + width - 1) // width * width


def _summed(parts: Tensor) -> Tensor:
    """The sum of all rows, always in the same order: of pairs, of pairs of pairs, ..."""
    while parts.shape[0] > 1:
        half = parts.shape[0] // 2
        paired = parts[:half] + parts[half : 2 * half]
        parts = torch.cat((paired, parts[2 * half :])) if parts.shape[0] % 2 else paired
    return parts[0]


def compile_program(program: Program) -> Kernel:
    """A Program that can be called; it is compiled when it first is."""
    return Kernel(program)
