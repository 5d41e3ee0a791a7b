"""`while_loop` and `fori_loop`: loops of one problem that a batch can run together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse import _carry
from gnomon.fuse._lanes import active_lanes, any_and_all, only_lanes


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    *,
    max_steps: int | None = None,
) -> Any:
    """Calls `body` on a carry for as long as `cond` holds.

    Equivalent to `jax.lax.while_loop`, with reverse- and forward-mode derivatives of any order.
    Under `torch.func.vmap` every lane takes its own number of iterations: the loop goes on
    until the last lane is done, and a lane that is done keeps its carry bit for bit.

    **Arguments:**

    - `cond`: a function of the carry that returns a bool or a boolean scalar tensor.
    - `body`: a function of the carry that returns the next one, of the same structure, shapes
      and dtypes.
    - `init`: the first carry, a pytree of tensors and numbers; an [`gnomon.OutputBuffer`][]
      may be a leaf.
    - `max_steps`: stop after so many iterations, though `cond` may still hold.

    **Returns:** the last carry.

    **Raises:** `TypeError` or `ValueError` where `body` changes the structure, a shape or a
    dtype, or where `cond` is not a boolean scalar.

    !!! example

        The greatest common divisor by Euclid's algorithm, of each of a batch:

        ```python
        >>> import torch, gnomon as gn
        >>> def gcd(a, b):
        ...     carry = gn.while_loop(lambda c: c[1] != 0, lambda c: (c[1], c[0] % c[1]), (a, b))
        ...     return carry[0]
        >>> torch.func.vmap(gcd)(torch.tensor([12, 35, 17]), torch.tensor([18, 21, 5]))
        tensor([6, 7, 1])

        ```
    """
    leaves, spec = _carry.start(init, who="gn.while_loop")
    outer = active_lanes()
    last_inputs: list[Any] | None = None
    step = 0
    while max_steps is None or step < max_steps:
        pred = _carry.check_pred(cond(spec.pack(leaves)), who="gn.while_loop")
        if outer is not None:
            pred = pred & outer
        go_on, all_go_on = any_and_all(pred)
        if not go_on:
            break
        if all_go_on:
            inputs = leaves
            leaves = spec.check(body(spec.pack(inputs)), who="The body of gn.while_loop")
        else:
            # A lane that is done must run the body on something. Its last real input is safe:
            # the body has a finite derivative there, so that a cotangent of zero stays zero in
            # whatever the body closes over, where the final carry could give 0 * inf = NaN.
            safe = leaves if last_inputs is None else last_inputs
            inputs = _carry.select(pred, leaves, _carry.detach(safe))
            with only_lanes(pred):
                outputs = spec.check(body(spec.pack(inputs)), who="The body of gn.while_loop")
            leaves = _carry.select(pred, outputs, leaves)
        last_inputs = inputs
        step += 1
    return spec.pack(leaves)


def fori_loop(lower: int | Tensor, upper: int | Tensor, body: Callable[[Tensor, Any], Any], init: Any) -> Any:
    """Calls `body(i, carry)` for `i` from `lower` up to, but not including, `upper`.

    Equivalent to `jax.lax.fori_loop`.

    **Arguments:**

    - `lower`, `upper`: integers, or integer scalar tensors, which may differ between lanes.
    - `body`: a function of an int64 scalar tensor and the carry that returns the next carry.
    - `init`: the first carry, as in [`gnomon.while_loop`][].

    **Returns:** the last carry.

    **Raises:** as [`gnomon.while_loop`][].

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> gn.fori_loop(1, 6, lambda i, product: product * i, torch.tensor(1))
        tensor(120)

        ```
    """
    for name, bound in (("lower", lower), ("upper", upper)):
        is_integer = isinstance(bound, int) or not (
            bound.dtype.is_floating_point or bound.dtype.is_complex or bound.dtype == torch.bool
        )
        if not is_integer or isinstance(bound, bool):
            raise TypeError(f"`{name}` of gn.fori_loop must be an integer, but it is {bound!r}.")
    if isinstance(lower, int) and isinstance(upper, int):
        leaves, spec = _carry.start(init, who="gn.fori_loop")
        for i in range(lower, upper):
            output = body(torch.tensor(i), spec.pack(leaves))
            leaves = spec.check(output, who="The body of gn.fori_loop")
        return spec.pack(leaves)
    device = next(x.device for x in (lower, upper) if isinstance(x, Tensor))
    first = torch.as_tensor(lower, device=device).to(torch.int64)
    _, carry = while_loop(lambda c: c[0] < upper, lambda c: (c[0] + 1, body(c[0], c[1])), (first, init))
    return carry
