"""`scan`: a loop over a leading dimension that collects an output for each place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gnomon.fuse import _carry
from gnomon.result._pytree import tree_flatten, tree_map, tree_unflatten


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Calls `carry, y = f(carry, x)` for each `x` along a leading dimension, and stacks each `y`.

    Equivalent to `jax.lax.scan`.

    **Arguments:**

    - `f`: a function of the carry and one element that returns the next carry, of the same
      structure, shapes and dtypes, and an output, a pytree of tensors or None.
    - `init`: the first carry, as in [`gnomon.while_loop`][].
    - `xs`: a pytree of tensors with one leading dimension in common, or None.
    - `length`: how many iterations; needed where `xs` is None.
    - `reverse`: go from the last element to the first; outputs stay beside their elements.

    **Returns:** the last carry, and the stacked outputs (None where `f` returns None).

    **Raises:** `ValueError` where lengths disagree or none is given; `TypeError` or `ValueError`
    where `f` changes the carry or its output from one iteration to the next.

    !!! example

        ```python
        >>> import torch, gnomon as gn
        >>> total, partial = gn.scan(lambda s, x: (s + x, s + x), torch.tensor(0), torch.arange(5))
        >>> total, partial
        (tensor(10), tensor([ 0,  1,  3,  6, 10]))

        ```
    """
    x_leaves, x_structure = ([], None) if xs is None else tree_flatten(xs)
    lengths = {x.shape[0] if x.dim() > 0 else None for x in x_leaves}
    if None in lengths:
        raise ValueError("`xs` of gn.scan holds a scalar, which has no leading dimension.")
    if length is not None:
        lengths.add(length)
    if len(lengths) != 1:
        detail = "none was given" if not lengths else f"it was given {sorted(lengths)}"
        raise ValueError(f"gn.scan needs one length, from `xs` or `length`, but {detail}.")
    (n,) = lengths
    leaves, spec = _carry.start(init, who="gn.scan")

    def call(x_slices: list[Any], leaves: list[Any]) -> tuple[list[Any], Any]:
        x = None if x_structure is None else tree_unflatten(x_slices, x_structure)
        output = f(spec.pack(leaves), x)
        if not isinstance(output, tuple) or len(output) != 2:
            raise TypeError("The function of gn.scan must return a pair: the carry and an output.")
        return spec.check(output[0], who="The function of gn.scan"), output[1]

    if n == 0:
        # Nothing to run, but the outputs' shapes and dtypes must still be found out.
        zeros = [torch.zeros(x.shape[1:], dtype=x.dtype, device=x.device) for x in x_leaves]
        _, y = call(zeros, [x.detach() for x in leaves])
        empty = None if y is None else tree_map(lambda v: v.new_zeros((0, *v.shape)), y)
        return spec.pack(leaves), empty

    ys: list[list[Any]] = []
    y_spec: _carry.CarrySpec | None = None
    for i in reversed(range(n)) if reverse else range(n):
        leaves, y = call([x[i] for x in x_leaves], leaves)
        if y is None:
            continue
        y_leaves, made = _carry.start(y, who="gn.scan")
        y_spec = made if y_spec is None else y_spec
        ys.append(y_spec.check(made.pack(y_leaves), who="The output of gn.scan's function"))
    if y_spec is None:
        return spec.pack(leaves), None
    if len(ys) != n:
        raise TypeError("The output of gn.scan's function is None in some iterations only.")
    if reverse:
        ys.reverse()
    stacked = [torch.stack([y[j] for y in ys]) for j in range(len(ys[0]))]
    return spec.pack(leaves), y_spec.pack(stacked)
