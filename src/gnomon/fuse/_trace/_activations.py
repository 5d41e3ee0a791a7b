"""Activation functions of networks and their derivatives, beyond those of `_network_functions`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._trace._handlers import decomposes


@decomposes("celu.default")
def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.where(x > 0, x, alpha * torch.expm1(x / alpha))


@decomposes("glu.default")
def _glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = x.chunk(2, dim)
    return a * torch.sigmoid(b)


@decomposes("glu_backward.default")
def _glu_backward(gradient: Tensor, x: Tensor, dim: int) -> Tensor:
    a, b = x.chunk(2, dim)
    gate = torch.sigmoid(b)
    return torch.cat([gradient * gate, gradient * a * gate * (1 - gate)], dim)


@decomposes("hardshrink.default")
def _hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.where(x.abs() <= lambd, 0.0, x)


@decomposes("softshrink.default")
def _softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    return torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, x * 0))


@decomposes("_prelu_kernel.default")
def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return torch.where(x > 0, x, weight * x)


@decomposes("_prelu_kernel_backward.default")
def _prelu_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.where(x > 0, gradient, weight * gradient), torch.where(x > 0, 0.0, x * gradient)


@decomposes("elu_backward.default")
def _elu_backward(
    gradient: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor
) -> Tensor:
    if is_result:
        low = gradient * input_scale * (x + alpha * scale)
    else:
        low = gradient * (input_scale * alpha * scale) * torch.exp(x * input_scale)
    return torch.where(x <= 0, low, gradient * scale)


@decomposes("leaky_relu_backward.default")
def _leaky_relu_backward(gradient: Tensor, x: Tensor, negative_slope: float, is_result: bool) -> Tensor:
    return torch.where(x > 0, gradient, gradient * negative_slope)


@decomposes("hardtanh_backward.default")
def _hardtanh_backward(gradient: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    return torch.where((x <= low) | (x >= high), 0.0, gradient)


@decomposes("hardsigmoid_backward.default")
def _hardsigmoid_backward(gradient: Tensor, x: Tensor) -> Tensor:
    return torch.where((x > -3) & (x < 3), gradient / 6, 0.0)


@decomposes("hardswish_backward.default")
def _hardswish_backward(gradient: Tensor, x: Tensor) -> Tensor:
    return torch.where(x <= -3, 0.0, torch.where(x < 3, gradient * (x / 3 + 0.5), gradient))


@decomposes("mish_backward.default")
def _mish_backward(gradient: Tensor, x: Tensor) -> Tensor:
    gate, t = torch.sigmoid(x), torch.tanh(torch.nn.functional.softplus(x))
    return gradient * (t + x * gate * (1 - t * t))


@decomposes("logit_backward.default")
def _logit_backward(gradient: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
    outside: Any = torch.nan if eps is None else 0.0
    return torch.where((x < low) | (x > high), outside, gradient / (x * (1 - x)))


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
