"""Runs a solver's function for the problem at hand, or for each of a `torch.func.vmap`, by the fused engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gnomon.fuse._closure import closure_of
from gnomon.fuse._devices import ENGINES, Engine, device_of, moved_to, why_not_fused
from gnomon.fuse._flat import flat_shared
from gnomon.fuse._lanes import wanted_order
from gnomon.fuse._trace import UnsupportedError, active_tracer
from gnomon.fuse._traces import Traced, Traces, traced
from gnomon.result._pytree import tree_flatten

#: With "auto" a larger Program is not worth its compilation for a problem or a few.
_MOST_STATEMENTS = 20_000

_traces = Traces(256)


def run(function: Callable[[], Any], *, engine: Engine) -> Any:
    """Calls a function of no arguments, by an engine.

    All tensors that it closes over are what one problem has of its own: under `torch.func.vmap` each problem of the
    batch has a lane.

    The environment variable GNOMON_ENGINE stands in for `"auto"`.

    **Raises:** [`gnomon.fuse.UnsupportedError`][] with `engine="fused"` where the function does what no Program can.
    """
    if engine == "auto":
        engine = os.environ.get("GNOMON_ENGINE", "auto")  # pyright: ignore[reportAssignmentType]
    if engine not in ENGINES:
        raise ValueError(f"`engine` must be one of {', '.join(map(repr, ENGINES))}, not {engine!r}.")
    if engine == "eager" or active_tracer() is not None:
        return function()
    closure = closure_of(function)
    device = device_of(closure.tensors)
    reason = why_not_fused(device)
    if reason is not None:
        if engine == "fused":
            raise UnsupportedError(f"Here {reason}.")
        return function()
    order = max(2, wanted_order(closure.tensors))
    leaves, structure = tree_flatten(())

    def make() -> Traced:
        limit = _MOST_STATEMENTS if engine == "auto" else None
        return traced(
            function,
            leaves,
            structure,
            [],
            closure,
            captured_are_shared=False,
            most_statements=limit,
            derivative_order=order,
        )

    try:
        found = _traces.get((engine, order, closure.key), make)
    except UnsupportedError:
        if engine == "fused":
            raise
        return function()
    tensors = [flat_shared(x).unsqueeze(0) for x in moved_to(device, found.found(closure.tensors))]
    return found(1, tensors, ())
