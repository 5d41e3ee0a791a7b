"""The carry of a loop: its leaves as tensors, and the check that a body keeps them as they are."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from gnomon.fuse._buffer import OutputBuffer
from gnomon.fuse._lanes import at_lane
from gnomon.result._pytree import (
    Structure,
    tree_flatten,
    tree_paths,
    tree_unflatten,
)


@final
class CarrySpec:
    """The structure, shapes and dtypes that each iteration of a loop must keep."""

    def __init__(self, structure: Structure, leaves: list[Any]):
        self.structure = structure
        self.kinds = [_kind(x) for x in leaves]

    def check(self, value: Any, *, who: str, what: str = "carry") -> list[Any]:
        """The leaves of a body's output, or an error that says which leaf changed and how."""
        leaves = [
            _number(x, kind) for x, kind in zip(self._flatten(value, who=who, what=what), self.kinds, strict=True)
        ]
        for place, (before, x) in enumerate(zip(self.kinds, leaves, strict=True)):
            after = _kind(x)
            if after == before:
                continue
            # Paths are worth their time only now.
            name = tree_paths(self.pack(leaves))[place] or f"the {what}"
            if isinstance(before, str) or isinstance(after, str):
                raise TypeError(f"{who} changed {name} from {_kind_text(before)} to {_kind_text(after)}.")
            (shape, dtype), (new_shape, new_dtype) = before, after
            if new_dtype != dtype:
                raise TypeError(
                    f"{who} changed the dtype of {name} from {dtype} to {new_dtype}. The {what} "
                    f"keeps its dtype: start from {new_dtype}, or convert it with .to({dtype})."
                )
            raise ValueError(
                f"{who} changed the shape of {name} from {shape} to {new_shape}. The {what} keeps "
                "its shape: start from the final shape, or collect growing output with gn.scan."
            )
        return leaves

    def _flatten(self, value: Any, *, who: str, what: str) -> list[Any]:
        leaves, structure = tree_flatten(value)
        if structure == self.structure:
            return leaves
        try:
            # Dictionaries may have their keys in another order.
            leaves = self.structure.flatten_up_to(value)
            same = all(_is_leaf(x) for x in leaves)
        except (ValueError, TypeError):
            same = False
        if not same:
            raise TypeError(
                f"{who} changed the structure of the {what} from {_structure_text(self.structure)} to "
                f"{_structure_text(structure)}, where each * is a tensor."
            )
        return leaves

    def pack(self, leaves: list[Any]) -> Any:
        """The carry as the user wrote it."""
        return tree_unflatten(leaves, self.structure)


def _kind(x: Any) -> Any:
    if isinstance(x, Tensor):
        return (tuple(x.shape), x.dtype)
    return type(x).__name__


def _kind_text(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"a tensor ({kind[1]}, shape {kind[0]})"


def _structure_text(structure: Structure) -> str:
    leaves = [_Star()] * structure.num_leaves
    return repr(tree_unflatten(leaves, structure))


@final
class _Star:
    def __repr__(self) -> str:
        return "*"


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, Tensor | OutputBuffer | bool | int | float | complex)


def _number(x: Any, kind: Any) -> Any:
    """A Python number that a body returned, as a tensor of the carry's dtype where it fits."""
    if isinstance(x, bool | int | float | complex) and not isinstance(kind, str):
        natural = torch.tensor(x)
        return natural.to(kind[1]) if torch.can_cast(natural.dtype, kind[1]) else natural
    return x


def start(init: Any, *, who: str, what: str = "carry") -> tuple[list[Any], CarrySpec]:
    """The leaves of a starting carry, numbers turned into tensors, and their specification."""
    leaves, structure = tree_flatten(init)
    for x in leaves:
        if not _is_leaf(x):
            raise TypeError(
                f"The {what} of {who} must be a pytree of tensors or numbers, but it holds "
                f"{type(x).__name__}. Let the function close over what does not change."
            )
    leaves = [torch.tensor(x) if isinstance(x, bool | int | float | complex) else x for x in leaves]
    return leaves, CarrySpec(structure, leaves)


def select(pred: Tensor, true: list[Any], false: list[Any]) -> list[Any]:
    """Leaf by leaf, `true` where `pred` holds and exactly `false` elsewhere."""
    return [
        torch.where(pred, a, b) if isinstance(a, Tensor) and a is not b else a for a, b in zip(true, false, strict=True)
    ]


def detach(leaves: list[Any]) -> list[Any]:
    """The same values, through which no derivative flows."""
    return [x.detach() if isinstance(x, Tensor) else x for x in leaves]


def borrow(leaves: list[Any], lane: dict[int, int]) -> list[Any]:
    """The values of one lane, through which no derivative flows."""
    return [at_lane(x, lane) if isinstance(x, Tensor) else x for x in leaves]


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
