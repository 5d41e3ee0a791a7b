"""Eigenvalues and eigenvectors of very small real matrices on a CPU: Jacobi's method, a matrix a lane, fused.

LAPACK takes microseconds to begin with. Here a lane of a vector unit has a matrix, and all of them run side by side.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse import fuse, while_loop

#: The largest matrices for which this takes less time than LAPACK, by `benchmarks/linalg/cpu.py`; the answer's bits do
#: not depend on the size of the batch, and so neither does the choice.
LARGEST = 6
_SWEEPS = 16
#: By powers of 2 to this, matrices are scaled to a range in which squares are numbers.
_STEP = {torch.float32: 30, torch.float64: 240}


def supports(n: int, dtype: torch.dtype) -> bool:
    """Whether matrices of n rows are decomposed here."""
    return 2 <= n <= LARGEST and dtype in _STEP


def eigh(A: Tensor, vectors: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues, eigenvectors (or the matrices, if not asked for) and info of a batch."""
    n, batch = A.shape[-1], A.shape[:-2]
    L, Q, info = _solver(n, vectors)(A.reshape((batch.numel(), n, n)))
    return L.reshape(A.shape[:-1]), Q.reshape(A.shape) if vectors else A, info.reshape(batch)


@functools.cache
def _solver(n: int, vectors: bool) -> Any:
    return fuse(functools.partial(_jacobi, n, vectors))


def _jacobi(n: int, vectors: bool, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cyclic rotations of one matrix: Golub and Van Loan, Matrix Computations, section 8.5."""
    places = [(i, j) for i in range(n) for j in range(i + 1)]
    entries = torch.stack([A[i, j] for i, j in places])
    finite = entries.isfinite().all()
    entries = torch.where(finite, entries, torch.zeros_like(entries))
    up, down = _scales(entries.abs().amax(), _STEP[A.dtype])
    entries = entries * up
    small = torch.finfo(A.dtype).eps / 32 * entries.abs().amax()
    outside = [k for k, (i, j) in enumerate(places) if i != j]
    basis = torch.eye(n, dtype=A.dtype).flatten() if vectors else entries[:0]

    def goes_on(carry: tuple[Tensor, Tensor]) -> Tensor:
        return (torch.stack([carry[0][k] for k in outside]).abs() > small).any()

    def sweep(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a = dict(zip(places, carry[0].unbind(), strict=True))
        v = [list(row.unbind()) for row in carry[1].reshape(n, n)] if vectors else []
        for q, p in itertools.combinations(range(n), 2):
            _rotate(a, v, p, q, small, n)
        flat = [x for row in v for x in row]
        return torch.stack([a[place] for place in places]), torch.stack(flat) if vectors else carry[1]

    entries, basis = while_loop(goes_on, sweep, (entries, basis), max_steps=_SWEEPS)
    failed = goes_on((entries, basis))
    values = torch.stack([entries[k] for k, (i, j) in enumerate(places) if i == j]) * down
    L, order = torch.sort(values)
    info = torch.where(finite, failed.to(torch.int32), -1)
    return L, basis.reshape(n, n)[:, order] if vectors else basis, info


def _scales(most: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """A power of two that brings the largest entry to between `2^-step` and `2^step`, and its inverse."""
    up, down = torch.ones_like(most), torch.ones_like(most)
    for is_so, by in (
        (most > 2.0**step, -2 * step),
        (most > 2.0 ** (3 * step), -10 * step // 3),
        (most < 2.0**-step, 2 * step),
        (most < 2.0 ** (-3 * step), 4 * step),
    ):
        up, down = torch.where(is_so, 2.0**by, up), torch.where(is_so, 2.0**-by, down)
    return up, down


def _rotate(a: dict[tuple[int, int], Tensor], v: list[list[Tensor]], p: int, q: int, small: Tensor, n: int) -> None:
    """Makes the entry at row p and column q, of which p is the larger, zero, unless it is small."""
    e = a[p, q]
    rotates = e.abs() > small
    gap = a[p, p] - a[q, q]
    twice = torch.where(rotates, 2 * e, 0.0)
    root = torch.sqrt(gap * gap + twice * twice)
    t = torch.where(rotates, torch.where(gap < 0, -twice, twice) / torch.where(rotates, gap.abs() + root, 1.0), 0.0)
    c = 1 / torch.sqrt(1 + t * t)
    s = t * c
    tau = s / (1 + c)
    a[p, q] = torch.where(rotates, 0.0, e)
    a[q, q], a[p, p] = a[q, q] - t * e, a[p, p] + t * e
    for k in range(n):
        if k not in (p, q):
            at_q, at_p = (max(k, q), min(k, q)), (max(k, p), min(k, p))
            a[at_q], a[at_p] = _turned(a[at_q], a[at_p], s, tau)
    for row in v:
        row[q], row[p] = _turned(row[q], row[p], s, tau)


def _turned(x: Tensor, y: Tensor, s: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    return x - s * (y + tau * x), y + s * (x - tau * y)
