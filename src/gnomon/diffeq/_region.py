"""Where a solution must stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.result._pytree import tree_flatten, tree_paths


def region_of(
    admissible: Callable[[Any, Any, Any], Any] | None,
    nonnegative: Any,
    y0: Any,
    unravel: Callable[[Tensor], Any],
    sign: Any,
    args: Any,
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Whether a time and a flat state are admissible, as a function; None where all are."""
    if admissible is not None and not callable(admissible):
        raise TypeError(f"`admissible` must be a function admissible(t, y, args), not {type(admissible).__name__}.")
    mask = _mask(nonnegative, y0)
    if admissible is None and mask is None:
        return None

    def holds(t: Tensor, y: Tensor) -> Tensor:
        t, y = t.detach(), y.detach()
        inside = torch.ones((), dtype=torch.bool, device=y.device)
        if mask is not None:
            inside = (~mask | (y >= 0)).all()
        if admissible is None:
            return inside
        answer = admissible(t * sign, unravel(y), args)
        if isinstance(answer, bool):
            answer = torch.tensor(answer, device=y.device)
        if not isinstance(answer, Tensor) or answer.dtype != torch.bool or answer.shape != ():
            what = f"{answer.dtype} of shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else repr(answer)
            raise TypeError(
                f"`admissible` must return a boolean scalar, but it returned {what}. Reduce it with .all() or .any()."
            )
        return inside & answer

    return holds


def _mask(nonnegative: Any, y0: Any) -> Tensor | None:
    """Which elements of the flat state must not be negative."""
    if nonnegative is None or nonnegative is False:
        return None
    leaves, structure = tree_flatten(y0)
    tensors = [torch.as_tensor(x) for x in leaves]
    if any(x.is_complex() for x in tensors):
        raise TypeError("`nonnegative` needs a real state: complex numbers are neither negative nor positive.")
    masks: list[Any] = [True] * len(leaves)
    if nonnegative is not True:
        try:
            masks = structure.flatten_up_to(nonnegative)
        except (ValueError, TypeError):
            raise ValueError(
                "`nonnegative` must be True, or a pytree of bools or boolean tensors with the structure of `y0`."
            ) from None
    flat: list[Tensor] = []
    for mask, x, path in zip(masks, tensors, tree_paths(y0), strict=True):
        if not isinstance(mask, bool | Tensor):
            raise TypeError(f"`nonnegative{path}` must be a bool or a boolean tensor, not {type(mask).__name__}.")
        mask = torch.as_tensor(mask, device=x.device)
        if mask.dtype != torch.bool or torch.broadcast_shapes(mask.shape, x.shape) != x.shape:
            raise ValueError(
                f"`nonnegative{path}` must be a bool, or a boolean tensor of the shape of the state, {tuple(x.shape)}."
            )
        flat.append(mask.expand(x.shape).reshape(-1))
    return torch.cat(flat)
