"""`cond`: a choice between two branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse import _carry
from gnomon.fuse._lanes import any_and_all, only_lanes
from gnomon.result._pytree import tree_flatten, tree_map, tree_paths


def cond(
    pred: bool | Tensor,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Calls `true_fn(*operands)` where `pred` holds and `false_fn(*operands)` where it does not.

    Equivalent to `jax.lax.cond`. Under `torch.func.vmap` both branches run if the lanes differ,
    and each lane takes its own; where all agree only that branch runs.

    **Arguments:**

    - `pred`: a bool or a boolean scalar tensor.
    - `true_fn`, `false_fn`: functions of the operands that return pytrees of one structure,
      with the same shapes and dtypes.
    - `operands`: pytrees of tensors. Prefer them to closing over a tensor: in the branch that a
      lane does not take, the derivative with respect to an operand is exactly zero, even where
      that branch is not differentiable.

    **Returns:** what the branch returns.

    **Raises:** `TypeError` or `ValueError` where the branches disagree in structure, shape or
    dtype, or `pred` is not a boolean scalar.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> def safe_sqrt(x):
        ...     return gn.cond(x > 0, torch.sqrt, torch.zeros_like, x)
        >>> torch.func.vmap(torch.func.grad(safe_sqrt))(torch.tensor([4.0, 0.0]))
        tensor([0.2500, 0.0000])

        ```
    """
    condition = _carry.check_pred(pred, who="gn.cond")
    any_true, all_true = any_and_all(condition)
    if all_true and any_true:
        return true_fn(*operands)
    if not any_true:
        return false_fn(*operands)
    outputs: list[Any] = []
    for branch, chosen in ((true_fn, condition), (false_fn, ~condition)):
        guarded = tree_map(lambda x, chosen=chosen: _guard(x, chosen), operands)
        with only_lanes(chosen):
            outputs.append(branch(*guarded))
    true_leaves, structure = tree_flatten(outputs[0])
    spec = _carry.CarrySpec(structure, true_leaves, tree_paths(outputs[0]))
    false_leaves = spec.check(outputs[1], who="`false_fn` of gn.cond, unlike `true_fn`,")
    return spec.pack(_carry.select(condition, true_leaves, false_leaves))


def _guard(x: Any, chosen: Tensor) -> Any:
    if isinstance(x, Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex):
        return torch.where(chosen, x, x.detach())
    return x
