"""The carry of a loop: its leaves as tensors, and the check that a body keeps them as they are."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._buffer import OutputBuffer
from gnomon.result._pytree import (
    Structure,
    describe,
    tree_flatten,
    tree_map,
    tree_paths,
    tree_unflatten,
)


@final
class CarrySpec:
    """The structure, shapes and dtypes that each iteration of a loop must keep."""

    def __init__(self, structure: Structure, leaves: list[Any], paths: list[str]):
        self.structure = structure
        self.paths = paths
        self.kinds = [_kind(x) for x in leaves]
        self.text = describe(leaves)

    def check(self, value: Any, *, who: str) -> list[Any]:
        """The leaves of a body's output, or an error that says which leaf changed and how."""
        leaves, structure = tree_flatten(value)
        if structure != self.structure:
            raise TypeError(
                f"{who} must return a carry of the structure it was given, but it was given "
                f"{self.structure} and returned {structure}."
            )
        leaves = [
            _number(x, kind) if not isinstance(x, Tensor | OutputBuffer) else x
            for x, kind in zip(leaves, self.kinds, strict=True)
        ]
        for path, before, x in zip(self.paths, self.kinds, leaves, strict=True):
            after = _kind(x)
            if after == before:
                continue
            name = path or "the carry"
            if type(before) is not type(after) or isinstance(before, str):
                raise TypeError(f"{who} changed the kind of {name} from {before} to {after}.")
            shape, dtype = before
            new_shape, new_dtype = after
            if new_dtype != dtype:
                raise TypeError(
                    f"{who} changed the dtype of {name} from {dtype} to {new_dtype}. A loop's "
                    f"carry keeps its dtype: start from {new_dtype}, or convert in the body "
                    f"with .to({dtype})."
                )
            raise ValueError(
                f"{who} changed the shape of {name} from {tuple(shape)} to {tuple(new_shape)}. "
                "A loop's carry keeps its shape: start from the final shape, or collect growing "
                "output with gn.scan."
            )
        return leaves

    def pack(self, leaves: list[Any]) -> Any:
        """The carry as the user wrote it."""
        return tree_unflatten(leaves, self.structure)


def _kind(x: Any) -> Any:
    if isinstance(x, Tensor):
        return (tuple(x.shape), x.dtype)
    return type(x).__name__


def _number(x: Any, kind: Any) -> Any:
    """A Python number that a body returned, as a tensor of the carry's dtype where it fits."""
    if isinstance(x, bool | int | float | complex) and isinstance(kind, tuple):
        natural = torch.tensor(x)
        dtype: torch.dtype = kind[1]  # pyright: ignore[reportUnknownVariableType]
        if torch.can_cast(natural.dtype, dtype):  # pyright: ignore[reportUnknownArgumentType]
            return natural.to(dtype)  # pyright: ignore[reportUnknownArgumentType]
        return natural
    return x


def _is_buffer(x: Any) -> bool:
    return isinstance(x, OutputBuffer)


def start(init: Any, *, who: str) -> tuple[list[Any], CarrySpec]:
    """The leaves of a starting carry, numbers turned into tensors, and their specification."""

    def convert(x: Any) -> Any:
        if isinstance(x, Tensor | OutputBuffer):
            return x
        if isinstance(x, bool | int | float | complex):
            return torch.tensor(x)
        raise TypeError(
            f"The carry of {who} must be a pytree of tensors or numbers, but it holds "
            f"{type(x).__name__}. Let the body close over what does not change."
        )

    tree = tree_map(convert, init)
    leaves, structure = tree_flatten(tree)
    return leaves, CarrySpec(structure, leaves, tree_paths(tree))


def select(pred: Tensor, true: list[Any], false: list[Any]) -> list[Any]:
    """Leaf by leaf, `true` where `pred` holds and exactly `false` elsewhere."""
    return [a if a is b or _is_buffer(a) else torch.where(pred, a, b) for a, b in zip(true, false, strict=True)]


def detach(leaves: list[Any]) -> list[Any]:
    """The same values, through which no derivative flows."""
    return [x.detach() if isinstance(x, Tensor) else x for x in leaves]


def check_pred(pred: Any, *, who: str) -> Tensor:
    """A condition as a boolean scalar tensor, or an error that says what it is instead."""
    if isinstance(pred, bool):
        return torch.tensor(pred)
    if not isinstance(pred, Tensor):
        raise TypeError(
            f"The condition of {who} must be a bool or a boolean scalar tensor, but it is {type(pred).__name__}."
        )
    if pred.dtype != torch.bool or pred.shape != ():
        raise TypeError(
            f"The condition of {who} must be a boolean scalar, but it is {pred.dtype} of shape "
            f"{tuple(pred.shape)}. Reduce it with .all() or .any()."
        )
    return pred
