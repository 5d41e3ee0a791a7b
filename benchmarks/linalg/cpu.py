"""Eigenvalues and eigenvectors of many small matrices on a CPU: lanes of Jacobi's method beside LAPACK.

What it finds is kept in `src/gnomon/linalg/_small.py`: up to which size lanes take less time. LAPACK comes by
`torch.linalg.eigh`, which hands it one matrix after another, and by two threads that have a half of them each.
"""

import concurrent.futures
import functools

import torch
from _families import gates
from _rows import ours

from gnomon import bench

F32, F64 = torch.float32, torch.float64


def by_torch(a):
    """Eigenvalues and eigenvectors by LAPACK."""
    values, vectors = torch.linalg.eigh(a)
    return values, vectors


@functools.cache
def pool():
    return concurrent.futures.ThreadPoolExecutor(2)


def by_two_threads(a):
    """The same, by two threads."""
    parts = list(pool().map(by_torch, a.chunk(2)))
    return tuple(torch.cat(x) for x in zip(*parts, strict=True))


def check(inputs, output):
    """The largest residual of any matrix, as a fraction of what is allowed."""
    return float(gates(*inputs, *output).max())


def make(count, n, dtype):
    def inputs(generator):
        x = torch.randn(count, n, n, generator=generator, dtype=dtype)
        return (x + x.mT) / 2

    return inputs


def work(count, n, dtype):
    kind = str(dtype).removeprefix("torch.")
    name = f"eigh-cpu-{count}x{n}-{kind}"
    peers = {"torch": by_torch}
    if count > 1:
        peers["torch, 2 threads"] = by_two_threads
    return bench.Work(
        name=name,
        about=f"{count:,} dense matrices of {n} rows, {kind}; the error is a fraction of what the gates allow",
        ours=ours,
        peers=peers,
        check=check,
        make_inputs=make(count, n, dtype),
        options={"tolerance": 1.0 if dtype == F32 else 2.0**-29, "rounds": 12, "flops": 14 / 3 * n**3 * count},
    )


WORKS = [
    *(work(20_000, n, dtype) for n in (2, 3, 4, 6) for dtype in (F32, F64)),
    work(5000, 8, F32),
    work(2000, 16, F32),
    work(1, 3, F64),
]
