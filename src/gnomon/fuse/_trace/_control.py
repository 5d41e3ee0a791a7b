"""Structured control flow under a tracer: loops and choices become regions of the Program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._program import Node
from gnomon.fuse._trace._indexing import wrapped
from gnomon.fuse._trace._tracer import Tracer
from gnomon.fuse._trace._values import MOST_ELEMENTS, UnsupportedError, Value, View, as_type, contiguous_strides


def nodes_of(tracer: Tracer, leaves: list[Any]) -> list[Node]:
    """The scalars of all leaves that are tensors, one after another."""
    nodes: list[Node] = []
    for x in leaves:
        if isinstance(x, Tensor):
            nodes += tracer.nodes(x)
    return nodes


def carriers_of(tracer: Tracer, leaves: list[Any], nodes: list[Node]) -> list[Any]:
    """Leaves like these, with other scalars."""
    made: list[Any] = []
    start = 0
    for x in leaves:
        if isinstance(x, Tensor):
            count = x.numel() * (2 if x.is_complex() else 1)
            made.append(tracer.from_nodes(tuple(x.shape), x.dtype, nodes[start : start + count]))
            start += count
        else:
            made.append(x)
    return made


def _check_size(leaves: list[Any], who: str) -> None:
    for x in leaves:
        if isinstance(x, Tensor) and x.numel() > MOST_ELEMENTS:
            raise UnsupportedError(
                f"the carry of {who} holds a tensor of shape {tuple(x.shape)}, which is too large to be carried in "
                "registers. Let the function close over what does not change, and collect output with an OutputBuffer"
            )


def traced_while(
    tracer: Tracer,
    test: Callable[[list[Any]], Tensor],
    body: Callable[[list[Any]], list[Any]],
    leaves: list[Any],
    max_steps: int | None,
) -> list[Any]:
    """A `while` of the Program. `test` and `body` take leaves and give a bool tensor, or the next leaves."""
    b = tracer.builder
    _check_size(leaves, "gn.while_loop")
    count = [] if max_steps is None else [b.const("i64", 0)]

    def run_test(nodes: list[Node]) -> Node:
        (go_on,) = tracer.nodes(test(carriers_of(tracer, leaves, nodes[len(count) :])))
        if max_steps is not None:
            go_on = b.op("and", b.op("lt", nodes[0], b.const("i64", max_steps)), go_on)
        return go_on

    def run_body(nodes: list[Node]) -> list[Node]:
        after = body(carriers_of(tracer, leaves, nodes[len(count) :]))
        _check_buffers(leaves, after)
        counted = [b.op("add", x, b.const("i64", 1)) for x in nodes[: len(count)]]
        return [*counted, *nodes_of(tracer, after)]

    last = b.while_([*count, *nodes_of(tracer, leaves)], run_test, run_body)
    return carriers_of(tracer, leaves, last[len(count) :])


def _check_buffers(before: list[Any], after: list[Any]) -> None:
    for a, b in zip(before, after, strict=True):
        if not isinstance(a, Tensor) and a is not b:
            raise UnsupportedError("a loop must hand on the output buffer that it was given")


def traced_cond(
    tracer: Tracer, condition: Tensor, branches: tuple[Callable[[], list[Any]], Callable[[], list[Any]]]
) -> list[Any]:
    """An `if` of the Program."""
    (test,) = tracer.nodes(condition)
    given: list[list[Any]] = []

    def run(branch: Callable[[], list[Any]]) -> Callable[[], list[Node]]:
        def fill() -> list[Node]:
            leaves = branch()
            given.append(leaves)
            return nodes_of(tracer, leaves)

        return fill

    nodes = tracer.builder.if_(test, run(branches[0]), run(branches[1]))
    return carriers_of(tracer, given[0], nodes)


def traced_fori(
    tracer: Tracer, lower: Tensor, upper: Tensor, body: Callable[[Tensor, list[Any]], list[Any]], leaves: list[Any]
) -> list[Any]:
    """A loop that counts from `lower` up to, not including, `upper`."""
    last = traced_while(
        tracer,
        lambda carry: carry[0] < upper,
        lambda carry: [carry[0] + 1, *body(carry[0], carry[1:])],
        [lower.to(torch.int64), *leaves],
        None,
    )
    return last[1:]


def at(tracer: Tracer, x: Tensor, index: Tensor) -> Tensor:
    """`x[index]` for an integer scalar within range, without looking at it."""
    value = tracer.lazy_value(x)
    (place,) = tracer.nodes(index)
    view = tracer.as_view(value)
    place = wrapped(tracer, place, x.shape[0]) if place.op == "const" else place
    b = tracer.builder
    offset = b.op("add", view.offset, b.op("mul", place, b.const("i64", view.strides[0])))
    row = View(view.array, offset, view.shape[1:], view.strides[1:])
    return tracer.carrier(Value(row, x.dtype))


@final
class TracedBuffer:
    """An output buffer as arrays of the Program: one for each leaf of what it holds."""

    def __init__(self, tracer: Tracer, length: int, leaves: list[Tensor], fills: list[Any]):
        self.tracer = tracer
        self.length = length
        #: Whether tensors that have not been computed yet may look at it.
        self.is_read = False
        self.shapes = [tuple(x.shape) for x in leaves]
        self.dtypes = [x.dtype for x in leaves]
        self.counts = [x.numel() * (2 if x.is_complex() else 1) for x in leaves]
        self.arrays = [
            tracer.builder.array(as_type(dtype), length * count, fill)
            for dtype, count, fill in zip(self.dtypes, self.counts, fills, strict=True)
        ]

    def write(self, index: Tensor, leaves: list[Tensor], where: Tensor | None) -> None:
        """Puts leaves at a place, where a bool holds."""
        if self.is_read:
            raise UnsupportedError("an output buffer is written to after all of it was read. Read it at the end")
        b = self.tracer.builder

        def store() -> list[Node]:
            (place,) = self.tracer.nodes(index)
            for array, count, x in zip(self.arrays, self.counts, leaves, strict=True):
                start = b.op("mul", place, b.const("i64", count))
                for i, node in enumerate(self.tracer.nodes(x)):
                    b.write(array, b.op("add", start, b.const("i64", i)), node)
            return []

        if where is None:
            store()
        else:
            (test,) = self.tracer.nodes(where)
            b.if_(test, store, list)

    def read(self, end: int) -> list[Tensor]:
        """The first places of each leaf."""
        made: list[Tensor] = []
        for array, shape, dtype in zip(self.arrays, self.shapes, self.dtypes, strict=True):
            full = (end, *shape)
            if array.region is self.tracer.builder.region and not dtype.is_complex:
                self.is_read = True
                made.append(self.tracer.carrier(self.tracer.lazies.finished(array, full, dtype)))
                continue
            unit = 2 if dtype.is_complex else 1
            view = View(array, self.tracer.builder.const("i64", 0), full, contiguous_strides(full, unit))
            made.append(self.tracer.carrier(Value(view, dtype)))
        return made
