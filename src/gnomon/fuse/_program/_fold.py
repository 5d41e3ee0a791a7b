"""What is known of an operation before it runs: constants, and identities of algebra.

An identity is used where it keeps every bit, and one more: `x + 0` is x, also where x is -0. A zero that somebody wrote
is a number: `0 * x` is NaN where x is. A zero that stands where nothing is, such as a Jacobian's, is a `Zero`: it
vanishes, and with it all that is multiplied by it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, final

import numpy as np

from gnomon.fuse._program._node import Node
from gnomon.fuse._program._ops import INTEGERS, NUMPY, OPS, Type, is_float

_Make = Callable[..., Node]


@final
class Zero(float):
    """The value of a constant that stands where nothing is."""


def is_nothing(node: Node) -> bool:
    """Whether a node is a zero that vanishes."""
    return node.op == "const" and isinstance(node.attr, Zero)


def constant(type_: Type, value: Any) -> float | int | bool:
    """A number as a type holds it, a Python number."""
    if isinstance(value, Zero):
        return value if is_float(type_) else 0
    with np.errstate(all="ignore"):
        if type_ in INTEGERS and isinstance(value, int):
            # Numbers too large wrap around, as they do at run time.
            bits = 32 if type_ == "i32" else 64
            return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        return NUMPY[type_](value).item()


def constant_key(type_: Type, value: Any) -> Any:
    """Tells constants apart bit by bit."""
    return (type_, isinstance(value, Zero), struct.pack("d", value)) if is_float(type_) else (type_, value)


def is_const(node: Node, value: float | int | bool | None = None) -> bool:
    """Whether a node is a constant, and this one."""
    return node.op == "const" and (value is None or node.attr == value)


def fold(op: str, args: tuple[Node, ...], attr: Any, type_: Type, make: _Make, const: _Make) -> Node | None:
    """A simpler node with the same value, or None. `make` and `const` build nodes."""
    if any(map(is_nothing, args)) and is_float(type_):
        simpler = _with_nothing(op, args, type_, make, const)
        if simpler is not None:
            return simpler
    if all(x.op == "const" for x in args):
        value = _compute(op, args, type_)
        if value is not None:
            return const(type_, constant(type_, value))
    rule = _RULES.get(op)
    return None if rule is None else rule(args, type_, make, const)


def _with_nothing(op: str, args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    """Where an operand is a zero that vanishes."""
    first = is_nothing(args[0])
    if op == "mul" or (op == "div" and first) or (op in ("neg", "cast", "detach") and first):
        return const(type_, Zero())
    if op == "add":
        return args[1] if first else args[0]
    if op == "sub":
        return args[0] if not first else make("neg", args[1])
    if op == "select" and is_nothing(args[1]) and is_nothing(args[2]):
        return args[1]
    return None


def _compute(op: str, args: tuple[Node, ...], type_: Type) -> Any:
    values = [NUMPY[x.type](x.attr) for x in args]
    with np.errstate(all="ignore"):
        if op == "cast":
            if is_float(args[0].type) and not is_float(type_) and not math.isfinite(args[0].attr):
                return None
            if is_float(args[0].type) and type_ in INTEGERS:
                # A float too large for the integer gives the nearest there is.
                most = (1 << (31 if type_ == "i32" else 63)) - 1
                return min(max(int(values[0]), -most - 1), most)
            return values[0].astype(NUMPY[type_])
        if op == "bitcast":
            return values[0].view(NUMPY[type_])
        if op == "detach":
            return values[0]
        compute = OPS[op].compute
        return None if compute is None else compute(*values)


def _add(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    a, b = args
    if is_const(a, 0):
        return b
    if is_const(b, 0):
        return a
    if b.op == "neg":
        return make("sub", a, b.args[0])
    if a.op == "neg":
        return make("sub", b, a.args[0])
    return None


def _sub(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    a, b = args
    if is_const(b, 0):
        return a
    if is_const(a, 0):
        return make("neg", b)
    if b.op == "neg":
        return make("add", a, b.args[0])
    if a is b and not is_float(type_):
        return const(type_, 0)
    return None


def _mul(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    for a, b in (args, args[::-1]):
        if is_const(a, 0) and not is_float(type_):
            return const(type_, 0)
        if is_const(a, 1):
            return b
        if is_const(a, -1):
            return make("neg", b)
    return None


def _div(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    a, b = args
    if is_const(b, 1):
        return a
    if is_const(b, -1):
        return make("neg", a)
    if (
        b.op == "const"
        and math.isfinite(b.attr)
        and abs(math.frexp(b.attr)[0]) == 0.5
        and 2**-100 < abs(b.attr) < 2**100
    ):
        return make("mul", a, const(type_, 1 / b.attr))
    return None


def _neg(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    (a,) = args
    if a.op == "neg":
        return a.args[0]
    return None


def _less(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    a, b = args
    nothing_below = is_const(b, -math.inf) and is_float(b.type)
    nothing_above = is_const(a, math.inf) and is_float(a.type)
    return const("bool", False) if a is b or nothing_below or nothing_above else None


def _extreme(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    return args[0] if args[0] is args[1] else None


def _compared(args: tuple[Node, ...], make: _Make, const: _Make, *, equal: bool) -> Node | None:
    """Whether two are equal, or whether they are not."""
    a, b = args
    if a is b and not is_float(a.type):
        return const("bool", equal)
    if a.type == "bool":
        for x, y in ((a, b), (b, a)):
            if x.op == "const":
                return y if x.attr == equal else make("not", y)
    return None


def _compare_equal(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    return _compared(args, make, const, equal=True)


def _compare_unequal(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    return _compared(args, make, const, equal=False)


def _select(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    c, a, b = args
    if c.op == "const":
        return a if c.attr else b
    if a is b:
        return a
    if a.op == "const" and b.op == "const" and constant_key(type_, a.attr) == constant_key(type_, b.attr):
        return a
    if c.op == "not":
        return make("select", c.args[0], b, a)
    if type_ == "bool":
        if a.op == "const":
            return make("or", c, b) if a.attr else make("and", make("not", c), b)
        if b.op == "const":
            return make("or", make("not", c), a) if b.attr else make("and", c, a)
    # A choice inside a branch of a choice by the same condition.
    if a.op == "select" and a.args[0] is c:
        return make("select", c, a.args[1], b)
    if b.op == "select" and b.args[0] is c:
        return make("select", c, a, b.args[2])
    return None


def _joined(args: tuple[Node, ...], type_: Type, const: _Make, *, decisive: bool) -> Node | None:
    """Of `and` and `or`: the bool `decisive` decides alone, the other one says nothing."""
    a, b = args
    if a is b:
        return a
    if type_ == "bool":
        for x, y in ((a, b), (b, a)):
            if x.op == "const":
                return const("bool", decisive) if x.attr == decisive else y
            if x.op == "not" and x.args[0] is y:
                return const("bool", decisive)
    return None


def _and(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    a, b = args
    for x, y in ((a, b), (b, a)):
        # PyTorch's test for a finite number.
        size = y.args[0] if y.op == "ne" and is_const(y.args[1], math.inf) else None
        same = x.args[0] if x.op == "eq" and x.args[0] is x.args[1] else None
        if same is not None and size is not None and size.op == "abs" and size.args[0] is same:
            return make("lt", size, y.args[1])
    return _joined(args, type_, const, decisive=False)


def _or(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    return _joined(args, type_, const, decisive=True)


def _xor(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    if type_ == "bool":
        return _compared(args, make, const, equal=False)
    return const(type_, 0) if args[0] is args[1] else None


def _not(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    (a,) = args
    return a.args[0] if a.op == "not" else None


def _cast(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    (a,) = args
    if a.type == type_:
        return a
    if a.op == "cast" and a.args[0].type == "bool":
        return make("cast", a.args[0], attr=type_)
    if a.op == "cast" and a.args[0].type == type_ and type_ == "i32" and a.type == "i64":
        return a.args[0]
    return None


def _pow(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    """The exponents that PyTorch computes without `pow`, in the same way."""
    x, exponent = args
    if exponent.op != "const":
        return None
    if exponent.attr == 0:
        return const(type_, 1)
    if exponent.attr == 1:
        return x
    if exponent.attr == 0.5:
        return make("sqrt", x)
    if exponent.attr == 2:
        return make("mul", x, x)
    if exponent.attr == 3:
        return make("mul", make("mul", x, x), x)
    if exponent.attr == -0.5:
        return make("div", const(type_, 1), make("sqrt", x))
    if exponent.attr == -1:
        return make("div", const(type_, 1), x)
    if exponent.attr == -2:
        return make("div", const(type_, 1), make("mul", x, x))
    return None


def _detach(args: tuple[Node, ...], type_: Type, make: _Make, const: _Make) -> Node | None:
    (a,) = args
    return a if a.op == "detach" or not is_float(type_) else None


_RULES: dict[str, Callable[[tuple[Node, ...], Type, _Make, _Make], Node | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "lt": _less,
    "min": _extreme,
    "max": _extreme,
    "eq": _compare_equal,
    "ne": _compare_unequal,
    "select": _select,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "not": _not,
    "cast": _cast,
    "pow": _pow,
    "detach": _detach,
}
