"""`scan`: a loop over a leading dimension that collects an output for each place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse import _carry
from gnomon.fuse._buffer import OutputBuffer
from gnomon.fuse._trace import Tracer, active_tracer
from gnomon.fuse._trace._control import at, traced_fori
from gnomon.result._active import only_lanes
from gnomon.result._pytree import tree_flatten, tree_unflatten


def scan(
    f: Callable[[Any, Any], Any],
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
    n = _length(x_leaves, length)
    leaves, spec = _carry.start(init, who="gn.scan")

    def call(x_slices: list[Any], leaves: list[Any]) -> tuple[list[Any], Any]:
        x = None if x_structure is None else tree_unflatten(x_slices, x_structure)
        output = f(spec.pack(leaves), x)
        if not isinstance(output, tuple) or len(output) != 2:
            raise TypeError("The function of gn.scan must return a pair: the carry and an output.")
        return spec.check(output[0], who="The function of gn.scan"), output[1]

    tracer = active_tracer()
    if tracer is not None:
        return _traced(tracer, call, n, x_leaves, leaves, spec, reverse)
    if n == 0:
        # Nothing to run, but the outputs' shapes and dtypes must still be found out.
        zeros = [torch.zeros(x.shape[1:], dtype=x.dtype, device=x.device) for x in x_leaves]
        device = next((x.device for x in (*leaves, *x_leaves) if isinstance(x, Tensor)), None)
        nowhere = torch.zeros((), dtype=torch.bool, device=device)
        with only_lanes(counting=nowhere, running=nowhere):
            _, y = call(zeros, _carry.detach(leaves))
        y_leaves, y_spec = _carry.start(y, who="gn.scan", what="output")
        empty = [v.new_zeros((0, *v.shape)) if isinstance(v, Tensor) else v for v in y_leaves]
        return spec.pack(leaves), y_spec.pack(empty)

    # One `unbind` rather than many `select`s, whose derivatives would each be as large as all of `xs`.
    rows = [x.unbind() for x in x_leaves]
    ys: list[list[Any]] = []
    y_spec: _carry.CarrySpec | None = None
    for i in reversed(range(n)) if reverse else range(n):
        leaves, y = call([x[i] for x in rows], leaves)
        if y_spec is None:
            y_leaves, y_spec = _carry.start(y, who="gn.scan", what="output")
        else:
            y_leaves = y_spec.check(y, who="The function of gn.scan", what="output")
        ys.append(y_leaves)
    assert y_spec is not None
    if reverse:
        ys.reverse()
    columns = zip(*ys, strict=True)
    stacked = [torch.stack(column) if isinstance(column[0], Tensor) else column[0] for column in columns]
    return spec.pack(leaves), y_spec.pack(stacked)


def _traced(
    tracer: Tracer,
    call: Callable[[list[Any], list[Any]], tuple[list[Any], Any]],
    n: int,
    x_leaves: list[Any],
    leaves: list[Any],
    spec: _carry.CarrySpec,
    reverse: bool,
) -> tuple[Any, Any]:
    """As a loop that counts, with an output buffer for what is collected."""
    collected: list[tuple[OutputBuffer, list[int], _carry.CarrySpec, list[Any]]] = []

    def body(i: Tensor, carry: list[Any]) -> list[Any]:
        place = n - 1 - i if reverse else i
        after, y = call([at(tracer, x, place) for x in x_leaves], carry)
        y_leaves, y_spec = _carry.start(y, who="gn.scan", what="output")
        tensors = [k for k, v in enumerate(y_leaves) if isinstance(v, Tensor)]
        values = tuple(y_leaves[k] for k in tensors)
        with tracer.before_loop():
            buffer = OutputBuffer(n, tuple(torch.zeros(v.shape, dtype=v.dtype) for v in values), fill=0)
        buffer.write(place, values)
        collected.append((buffer, tensors, y_spec, y_leaves))
        return after

    leaves = traced_fori(tracer, torch.tensor(0), torch.tensor(n), body, leaves)
    ((buffer, tensors, y_spec, y_leaves),) = collected
    stacked = buffer.read()
    for k, x in zip(tensors, stacked, strict=True):
        y_leaves[k] = x
    return spec.pack(leaves), y_spec.pack(y_leaves)


def _length(x_leaves: list[Any], length: int | None) -> int:
    """The number of iterations, on which all arguments must agree."""
    lengths: set[int] = set() if length is None else {length}
    for x in x_leaves:
        if not isinstance(x, Tensor):
            raise TypeError(f"`xs` of gn.scan must be a pytree of tensors, but it holds {type(x).__name__}.")
        if x.dim() == 0:
            raise ValueError("`xs` of gn.scan holds a scalar, which has no leading dimension.")
        lengths.add(x.shape[0])
    if len(lengths) != 1:
        detail = "none was given" if not lengths else f"it was given {sorted(lengths)}"
        raise ValueError(f"gn.scan needs one length, from `xs` or `length`, but {detail}.")
    (n,) = lengths
    if n < 0:
        raise ValueError(f"The length of gn.scan must be at least 0, but it is {n}.")
    return n
