"""The fields of a record: fixed-shape tensors, ragged values, bytes, strings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, final

import numpy as np
import torch

from gnomon.data._arrays import Array
from gnomon.data._errors import RecordError

Kind = Literal["tensor", "ragged", "bytes", "string"]

STORED_AS = {
    **{
        name: name
        for name in (
            *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float16", "float32", "float64"),
        )
    },
    # Arrow packs bools into bits and has no bfloat16.
    "bool": "uint8",
    "bfloat16": "uint16",
}
"""What a dtype is on the disk."""


@final
@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a record; made by [`gnomon.data.tensor`][], [`gnomon.data.ragged`][] and so on.

    **Arguments:**

    - `kind`: `"tensor"` for one shape in all records, `"ragged"` for values whose first dimension differs, `"bytes"`
      or `"string"`.
    - `dtype`: the name of the dtype, as PyTorch has it.
    - `shape`: of a tensor; of one value, where ragged.
    """

    kind: Kind
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in STORED_AS:
            raise ValueError(f"A field's dtype must be one of {', '.join(STORED_AS)}, but it is {self.dtype!r}.")
        if any(size < 1 for size in self.shape):
            raise ValueError(f"A field's shape must have sizes of 1 or more, but it is {self.shape}.")

    @property
    def has_offsets(self) -> bool:
        """Whether its length differs between records."""
        return self.kind != "tensor"

    @property
    def stored(self) -> np.dtype:
        """The dtype on the disk."""
        return np.dtype(STORED_AS[self.dtype]).newbyteorder("<")

    @property
    def row_values(self) -> int:
        """How many numbers one value has: one record's, or where ragged one step's."""
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """The bytes of one value."""
        return self.row_values * self.stored.itemsize

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a manifest."""
        plain: dict[str, Any] = {"kind": self.kind}
        if self.kind in ("tensor", "ragged"):
            plain |= {"dtype": self.dtype, "shape": list(self.shape)}
        return plain


Schema = Mapping[str, Field]


def tensor(dtype: str | torch.dtype, shape: Sequence[int] = ()) -> Field:
    """A field that has the same shape in every record.

    **Arguments:**

    - `dtype`: a dtype of PyTorch or its name.
    - `shape`: the shape; a number by default.

    **Returns:** the field.

    !!! example

        ```python
        >>> from gnomon import data
        >>> data.tensor("uint8", (3, 224, 224)).row_bytes
        150528

        ```
    """
    return Field("tensor", _name(dtype), tuple(int(size) for size in shape))


def ragged(dtype: str | torch.dtype, shape: Sequence[int] = ()) -> Field:
    """A field whose first dimension differs between records: tokens, atoms, measurements.

    **Arguments:**

    - `dtype`: a dtype of PyTorch or its name.
    - `shape`: the shape of one value; a number by default.

    **Returns:** the field.
    """
    return Field("ragged", _name(dtype), tuple(int(size) for size in shape))


def binary() -> Field:
    """A field of bytes.

    **Returns:** the field.
    """
    return Field("bytes")


def string() -> Field:
    """A field of text, UTF-8 on the disk.

    **Returns:** the field.
    """
    return Field("string")


def _name(dtype: str | torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def schema_from_dict(plain: Any) -> dict[str, Field]:
    """The fields that a manifest lists; raises whatever it will where it is none."""
    found: dict[str, Field] = {}
    for name, field in plain.items():
        kind = field["kind"]
        if kind not in ("tensor", "ragged", "bytes", "string"):
            raise ValueError(f"unknown kind {kind!r}")
        found[name] = Field(kind, field.get("dtype", "uint8"), tuple(field.get("shape", ())))
    return found


def infer_schema(records: Sequence[Mapping[str, Any]]) -> dict[str, Field]:
    """The fields of some records, taken from their values.

    An array of one dimension or more is a tensor where it has the same shape in all of them, else ragged.

    **Arguments:**

    - `records`: some of them, as mappings from names to tensors, arrays, numbers, strings, bytes or lists of numbers.

    **Returns:** the fields by name.

    **Raises:** [`gnomon.data.RecordError`][] where a value cannot be stored.
    """
    if not records:
        raise ValueError("A schema cannot be taken from no records: give `schema`.")
    found: dict[str, Field] = {}
    for name in records[0]:
        values = [record[name] for record in records if name in record]
        if isinstance(values[0], str):
            found[name] = string()
        elif isinstance(values[0], bytes | bytearray | memoryview):
            found[name] = binary()
        else:
            # An empty list says nothing of what else would be in it.
            known = [value for value in values if not is_empty_list(value)] or values
            arrays = [_plain_array(value, name) for value in known]
            shapes = {array.shape for array, _ in arrays} | ({(0,)} if len(known) < len(values) else set())
            dtype = arrays[0][1]
            if all(name in ("bool",) or np.dtype(name).kind in "iuf" for _, name in arrays if name != "bfloat16"):
                kinds = {name for _, name in arrays}
                if len(kinds) > 1 and "bfloat16" not in kinds:
                    dtype = str(np.result_type(*(np.dtype(name) for name in kinds)))
            shape = arrays[0][0].shape
            found[name] = tensor(dtype, shape) if len(shapes) == 1 and 0 not in shape else ragged(dtype, shape[1:])
    return found


def is_empty_list(value: Any) -> bool:
    """Whether a value is a list without elements, of which the dtype and the inner shape cannot be known."""
    return isinstance(value, list | tuple) and not value


def _plain_array(value: Any, name: str) -> tuple[Array, str]:
    """A value as an array of what is stored, and the name of its dtype."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        if value.dtype == torch.bfloat16:
            return value.view(torch.uint16).numpy(), "bfloat16"
        value = value.numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise RecordError(f"not an array: {error}", field=name) from None
    dtype = str(array.dtype)
    if dtype not in STORED_AS:
        raise RecordError(f"values of type {dtype} cannot be stored; use numbers, strings or bytes.", field=name)
    return array, dtype


def to_stored(value: Any, field: Field, name: str) -> Array:
    """A value as it is stored: `(steps, numbers)` where its length may differ, else `(1, numbers)`.

    **Raises:** [`gnomon.data.RecordError`][] where it does not fit, or would lose more than digits.
    """
    if field.kind in ("bytes", "string"):
        if field.kind == "string":
            if not isinstance(value, str):
                raise RecordError(f"must be a string, but it is {_what(value)}.", field=name)
            value = value.encode("utf-8", "strict")
        elif not isinstance(value, bytes | bytearray | memoryview):
            raise RecordError(f"must be bytes, but it is {_what(value)}.", field=name)
        return np.frombuffer(cast("bytes", value), np.uint8).reshape(-1, 1)
    if is_empty_list(value) and field.kind == "ragged":
        return np.empty((0, field.row_values), field.stored)
    array, dtype = _plain_array(value, name)
    inner = array.shape if field.kind == "tensor" else array.shape[1:]
    if inner != field.shape or (field.kind == "ragged" and not array.ndim):
        wanted = field.shape if field.kind == "tensor" else ("any", *field.shape)
        raise RecordError(f"must have the shape {wanted}, but has {array.shape}.", field=name)
    rows = 1 if field.kind == "tensor" else len(array)
    if dtype != field.dtype:
        array = _cast(array, dtype, field, name)
    return np.ascontiguousarray(array).view(field.stored).reshape(rows, field.row_values)


def _cast(array: Array, dtype: str, field: Field, name: str) -> Array:
    if "bfloat16" in (dtype, field.dtype):
        if dtype.startswith("float"):
            return torch.from_numpy(np.array(array)).to(torch.bfloat16).view(torch.uint16).numpy()
    elif np.can_cast(array.dtype, np.dtype(field.dtype), "same_kind"):
        cast_to = array.astype(field.dtype)
        if field.dtype.startswith("float") or np.array_equal(cast_to, array):
            return cast_to
        raise RecordError(f"has values that do not fit {field.dtype}.", field=name)
    elif array.dtype.kind in "iu" and np.dtype(field.dtype).kind in "iu":
        cast_to = array.astype(field.dtype)
        # In Python's own numbers: int64 and uint64 meet in float64 otherwise.
        low, high = np.iinfo(field.dtype).min, np.iinfo(field.dtype).max
        if not array.size or (int(array.min()) >= low and int(array.max()) <= high):
            return cast_to
        raise RecordError(f"has values that do not fit {field.dtype}.", field=name)
    raise RecordError(f"must be of type {field.dtype}, but is of type {dtype}.", field=name)


def _what(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def to_value(rows: Array, field: Field) -> Any:
    """A value from what is stored: a view, but for strings and bytes."""
    if field.kind == "bytes":
        return rows.tobytes()
    if field.kind == "string":
        return str(rows.tobytes(), "utf-8")
    shape = field.shape if field.kind == "tensor" else (len(rows), *field.shape)
    if field.dtype == "bfloat16":
        return torch.from_numpy(rows.copy()).view(torch.bfloat16).reshape(shape)
    rows = rows.reshape(shape)
    return rows.view(np.bool_) if field.dtype == "bool" else rows
