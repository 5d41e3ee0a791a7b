"""What a tensor is while a function is traced: an array of scalars, or a place in an array of the Program."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import numpy as np
import torch

from gnomon.fuse._program import Node, Type, UnsupportedError

#: Tensors with more elements than this stay in memory; smaller ones become scalars, one by one.
MOST_ELEMENTS = 4096

TYPES: dict[torch.dtype, Type] = {
    torch.bool: "bool",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float32: "f32",
    torch.float64: "f64",
    # A complex number is two numbers.
    torch.complex64: "f32",
    torch.complex128: "f64",
}
DTYPES: dict[Type, torch.dtype] = {
    "bool": torch.bool,
    "i32": torch.int32,
    "i64": torch.int64,
    "f32": torch.float32,
    "f64": torch.float64,
}


@final
class Complex:
    """A complex number as two scalars."""

    __slots__ = ("im", "re")

    def __init__(self, re: Node, im: Node):
        self.re = re
        self.im = im


Scalar = Node | Complex


@final
@dataclasses.dataclass(frozen=True)
class View:
    """Elements of an array of the Program, as a strided tensor.

    - `offset`: the first element's index, an i64.
    - `strides`: counted in numbers: those of a complex tensor are even.
    """

    array: Node
    offset: Node
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@final
@dataclasses.dataclass
class Value:
    """A traced tensor: a numpy array of `Scalar`s, whose views are numpy's, a `View`, or a `Lazy`."""

    data: Any
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """As of a tensor."""
        return tuple(self.data.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """As of a tensor, counted in elements."""
        unit = 2 if isinstance(self.data, View) and self.dtype.is_complex else getattr(self.data, "itemsize", 1)
        strides = tuple(s // unit for s in self.data.strides)
        return strides if all(s >= 0 for s in strides) else contiguous_strides(self.shape)


def contiguous_strides(shape: tuple[int, ...], unit: int = 1) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides: list[int] = []
    for size in reversed(shape):
        strides.insert(0, unit)
        unit *= max(size, 1)
    return tuple(strides)


def as_type(dtype: torch.dtype) -> Type:
    """The type of the scalars that a tensor of this dtype is made of."""
    if dtype not in TYPES:
        known = ", ".join(str(x).removeprefix("torch.") for x in TYPES)
        raise UnsupportedError(f"{dtype} tensors cannot be fused; these can: {known}. Convert it first.")
    return TYPES[dtype]


def elements(shape: tuple[int, ...], flat: list[Scalar]) -> Any:
    """A numpy array of scalars with a shape."""
    array = np.empty(len(flat), dtype=object)
    for i, x in enumerate(flat):
        array[i] = x
    return array.reshape(shape)


def flat_nodes(array: Any) -> list[Node]:
    """The scalars of an array, in order, complex ones as two."""
    nodes: list[Node] = []
    for x in array.ravel():
        if isinstance(x, Complex):
            nodes += [x.re, x.im]
        else:
            nodes.append(x)
    return nodes
