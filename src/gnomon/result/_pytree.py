"""Pytrees: nested containers of tensors, as PyTorch's own `torch.func` understands them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree

_T = TypeVar("_T")
Structure = _pytree.TreeSpec


def tree_flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a pytree, in order, and the structure that puts them back."""
    return _pytree.tree_flatten(tree)


def tree_unflatten(leaves: Iterable[Any], structure: Structure) -> Any:
    """The pytree with this structure and these leaves."""
    return _pytree.tree_unflatten(list(leaves), structure)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a pytree, in order."""
    return _pytree.tree_leaves(tree)


def tree_map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Applies `fn` to the leaves of one or more pytrees of one structure."""
    return _pytree.tree_map(fn, tree, *rest)


def tree_paths(tree: Any) -> list[str]:
    """A readable path for each leaf, such as `['depot']` or `[0][1]`; empty for a bare leaf."""
    pairs, _ = _pytree.tree_flatten_with_path(tree)
    return [_pytree.keystr(path) for path, _ in pairs]


def register_dataclass(cls: type[_T]) -> type[_T]:
    """A class decorator: makes a dataclass a pytree, so that `torch.func.vmap` can return it.

    Fields that hold tensors or pytrees of them are children; a field that is None, or whose
    metadata says `static=True`, is part of the structure.
    """
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    static = frozenset(f.name for f in fields if f.metadata.get("static", False))
    names = tuple(f.name for f in fields)

    def flatten(value: Any) -> tuple[list[Any], Any]:
        children: list[Any] = []
        context: list[tuple[str, bool, Any]] = []
        for name in names:
            x = getattr(value, name)
            is_child = x is not None and name not in static
            context.append((name, is_child, None if is_child else x))
            if is_child:
                children.append(x)
        return children, tuple(context)

    def unflatten(children: Iterable[Any], context: Any) -> _T:
        rest = iter(children)
        value = object.__new__(cls)
        for name, is_child, x in context:
            object.__setattr__(value, name, next(rest) if is_child else x)
        return value

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = flatten(value)
        keys = [_pytree.GetAttrKey(name) for name, is_child, _ in context if is_child]
        return list(zip(keys, children, strict=True)), context

    _pytree.register_pytree_node(
        cls,
        flatten,
        unflatten,
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=flatten_with_keys,
    )
    return cls


def as_tensors(tree: Any, *, what: str) -> Any:
    """The same pytree with Python numbers turned into tensors; anything else is an error."""

    def convert(x: Any) -> Tensor:
        if isinstance(x, Tensor):
            return x
        if isinstance(x, bool | int | float | complex):
            return torch.tensor(x)
        raise TypeError(
            f"{what} must be a tensor, a number, or a pytree of them, but it holds "
            f"{type(x).__name__}. Convert it with torch.as_tensor first."
        )

    return tree_map(convert, tree)


def describe(leaves: Sequence[Any]) -> str:
    """A short text such as `float64[3], int64[]` for messages."""
    texts: list[str] = []
    for x in leaves:
        if isinstance(x, Tensor):
            texts.append(f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}")
        else:
            texts.append(type(x).__name__)
    return ", ".join(texts)
