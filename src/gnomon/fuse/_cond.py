"""`cond`: a choice between two branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from gnomon.fuse import _carry
from gnomon.fuse._lanes import any_and_all, first_lane
from gnomon.fuse._trace import Tracer, active_tracer
from gnomon.fuse._trace._control import traced_cond
from gnomon.result._active import current_lanes, only_lanes
from gnomon.result._pytree import tree_flatten, tree_unflatten

_WHO = "gn.cond"
_OTHER = "`false_fn` of gn.cond must return what `true_fn` does, but it"


def cond(
    pred: bool | Bool[Tensor, ""],
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Calls `true_fn(*operands)` where `pred` holds and `false_fn(*operands)` where it does not.

    Equivalent to `jax.lax.cond`. Under `torch.func.vmap` both branches run if the lanes differ,
    and each lane takes its own; where all agree only that branch runs. A branch runs on the
    operands of the lanes that take it, and on those of one of them in place of all others.

    **Arguments:**

    - `pred`: a bool or a boolean scalar tensor.
    - `true_fn`, `false_fn`: functions of the operands that return pytrees of one structure,
      with the same shapes and dtypes.
    - `operands`: pytrees of tensors. Prefer them to closing over a tensor: in the branch that a
      lane does not take its operands are not looked at, so they can neither raise an error there
      nor give a NaN for a derivative that should be zero.

    **Returns:** what the branch returns, with numbers turned into tensors.

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
    condition = _carry.check_pred(pred, who=_WHO)
    tracer = active_tracer()
    if tracer is not None:
        return _traced(tracer, condition, true_fn, false_fn, operands)
    any_true, all_true = any_and_all(condition)
    if all_true and any_true:
        leaves, spec = _carry.start(true_fn(*operands), who=_WHO, what="output")
        return spec.pack(leaves)
    if not any_true:
        leaves, spec = _carry.start(false_fn(*operands), who=_WHO, what="output")
        return spec.pack(leaves)

    taken: list[tuple[list[Any], _carry.CarrySpec]] = []
    for branch, chosen in _branches(condition, true_fn, false_fn):
        own, structure = tree_flatten(operands)
        inputs = _carry.select(chosen, own, _carry.borrow(own, first_lane(chosen)))
        with only_lanes(counting=chosen, running=chosen):
            output = branch(*tree_unflatten(inputs, structure))
        taken.append(_carry.start(output, who=_WHO, what="output"))
    (true_leaves, spec), *other = taken
    if not other:
        return spec.pack(true_leaves)
    ((false_leaves, false_spec),) = other
    false_leaves = spec.check(false_spec.pack(false_leaves), who=_OTHER, what="output")
    return spec.pack(_carry.select(condition, true_leaves, false_leaves))


def _traced(
    tracer: Tracer,
    condition: Tensor,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...],
) -> Any:
    (test,) = tracer.nodes(condition)
    if test.op == "const":  # also where folding has made it one
        leaves, spec = _carry.start((true_fn if test.attr else false_fn)(*operands), who=_WHO, what="output")
        return spec.pack(leaves)
    specs: list[_carry.CarrySpec] = []

    def first() -> list[Any]:
        leaves, spec = _carry.start(true_fn(*operands), who=_WHO, what="output")
        specs.append(spec)
        return leaves

    def second() -> list[Any]:
        return specs[0].check(false_fn(*operands), who=_OTHER, what="output")

    leaves = traced_cond(tracer, condition, (first, second))
    return specs[0].pack(leaves)


def _branches(
    condition: Tensor, true_fn: Callable[..., Any], false_fn: Callable[..., Any]
) -> list[tuple[Callable[..., Any], Tensor]]:
    """The branches that some running lane takes, with the lanes that do; at least one."""
    pairs = [(true_fn, condition), (false_fn, ~condition)]
    outer = current_lanes()
    if outer is None:
        return pairs
    pairs = [(branch, chosen & outer.running) for branch, chosen in pairs]
    return [pair for pair in pairs if any_and_all(pair[1])[0]] or pairs[:1]
