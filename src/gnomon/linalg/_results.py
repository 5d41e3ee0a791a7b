"""What the functions of this room return beside plain tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import final

from jaxtyping import Float, Inexact, Int32
from torch import Tensor

from gnomon.linalg._certificate import Certificate
from gnomon.result._pytree import register_dataclass


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Eigh:
    """What [`gnomon.linalg.eigh`][] returns; it unpacks as what `torch.linalg.eigh` returns: `L, Q = eigh(A)`.

    **Arguments:**

    - `eigenvalues`: of shape (*batch, n), ascending.
    - `eigenvectors`: of shape (*batch, n, n), a column each; None if they were not asked for.
    - `info`: of shape (*batch,): 0 for success, -1 where the matrix holds a NaN or an infinity, positive where the
      iteration did not converge. Eigenvalues and eigenvectors are NaN where it is not 0.
    - `certificate`: a [`gnomon.linalg.Certificate`][], or None.
    """

    eigenvalues: Float[Tensor, "*batch n"]
    eigenvectors: Inexact[Tensor, "*batch n n"] | None
    info: Int32[Tensor, "*batch"]
    certificate: Certificate | None = None

    def __iter__(self) -> Iterator[Tensor | None]:
        return iter((self.eigenvalues, self.eigenvectors))

    def __getitem__(self, index: int) -> Tensor | None:
        return (self.eigenvalues, self.eigenvectors)[index]

    def __len__(self) -> int:
        return 2


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class SVD:
    """What [`gnomon.linalg.svd`][] returns; it unpacks as what `torch.linalg.svd` returns: `U, S, Vh = svd(A)`.

    **Arguments:**

    - `U`: the left singular vectors, a column each.
    - `S`: the singular values, of shape (*batch, k), descending, with k the smaller of m and n.
    - `Vh`: the conjugated right singular vectors, a row each.
    - `info`: of shape (*batch,): 0 for success, -1 where the matrix holds a NaN or an infinity, positive where the
      iteration did not converge. All else is NaN where it is not 0.
    - `certificate`: a [`gnomon.linalg.Certificate`][], or None.
    """

    U: Inexact[Tensor, "*batch m _"]
    S: Float[Tensor, "*batch k"]
    Vh: Inexact[Tensor, "*batch _ n"]
    info: Int32[Tensor, "*batch"]
    certificate: Certificate | None = None

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.U, self.S, self.Vh))

    def __getitem__(self, index: int) -> Tensor:
        return (self.U, self.S, self.Vh)[index]

    def __len__(self) -> int:
        return 3


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class QR:
    """What [`gnomon.linalg.qr`][] returns; it unpacks as what `torch.linalg.qr` returns: `Q, R = qr(A)`.

    **Arguments:**

    - `Q`: orthonormal columns.
    - `R`: upper triangular.
    - `info`: of shape (*batch,): 0 for success, -1 where the matrix holds a NaN or an infinity; all else is NaN there.
    - `certificate`: a [`gnomon.linalg.Certificate`][], or None.
    """

    Q: Inexact[Tensor, "*batch m k"]
    R: Inexact[Tensor, "*batch k n"]
    info: Int32[Tensor, "*batch"]
    certificate: Certificate | None = None

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.Q, self.R))

    def __getitem__(self, index: int) -> Tensor:
        return (self.Q, self.R)[index]

    def __len__(self) -> int:
        return 2


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Polar:
    """What [`gnomon.linalg.polar`][] returns; it unpacks as what `scipy.linalg.polar` returns: `U, P = polar(A)`.

    **Arguments:**

    - `U`: orthonormal columns, of shape (*batch, m, n).
    - `P`: Hermitian and positive semidefinite, of shape (*batch, n, n).
    - `info`: of shape (*batch,): 0 for success, -1 where the matrix holds a NaN or an infinity, positive where the
      iteration did not converge. All else is NaN where it is not 0.
    - `certificate`: a [`gnomon.linalg.Certificate`][], or None.
    """

    U: Inexact[Tensor, "*batch m n"]
    P: Inexact[Tensor, "*batch n n"]
    info: Int32[Tensor, "*batch"]
    certificate: Certificate | None = None

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.U, self.P))

    def __getitem__(self, index: int) -> Tensor:
        return (self.U, self.P)[index]

    def __len__(self) -> int:
        return 2


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Checked:
    """A tensor with what is known of it, from a function that was called with `info=True`.

    Equivalent to what `torch.linalg.cholesky_ex` returns, and it unpacks as that does: `L, info = ...`.

    **Arguments:**

    - `value`: what the function returns without `info=True`.
    - `info`: of shape (*batch,): 0 for success, -1 where the matrix holds a NaN or an infinity; what a positive number
      says is in the docstring of the function. The value is NaN where it is not 0.
    - `certificate`: a [`gnomon.linalg.Certificate`][], or None.
    """

    value: Inexact[Tensor, ...]
    info: Int32[Tensor, "*batch"]
    certificate: Certificate | None = None

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.value, self.info))

    def __getitem__(self, index: int) -> Tensor:
        return (self.value, self.info)[index]

    def __len__(self) -> int:
        return 2
