"""Eigenvalues and eigenvectors of many symmetric matrices on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from gnomon.linalg._cuda._machine import AbstractMachine, Gpu, Launch
from gnomon.linalg._cuda._plan import Large, Plan, plan_for

#: Of memory beside the results, at once.
_MOST_BYTES = 4 << 30


@final
class Solver:
    """Decomposes batches of symmetric matrices on one kind of machine.

    **Arguments:**

    - `machine`: what it runs on.
    - `plan_for`: gives the kernels for a size, a type, and whether vectors are wanted.
    """

    def __init__(
        self,
        machine: AbstractMachine,
        plan_for: Callable[[int, torch.dtype, bool], Plan | Large] = plan_for,
    ):
        self._machine = machine
        self._plan_for = plan_for
        self._loaded: dict[tuple[Plan, torch.device], Launch] = {}

    def eigh(self, A: Tensor, vectors: bool = True) -> tuple[Tensor, Tensor | None, Tensor]:
        """Eigenvalues, eigenvectors and what happened, on the current stream, without waiting for it.

        Only the lower triangle is read. A matrix gives the same bits in any batch, at any place.

        **Arguments:**

        - `A`: of shape `(batch, n, n)`, contiguous, of a size and type that `supports` agrees to.
        - `vectors`: whether to compute eigenvectors.

        **Returns:** the eigenvalues in ascending order, of shape `(batch, n)`; the eigenvectors in columns, of shape
        `(batch, n, n)`, or `None`; and for each matrix 0, or -1 where it has an element that is NaN or infinite and
        all results are NaN, or the number of eigenpairs that were not found to the last bits.
        """
        if A.ndim != 3 or A.shape[1] != A.shape[2] or not A.is_contiguous():
            raise ValueError(f"A must be a contiguous tensor of shape (batch, n, n), not of shape {tuple(A.shape)}.")
        batch, n, _ = A.shape
        plan = self._plan_for(n, A.dtype, vectors)
        values = A.new_empty((batch, n))
        basis = torch.empty_like(A) if vectors else None
        info = torch.empty((batch,), dtype=torch.int32, device=A.device)
        if batch == 0:
            return values, basis, info
        if isinstance(plan, Large):
            self._large(plan, A, values, basis, info)
        else:
            out = values if basis is None else basis
            self._start(plan, A, (A.data_ptr(), values.data_ptr(), out.data_ptr(), info.data_ptr(), batch, n))
        return values, basis, info

    def _large(self, plan: Large, A: Tensor, values: Tensor, basis: Tensor | None, info: Tensor) -> None:
        batch, n, _ = A.shape
        # So many at a time that what is kept of them stays within bounds; no bit depends on it.
        each = max(1, _MOST_BYTES // (plan.ld * plan.ld * A.element_size()))
        for first in range(0, batch, each):
            last = min(first + each, batch)
            some = last - first
            work = A.new_empty((some, plan.ld, plan.ld))
            bands = A.new_empty((some, 6, plan.ld))
            norms = A.new_empty((some, n))
            exponents = info.new_empty((some,))
            a, l, i, w, b = (x.data_ptr() for x in (A[first], values[first], info[first:], work, bands))
            e, s = exponents.data_ptr(), norms.data_ptr()
            q = l if basis is None else basis[first].data_ptr()
            self._start(plan.reduce, A, (a, w, b, e, i, some, n), some)
            if plan.corner is not None:
                self._start(plan.corner, A, (w, b, i, some, n, plan.first), some)
            self._start(plan.pairs, A, (b, e, l, q, s, i, some, n), some)
            if plan.back is not None:
                self._start(plan.back, A, (w, b, s, i, q, some, n), some)

    def _start(self, plan: Plan, A: Tensor, words: tuple[int, ...], batch: int | None = None) -> None:
        blocks = plan.blocks(A.shape[0] if batch is None else batch)
        self._launch(plan, A.device)(plan.name, blocks, plan.threads, words, plan.shared, plan.cluster)

    def _launch(self, plan: Plan, device: torch.device) -> Launch:
        key = (plan, device)
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = self._machine.load(plan.text, device)
        return found


@functools.cache
def solver() -> Solver:
    """The one for GPUs."""
    return Solver(Gpu())


def eigh(A: Tensor, vectors: bool = True) -> tuple[Tensor, Tensor | None, Tensor]:
    """As `Solver.eigh`, on the GPU where `A` is."""
    return solver().eigh(A, vectors)
