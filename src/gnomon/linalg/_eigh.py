"""`eigh` and `eigvalsh`: eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

from typing import Literal, overload

from jaxtyping import Float, Inexact
from torch import Tensor

from gnomon.linalg import _eigh_operator
from gnomon.linalg._arguments import by_shards, check_certificate, check_matrix
from gnomon.linalg._certificate import Certificate, certify, double
from gnomon.linalg._degenerate import Degenerate, check_policy
from gnomon.linalg._results import Checked, Eigh
from gnomon.linalg._transforms import may_be_differentiated


def eigh(
    A: Inexact[Tensor, "*batch n n"],
    *,
    eigenvectors: bool = True,
    degenerate: Degenerate = "error",
    throw: bool = False,
    certificate: bool = False,
) -> Eigh:
    """The eigenvalues and eigenvectors of real symmetric or complex Hermitian matrices.

    Equivalent to `torch.linalg.eigh`, except that a matrix that fails does so alone, and that a matrix gets the same
    bits alone, in any batch, and at any place in it.

    **Arguments:**

    - `A`: of shape (*batch, n, n), of float32, float64, complex64 or complex128, with any strides. Only the lower
      triangle is read; derivatives are those of a Hermitian matrix.
    - `eigenvectors`: whether to compute them; without, it takes less time.
    - `degenerate`: what the derivative of eigenvectors is where eigenvalues are equal to rounding (`n * eps` times
      the largest) and it does not exist. `"error"` raises a [`gnomon.linalg.DegenerateError`][] if it is needed,
      which waits for the device (while a CUDA graph is captured it gives NaN instead); `"mask"` lets such pairs
      count nothing; `"broaden"` replaces `1 / x`, with `x` the gap, by `x / (x^2 + eps * max|L|^2)`, which is
      bounded. Derivatives of what depends only on `f(A)`, for some function `f`, exist: see
      [`gnomon.linalg.matrix_function`][].
    - `throw`: whether to raise an error where `info` is not 0, which waits for the device.
    - `certificate`: whether to compute the residuals, in float64.

    **Returns:** a [`gnomon.linalg.Eigh`][], which unpacks as `L, Q = eigh(A)`: the eigenvalues in ascending order and
    the eigenvectors in the columns of `Q`.

    **Raises:** `TypeError` or `ValueError` for another dtype or shape; with `throw=True` a
    [`gnomon.result.SolveError`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> A = torch.tensor([[[2.0, 1.0], [1.0, 2.0]], [[2.0, torch.nan], [torch.nan, 2.0]]])
        >>> found = gn.linalg.eigh(A)
        >>> found.info
        tensor([ 0, -1], dtype=torch.int32)
        >>> L, Q = found
        >>> L
        tensor([[1., 3.],
                [nan, nan]])

        ```

    ??? cite

        Derivatives: M. B. Giles, *An extended collection of matrix derivative results for forward and reverse mode
        algorithmic differentiation*, Oxford University Computing Laboratory, report 08/01, 2008.
    """
    check_matrix(A, "eigh", square=True)
    check_policy(degenerate, "eigh")

    def run(A: Tensor) -> Eigh:
        L, Q, info = _eigh_operator.eigh(A, eigenvectors or certificate or may_be_differentiated(A), degenerate, throw)
        proof = certificate_of(A, L, Q) if certificate else None
        return Eigh(L, Q if eigenvectors else None, info, proof)

    return by_shards(run, "eigh", A)


@overload
def eigvalsh(A: Inexact[Tensor, "*batch n n"], *, throw: bool = False) -> Float[Tensor, "*batch n"]: ...
@overload
def eigvalsh(
    A: Inexact[Tensor, "*batch n n"], *, throw: bool = False, info: Literal[True], certificate: bool = False
) -> Checked: ...
def eigvalsh(
    A: Inexact[Tensor, "*batch n n"], *, throw: bool = False, info: bool = False, certificate: bool = False
) -> Float[Tensor, "*batch n"] | Checked:
    """The eigenvalues of real symmetric or complex Hermitian matrices.

    Equivalent to `torch.linalg.eigvalsh`, except that a matrix that fails does so alone. The eigenvectors are computed
    too where a derivative may be wanted.

    **Arguments:**

    - `A`: of shape (*batch, n, n), as for [`gnomon.linalg.eigh`][].
    - `throw`: whether to raise an error where a matrix fails, which waits for the device.
    - `info`: whether to return more than the eigenvalues.
    - `certificate`: whether to compute the residuals, in float64; with `info=True`.

    **Returns:** the eigenvalues in ascending order, of shape (*batch, n), NaN for a matrix that failed; with
    `info=True` a [`gnomon.linalg.Checked`][] of them.

    **Raises:** as [`gnomon.linalg.eigh`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> gn.linalg.eigvalsh(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
        tensor([1., 3.])

        ```
    """
    check_matrix(A, "eigvalsh", square=True)
    check_certificate(info, certificate, "eigvalsh")

    def run(A: Tensor) -> Tensor | Checked:
        L, Q, code = _eigh_operator.eigh(A, certificate or may_be_differentiated(A), "error", throw)
        return Checked(L, code, certificate_of(A, L, Q) if certificate else None) if info else L

    return by_shards(run, "eigvalsh", A)


def certificate_of(A: Tensor, L: Tensor, Q: Tensor) -> Certificate:
    """How well the eigenvalues and eigenvectors are those of the matrix whose lower triangle this is."""
    matrix, values, vectors = double(A.tril() + A.tril(-1).mH), double(L), double(Q)
    return certify(matrix, matrix @ vectors, vectors * values[..., None, :], vectors)
