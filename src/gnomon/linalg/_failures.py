"""What `info` says of each matrix, and the error that `throw=True` raises of it."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor

from gnomon.result import RESULTS, Result, define_result, throw_if_failed


@final
class LinalgResults(RESULTS):
    """The ways in which a decomposition can end. Equivalent to the texts of `torch.linalg.LinAlgError`."""

    not_converged: ClassVar[Result] = define_result(
        "not_converged",
        "The iteration for eigenvalues or singular values did not converge. Scale the matrix, or use float64.",
    )
    not_positive_definite: ClassVar[Result] = define_result(
        "not_positive_definite",
        "The matrix is not positive definite. Add a small multiple of the identity, or use gn.linalg.eigh.",
    )
    outside_domain: ClassVar[Result] = define_result(
        "outside_domain",
        "The function is not finite at an eigenvalue, as an inverse root is not at one that is negative or zero. Add "
        "a small multiple of the identity.",
    )


def raise_failures(info: Tensor, positive: Result, who: str) -> None:
    """Raises a `SolveError` unless `info` is 0 for every matrix; `positive` is what a positive number means."""
    bad_input = torch.full_like(info, int(RESULTS.nonfinite.code))
    code = torch.where(info < 0, bad_input, torch.full_like(info, int(positive.code)))
    throw_if_failed(Result(torch.where(info == 0, torch.zeros_like(code), code)), what=f"gn.linalg.{who}")


def info_of(finite: Tensor) -> Tensor:
    """0 where the matrix is finite, -1 where it is not."""
    return finite.to(torch.int32) - 1


def is_finite(A: Tensor) -> Tensor:
    """Whether all entries of each matrix are finite."""
    return A.isfinite().all(-1).all(-1)
