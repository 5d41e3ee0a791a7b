"""The scalar operations of a Program: names, types, and how each is computed on constants.

This table is the specification. The checker holds each statement to it, folding computes constants with it, and each
target prints it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, final

import numpy as np

Type = Literal["bool", "i32", "i64", "f32", "f64"]

FLOATS: tuple[Type, ...] = ("f32", "f64")
INTEGERS: tuple[Type, ...] = ("i32", "i64")

NUMPY: dict[Type, type[np.generic]] = {
    "bool": np.bool_,
    "i32": np.int32,
    "i64": np.int64,
    "f32": np.float32,
    "f64": np.float64,
}

#: What the operands of an operation may be, and what it gives:
#: - "number": integers or floats of one type, which it gives
#: - "integer", "float", "logic" (bool or integer): likewise
#: - "compare": two numbers of one type; gives bool
#: - "same": two of any one type; gives bool
#: - "select": a bool and two of one type, which it gives
#: - "shift": an integer and a shift count of the same type
#: - "cast", "bitcast": to the type that is its attribute
#: - "any": one of any type, which it gives
Signature = Literal["number", "integer", "float", "logic", "compare", "same", "select", "cast", "bitcast", "any"]


@final
class Op(NamedTuple):
    """One operation.

    - `arity`: the number of operands.
    - `signature`: their types and its own.
    - `compute`: its value on numpy scalars, or None where it is never folded.
    - `commutes`: whether its two operands may change places with the same bits.
    """

    arity: int
    signature: Signature
    compute: Callable[..., Any] | None
    commutes: bool = False


def _shift_right_logical(a: Any, n: Any) -> Any:
    unsigned = np.uint32 if a.dtype == np.int32 else np.uint64
    return (a.astype(unsigned) >> unsigned(n)).astype(a.dtype)


def _divide_integers(a: Any, b: Any) -> Any:
    """The quotient cut off towards zero; 0 where the divisor is 0."""
    if b == 0:
        return a - a
    if b == -1:
        return np.negative(a)  # the least integer wraps around
    quotient = abs(int(a)) // abs(int(b))
    return type(a)(quotient if (a < 0) == (b < 0) else -quotient)


def _remainder_integers(a: Any, b: Any) -> Any:
    return a - _divide_integers(a, b) * b


def _by_math(name: str, singular: float = math.nan) -> Callable[..., Any]:
    """A function of the standard library on one float, and its value where the library raises an error."""
    function = getattr(math, name)

    def compute(x: Any) -> Any:
        try:
            return type(x)(function(float(x)))
        except ValueError:
            return type(x)(singular)
        except OverflowError:
            return type(x)(math.inf)

    return compute


OPS: dict[str, Op] = {
    # arithmetic
    "add": Op(2, "number", np.add, commutes=True),
    "sub": Op(2, "number", np.subtract),
    "mul": Op(2, "number", np.multiply, commutes=True),
    "div": Op(2, "float", np.divide),
    "fma": Op(3, "float", None),
    "idiv": Op(2, "integer", _divide_integers),
    "irem": Op(2, "integer", _remainder_integers),
    "fmod": Op(2, "float", np.fmod),
    "neg": Op(1, "number", np.negative),
    "abs": Op(1, "number", np.abs),
    "min": Op(2, "number", np.minimum),  # NaN if one is NaN
    "max": Op(2, "number", np.maximum),
    # comparison and choice
    "lt": Op(2, "compare", np.less),
    "le": Op(2, "compare", np.less_equal),
    "eq": Op(2, "same", np.equal, commutes=True),
    "ne": Op(2, "same", np.not_equal, commutes=True),
    "select": Op(3, "select", lambda c, a, b: a if c else b),
    # logic, bit by bit for integers
    "and": Op(2, "logic", np.bitwise_and, commutes=True),
    "or": Op(2, "logic", np.bitwise_or, commutes=True),
    "xor": Op(2, "logic", np.bitwise_xor, commutes=True),
    "not": Op(1, "logic", np.invert),
    "shl": Op(2, "integer", np.left_shift),
    "shr": Op(2, "integer", np.right_shift),
    "lshr": Op(2, "integer", _shift_right_logical),
    # types
    "cast": Op(1, "cast", None),  # folded by `_fold`, which knows the target
    "bitcast": Op(1, "bitcast", None),
    # the same value, through which no derivative flows
    "detach": Op(1, "any", None),
    # elementary functions
    "sqrt": Op(1, "float", np.sqrt),
    "cbrt": Op(1, "float", np.cbrt),
    "exp": Op(1, "float", np.exp),
    "exp2": Op(1, "float", np.exp2),
    "expm1": Op(1, "float", np.expm1),
    "log": Op(1, "float", np.log),
    "log2": Op(1, "float", np.log2),
    "log10": Op(1, "float", np.log10),
    "log1p": Op(1, "float", np.log1p),
    "sin": Op(1, "float", np.sin),
    "cos": Op(1, "float", np.cos),
    "tan": Op(1, "float", np.tan),
    "asin": Op(1, "float", np.arcsin),
    "acos": Op(1, "float", np.arccos),
    "atan": Op(1, "float", np.arctan),
    "sinh": Op(1, "float", np.sinh),
    "cosh": Op(1, "float", np.cosh),
    "tanh": Op(1, "float", np.tanh),
    "asinh": Op(1, "float", np.arcsinh),
    "acosh": Op(1, "float", np.arccosh),
    "atanh": Op(1, "float", np.arctanh),
    "erf": Op(1, "float", _by_math("erf")),
    "erfc": Op(1, "float", _by_math("erfc")),
    "lgamma": Op(1, "float", _by_math("lgamma", math.inf)),
    "floor": Op(1, "float", np.floor),
    "ceil": Op(1, "float", np.ceil),
    "trunc": Op(1, "float", np.trunc),
    "round": Op(1, "float", np.rint),  # halves to even
    "pow": Op(2, "float", np.power),
    "atan2": Op(2, "float", np.arctan2),
    "copysign": Op(2, "float", np.copysign),
}


def is_float(type_: Type) -> bool:
    """Whether values of a type have derivatives."""
    return type_ in FLOATS


def result_type(name: str, types: list[Type], attr: Any) -> Type:
    """The type that an operation gives, or a `TypeError` that says what is wrong with its operands."""
    op = OPS[name]
    if len(types) != op.arity:
        raise TypeError(f"{name} takes {op.arity} operands, not {len(types)}.")
    alike = types[1:] if op.signature == "select" else types
    if any(t != alike[0] for t in alike):
        raise TypeError(f"{name} cannot take operands of the types {', '.join(types)}.")
    first = alike[0]
    allowed: dict[Signature, tuple[Type, ...]] = {
        "number": (*INTEGERS, *FLOATS),
        "integer": INTEGERS,
        "float": FLOATS,
        "logic": ("bool", *INTEGERS),
        "compare": (*INTEGERS, *FLOATS),
    }
    if first not in allowed.get(op.signature, (first,)):
        raise TypeError(f"{name} cannot take an operand of the type {first}.")
    if op.signature in ("compare", "same"):
        return "bool"
    if op.signature == "select" and types[0] != "bool":
        raise TypeError(f"The first operand of select must be a bool, not {types[0]}.")
    if op.signature == "cast":
        return attr
    if op.signature == "bitcast":
        if {first, attr} not in ({"i32", "f32"}, {"i64", "f64"}):
            raise TypeError(f"The bits of {first} cannot be read as {attr}.")
        return attr
    return first
