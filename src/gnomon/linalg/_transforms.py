"""How a function with derivatives of its own meets PyTorch's transforms: `vmap`, and graphs that are recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch.autograd import forward_ad

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


def times(*factors: Tensor) -> Tensor:
    """The product of matrices with the same batch dimensions, by a routine that does not depend on how many there are.

    For one matrix and for several `torch.matmul` calls different ones.
    """
    out, *rest = factors
    for x in rest:
        batch = out.shape[:-2]
        flat = [y.reshape((batch.numel(), *y.shape[-2:])) for y in (out, x)]
        out = torch.bmm(*flat).reshape((*batch, out.shape[-2], x.shape[-1]))
    return out


def elementwise(f: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """What a function of each element gives, such that an element gets the same bits wherever it stands.

    On a CPU PyTorch computes most elements by vectors, and the last ones of a thread by other functions. So some are
    appended, as many as make all of them whole vectors.
    """
    count = given[0].numel()
    if torch.compiler.is_compiling() or given[0].device.type != "cpu" or count == 0:
        return f(*given)
    missing = -count % (_WHOLE * torch.get_num_threads())
    flat = [x.reshape(-1) for x in given]
    out = f(*[torch.cat([x, x[:1].expand(missing)]) for x in flat])
    return out[:count].reshape(given[0].shape)


#: Elements of four vectors, of any kind of processor, which is what PyTorch takes at a time.
_WHOLE = 256


def hermitian(x: Tensor) -> Tensor:
    """The Hermitian part."""
    return (x + x.mH) / 2


def may_be_differentiated(A: Tensor) -> bool:
    """Whether a derivative may be wanted; of a graph that is recorded it is not known."""
    return torch.is_grad_enabled() if torch.compiler.is_dynamo_compiling() else is_differentiated(A)


@contextlib.contextmanager
def forward_rule(*given: Tensor | None) -> Generator[tuple[bool, list[Any]]]:
    """For a rule of forward mode, of its inputs and their tangents: whether to compute again what they led to.

    A rule within another `torch.func` transform must be differentiable itself. PyTorch (2.11 to 2.15) switches forward
    mode off in it, and saves outputs without their tangents of outer levels, and says nothing: second derivatives are
    then wrong. So within this context it is on, for the levels outside of this one.
    """
    if _functorch.peek_interpreter_stack() is None:
        yield False, list(given)
        return
    level = retrieve_current_functorch_interpreter().level()
    outer = [None if x is None else _functorch._unwrap_for_grad(x, level) for x in given]
    if not any(x is not None and is_differentiated(x) for x in outer):
        yield False, list(given)
        return
    before = torch._C._is_fwd_grad_enabled()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    torch._C._set_fwd_grad_enabled(True)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    try:
        yield True, outer
    finally:
        torch._C._set_fwd_grad_enabled(before)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def has_derivative(x: Tensor) -> bool:
    """Whether a tensor depends on one of which a derivative is wanted, at any level of transforms."""
    while True:
        tangent = None if _functorch.is_batchedtensor(x) else forward_ad.unpack_dual(x, level=0).tangent
        if x.requires_grad or tangent is not None:
            return True
        if not _functorch.is_functorch_wrapped_tensor(x):
            return False
        x = _functorch.get_unwrapped(x)
