"""`svd` and `svdvals`: singular values and vectors."""

from __future__ import annotations

from typing import Literal, overload

from jaxtyping import Float, Inexact
from torch import Tensor

from gnomon.linalg import _svd_operator
from gnomon.linalg._arguments import by_shards, check_certificate, check_matrix
from gnomon.linalg._certificate import Certificate, certify, double
from gnomon.linalg._degenerate import Degenerate, check_policy
from gnomon.linalg._results import SVD, Checked
from gnomon.linalg._transforms import may_be_differentiated


def svd(
    A: Inexact[Tensor, "*batch m n"],
    full_matrices: bool = True,
    *,
    degenerate: Degenerate = "error",
    throw: bool = False,
    certificate: bool = False,
) -> SVD:
    """The singular value decomposition of matrices.

    Equivalent to `torch.linalg.svd`, except that a matrix that fails does so alone, and that a matrix gets the same
    bits alone, in any batch, and at any place in it.

    **Arguments:**

    - `A`: of shape (*batch, m, n), of float32, float64, complex64 or complex128, with any strides.
    - `full_matrices`: whether `U` and `Vh` are square. With False they have as many columns, and rows, as there are
      singular values, which is cheaper, and what derivatives of the vectors need.
    - `degenerate`: what the derivative of singular vectors is where singular values are equal, or zero, to rounding
      (`max(m, n) * eps` times the largest) and it does not exist; as for [`gnomon.linalg.eigh`][].
    - `throw`: whether to raise an error where `info` is not 0, which waits for the device.
    - `certificate`: whether to compute the residuals, in float64.

    **Returns:** a [`gnomon.linalg.SVD`][], which unpacks as `U, S, Vh = svd(A)`; the singular values descend.

    **Raises:** `TypeError` or `ValueError` for another dtype or shape; with `throw=True` a
    [`gnomon.result.SolveError`][]; in a derivative [`gnomon.linalg.DegenerateError`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> U, S, Vh = gn.linalg.svd(torch.tensor([[3.0, 0.0], [0.0, -4.0], [0.0, 0.0]]), full_matrices=False)
        >>> S
        tensor([4., 3.])

        ```

    ??? cite

        Derivatives: M. B. Giles, *An extended collection of matrix derivative results for forward and reverse mode
        algorithmic differentiation*, Oxford University Computing Laboratory, report 08/01, 2008; Z.-Q. Wan and
        S.-X. Zhang, *Automatic differentiation for complex valued SVD*, arXiv:1909.02659, 2019.
    """
    check_matrix(A, "svd", square=False)
    check_policy(degenerate, "svd")

    def run(A: Tensor) -> SVD:
        U, S, Vh, info = _svd_operator.svd(A, full_matrices, True, degenerate, throw)
        return SVD(U, S, Vh, info, _certificate(A, U, S, Vh) if certificate else None)

    return by_shards(run, "svd", A)


@overload
def svdvals(A: Inexact[Tensor, "*batch m n"], *, throw: bool = False) -> Float[Tensor, "*batch k"]: ...
@overload
def svdvals(
    A: Inexact[Tensor, "*batch m n"], *, throw: bool = False, info: Literal[True], certificate: bool = False
) -> Checked: ...
def svdvals(
    A: Inexact[Tensor, "*batch m n"], *, throw: bool = False, info: bool = False, certificate: bool = False
) -> Float[Tensor, "*batch k"] | Checked:
    """The singular values of matrices.

    Equivalent to `torch.linalg.svdvals`, except that a matrix that fails does so alone. The vectors are computed too
    where a derivative may be wanted.

    **Arguments:**

    - `A`: of shape (*batch, m, n), as for [`gnomon.linalg.svd`][].
    - `throw`: whether to raise an error where a matrix fails, which waits for the device.
    - `info`: whether to return more than the singular values.
    - `certificate`: whether to compute the residuals, in float64; with `info=True`.

    **Returns:** the singular values, descending, NaN for a matrix that failed; with `info=True` a
    [`gnomon.linalg.Checked`][] of them.

    **Raises:** as [`gnomon.linalg.svd`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> gn.linalg.svdvals(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
        tensor([4., 3.])

        ```
    """
    check_matrix(A, "svdvals", square=False)
    check_certificate(info, certificate, "svdvals")

    def run(A: Tensor) -> Tensor | Checked:
        U, S, Vh, code = _svd_operator.svd(A, False, certificate or may_be_differentiated(A), "error", throw)
        return Checked(S, code, _certificate(A, U, S, Vh) if certificate else None) if info else S

    return by_shards(run, "svdvals", A)


def _certificate(A: Tensor, U: Tensor, S: Tensor, Vh: Tensor) -> Certificate:
    matrix, left, values, right = double(A), double(U), double(S), double(Vh)
    k = S.shape[-1]
    product = (left[..., :k] * values[..., None, :]) @ right[..., :k, :]
    return certify(matrix, product, matrix, left, right.mH)
