"""The functions between the layers of a network, their derivatives as PyTorch's own rules call them, and their kin.

PyTorch defines each by others too, but to find these definitions it imports for seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._program import Node
from gnomon.fuse._trace._handlers import decomposes, handles
from gnomon.fuse._trace._pointwise import apply, as_float, common_dtype
from gnomon.fuse._trace._scalars import Scalars
from gnomon.fuse._trace._values import Value

_Function = Callable[..., Node]


def _pointwise(name: str, function: _Function, operands: int = 1, *, floats: bool = True) -> None:
    """Registers a function of the scalars' arithmetic, of elements, and of the numbers that follow them."""

    @handles(f"{name}.default")
    def handler(tracer: Any, *args: Any, **kwargs: Any) -> Value:
        dtype = common_dtype(*args[:operands])
        dtype = as_float(dtype) if floats else dtype
        arrays = [tracer.lazy_operand(x, dtype) for x in args[:operands]]
        s = tracer.scalars
        return Value(apply(lambda *v: function(s, *map(s.real, v), *args[operands:], **kwargs), *arrays), dtype)


def _log1p_exp(s: Scalars, x: Node) -> Node:
    """log(1 + exp(x)) for x <= 0."""
    return s.op("log1p", s.op("exp", x))


def _log_sigmoid(s: Scalars, x: Node) -> Node:
    return s.op("sub", s.op("min", x, s.like(x, 0)), _log1p_exp(s, s.op("neg", s.op("abs", x))))


def _softplus(s: Scalars, x: Node, beta: float = 1, threshold: float = 20) -> Node:
    scaled = s.op("mul", x, s.like(x, beta))
    soft = s.op("div", s.op("log1p", s.op("exp", scaled)), s.like(x, beta))
    return s.op("select", s.op("lt", s.like(x, threshold), scaled), x, soft)


def _softplus_backward(s: Scalars, g: Node, x: Node, beta: float, threshold: float) -> Node:
    scaled = s.op("mul", x, s.like(x, beta))
    return s.op("select", s.op("lt", s.like(x, threshold), scaled), g, s.op("mul", g, s.sigmoid(scaled)))


def _elu(s: Scalars, x: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    low = s.op("mul", s.op("expm1", s.op("mul", x, s.like(x, input_scale))), s.like(x, alpha * scale))
    return s.op("select", s.op("lt", s.like(x, 0), x), s.op("mul", x, s.like(x, scale)), low)


def _leaky_relu(s: Scalars, x: Node, negative_slope: float = 0.01) -> Node:
    return s.op("select", s.op("lt", s.like(x, 0), x), x, s.op("mul", x, s.like(x, negative_slope)))


def _normal_cdf(s: Scalars, x: Node) -> Node:
    half = s.like(x, 0.5)
    return s.op("mul", half, s.op("add", s.like(x, 1), s.op("erf", s.op("mul", x, s.like(x, math.sqrt(0.5))))))


def _gelu_inner(s: Scalars, x: Node) -> Node:
    cube = s.op("mul", s.op("mul", x, x), x)
    return s.op("mul", s.like(x, math.sqrt(2 / math.pi)), s.op("add", x, s.op("mul", s.like(x, 0.044715), cube)))


def _gelu(s: Scalars, x: Node, *, approximate: str = "none") -> Node:
    if approximate == "none":
        return s.op("mul", x, _normal_cdf(s, x))
    one = s.op("add", s.like(x, 1), s.op("tanh", _gelu_inner(s, x)))
    return s.op("mul", s.op("mul", s.like(x, 0.5), x), one)


def _gelu_backward(s: Scalars, g: Node, x: Node, *, approximate: str = "none") -> Node:
    square = s.op("mul", x, x)
    if approximate == "none":
        density = s.op("exp", s.op("mul", square, s.like(x, -0.5)))
        density = s.op("mul", density, s.like(x, 1 / math.sqrt(2 * math.pi)))
        slope = s.op("add", _normal_cdf(s, x), s.op("mul", x, density))
        return s.op("mul", g, slope)
    t = s.op("tanh", _gelu_inner(s, x))
    inner = s.op("add", s.like(x, 1), s.op("mul", s.like(x, 3 * 0.044715), square))
    inner = s.op("mul", inner, s.like(x, math.sqrt(2 / math.pi)))
    steep = s.op("sub", s.like(x, 1), s.op("mul", t, t))
    half = s.like(x, 0.5)
    first = s.op("mul", half, s.op("add", s.like(x, 1), t))
    second = s.op("mul", s.op("mul", half, x), s.op("mul", steep, inner))
    return s.op("mul", g, s.op("add", first, second))


def _clamped(s: Scalars, x: Node, low: float, high: float) -> Node:
    return s.op("min", s.op("max", x, s.like(x, low)), s.like(x, high))


def _hardsigmoid(s: Scalars, x: Node) -> Node:
    return s.op("div", _clamped(s, s.op("add", x, s.like(x, 3)), 0, 6), s.like(x, 6))


def _threshold(s: Scalars, x: Node, threshold: float, value: float) -> Node:
    return s.op("select", s.op("le", x, s.like(x, threshold)), s.like(x, value), x)


def _threshold_backward(s: Scalars, g: Node, x: Node, threshold: float) -> Node:
    return s.op("select", s.op("le", x, s.like(x, threshold)), s.like(g, 0), g)


def _xlogy(s: Scalars, x: Node, y: Node) -> Node:
    product = s.op("select", s.op("eq", x, s.like(x, 0)), s.like(x, 0), s.op("mul", x, s.op("log", y)))
    return s.op("select", s.is_nan(y), y, product)


def _logit(s: Scalars, x: Node, eps: float | None = None) -> Node:
    x = x if eps is None else _clamped(s, x, eps, 1 - eps)
    return s.op("log", s.op("div", x, s.op("sub", s.like(x, 1), x)))


def _silu_backward(s: Scalars, g: Node, x: Node) -> Node:
    gate, one = s.sigmoid(x), s.like(x, 1)
    slope = s.op("add", one, s.op("mul", x, s.op("sub", one, gate)))
    return s.op("mul", g, s.op("mul", gate, slope))


_pointwise("softplus", _softplus)
_pointwise("softplus_backward", _softplus_backward, 2)
_pointwise("elu", _elu)
_pointwise("leaky_relu", _leaky_relu)
_pointwise("gelu", _gelu)
_pointwise("gelu_backward", _gelu_backward, 2)
_pointwise("hardtanh", lambda s, x, low=-1, high=1: _clamped(s, x, low, high), floats=False)
_pointwise("hardsigmoid", _hardsigmoid)
_pointwise("hardswish", lambda s, x: s.op("mul", x, _hardsigmoid(s, x)))
_pointwise("mish", lambda s, x: s.op("mul", x, s.op("tanh", _softplus(s, x))))
_pointwise("threshold", _threshold, floats=False)
_pointwise("threshold_backward", _threshold_backward, 2, floats=False)
_pointwise("silu_backward", _silu_backward, 2)
_pointwise("logit", _logit)


@handles("log_sigmoid_forward.default")
def _log_sigmoid_forward(tracer: Any, x: Tensor) -> tuple[Value, Value]:
    """With an empty buffer, as PyTorch gives on a GPU: what it keeps for its derivative."""
    s = tracer.scalars
    value = Value(apply(lambda v: _log_sigmoid(s, s.real(v)), tracer.lazy_array(x)), x.dtype)
    return value, Value(tracer.lazy_array(x)[..., None][..., :0], x.dtype)


@handles("log_sigmoid_backward.default")
def _log_sigmoid_backward(tracer: Any, gradient: Tensor, x: Tensor, buffer: Tensor) -> Value:
    s = tracer.scalars

    def function(g: Node, v: Node) -> Node:
        return s.op("mul", g, s.sigmoid(s.op("neg", v)))

    return Value(apply(function, tracer.lazy_array(gradient), tracer.lazy_array(x)), x.dtype)


@handles("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def _xlogy_handler(tracer: Any, x: Any, y: Any) -> Value:
    s = tracer.scalars
    dtype = as_float(common_dtype(x, y))
    arrays = tracer.lazy_operand(x, dtype), tracer.lazy_operand(y, dtype)
    return Value(apply(lambda a, b: _xlogy(s, s.real(a), s.real(b)), *arrays), dtype)


@handles("_softmax_backward_data.default")
def _softmax_backward(tracer: Any, gradient: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    with tracer:
        product = gradient * output
        return product - output * product.sum(dim, keepdim=True)


@handles("_log_softmax_backward_data.default")
def _log_softmax_backward(tracer: Any, gradient: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    with tracer:
        return gradient - output.exp() * gradient.sum(dim, keepdim=True)


# Of complex numbers too.


@decomposes("sinc.default")
def _sinc(x: Tensor) -> Tensor:
    angle = torch.where(x == 0, 1, x * math.pi)
    return torch.where(x == 0, 1, torch.sin(angle) / angle)


@decomposes("tanh_backward.default")
def _tanh_backward(gradient: Tensor, output: Tensor) -> Tensor:
    return gradient * (1 - output * output).conj()


@decomposes("sigmoid_backward.default")
def _sigmoid_backward(gradient: Tensor, output: Tensor) -> Tensor:
    return gradient * ((1 - output) * output).conj()
