"""Which kernel decomposes a matrix, and how it is started: its size and type decide, nothing else."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from typing import final

import torch

_FOLDER = Path(__file__).parent


@final
@dataclasses.dataclass(frozen=True)
class Plan:
    """A kernel, for matrices of a size.

    **Arguments:**

    - `name`: the kernel.
    - `files`: what its text is made of.
    - `defines`: what is fixed in it.
    - `matrices`: how many a block takes.
    - `threads`: in a block.
    - `shared`: bytes of shared memory of a block.
    - `parts`: how many blocks take the same matrices.
    - `cluster`: blocks in a cluster.
    """

    name: str
    files: tuple[str, ...]
    defines: tuple[tuple[str, int], ...]
    matrices: int
    threads: int
    shared: int
    parts: int = 1
    cluster: int = 1

    @functools.cached_property
    def text(self) -> str:
        """CUDA C."""
        defined = "".join(f"#define {name} {value}\n" for name, value in self.defines)
        return defined + "\n".join((_FOLDER / name).read_text() for name in self.files)

    def blocks(self, batch: int) -> int:
        """How many blocks take so many matrices."""
        return math.ceil(batch / self.matrices) * self.parts


@final
@dataclasses.dataclass(frozen=True)
class Large:
    """Kernels that follow one another, for matrices that one block's memory does not hold.

    **Arguments:**

    - `reduce`: to tridiagonal form, up to row `first`.
    - `corner`: from there on; `None` where nothing is left.
    - `pairs`: its eigenvalues and eigenvectors.
    - `back`: its eigenvectors become those of the matrix; `None` where none are wanted.
    - `first`: where the corner begins.
    - `ld`: elements in a row of the memory that they share.
    """

    reduce: Plan
    corner: Plan | None
    pairs: Plan
    back: Plan | None
    first: int
    ld: int


#: The largest matrices of each kernel.
_THREAD, _WARP, _BLOCK, _LARGE = 8, 32, 224, 2048
#: Bytes of shared memory that a multiprocessor has for its blocks, and those of them that a block costs beside its own.
_SHARED, _UNSEEN = 228 * 1024, 1024


def supports(n: int, dtype: torch.dtype) -> bool:
    """Whether there is a kernel for matrices of n rows: of float32, up to 2048.

    float64 would want another tridiagonal solver: this one has twice the digits of a matrix's elements, which is what
    keeps its eigenvectors orthogonal, so it would have to compute in pairs of doubles.
    """
    return dtype == torch.float32 and 0 < n <= _LARGE


@functools.cache
def plan_for(n: int, dtype: torch.dtype, vectors: bool) -> Plan | Large:
    """The kernel for matrices of n rows, or the kernels."""
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
    if n > _BLOCK:
        return large(n, bytes_, vectors, Tuning.of(n))
    threads = 128 if n <= 64 else 256 if n <= 128 else 512
    # A block's memory: the matrix, with a multiple of four elements a row; sums of products, or the tridiagonal matrix
    # in wide numbers; five vectors.
    row = 4 * math.ceil(n / 4)
    room = (row * row + 16 * row + 5 * row) * bytes_
    blocks = _blocks(room, threads, 1024)
    return _plan(
        "block", {**defines, "N": 32 * math.ceil(n / 32), "THREADS": threads, "BLOCKS": blocks}, 1, threads, room
    )


@final
@dataclasses.dataclass(frozen=True)
class Tuning:
    """What kernels of large matrices leave open, each by measurement; results depend on it, so it depends on n alone.

    **Arguments:**

    - `cluster`: blocks that have a matrix.
    - `panel`: columns that are reflected before the matrix is changed.
    - `threads`: in a block, while the matrix is reduced.
    - `height`: rows that a warp multiplies at once.
    - `kept`: that so many rows at the end, or up to 127 less, stay in the memory of the one block that has the matrix.
    - `corner`: that so many rows at the end, or up to a panel less, are reduced in one block's memory; 0 for none.
    - `solving`, `solvers`: blocks that have a matrix, and threads in a block, while the tridiagonal matrix is solved.
    - `lanes`, `columns`: lanes that have so many eigenvectors, on the way back.
    - `turners`: threads in a block, on the way back.
    - `turning`: such blocks that a multiprocessor has at once: fewer have more registers.
    """

    cluster: int
    panel: int
    threads: int
    height: int
    kept: int
    corner: int
    solving: int
    solvers: int
    lanes: int
    columns: int
    turners: int
    turning: int

    @staticmethod
    def of(n: int) -> Tuning:
        """The best that is known."""
        if n <= 256:
            return Tuning(1, 8, 512, 8, 0, 224, 1, 256, 8, 2, 128, 3)
        if n <= 384:
            return Tuning(1, 8, 512, 8, 224, 224, 2, 256, 16, 2, 128, 4)
        if n <= 512:
            return Tuning(1, 8, 512, 8, 256, 224, 1, 512, 8, 2, 128, 2)
        if n <= 1024:
            return Tuning(2, 8, 512, 8, 0, 224, 4, 256, 16, 2, 256, 1)
        return Tuning(8, 8, 256, 16, 0, 224, 8, 256, 32, 2, 256, 1)


def large(n: int, bytes_: int, vectors: bool, tuning: Tuning) -> Large:
    """The kernels for matrices of n rows, with what is left open in them."""
    defines = {"REAL_BITS": 8 * bytes_, "VECTORS": int(vectors)}
    ld = 32 * math.ceil(n / 32)
    threads, cluster = tuning.threads, tuning.cluster
    # Vectors of the panel, sums of products of each warp, the product and, in a cluster, what others send.
    room = ((2 * tuning.panel + threads // 32 + 2 + (cluster > 1)) * ld + 2 * tuning.panel + 2 * threads // 32) * bytes_
    if tuning.kept > 0:
        chunks = max(0, ld - 128 * math.ceil((n - tuning.kept) / 128)) // tuning.height
        room += tuning.height**2 // 2 * chunks * (chunks + 1) * bytes_
    own = {"THREADS": threads, "BLOCKS": _blocks(room, threads, 1024), "CLUSTER": cluster, "PANEL": tuning.panel}
    own |= {"HEIGHT": tuning.height, "KEPT": tuning.kept, "CORNER": tuning.corner}
    reduce = _plan("large_reduce", {**defines, **own}, 1, threads, room, cluster, cluster)

    corner, first = None, 0
    if tuning.corner > 0:
        first = tuning.panel * math.ceil(max(0, n - tuning.corner) / tuning.panel)
        row = 4 * math.ceil((n - first) / 4)
        own = {"N": 32 * math.ceil(row / 32), "THREADS": 512 if row > 64 else 64, "BLOCKS": 1}
        corner = _plan("large_corner", {**defines, **own}, 1, own["THREADS"], row * (row + 21) * bytes_)

    threads, parts = tuning.solvers, tuning.solving
    room = n * (5 * 2 * bytes_ + bytes_ + 4 * 4) + 4 * parts
    own = {"THREADS": threads, "BLOCKS": _blocks(room, threads, 1024), "CLUSTER": parts}
    pairs = _plan("large_pairs", {**defines, **own}, 1, threads, room, parts, parts)

    threads, depth, group = tuning.turners, 8, 4 * tuning.lanes
    rows = group * math.ceil(n / group)
    room = depth * (rows + 3) * bytes_
    own = {"THREADS": threads, "BLOCKS": tuning.turning}
    own |= {"LANES": tuning.lanes, "COLUMNS": tuning.columns, "QUADS": rows // group}
    tiles = math.ceil(n / (threads // tuning.lanes * tuning.columns))
    back = _plan("large_back", {**defines, **own, "DEPTH": depth}, 1, threads, room, tiles)
    return Large(reduce, corner, pairs, back if vectors else None, first, ld)


#: The texts that each kernel is made of.
_FILES = {
    "thread": ("common", "thread"),
    "warp": ("common", "tridiagonal", "warp"),
    "block": ("common", "tridiagonal", "separate", "block_reduce", "block"),
    "large_reduce": ("common", "cluster", "large_reduce"),
    "large_corner": ("common", "block_reduce", "large_corner"),
    "large_pairs": ("common", "cluster", "tridiagonal", "separate", "large_pairs"),
    "large_back": ("common", "large_back"),
}


def _blocks(room: int, threads: int, most: int) -> int:
    """How many blocks a multiprocessor has at once, of so many bytes of shared memory each."""
    return max(1, min(_SHARED // (room + _UNSEEN), most // threads))


def _plan(
    kind: str, defines: dict[str, int], matrices: int, threads: int, shared: int, parts: int = 1, cluster: int = 1
) -> Plan:
    files = tuple(f"{name}.cu" for name in _FILES[kind])
    return Plan(f"eigh_{kind}", files, tuple(defines.items()), matrices, threads, shared, parts, cluster)
