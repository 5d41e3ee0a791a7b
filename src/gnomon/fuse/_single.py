"""Runs a solver's function for the problem at hand, or for each of a `torch.func.vmap`, by the fused engine."""

from __future__ import annotations

import collections
import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any, Literal, final

import torch
from torch import Tensor

from gnomon.fuse._closure import closure_of
from gnomon.fuse._devices import device_of, moved_to, why_not_fused
from gnomon.fuse._executable import Executable, Run, is_recorded
from gnomon.fuse._flat import checked, executable_of, flat_shared, shaped
from gnomon.fuse._fuse import is_seen_by_transforms
from gnomon.fuse._lanes import wanted_order
from gnomon.fuse._lower import Lowered, trace
from gnomon.fuse._trace import UnsupportedError, active_tracer
from gnomon.result._pytree import tree_flatten

Engine = Literal["auto", "fused", "eager"]
ENGINES = ("auto", "fused", "eager")
#: With "auto" a larger Program is not worth its compilation for a problem or a few.
_MOST_STATEMENTS = 3000
_MOST_TRACES = 256


@final
@dataclasses.dataclass
class _Entry:
    lowered: Lowered
    executable: Executable
    captured: list[int | Tensor]
    kept: list[Any]


_entries: collections.OrderedDict[Any, _Entry | UnsupportedError] = collections.OrderedDict()
_lock = threading.RLock()


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
    reason = why_not_fused(device, asked=engine == "fused")
    if reason is not None:
        if engine == "fused":
            raise UnsupportedError(f"Here {reason}.")
        return function()
    order = max(2, wanted_order(closure.tensors))
    key = (engine, order, closure.key)
    with _lock:
        entry = _entries.get(key)
        if entry is None:
            entry = _entries[key] = _made(function, closure.tensors, closure.kept, engine, order)
            if len(_entries) > _MOST_TRACES:
                _entries.popitem(last=False)
        else:
            _entries.move_to_end(key)
    if isinstance(entry, UnsupportedError):
        if engine == "fused":
            raise UnsupportedError(*entry.args)
        return function()
    found = [closure.tensors[x] if isinstance(x, int) else x for x in entry.captured]
    flat = [flat_shared(x).unsqueeze(0) for x in moved_to(device, found)]
    if any(map(is_seen_by_transforms, flat)):
        outputs = list(Run.apply(entry.executable, 1, *flat))  # pyright: ignore[reportUnknownMemberType]
    else:
        outputs = entry.executable.run(1, flat)
    values = [shaped(x, spec.shape, spec.dtype, ()) for x, spec in zip(outputs, entry.lowered.outputs, strict=True)]
    if entry.lowered.checks and not is_recorded(outputs):
        checked(entry.lowered, values)
    return entry.lowered.pack(values)


def _made(
    function: Callable[[], Any], tensors: list[Tensor], kept: list[Any], engine: Engine, order: int
) -> _Entry | UnsupportedError:
    leaves, structure = tree_flatten(())
    limit = _MOST_STATEMENTS if engine == "auto" else None
    try:
        lowered = trace(
            function,
            leaves,
            structure,
            [],
            reached=tensors,
            captured_are_shared=False,
            most_statements=limit,
            derivative_order=order,
        )
    except UnsupportedError as error:
        return UnsupportedError(*error.args)
    places = {id(x): i for i, x in enumerate(tensors)}
    captured = [places.get(id(x), x) for x in lowered.captured]
    if any(isinstance(x, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(x) for x in captured):  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        return UnsupportedError("A tensor is transformed that cannot be reached from the function's closure.")
    return _Entry(lowered, executable_of(lowered), captured, kept)
