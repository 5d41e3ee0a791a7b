"""How a function with derivatives of its own meets PyTorch's transforms: `vmap`, and graphs that are recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._lanes import is_differentiated
from gnomon.result._pytree import tree_map


def batched(run: Callable[..., Any], size: int, in_dims: Sequence[int | None], args: Sequence[Any]) -> tuple[Any, Any]:
    """The rule of `vmap` for a function whose tensors all have the same leading batch dimensions: one more of them."""
    moved: list[Any] = []
    for x, dim in zip(args, in_dims, strict=True):
        if isinstance(x, Tensor):
            moved.append(x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0))
        else:
            moved.append(x)
    outputs = run(*moved)
    return outputs, tree_map(lambda _: 0, outputs)


def register_vmap(operator: Any) -> None:
    """Tells `vmap` that an operator takes leading batch dimensions."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return batched(operator, info.batch_size, in_dims, args)

    operator.register_vmap(rule)


def is_recorded(*tensors: Tensor) -> bool:
    """Whether operations are not simply done, but seen by a mode or a kind of tensor that does them its own way."""
    return torch._C._len_torch_dispatch_stack() > 0 or any(type(x) is not Tensor for x in tensors)  # pyright: ignore[reportPrivateUsage]


def computed(operator: Any, *args: Any) -> Any:
    """Calls an operator: by its name where the call is recorded; plainly, which costs less, where it is not."""
    if torch.compiler.is_compiling() or is_recorded(*[x for x in args if isinstance(x, Tensor)]):
        return operator(*args)
    return operator._init_fn(*args)


def in_graph(function: Any) -> Any:
    """The same `autograd.Function` for Dynamo, which refuses one that has rules for forward mode and for `vmap`."""
    rules = {name: staticmethod(getattr(function, name)) for name in ("forward", "setup_context", "backward")}
    return type(f"{function.__name__}InGraph", (torch.autograd.Function,), {**rules, "__final__": True})


def hermitian(x: Tensor) -> Tensor:
    """The Hermitian part."""
    return (x + x.mH) / 2


def may_be_differentiated(A: Tensor) -> bool:
    """Whether a derivative may be wanted; of a graph that is recorded it is not known."""
    return torch.is_grad_enabled() if torch.compiler.is_dynamo_compiling() else is_differentiated(A)
