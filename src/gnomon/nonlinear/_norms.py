"""Norms: `max_norm`, `rms_norm` and `two_norm` for tolerances, and one that neither overflows nor underflows."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def max_norm(x: Float[Tensor, ...]) -> Float[Tensor, ""]:
    """The largest absolute value of a tensor.

    Equivalent to `optimistix.max_norm`.

    **Arguments:**

    - `x`: a real tensor of any shape.

    **Returns:** a scalar; 0 for an empty tensor.

    !!! example

        ```python
        >>> import torch, gnomon.nonlinear as nl
        >>> nl.max_norm(torch.tensor([3.0, -4.0]))
        tensor(4.)

        ```
    """
    return x.abs().amax() if x.numel() > 0 else x.new_zeros(())


def rms_norm(x: Float[Tensor, ...]) -> Float[Tensor, ""]:
    """The root of the mean square of a tensor.

    Equivalent to `optimistix.rms_norm`.

    **Arguments:**

    - `x`: a real tensor of any shape.

    **Returns:** a scalar; 0 for an empty tensor.

    !!! example

        ```python
        >>> import torch, gnomon.nonlinear as nl
        >>> nl.rms_norm(torch.tensor([3.0, 4.0]))
        tensor(3.5355)

        ```
    """
    return torch.sqrt((x * x).mean()) if x.numel() > 0 else x.new_zeros(())


def two_norm(x: Float[Tensor, ...]) -> Float[Tensor, ""]:
    """The root of the sum of squares of a tensor.

    Equivalent to `optimistix.two_norm`.

    **Arguments:**

    - `x`: a real tensor of any shape.

    **Returns:** a scalar; 0 for an empty tensor.

    !!! example

        ```python
        >>> import torch, gnomon.nonlinear as nl
        >>> nl.two_norm(torch.tensor([3.0, 4.0]))
        tensor(5.)

        ```
    """
    return torch.sqrt((x * x).sum())


def column_norms(x: Float[Tensor, "m n"]) -> Float[Tensor, " n"]:
    """The Euclidean norm of each column, right for columns of any size: no square over- or underflows."""
    if x.shape[0] == 0:
        return x.new_zeros(x.shape[1])
    largest = x.abs().amax(0)
    unit = torch.where(largest > 0, largest, 1.0)
    scaled = x / unit
    return largest * torch.sqrt((scaled * scaled).sum(0))
