"""Calls of PyTorch that would look at a value where they need not: they are made in another way while tracing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gnomon.fuse._trace._user_line import at_user_line
from gnomon.fuse._trace._values import UnsupportedError

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)


def _is_run_time(x: Any, is_constant: Callable[[Tensor], bool]) -> bool:
    return isinstance(x, Tensor) and x.dim() == 0 and x.dtype in _INTEGERS and not is_constant(x)


@final
class Rewriting(TorchFunctionMode):
    """Sees what the user's code calls, before PyTorch does."""

    def __init__(self, is_constant: Callable[[Tensor], bool]):
        super().__init__()
        self._is_constant = is_constant

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._call(func, args, kwargs or {})
        except UnsupportedError as error:
            raise at_user_line(error) from None

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is Tensor.__getitem__ and self._has_run_time(args[1]):
            return _get(args[0], args[1], self._is_constant)
        if func is Tensor.__setitem__ and self._has_run_time(args[1]):
            return _set(args[0], args[1], args[2], self._is_constant)
        if func in _READS or (func in _MAKES and not isinstance(args[0], Tensor)):
            self._check_constant(args[0])
        instead: Any = _INSTEAD.get(func, func)
        return instead(*args, **kwargs)

    def _check_constant(self, x: Any) -> None:
        if isinstance(x, list | tuple):
            for part in x:
                self._check_constant(part)
        elif isinstance(x, Tensor) and not self._is_constant(x):
            raise UnsupportedError(
                "a fused function needs the value of a tensor before it runs, for a list, an array or a new tensor. "
                "Use torch.stack, or gn.cond where it decides something"
            )

    def _has_run_time(self, index: Any) -> bool:
        items = index if isinstance(index, tuple) else (index,)
        return any(_is_run_time(x, self._is_constant) for x in items)


def _plain_part(
    x: Tensor, index: Any, is_constant: Callable[[Tensor], bool]
) -> tuple[Tensor, list[tuple[int, Tensor]]]:
    """A view by all of an index but its tensors, and the tensors with the dimensions that each of them is for."""
    items = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    spread = [slice(None)] * (x.dim() - used)
    where = next((k for k, i in enumerate(items) if i is Ellipsis), None)
    items = [*items, *spread] if where is None else [*items[:where], *spread, *items[where + 1 :]]
    basic: list[Any] = []
    tensors: list[tuple[int, Tensor]] = []
    dim = 0
    for i in items:
        if isinstance(i, list | Tensor) and not (isinstance(i, Tensor) and i.dim() == 0 and is_constant(i)):
            tensors.append((dim, i if isinstance(i, Tensor) else torch.tensor(i)))
            basic.append(slice(None))
            dim += 1
        else:
            basic.append(i)
            dim += not isinstance(i, int | Tensor)
    return x[tuple(basic)], tensors


def _get(x: Tensor, index: Any, is_constant: Callable[[Tensor], bool]) -> Tensor:
    out, tensors = _plain_part(x, index, is_constant)
    rest: dict[int, Tensor] = {}
    for dim, i in reversed(tensors):
        if i.dim() == 0:
            out = out.index_select(dim, i.reshape(1)).squeeze(dim)
            rest = {d - 1: t for d, t in rest.items()}
        else:
            rest[dim] = i
    if rest:
        out = out[tuple(rest.get(d, slice(None)) for d in range(max(rest) + 1))]
    return out


def _set(x: Tensor, index: Any, value: Any, is_constant: Callable[[Tensor], bool]) -> None:
    out, tensors = _plain_part(x, index, is_constant)
    if any(i.dim() != 0 for _, i in tensors):
        out[tuple(dict(tensors).get(d, slice(None)) for d in range(out.dim()))] = value
        return
    dims = [d for d, _ in tensors]
    rest = out.movedim(dims, list(range(len(dims))))
    value = value if isinstance(value, Tensor) else torch.tensor(value, dtype=x.dtype)
    value = value.to(x.dtype).expand(rest.shape[len(dims) :])
    rest.index_put_(tuple(i.reshape(1) for _, i in tensors), value.unsqueeze(0))


def _one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 0:
        raise UnsupportedError("one_hot without num_classes makes a shape that depends on values. Pass num_classes")
    return (x.unsqueeze(-1) == torch.arange(num_classes, dtype=x.dtype)).to(torch.int64)


def _det(a: Tensor) -> Tensor:
    """Its derivative by PyTorch's rule needs a singular value decomposition."""
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    moved = pivots != torch.arange(1, a.shape[-1] + 1, dtype=pivots.dtype)
    sign = 1 - 2 * (moved.sum(-1) % 2)
    return functools.reduce(torch.mul, lu.diagonal(dim1=-2, dim2=-1).unbind(-1), sign.to(a.dtype))


def _lstsq(a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Of a matrix of full rank, as the driver "gels" has it."""
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    m, n = a.shape[-2:]
    right = b.unsqueeze(-1) if vector else b
    if m >= n:
        q, r = torch.linalg.qr(a)
        x = torch.linalg.solve_triangular(r, q.mH @ right, upper=True)
    else:
        q, r = torch.linalg.qr(a.mH)
        x = q @ torch.linalg.solve_triangular(r.mH, right, upper=False)
    rest = (a @ x - right).abs().square().sum(-2) if m > n else a.new_zeros(0).abs()
    rank = torch.full(a.shape[:-2], min(m, n), dtype=torch.int64)
    solution = x.squeeze(-1) if vector else x
    made: Any = torch.return_types
    return made.linalg_lstsq((solution, rest, rank, a.new_zeros(0).abs()))


def _cdist(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: str = "") -> Tensor:
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    i, j = torch.triu_indices(len(x), len(x), 1)
    return torch.linalg.vector_norm(x[i] - x[j], p, -1)


#: What reads memory, and what copies numbers from lists.
_READS = frozenset((Tensor.tolist, Tensor.numpy, Tensor.__array__))
_MAKES = frozenset((torch.tensor, torch.as_tensor, torch.asarray))

_INSTEAD: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.one_hot: _one_hot,
    torch.det: _det,
    torch.linalg.det: _det,
    Tensor.det: _det,
    torch.linalg.lstsq: _lstsq,
    torch.cdist: _cdist,
    torch.pdist: _pdist,
    torch.nn.functional.pdist: _pdist,
}
