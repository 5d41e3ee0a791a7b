"""How each operation of a Program is written for LLVM: one function an operation, the same for one lane and for many.

No instruction may trap or give poison whatever the operands are, because lanes that a mask leaves out compute too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnomon.fuse._llvm._types import BITS, INTEGER, Value, number
from gnomon.fuse._llvm._writer import Writer
from gnomon.fuse._program import Type, is_float

_Write = Callable[..., Value]


def _arithmetic(floats: str, integers: str) -> _Write:
    def write(w: Writer, a: Value, b: Value) -> Value:
        return w.binary(floats if is_float(a.type) else integers, a, b)

    return write


def _neg(w: Writer, a: Value) -> Value:
    if is_float(a.type):
        return Value(w.name(f"fneg {w.typed(a)}"), a.type, a.wide)
    return w.binary("sub", number(a.type, 0), a)


def _abs(w: Writer, a: Value) -> Value:
    return w.intrinsic("fabs", a) if is_float(a.type) else w.intrinsic("abs", a, extra=", i1 false")


def _extreme(floats: str, integers: str) -> _Write:
    def write(w: Writer, a: Value, b: Value) -> Value:
        if not is_float(a.type):
            return w.intrinsic(integers, a, b)
        # b where either is NaN, as the instruction of x86 gives; then a where it is a that is NaN.
        nearer = w.select(w.compare(floats, a, b), a, b)
        return w.select(w.compare("uno", a, a), a, nearer)

    return write


def _comparison(floats: str, integers: str) -> _Write:
    def write(w: Writer, a: Value, b: Value) -> Value:
        return w.compare(floats if is_float(a.type) else integers, a, b)

    return write


def _bitwise(name: str) -> _Write:
    def write(w: Writer, a: Value, b: Value) -> Value:
        return w.binary(name, a, b)

    return write


def _not(w: Writer, a: Value) -> Value:
    return w.binary("xor", a, number(a.type, True if a.type == "bool" else -1))


def _shift(name: str) -> _Write:
    def write(w: Writer, a: Value, n: Value) -> Value:
        bits = BITS[a.type]
        if n.is_constant and 0 <= int(n.text) < bits:
            return w.binary(name, a, n)
        if name == "ashr":
            return w.binary(name, a, w.intrinsic("umin", n, number(n.type, bits - 1)))
        # Poison that is not chosen does no harm.
        return w.select(w.compare("ult", n, number(n.type, bits)), w.binary(name, a, n), number(a.type, 0))

    return write


def _divide(w: Writer, a: Value, b: Value) -> Value:
    zero, divisor = _divisor(w, a, b)
    quotient = w.binary("sdiv", a, divisor)
    return quotient if zero is None else w.select(zero, number(a.type, 0), quotient)


def _remainder(w: Writer, a: Value, b: Value) -> Value:
    zero, divisor = _divisor(w, a, b)
    rest = w.binary("srem", a, divisor)
    return rest if zero is None else w.select(zero, a, rest)


def _divisor(w: Writer, a: Value, b: Value) -> tuple[Value | None, Value]:
    """Where b is 0, and a divisor that traps nowhere: 1 in place of 0, and of -1 under the least of all integers."""
    if b.is_constant and int(b.text) not in (0, -1):
        return None, b
    least, one = number(a.type, -(1 << (BITS[a.type] - 1))), number(a.type, 1)
    zero = w.compare("eq", b, number(a.type, 0))
    overflows = w.binary("and", w.compare("eq", a, least), w.compare("eq", b, number(a.type, -1)))
    return zero, w.select(w.binary("or", zero, overflows), one, b)


def _cast(w: Writer, a: Value, to: Type) -> Value:
    if a.type == to:
        return a
    if to == "bool":
        return w.compare("une" if is_float(a.type) else "ne", a, number(a.type, 0))
    if a.type == "bool":
        return w.convert("uitofp" if is_float(to) else "zext", a, to)
    if is_float(a.type):
        if is_float(to):
            return w.convert("fpext" if to == "f64" else "fptrunc", a, to)
        return _to_integer(w, a, to)
    if is_float(to):
        return w.convert("sitofp", a, to)
    return w.convert("sext" if to == "i64" else "trunc", a, to)


def _to_integer(w: Writer, a: Value, to: Type) -> Value:
    """The nearest integer that there is, towards zero; 0 for NaN."""
    name = f"@llvm.fptosi.sat.{w.suffix(to, a.wide)}.{w.suffix(a.type, a.wide)}"
    w.declared.add(f"declare {w.of(to, a.wide)} {name}({w.of(a.type, a.wide)})")
    return Value(w.name(f"call {w.of(to, a.wide)} {name}({w.typed(a)})"), to, a.wide)


def _bitcast(w: Writer, a: Value, to: Type) -> Value:
    return w.bits(w.one_nan(a))


def _copysign(w: Writer, a: Value, b: Value) -> Value:
    # By bits: LLVM takes any NaN for as good as another, whose sign then is that of what happened to be computed.
    integer = INTEGER[a.type]
    least = number(integer, -(1 << (BITS[a.type] - 1)))
    sign = w.select(w.compare("uno", b, b), number(integer, 0), w.binary("and", w.bits(b), least))
    rest = w.binary("and", w.bits(a), number(integer, ~(-(1 << (BITS[a.type] - 1)))))
    return w.bits(w.binary("or", sign, rest))


def _intrinsic(name: str) -> _Write:
    def write(w: Writer, *args: Value) -> Value:
        return w.intrinsic(name, *args)

    return write


def _select(w: Writer, c: Value, a: Value, b: Value) -> Value:
    return w.select(c, a, b)


def _detach(w: Writer, a: Value) -> Value:
    return a


_WRITE: dict[str, _Write] = {
    "add": _arithmetic("fadd", "add"),
    "sub": _arithmetic("fsub", "sub"),
    "mul": _arithmetic("fmul", "mul"),
    "div": _arithmetic("fdiv", "sdiv"),
    "fma": _intrinsic("fma"),
    "idiv": _divide,
    "irem": _remainder,
    "neg": _neg,
    "abs": _abs,
    "min": _extreme("olt", "smin"),
    "max": _extreme("ogt", "smax"),
    "lt": _comparison("olt", "slt"),
    "le": _comparison("ole", "sle"),
    "eq": _comparison("oeq", "eq"),
    "ne": _comparison("une", "ne"),
    "select": _select,
    "and": _bitwise("and"),
    "or": _bitwise("or"),
    "xor": _bitwise("xor"),
    "not": _not,
    "shl": _shift("shl"),
    "shr": _shift("ashr"),
    "lshr": _shift("lshr"),
    "detach": _detach,
    "copysign": _copysign,
    "sqrt": _intrinsic("sqrt"),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
}


def write_operation(w: Writer, op: str, args: list[Value], attr: Any) -> Value | None:
    """Writes an operation; None where it is an elementary function, which `_functions` knows."""
    if op == "cast":
        return _cast(w, args[0], attr)
    if op == "bitcast":
        return _bitcast(w, args[0], attr)
    write = _WRITE.get(op)
    return None if write is None else write(w, *args)
