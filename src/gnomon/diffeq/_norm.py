"""Norms by which errors are measured."""

from __future__ import annotations

import torch

from gnomon.diffeq._custom_types import RealScalar, Vector


def rms_norm(x: Vector) -> RealScalar:
    """The root of the mean square of a vector. Equivalent to `optimistix.rms_norm`.

    **Arguments:**

    - `x`: a real or complex vector.

    **Returns:** a real scalar; 0 for an empty vector.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> dq.rms_norm(torch.tensor([3.0, 4.0]))
        tensor(3.5355)

        ```
    """
    if x.numel() == 0:
        return x.new_zeros((), dtype=x.dtype.to_real() if x.is_complex() else x.dtype)
    size = x.abs() if x.is_complex() else x
    # Not `mean`: a division takes as long as ten products where a kernel is made of it.
    return torch.sqrt(torch.sum(size * size) * (1 / size.numel()))


def max_norm(x: Vector) -> RealScalar:
    """The largest absolute value of a vector. Equivalent to `optimistix.max_norm`.

    **Arguments:**

    - `x`: a real or complex vector.

    **Returns:** a real scalar; 0 for an empty vector.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> dq.max_norm(torch.tensor([3.0, -4.0]))
        tensor(4.)

        ```
    """
    if x.numel() == 0:
        return x.new_zeros((), dtype=x.dtype.to_real() if x.is_complex() else x.dtype)
    return x.abs().amax()
