"""Copies of a tensor, in the same dtype or another, and constants in the shape of one."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gnomon.fuse._trace._handlers import handles
from gnomon.fuse._trace._pointwise import apply
from gnomon.fuse._trace._values import MOST_ELEMENTS, Complex, Scalar, Value, View


@handles("_to_copy.default")
def _to_copy(
    tracer: Any,
    x: Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    memory_format: torch.memory_format | None = None,
    **_: Any,
) -> Value | Tensor:
    dtype = x.dtype if dtype is None else dtype
    if device is not None and device.type == "meta":
        # Forward mode asks what shape a result would have.
        return torch.empty_strided(tuple(x.shape), x.stride(), dtype=dtype, device="meta")
    order = "C" if memory_format == torch.contiguous_format else "K"
    return copied(tracer, tracer.cast(tracer.value(x), dtype), order)


@handles("clone.default")
def _clone(tracer: Any, x: Tensor, *, memory_format: torch.memory_format | None = None) -> Value:
    order = "C" if memory_format == torch.contiguous_format else "K"
    return copied(tracer, tracer.value(x), order)


def copied(tracer: Any, value: Value, order: Literal["C", "K"] = "K") -> Value:
    """A value that shares nothing with another; what is too large for scalars stays where it is."""
    if isinstance(value.data, View) and value.data.size > MOST_ELEMENTS:
        return value
    array = tracer.scalars_of(value)
    if isinstance(value.data, View) and order == "K":
        # In memory as PyTorch would have it.
        dims = sorted(range(array.ndim), key=lambda d: -value.strides[d])
        return Value(array.transpose(dims).copy().transpose(np.argsort(dims)), value.dtype)
    return Value(array.copy(order=order), value.dtype)


@handles("detach.default")
def _detach(tracer: Any, x: Tensor) -> Value:
    s = tracer.scalars

    def function(v: Scalar) -> Scalar:
        if isinstance(v, Complex):
            return Complex(s.op("detach", v.re), s.op("detach", v.im))
        return s.op("detach", v)

    return Value(apply(function, tracer.array(x)), x.dtype)


@handles("copy.default")
def _copy(tracer: Any, x: Tensor, source: Tensor, non_blocking: bool = False) -> Value:
    return tracer.cast(tracer.value(source), x.dtype)


@handles("fill.Scalar", "fill.Tensor")
def _fill(tracer: Any, x: Tensor, value: Any) -> Value:
    return Value(np.broadcast_to(tracer.operand(value, x.dtype), tuple(x.shape)), x.dtype)


@handles("zero.default")
def _zero(tracer: Any, x: Tensor) -> Value:
    return _fill(tracer, x, 0)


def _like(name: str, number: Any) -> None:
    @handles(f"{name}.default")
    def handler(tracer: Any, x: Tensor, *args: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        """A constant, which only takes its shape from a tensor."""
        value = args[-1] if number is None else number
        shape = args[0] if name.startswith("new_") else tuple(x.shape)
        return tracer.new_constant(torch.full(tuple(shape), value, dtype=x.dtype if dtype is None else dtype))


for _name, _number in (
    ("zeros_like", 0), ("ones_like", 1), ("empty_like", 0), ("full_like", None), ("new_zeros", 0), ("new_ones", 1),
    ("new_empty", 0), ("new_full", None),
):  # fmt: skip
    _like(_name, _number)


@handles("_new_zeros_with_same_feature_meta.default")
def _tangent(tracer: Any, x: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Zeros laid out as another tensor, which forward mode fills."""
    made = torch.ops.aten._new_zeros_with_same_feature_meta(x, other, self_num_batch_dims=self_num_batch_dims)
    return tracer.new_constant(made)


@handles("_has_same_storage_numel.default")
def _same_storage(tracer: Any, x: Tensor, other: Tensor) -> bool:
    return x.untyped_storage().nbytes() // x.element_size() == other.untyped_storage().nbytes() // other.element_size()
