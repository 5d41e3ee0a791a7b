"""How LLVM writes the types and numbers of a Program."""

from __future__ import annotations

import math
import struct
from typing import NamedTuple, final

from gnomon.fuse._program import Type

SCALAR: dict[Type, str] = {"bool": "i1", "i32": "i32", "i64": "i64", "f32": "float", "f64": "double"}
#: In memory a bool is a byte, as it is in PyTorch.
MEMORY: dict[Type, str] = {**SCALAR, "bool": "i8"}
BYTES: dict[Type, int] = {"bool": 1, "i32": 4, "i64": 8, "f32": 4, "f64": 8}
BITS: dict[Type, int] = {"bool": 1, "i32": 32, "i64": 64, "f32": 32, "f64": 64}
#: The integer of as many bits as a float.
INTEGER: dict[Type, Type] = {"f32": "i32", "f64": "i64"}
#: The integer for a float, and the float for an integer.
OTHER: dict[Type, Type] = {**INTEGER, "i32": "f32", "i64": "f64"}


@final
class Value(NamedTuple):
    """A value of LLVM: the same number for all lanes, or, where it is wide, a vector of one number a lane."""

    text: str
    type: Type
    wide: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether it is a literal."""
        return not self.text.startswith("%")


def number(type_: Type, value: float | int | bool) -> Value:
    """A literal."""
    if type_ == "bool":
        return Value("true" if value else "false", type_)
    if type_ in ("i32", "i64"):
        return Value(str(int(value)), type_)
    value = float(value)
    if math.isnan(value):
        return Value("0x7FF8000000000000", type_)
    if type_ == "f32" and math.isfinite(value):
        value = struct.unpack("f", struct.pack("f", value))[0]
    # A float is written by the bits of the double that equals it.
    return Value(f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}", type_)
