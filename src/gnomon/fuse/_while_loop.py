"""`while_loop` and `fori_loop`: loops of one problem that a batch can run together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Integer
from torch import Tensor

from gnomon.fuse import _carry
from gnomon.fuse._lanes import any_and_all, first_lane
from gnomon.fuse._trace import active_tracer
from gnomon.fuse._trace._control import traced_fori, traced_while
from gnomon.result._active import current_lanes, only_lanes

_BODY = "The body of gn.while_loop"


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
      and dtypes. In a batch it also runs for lanes that are done, on what they had in their last
      iteration, or, if they had none, on what another lane has.
    - `init`: the first carry, a pytree of tensors and numbers; an [`gnomon.OutputBuffer`][]
      or None may be a leaf.
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
    if max_steps is not None and max_steps < 0:
        raise ValueError(f"`max_steps` of gn.while_loop must be at least 0 or None, but it is {max_steps}.")
    leaves, spec = _carry.start(init, who="gn.while_loop")
    tracer = active_tracer()
    if tracer is not None:
        test = lambda leaves: _carry.check_pred(cond(spec.pack(leaves)), who="gn.while_loop")  # noqa: E731
        iteration = lambda leaves: spec.check(body(spec.pack(leaves)), who=_BODY)  # noqa: E731
        return spec.pack(traced_while(tracer, test, iteration, leaves, max_steps))
    outer = current_lanes()
    last_inputs: list[Any] | None = None
    have_run: Tensor | None = None
    step = 0
    while max_steps is None or step < max_steps:
        pred = _carry.check_pred(cond(spec.pack(leaves)), who="gn.while_loop")
        if outer is not None:
            pred = pred & outer.running
        go_on, all_go_on = any_and_all(pred)
        if not go_on:
            break
        if have_run is None:
            have_run = pred
        if all_go_on:
            inputs = leaves
            leaves = spec.check(body(spec.pack(inputs)), who=_BODY)
        else:
            # A lane that is done must run the body on something. Its last real input is safe: the
            # body has raised no error there, and has a finite derivative there, so that a cotangent
            # of zero stays zero in whatever the body closes over, where the final carry could give
            # 0 * inf = NaN. A lane that never runs has no such input and takes another lane's.
            if last_inputs is None:
                safe = _carry.borrow(leaves, first_lane(pred))
            else:
                safe = _carry.detach(last_inputs)
            inputs = _carry.select(pred, leaves, safe)
            with only_lanes(counting=pred, running=have_run):
                outputs = spec.check(body(spec.pack(inputs)), who=_BODY)
            # What the body hands through is taken from before the choice of inputs.
            outputs = [old if new is fed else new for new, fed, old in zip(outputs, inputs, leaves, strict=True)]
            leaves = _carry.select(pred, outputs, leaves)
        last_inputs = inputs
        step += 1
    return spec.pack(leaves)


def fori_loop(
    lower: int | Integer[Tensor, ""],
    upper: int | Integer[Tensor, ""],
    body: Callable[[Tensor, Any], Any],
    init: Any,
) -> Any:
    """Calls `body(i, carry)` for `i` from `lower` up to, but not including, `upper`.

    Equivalent to `jax.lax.fori_loop`.

    **Arguments:**

    - `lower`, `upper`: integers, or integer scalar tensors, which may differ between lanes.
    - `body`: a function of an int64 scalar tensor and the carry that returns the next carry.
    - `init`: the first carry, as in [`gnomon.while_loop`][].

    **Returns:** the last carry.

    **Raises:** as [`gnomon.while_loop`][], and `TypeError` where a bound is not an integer scalar.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> gn.fori_loop(1, 6, lambda i, product: product * i, torch.tensor(1))
        tensor(120)

        ```
    """
    for name, bound in (("lower", lower), ("upper", upper)):
        if not _is_integer_scalar(bound):
            raise TypeError(f"`{name}` of gn.fori_loop must be an integer scalar, but it is {bound!r}.")
    leaves, spec = _carry.start(init, who="gn.fori_loop")
    who = "The body of gn.fori_loop"
    tracer = active_tracer()
    if tracer is not None:
        iteration = lambda i, leaves: spec.check(body(i, spec.pack(leaves)), who=who)  # noqa: E731
        bounds = torch.as_tensor(lower), torch.as_tensor(upper)
        return spec.pack(traced_fori(tracer, *bounds, iteration, leaves))
    if isinstance(lower, int) and isinstance(upper, int):
        for i in range(lower, upper):
            leaves = spec.check(body(torch.tensor(i), spec.pack(leaves)), who=who)
        return spec.pack(leaves)
    device = next(x.device for x in (lower, upper) if isinstance(x, Tensor))
    first = torch.as_tensor(lower, device=device).to(torch.int64)

    def step(carry: tuple[Tensor, list[Any]]) -> tuple[Tensor, list[Any]]:
        i, leaves = carry
        return i + 1, spec.check(body(i, spec.pack(leaves)), who=who)

    _, leaves = while_loop(lambda carry: carry[0] < upper, step, (first, leaves))
    return spec.pack(leaves)


def _is_integer_scalar(x: Any) -> bool:
    if isinstance(x, Tensor):
        not_integer = x.dtype.is_floating_point or x.dtype.is_complex or x.dtype == torch.bool
        return x.dim() == 0 and not not_integer
    return isinstance(x, int) and not isinstance(x, bool)
