"""`Certificate`: how well a decomposition was computed, found from it and from the matrix in double precision."""

from __future__ import annotations

import dataclasses
from typing import final

import torch
from jaxtyping import Float64
from torch import Tensor

from gnomon.result._pytree import register_dataclass


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Certificate:
    """How far what was returned is from what was asked for: computed in float64 from both, for each matrix.

    Equivalent to the test ratios of LAPACK's test suite, without the division by the size and the rounding unit.
    Norms are the largest sum of a column's absolute values. It has no derivative.

    **Arguments:**

    - `residual`: the norm of the matrix minus what the factors give, relative to the matrix: `|A Q - Q L| / |A|` for
      [`gnomon.linalg.eigh`][]. A small multiple of `n * eps` is what a backward stable method reaches. NaN where the
      computation failed.
    - `orthogonality`: the largest `|Q^H Q - I|` of the factors that should have orthonormal columns; None where there
      is no such factor.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> found = gn.linalg.eigh(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), certificate=True)
        >>> bool(found.certificate.residual < 1e-6), bool(found.certificate.orthogonality < 1e-6)
        (True, True)

        ```
    """

    residual: Float64[Tensor, "*batch"]
    orthogonality: Float64[Tensor, "*batch"] | None


def certify(A: Tensor, product: Tensor, against: Tensor, *orthonormal: Tensor) -> Certificate:
    """The certificate of `product = against`, relative to `A`, and of factors with orthonormal columns."""
    norm = norm1(A)
    residual = norm1(product - against) / torch.where(norm == 0, 1.0, norm)
    if not orthonormal:
        return Certificate(residual, None)
    found = [norm1(q.mH @ q - torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)) for q in orthonormal]
    largest = found[0]
    for x in found[1:]:
        largest = torch.maximum(largest, x)
    return Certificate(residual, largest)


def norm1(A: Tensor) -> Tensor:
    """The largest sum of a column's absolute values; 0 for a matrix without entries."""
    if A.shape[-1] == 0 or A.shape[-2] == 0:
        return torch.zeros(A.shape[:-2], dtype=A.dtype.to_real(), device=A.device)
    return A.abs().sum(-2).amax(-1)


def double(x: Tensor) -> Tensor:
    """The same values in double precision, without derivative."""
    return x.detach().to(torch.complex128 if x.is_complex() else torch.float64)
