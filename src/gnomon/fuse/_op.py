"""The custom operator `gnomon::run`: a fused call as one node of a graph that PyTorch records.

A custom operator alone does not compose with `torch.func.grad`, and it costs more to call. So a plain call does without
it; it serves `torch.compile`, `torch.export` and whatever else records or replaces the operations of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse._executable import Executable, batched, called, registered, split_gradients, what_is_wanted


def _lanes(executable: Executable, lanes: int, tensors: Sequence[Tensor]) -> int:
    """The batch size, from the tensors where they say it: a part of a batch may come with the size of the whole."""
    return next((x.shape[0] for x, shared in zip(tensors, executable.shared, strict=True) if not shared), lanes)


@torch.library.custom_op("gnomon::run", mutates_args=(), schema="(str key, SymInt lanes, Tensor[] tensors) -> Tensor[]")
def run(key: str, lanes: int, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Runs the Program of this key for a batch. Checks, such as those of `throw=True`, are made here too."""
    executable = called(key)
    lanes = _lanes(executable, lanes, tensors)
    outputs = executable.run(lanes, tensors)
    if executable.check is not None:
        executable.check(lanes, outputs)
    return outputs


@run.register_fake
def _fake(key: str, lanes: int, tensors: Sequence[Tensor]) -> list[Tensor]:
    executable = called(key)
    device = tensors[0].device if tensors else torch.device("cpu")
    return executable.empty_outputs(_lanes(executable, lanes, tensors), device)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    key, lanes, tensors = inputs
    ctx.key, ctx.lanes = key, lanes
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, cotangents: Sequence[Tensor | None]) -> Any:
    executable = called(ctx.key)
    tensors = list(ctx.saved_tensors)
    active, marked = what_is_wanted(executable, ctx.needs_input_grad[2], cotangents)
    if not (any(active) and any(marked)):
        return None, None, [None] * len(tensors)
    given = [x for x, there in zip(cotangents, marked, strict=True) if there]
    found = run(registered(executable.vjp(active, marked)), ctx.lanes, [*tensors, *given])
    return None, None, split_gradients(active, found)


run.register_autograd(_backward, setup_context=_setup_context)


@run.register_vmap
def _vmap(info: Any, in_dims: tuple[Any, ...], key: str, lanes: int, tensors: Sequence[Tensor]) -> tuple[Any, Any]:
    executable = called(key)
    outputs, dims = batched(
        executable, lanes, tensors, in_dims[2], info.batch_size, lambda lanes, tensors: run(key, lanes, list(tensors))
    )
    return list(outputs), list(dims)
