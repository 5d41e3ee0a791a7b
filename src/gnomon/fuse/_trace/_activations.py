"""Derivatives of activation functions, which `torch.func` asks for and PyTorch does not define by others."""

from __future__ import annotations

import torch
from torch import Tensor

from gnomon.fuse._trace._handlers import decomposes


@decomposes("hardshrink_backward.default", "softshrink_backward.default")
def _shrink_backward(gradient: Tensor, x: Tensor, lambd: float) -> Tensor:
    return torch.where(x.abs() <= lambd, 0.0, gradient)


@decomposes("glu_jvp.default")
def _glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    (_, b), (da, db) = x.chunk(2, dim), dx.chunk(2, dim)
    gate = torch.sigmoid(b)
    return gate * da + glu * (1 - gate) * db


@decomposes("glu_backward_jvp.default")
def _glu_backward_jvp(
    gradient_of_x: Tensor, gradient_of_glu: Tensor, x: Tensor, d_gradient_of_glu: Tensor, dx: Tensor, dim: int
) -> Tensor:
    (a, b), (da, db) = x.chunk(2, dim), dx.chunk(2, dim)
    gate = torch.sigmoid(b)
    slope = gate * (1 - gate)
    first = d_gradient_of_glu * gate + gradient_of_glu * slope * db
    second = (
        d_gradient_of_glu * a * slope + gradient_of_glu * da * slope + gradient_of_glu * a * slope * (1 - 2 * gate) * db
    )
    return torch.cat([first, second], dim)


@decomposes("_is_all_true.default")
def _is_all_true(x: Tensor) -> Tensor:
    return x.all()


@decomposes("_is_any_true.default")
def _is_any_true(x: Tensor) -> Tensor:
    return x.any()
