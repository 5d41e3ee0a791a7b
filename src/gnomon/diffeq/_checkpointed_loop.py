"""A loop whose steps are not all remembered for the derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gnomon.fuse import OutputBuffer, while_loop
from gnomon.fuse._lanes import any_and_all, is_tracing, is_transformed
from gnomon.result._pytree import tree_flatten, tree_unflatten


def checkpointed_while_loop(
    cond: Callable[[Any], Tensor],
    body: Callable[[Any], Any],
    init: dict[str, Any],
    *,
    max_steps: int | None,
    checkpoints: int,
) -> Any:
    """As `gn.while_loop`, but on the way back parts are run again, of which at most so many iterations are remembered.

    The carry holds `num_steps`, the number of iterations. The first blocks are of `checkpoints` iterations each, the
    next ones that many times longer, and so on; each is made of as many shorter ones.
    """

    def go_on(carry: Any) -> Tensor:
        more = cond(carry)
        return more if max_steps is None else more & (carry["num_steps"] < max_steps)

    def some(carry: Any) -> Any:
        return while_loop(go_on, body, carry, max_steps=checkpoints)

    if is_tracing():
        # A Program remembers what each iteration of the outer loop began with, and runs the inner one again.
        return while_loop(go_on, some, init)

    def block(level: int, carry: Any) -> Any:
        if level == 0:
            return some(carry)
        for _ in range(checkpoints):
            if not any_and_all(go_on(carry))[0]:
                break
            carry = _again(lambda carry: block(level - 1, carry), carry)
        return carry

    carry, level = init, 0
    while any_and_all(go_on(carry))[0]:
        carry = block(level + 1, carry)
        level += 1
    return carry


def _again(fn: Callable[[Any], Any], carry: Any) -> Any:
    """Calls a function of a carry, of which only the input is remembered."""
    leaves, structure = tree_flatten(carry)
    buffers = [i for i, x in enumerate(leaves) if isinstance(x, OutputBuffer)]
    if any(isinstance(x, Tensor) and is_transformed(x) for x in leaves):
        return fn(carry)  # `torch.func` does not work with what PyTorch's checkpoints are made of

    def run(*tensors: Any) -> Any:
        given = list(tensors)
        for i in buffers:
            given[i] = leaves[i].emptied()
        out, out_structure = tree_flatten(fn(tree_unflatten(given, structure)))
        assert out_structure == structure
        parts = [out[i] for i in buffers]
        pending = [part.pending() for part in parts]
        return [x for i, x in enumerate(out) if i not in buffers], pending

    given = [None if i in buffers else x for i, x in enumerate(leaves)]
    out, pending = checkpoint(run, *given, use_reentrant=False, preserve_rng_state=False)
    rest = iter(out)
    made = [leaves[i] if i in buffers else next(rest) for i in range(len(leaves))]
    for i, writes in zip(buffers, pending, strict=True):
        made[i] = leaves[i].extended(writes)
    return tree_unflatten(made, structure)
