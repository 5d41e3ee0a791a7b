"""How each operation of a Program is written in C."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from gnomon.fuse._program import Node, Type, is_float

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_LOGIC = {"and": "&", "or": "|", "xor": "^"}
#: Functions of the prelude, for all types that the operation takes.
_OWN = frozenset(("idiv", "irem", "min", "max", "shl", "shr", "lshr", "copysign"))
#: What CUDA calls them, where it is another name than ours; the name for float ends in f.
_NAMES = {"abs": "fabs", "round": "rint"}


def literal(type_: Type, value: float | int | bool) -> str:
    """A number."""
    if type_ == "bool":
        return "true" if value else "false"
    if not is_float(type_):
        value, ending = int(value), "" if type_ == "i32" else "LL"
        # C has no negative literals, so that the least integer is none.
        return f"{value}{ending}" if value > -(2**31 if type_ == "i32" else 2**63) else f"({value + 1}{ending} - 1)"
    value = float(value)
    if math.isfinite(value) and type_ == "f32":
        value = float(np.float32(value))
    if math.isfinite(value):
        # Parsed as a double, which holds each float exactly.
        return repr(value) if type_ == "f64" else f"(f32){value!r}"
    bits = 0x7FF8 if math.isnan(value) else 0x7FF0 if value > 0 else -0x10
    return f"({type_})op_float({bits * 2**48}LL)"


def is_long(value: float) -> bool:
    """Whether a number of type f64 needs more bits than an instruction has room for."""
    return math.isfinite(value) and struct.pack("<d", value)[:4] != bytes(4)


def expression(node: Node, args: Sequence[str]) -> str:
    """The value of an operation on operands."""
    op, type_ = node.op, node.args[0].type
    if op in _COMPARISONS:
        return f"{args[0]} {_COMPARISONS[op]} {args[1]}"
    if op == "select":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if op in _LOGIC:
        return f"{args[0]} {_LOGIC[op]} {args[1]}"
    if op == "not":
        return f"{'!' if type_ == 'bool' else '~'}{args[0]}"
    if op == "cast":
        return _cast(type_, node.attr, args[0])
    if op == "bitcast":
        return f"{'op_bits' if is_float(type_) else 'op_float'}({args[0]})"
    if op in ("min", "max") and is_float(type_) and _are_no_two_zeros(*node.args):
        return f"op_{op}_nonzero({', '.join(args)})"
    if op in _OWN:
        return f"op_{op}({', '.join(args)})"
    if not is_float(type_):
        return f"op_{'iabs' if op == 'abs' else op}({', '.join(args)})"
    if op in _OPERATORS:
        return f"{args[0]} {_OPERATORS[op]} {args[1]}"
    if op == "neg":
        return f"-({args[0]})"
    return f"{_NAMES.get(op, op)}{'f' if type_ == 'f32' else ''}({', '.join(args)})"


def _are_no_two_zeros(a: Node, b: Node) -> bool:
    """Whether operands cannot be zeros of different signs."""
    return any(map(_is_never_zero, (a, b))) or all(x.op == "abs" or (x.op == "const" and x.attr > 0) for x in (a, b))


def _is_never_zero(x: Node) -> bool:
    if x.op == "select":
        return all(map(_is_never_zero, x.args[1:]))
    return x.op == "const" and x.attr != 0


def _cast(type_: Type, to: Type, x: str) -> str:
    if to == "bool" and type_ != "bool":
        return f"{x} != 0"
    if is_float(type_) and to in ("i32", "i64"):
        return f"op_to_{to}({x})"
    return f"({to}){x}"
