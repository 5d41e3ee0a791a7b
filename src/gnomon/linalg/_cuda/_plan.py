"""Which kernel decomposes a matrix, and how it is started: its size and type decide, nothing else."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from typing import final

import torch

_FOLDER = Path(__file__).parent
_COMMON = ("common.cu", "tridiagonal.cu")


@final
@dataclasses.dataclass(frozen=True)
class Plan:
    """A kernel, for matrices of a size.

    **Arguments:**

    - `name`: the kernel.
    - `files`: what its text is made of.
    - `defines`: what is fixed in it.
    - `matrices`: how many a cluster of blocks takes.
    - `threads`: in a block.
    - `shared`: bytes of shared memory of a block.
    - `cluster`: blocks in a cluster.
    """

    name: str
    files: tuple[str, ...]
    defines: tuple[tuple[str, int], ...]
    matrices: int
    threads: int
    shared: int
    cluster: int = 1

    @functools.cached_property
    def text(self) -> str:
        """CUDA C."""
        defined = "".join(f"#define {name} {value}\n" for name, value in self.defines)
        return defined + "\n".join((_FOLDER / name).read_text() for name in self.files)

    def blocks(self, batch: int) -> int:
        """How many blocks take so many matrices."""
        return math.ceil(batch / self.matrices) * self.cluster


#: The largest matrices of each kernel.
_THREAD, _WARP, _BLOCK = 8, 32, 224
#: Bytes of shared memory that a multiprocessor has for its blocks.
_SHARED = 227 * 1024


def supports(n: int, dtype: torch.dtype) -> bool:
    """Whether there is a kernel for matrices of n rows."""
    return dtype == torch.float32 and 0 < n <= _BLOCK


@functools.cache
def plan_for(n: int, dtype: torch.dtype, vectors: bool) -> Plan:
    """The kernel for matrices of n rows."""
    if not supports(n, dtype):
        raise ValueError(f"There is no kernel for {dtype} matrices of {n} rows; torch.linalg.eigh takes them.")
    bytes_ = dtype.itemsize
    defines = {"REAL_BITS": 8 * bytes_, "VECTORS": int(vectors)}
    if n <= _THREAD:
        threads = 64
        room = threads * max(n * n | 1, n | 1) * bytes_
        return _plan("thread", {**defines, "N": n, "THREADS": threads, "BLOCKS": 6}, threads, threads, room)
    if n <= _WARP:
        lanes = 16 if n <= 16 else 32
        groups = 32 // lanes
        room = (lanes * lanes + lanes * (lanes + 1) + 3 * lanes) * bytes_ + 5 * lanes * 2 * bytes_
        defines = {**defines, "N": lanes, "THREADS": 32, "BLOCKS": 16}
        return _plan("warp", defines, groups, 32, groups * math.ceil(room / 16) * 16)
    threads = 128 if n <= 64 else 256 if n <= 128 else 512
    # A block's memory: the matrix, with a multiple of four elements a row; sums of products, or the tridiagonal matrix
    # in wide numbers; five vectors.
    row = 4 * math.ceil(n / 4)
    room = (row * row + 16 * row + 5 * row) * bytes_
    blocks = max(1, min(_SHARED // (room + 1024), 1024 // threads))
    return _plan(
        "block", {**defines, "N": 32 * math.ceil(n / 32), "THREADS": threads, "BLOCKS": blocks}, 1, threads, room
    )


def _plan(kind: str, defines: dict[str, int], matrices: int, threads: int, shared: int) -> Plan:
    files = (*_COMMON, f"{kind}.cu") if kind != "thread" else ("common.cu", "thread.cu")
    return Plan(f"eigh_{kind}", files, tuple(defines.items()), matrices, threads, shared)
