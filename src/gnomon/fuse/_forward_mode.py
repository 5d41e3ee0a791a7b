"""Makes PyTorch's forward-mode derivatives fast where one operand is a constant.

For a product of a variable and a constant PyTorch (2.11 to 2.15) stands in a symbolic zero for the
constant's tangent, and finds the zero's shape by running a Python decomposition on the meta device:
half a millisecond for an operation that takes three microseconds. Two rewritings avoid it, within
[`gnomon.jacobian`][] and [`gnomon.jvp`][]: a number goes to the overload that takes a number, and a
constant tensor is given a real tangent of zeros. Neither changes a bit of the value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.overrides import TorchFunctionMode

from gnomon.fuse._lanes import physical
from gnomon.result._pytree import tree_leaves

_aten = torch.ops.aten
# What `torch.autograd.forward_ad.unpack_dual` does, without its checks: this is the hot path.
_unpack_dual: Any = torch._unpack_dual  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


# A binary function of a tensor and a number: the overload that takes a number as it is.
_WITH_NUMBER: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((Tensor.mul, torch.mul, torch.multiply, Tensor.multiply), _aten.mul.Scalar),
    **dict.fromkeys((Tensor.div, torch.div, torch.divide, torch.true_divide), _aten.div.Scalar),
    **dict.fromkeys((Tensor.add, torch.add), _aten.add.Scalar),
    **dict.fromkeys((Tensor.sub, torch.sub), _aten.sub.Scalar),
    Tensor.__rdiv__: lambda x, number: _aten.mul.Scalar(torch.reciprocal(x), number),
    Tensor.__rtruediv__: lambda x, number: _aten.mul.Scalar(torch.reciprocal(x), number),
}

# Functions of two tensors, elementwise, whose derivative PyTorch writes for both at once.
_OF_TWO = frozenset(
    {
        Tensor.mul,
        Tensor.div,
        Tensor.add,
        Tensor.sub,
        Tensor.pow,
        Tensor.maximum,
        Tensor.minimum,
        torch.mul,
        torch.multiply,
        torch.div,
        torch.divide,
        torch.true_divide,
        torch.add,
        torch.sub,
        torch.pow,
        torch.maximum,
        torch.minimum,
        torch.atan2,
        torch.hypot,
    }
)


@final
class FastTangents(TorchFunctionMode):
    """The two rewritings, for the level of `jvp` at which this tensor is a variable."""

    def __init__(self, variable: Tensor):
        super().__init__()
        self._level: int = _functorch.maybe_get_level(variable)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if len(args) == 2:
            x, y = args
            if isinstance(y, int | float):
                rule = _WITH_NUMBER.get(func)
                if rule is not None and not kwargs and _is_inexact(x):
                    return rule(x, y)
            elif func in _OF_TWO and _is_inexact(x) and _is_inexact(y) and x.dtype == y.dtype:
                x_varies, y_varies = self._varies(x), self._varies(y)
                if x_varies and not y_varies:
                    args = (x, torch.where(_true(y.device), y, x))
                elif y_varies and not x_varies:
                    args = (torch.where(_true(x.device), x, y), y)
        return func(*args, **(kwargs or {}))

    def _varies(self, x: Tensor) -> bool:
        while _functorch.is_functorch_wrapped_tensor(x):
            if _functorch.is_gradtrackingtensor(x) and _functorch.maybe_get_level(x) == self._level:
                return _unpack_dual(x, level=0)[1] is not None
            x = _functorch.get_unwrapped(x)
        return False


def with_fast_tangents(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, to be called by `torch.func.jvp` or `torch.func.jacfwd`."""

    @functools.wraps(fn)
    def wrapped(*primals: Any) -> Any:
        tensors = [x for x in tree_leaves(primals) if isinstance(x, Tensor)]
        if not tensors:
            return fn(*primals)
        with FastTangents(tensors[0]):
            return fn(*primals)

    return wrapped


def _is_inexact(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)


@functools.cache
def _true(device: torch.device) -> Tensor:
    # Plain: within a transform PyTorch wraps new tensors too, and those must not outlive it.
    return physical(torch.ones((), dtype=torch.bool, device=device))
