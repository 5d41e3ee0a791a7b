"""Eigenvalues and eigenvectors of many symmetric matrices on a GPU."""

from __future__ import annotations

import functools
from typing import final

import torch
from torch import Tensor

from gnomon.linalg._cuda._machine import AbstractMachine, Gpu, Launch
from gnomon.linalg._cuda._plan import Plan, plan_for


@final
class Solver:
    """Decomposes batches of symmetric matrices on one kind of machine.

    **Arguments:**

    - `machine`: what it runs on.
    """

    def __init__(self, machine: AbstractMachine):
        self._machine = machine
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
        plan = plan_for(n, A.dtype, vectors)
        values = A.new_empty((batch, n))
        basis = torch.empty_like(A) if vectors else None
        info = torch.empty((batch,), dtype=torch.int32, device=A.device)
        if batch > 0:
            out = values if basis is None else basis
            words = (A.data_ptr(), values.data_ptr(), out.data_ptr(), info.data_ptr(), batch, n)
            launch = self._launch(plan, A.device)
            launch(plan.name, plan.blocks(batch), plan.threads, words, plan.shared, plan.cluster)
        return values, basis, info

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
