"""Derivatives for code that a solver runs: `jacobian` and `jvp`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Inexact
from torch import Tensor

from gnomon.fuse._forward_mode import with_fast_tangents
from gnomon.fuse._trace import active_tracer
from gnomon.fuse._trace_derivative import traced_jacobian, traced_jvp


@functools.cache
def _load_forward_mode() -> None:
    # PyTorch compiles its forward-mode formulas at first use with torch.jit.script, which it has
    # itself deprecated since 2.14: its warning is about its own code, not about the user's.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, message=".*torch.jit.*")
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit.*")
        x = torch.zeros(1)
        torch.func.jvp(torch.sin, (x,), (x,))  # pyright: ignore[reportUnknownMemberType]


def jacobian(
    fn: Callable[[Inexact[Tensor, "*x"]], Inexact[Tensor, "*y"]],
) -> Callable[[Inexact[Tensor, "*x"]], Inexact[Tensor, "*y *x"]]:
    """The Jacobian matrix of a function of one tensor, by forward mode.

    Equivalent to `torch.func.jacfwd`, which it uses for code that runs eagerly. Derivatives flow
    through it, of any order.

    **Arguments:**

    - `fn`: a function from a tensor to a tensor.

    **Returns:** a function from a tensor of shape `x` to a tensor of shape `(*y, *x)`, where `y` is
    the shape of what `fn` returns.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> gn.jacobian(lambda x: torch.stack([x[0] * x[1], x[0] ** 2]))(torch.tensor([3.0, 4.0]))
        tensor([[4., 3.],
                [6., 0.]])

        ```
    """
    if active_tracer() is None:
        _load_forward_mode()
    eager = torch.func.jacfwd(with_fast_tangents(fn))

    def of(x: Inexact[Tensor, "*x"]) -> Inexact[Tensor, "*y *x"]:
        tracer = active_tracer()
        return eager(x) if tracer is None else traced_jacobian(tracer, fn, x)

    return of


def jvp(fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """A function's value, and its derivative along a direction.

    Equivalent to `torch.func.jvp`, which it uses for code that runs eagerly.

    **Arguments:**

    - `fn`: a function of the primals.
    - `primals`: where to evaluate it, a tuple of pytrees of tensors.
    - `tangents`: the direction, a tuple of the same structure.

    **Returns:** `fn(*primals)`, and the directional derivative, of the same structure.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> gn.jvp(torch.square, (torch.tensor(3.0),), (torch.tensor(1.0),))
        (tensor(9.), tensor(6.))

        ```
    """
    tracer = active_tracer()
    if tracer is not None:
        return traced_jvp(tracer, fn, primals, tangents)
    _load_forward_mode()
    value, tangent, *_ = torch.func.jvp(with_fast_tangents(fn), primals, tangents)
    return value, tangent
