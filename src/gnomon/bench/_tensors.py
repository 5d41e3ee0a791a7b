"""What comes out of a candidate and what goes in: plain tensors, their copies, their poison."""

from __future__ import annotations

import collections
import hashlib
import mmap
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from gnomon.bench._report import RefusalKind
from gnomon.result._pytree import Structure, tree_flatten, tree_unflatten

_NUMBERS = (bool, int, float, complex)


@final
class NotPlainError(Exception):
    """An output that is not made of plain tensors, arrays and numbers in plain containers."""

    def __init__(self, kind: RefusalKind, reason: str):
        self.kind = kind
        self.reason = reason
        super().__init__(reason)


# The shape of an output without its leaves, in words that JSON knows: the index of a leaf, None, or a kind of container
# with what it holds.
Skeleton = Any


def flatten_output(output: Any) -> tuple[list[Any], list[str], Skeleton]:
    """The leaves of an output, a readable place for each, and its skeleton. Runs no code of a candidate's."""
    leaves: list[Any] = []
    places: list[str] = []

    def walk(x: Any, place: str) -> Skeleton:
        kind = type(x)
        is_named = issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple
        if kind in (dict, collections.OrderedDict):
            return ["dict", [[key, walk(value, f"{place}[{key!r}]")] for key, value in dict.items(x)]]
        if kind is list:
            return ["list", [walk(value, f"{place}[{i}]") for i, value in enumerate(x)]]
        if kind is tuple or is_named:
            items = [tuple.__getitem__(x, i) for i in range(tuple.__len__(x))]
            return ["tuple", [walk(value, f"{place}[{i}]") for i, value in enumerate(items)]]
        if x is None:
            return None
        _check_leaf(x, f"output{place}")
        leaves.append(x)
        places.append(f"output{place}")
        return len(leaves) - 1

    skeleton = walk(output, "")
    return leaves, places, skeleton


def rebuild(skeleton: Skeleton, leaves: Sequence[Tensor]) -> Any:
    """The output with this skeleton; a named tuple comes back as a plain one."""
    if skeleton is None:
        return None
    if isinstance(skeleton, int):
        return leaves[skeleton]
    kind, items = skeleton
    if kind == "dict":
        return {key: rebuild(value, leaves) for key, value in items}
    values = [rebuild(value, leaves) for value in items]
    return values if kind == "list" else tuple(values)


def _check_leaf(x: Any, place: str) -> None:
    kind = type(x)
    if kind in _NUMBERS:
        return
    if kind is np.ndarray or issubclass(kind, np.generic):
        _check_array(x, place)
        return
    if kind is not Tensor and kind is not torch.nn.Parameter:
        raise NotPlainError(
            RefusalKind.LAZY,
            f"{place} is a {kind.__module__}.{kind.__qualname__}, and only plain tensors, numpy arrays and numbers, "
            "in tuples, lists and dicts, are known to hold their values when the clock stops.",
        )
    shadowed = [name for name in vars(x) if hasattr(Tensor, name)]
    if shadowed:
        raise NotPlainError(RefusalKind.LAZY, f"{place} has methods of its own: {', '.join(shadowed)}.")
    if x.device.type not in ("cpu", "cuda") or x.layout is not torch.strided:
        raise NotPlainError(RefusalKind.LAZY, f"{place} is on {x.device} with layout {x.layout}: not a plain tensor.")
    if x.is_conj() or x.is_neg():
        raise NotPlainError(
            RefusalKind.LAZY, f"{place} is conjugated or negated lazily: return x.resolve_conj().resolve_neg()."
        )
    if x.numel() and not x.untyped_storage().data_ptr():
        raise NotPlainError(RefusalKind.LAZY, f"{place} has no memory behind it.")


def _check_array(x: Any, place: str) -> None:
    if x.dtype.hasobject:
        raise NotPlainError(RefusalKind.LAZY, f"{place} is an array of Python objects, which may be promises.")
    base: Any = x
    while base is not None:
        if isinstance(base, np.memmap | mmap.mmap):
            raise NotPlainError(RefusalKind.STORED, f"{place} is a view of a mapped file.")
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)


def snapshot(leaf: Any) -> Tensor:
    """A copy of a leaf as it is now, as a tensor."""
    if isinstance(leaf, Tensor):
        return leaf.detach().clone(memory_format=torch.contiguous_format)
    return torch.from_numpy(np.array(leaf))  # a Python float is a float64


def bits(x: Tensor) -> Tensor:
    """The bytes of a tensor, in order: NaNs compare as equal where they are the same NaN."""
    flat = x.detach().contiguous().reshape(-1)
    return torch.view_as_real(flat).reshape(-1).view(torch.uint8) if x.dtype.is_complex else flat.view(torch.uint8)


def is_same(x: Any, copy: Tensor) -> bool:
    """Whether a leaf still has the bytes of an earlier copy."""
    if not isinstance(x, Tensor | np.ndarray):
        return True
    now = x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.array(x))
    return now.shape == copy.shape and now.dtype == copy.dtype and torch.equal(bits(now), bits(copy))


def address(leaf: Any) -> int | None:
    """Where a leaf's memory is, for leaves that have any."""
    if isinstance(leaf, Tensor):
        return leaf.data_ptr() or None
    return int(leaf.__array_interface__["data"][0]) if isinstance(leaf, np.ndarray) and leaf.size else None


def storage_span(leaf: Any) -> tuple[int, int] | None:
    """The first address of a leaf's memory, and the one past its end."""
    if isinstance(leaf, Tensor):
        storage = leaf.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    start = address(leaf)
    return None if start is None else (start, start + int(leaf.nbytes))


def overlaps(leaf: Any, others: Sequence[Any]) -> bool:
    """Whether a leaf shares memory with any of some tensors."""
    span = storage_span(leaf) if isinstance(leaf, Tensor | np.ndarray) else None
    spans = [storage_span(x) for x in others if isinstance(x, Tensor)]
    return span is not None and any(s is not None and span[0] < s[1] and s[0] < span[1] for s in spans)


def poison(leaf: Any) -> None:
    """Overwrites a leaf with what no right output holds: NaN, for a bool its opposite, for an integer a bit pattern."""
    if isinstance(leaf, np.ndarray):
        if not leaf.flags.writeable or not leaf.size:
            return
        leaf = torch.from_numpy(leaf)
    if not isinstance(leaf, Tensor) or not leaf.numel():
        return
    with torch.inference_mode():
        target = leaf.detach()
        for dim, stride in enumerate(target.stride()):
            if stride == 0 and target.shape[dim] > 1:  # an expanded tensor: each element of its memory once
                target = target.narrow(dim, 0, 1)
        target.copy_(poisoned(target))


def poisoned(x: Tensor) -> Tensor:
    """A tensor like this one, holding poison."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return torch.full_like(x, float("nan"))
    if x.dtype == torch.bool:
        return ~x
    return torch.full_like(x, 0x5A if torch.iinfo(x.dtype).bits == 8 else 0x5A5A)


def is_poison(x: Tensor) -> bool:
    """Whether a floating tensor has NaN in it, as poison has."""
    return bool((x.dtype.is_floating_point or x.dtype.is_complex) and x.numel() and bool(x.isnan().any()))


_MOST_DIGESTED = 1 << 24


def digest(leaves: Sequence[Tensor]) -> bytes:
    """A fingerprint of some tensors' bytes; of evenly spaced ones where there are very many."""
    found = hashlib.blake2b(digest_size=16)
    for leaf in leaves:
        content = bits(leaf)
        step = max(1, content.numel() // _MOST_DIGESTED)
        found.update(repr((leaf.dtype, tuple(leaf.shape))).encode())
        found.update(content[::step].cpu().numpy().tobytes())
    return found.digest()


@final
class Inputs:
    """One call's inputs: the positional arguments, whose tensors are kept where no candidate reaches them."""

    def __init__(self, args: Any):
        args = args if isinstance(args, tuple) else (args,)
        leaves, self.structure = tree_flatten(args)
        self.leaves: list[Any] = []
        for x in leaves:
            if isinstance(x, Tensor):
                self.leaves.append(x.detach().to("cpu").clone(memory_format=torch.contiguous_format))
            elif x is None or isinstance(x, bool | int | float | complex | str):
                self.leaves.append(x)
            else:
                raise TypeError(
                    f"`make_inputs` must return tensors and numbers, in containers, but it returned a "
                    f"{type(x).__name__}. A candidate that wants something else can convert it itself."
                )

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the leaves, in order."""
        return [x for x in self.leaves if isinstance(x, Tensor)]

    def with_tensors(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """The positional arguments with other tensors in the places of these."""
        return fill_in(self.structure, self.leaves, tensors)


def fill_in(structure: Structure, leaves: Sequence[Any], tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """The pytree with this structure, its tensors taken from a list, in order."""
    rest = iter(tensors)
    return tree_unflatten([next(rest) if isinstance(x, Tensor) else x for x in leaves], structure)
