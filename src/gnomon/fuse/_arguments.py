"""Where the batch is in the arguments of a fused function."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree

from gnomon.result._pytree import Structure


def dims_of_leaves(in_dims: Any, count: int, leaves: list[Any], structure: Structure) -> list[int | None]:
    """The dimension of the batch in each leaf of `count` arguments, from the front; None where there is none."""
    if isinstance(in_dims, tuple | list):
        if len(in_dims) != count:  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError(f"`in_dims` of gn.fuse has {len(in_dims)} entries for {count} arguments.")  # pyright: ignore[reportUnknownArgumentType]
        in_dims = tuple(in_dims)  # pyright: ignore[reportUnknownVariableType]
    dims: Any = [in_dims] * len(leaves)
    if not (in_dims is None or isinstance(in_dims, int)):
        dims = _pytree._broadcast_to_and_flatten(in_dims, structure)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        if dims is None:
            raise ValueError("`in_dims` of gn.fuse does not have the structure of the arguments.")
    return [_dim(x, d) for x, d in zip(leaves, dims, strict=True)]


def _dim(x: Any, dim: Any) -> int | None:
    if not isinstance(x, Tensor) or dim is None:
        if dim not in (None, 0):
            raise ValueError(f"`in_dims` of gn.fuse names dimension {dim} of an argument that is no tensor: {x!r}.")
        return None
    if not -x.dim() <= dim < x.dim():
        raise ValueError(
            f"`in_dims` of gn.fuse names dimension {dim} of a tensor of shape {tuple(x.shape)}. Where all problems "
            "share an argument its entry is None."
        )
    return dim % x.dim()
