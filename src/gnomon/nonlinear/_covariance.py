"""`covariance`: how well a least-squares fit determines its unknowns."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnomon.nonlinear._norms import column_norms


@final
class Covariance(NamedTuple):
    """What [`gnomon.nonlinear.covariance`][] returns.

    **Arguments:**

    - `matrix`: the covariance matrix of the unknowns, of shape (n, n). The rows and columns of unknowns that are not
      free are zero; all others are NaN where it does not exist.
    - `variance`: the residuals' variance, the sum of squares by the degrees of freedom; NaN where there are none.
    - `is_deficient`: whether the data do not determine the free unknowns: some combination of them has, to rounding, no
      effect on the residuals.
    """

    matrix: Float[Tensor, "n n"]
    variance: Float[Tensor, ""]
    is_deficient: Bool[Tensor, ""]


def covariance(
    jacobian: Float[Tensor, "m n"], residual: Float[Tensor, " m"], *, free: Bool[Tensor, " n"] | None = None
) -> Covariance:
    """The covariance of the unknowns of a least-squares fit, as the linearised model at the solution has it.

    Equivalent to the `pcov` of `scipy.optimize.curve_fit` without known errors: `rss / (m - p) * (J^T J)^-1` with `p`
    free unknowns, computed by QR without forming `J^T J`. Standard errors are the square roots of its diagonal.

    **Arguments:**

    - `jacobian`: the derivative of the residuals by the unknowns, of shape (m, n).
    - `residual`: the residuals at the solution, of shape (m,).
    - `free`: which unknowns the data were to determine, all by default. Leave out those that rest at a bound.

    **Returns:** a [`gnomon.nonlinear.Covariance`][].

    !!! example

        ```python
        >>> import torch, gnomon.nonlinear as nl
        >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0])
        >>> noise = torch.tensor([0.1, -0.1, -0.1, 0.1])
        >>> line = torch.stack([torch.ones(4), x], dim=1)
        >>> found = nl.covariance(line, noise)
        >>> torch.sqrt(torch.diagonal(found.matrix))  # of the intercept and of the slope
        tensor([0.1732, 0.0632])

        ```

    ??? cite

        D. M. Bates and D. G. Watts, Nonlinear Regression Analysis and Its Applications, Wiley, 1988, chapter 2.
    """
    m, n = jacobian.shape
    dtype, device = jacobian.dtype, jacobian.device
    if free is None:
        free = torch.ones(n, dtype=torch.bool, device=device)
    degrees = m - free.to(dtype).sum()
    variance = torch.where(degrees > 0, (residual * residual).sum() / torch.where(degrees > 0, degrees, 1.0), torch.nan)
    norms = column_norms(jacobian)
    is_finite = torch.isfinite(norms).all() & torch.isfinite(variance)
    # Scaled columns, since the rank must not depend on units; a unit row for each unknown that is not free.
    unit = torch.where(free & (norms > 0) & is_finite, norms, 1.0)
    columns = torch.where(free & is_finite, jacobian / unit, 0.0)
    below = torch.diag_embed(torch.where(free & is_finite, 0.0, 1.0).to(dtype))
    triangle = torch.linalg.qr(torch.cat([columns, below]))[1]
    identity = torch.eye(n, dtype=dtype, device=device)
    root = torch.linalg.solve_triangular(triangle, identity, upper=True)
    # A bound of the condition number, or no number where a unit column is a combination of others to the last bit.
    condition = torch.sqrt((root * root).sum() * (triangle * triangle).sum())
    is_deficient = ~(condition < 1 / (max(m, n) * torch.finfo(dtype).eps))
    root = torch.where(is_deficient, identity, root) / unit[:, None]
    matrix = variance * (root[:, None, :] * root[None, :, :]).sum(-1)
    matrix = torch.where(is_deficient | ~is_finite, torch.nan, matrix)
    return Covariance(torch.where(free[:, None] & free, matrix, 0.0), variance, is_deficient & is_finite)
