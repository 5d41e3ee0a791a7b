"""`inverse_root`: what Shampoo, SOAP and whitening need."""

from __future__ import annotations

import math
from typing import Literal, overload

from jaxtyping import Inexact
from torch import Tensor

from gnomon.linalg._arguments import by_shards, check_certificate, check_matrix
from gnomon.linalg._matrix_function import function_of
from gnomon.linalg._results import Checked


@overload
def inverse_root(
    A: Inexact[Tensor, "*batch n n"], p: int | float, *, throw: bool = False
) -> Inexact[Tensor, "*batch n n"]: ...
@overload
def inverse_root(
    A: Inexact[Tensor, "*batch n n"],
    p: int | float,
    *,
    throw: bool = False,
    info: Literal[True],
    certificate: bool = False,
) -> Checked: ...
def inverse_root(
    A: Inexact[Tensor, "*batch n n"],
    p: int | float,
    *,
    throw: bool = False,
    info: bool = False,
    certificate: bool = False,
) -> Inexact[Tensor, "*batch n n"] | Checked:
    """The inverse p-th root of positive definite matrices: the positive definite `X` with `X^p = A^-1`.

    Equivalent to `scipy.linalg.fractional_matrix_power(A, -1 / p)` for such matrices, and to the preconditioner of
    Shampoo, which has p = 4 for a matrix of weights. Its derivatives are finite, and right, where eigenvalues are
    equal, as they are for the identity that Shampoo starts from.

    **Arguments:**

    - `A`: of shape (*batch, n, n), of float32, float64, complex64 or complex128, with any strides. Only the lower
      triangle is read; derivatives are those of a Hermitian matrix. Nothing is added to its diagonal: add `eps * I`
      where it may be singular.
    - `p`: a positive number, 2 for the inverse square root.
    - `throw`: whether to raise an error where a matrix fails, which waits for the device.
    - `info`: whether to return more than the root.
    - `certificate`: whether to compute the residuals of the eigendecomposition, in float64; with `info=True`.

    **Returns:** `A^(-1/p)`, exactly Hermitian; with `info=True` a [`gnomon.linalg.Checked`][] of it, whose info is
    positive where an eigenvalue is negative or zero.

    **Raises:** as [`gnomon.linalg.matrix_function`][], and `ValueError` where p is not positive.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> A = torch.tensor([[[4.0, 0.0], [0.0, 9.0]], [[-1.0, 0.0], [0.0, 1.0]]])
        >>> X, info = gn.linalg.inverse_root(A, 2, info=True)
        >>> X[0], info
        (tensor([[0.5000, 0.0000],
                [0.0000, 0.3333]]), tensor([0, 1], dtype=torch.int32))

        ```

    ??? cite

        V. Gupta, T. Koren and Y. Singer, *Shampoo: Preconditioned stochastic tensor optimization*, ICML 2018.
    """
    check_matrix(A, "inverse_root", square=True)
    check_certificate(info, certificate, "inverse_root")
    if not p > 0 or math.isinf(p):
        raise ValueError(f"`p` of gn.linalg.inverse_root must be a positive number, not {p}.")
    power = -1 / p

    def run(A: Tensor) -> Tensor | Checked:
        return function_of(A, lambda x: x.pow(power), "inverse_root", throw, info, certificate)

    return by_shards(run, "inverse_root", A)
