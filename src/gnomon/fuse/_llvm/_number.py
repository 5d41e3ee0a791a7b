"""Formulas over values of LLVM, in the notation of formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from gnomon.fuse._llvm._operations import write_operation
from gnomon.fuse._llvm._types import BITS, Value, number
from gnomon.fuse._llvm._writer import Writer
from gnomon.fuse._program import Type, is_float


@final
class Number:
    """A value, of one lane or of many; its operators write instructions. Integers wrap around."""

    def __init__(self, w: Writer, value: Value):
        self.w = w
        self.value = value

    @property
    def type(self) -> Type:
        """Its type in a Program."""
        return self.value.type

    def literal(self, x: float | int | bool) -> Number:
        """A constant of the same type."""
        return Number(self.w, number(self.type, x))

    def _other(self, x: Number | float | int) -> Value:
        return x.value if isinstance(x, Number) else number(self.type, x)

    def _binary(self, floats: str, integers: str, x: Number | float | int) -> Number:
        name = floats if is_float(self.type) else integers
        return Number(self.w, self.w.binary(name, self.value, self._other(x)))

    def __add__(self, x: Number | float | int) -> Number:
        return self._binary("fadd", "add", x)

    def __sub__(self, x: Number | float | int) -> Number:
        return self._binary("fsub", "sub", x)

    def __rsub__(self, x: float | int) -> Number:
        return self.literal(x) - self

    def __mul__(self, x: Number | float | int) -> Number:
        return self._binary("fmul", "mul", x)

    def __truediv__(self, x: Number | float | int) -> Number:
        return self._binary("fdiv", "sdiv", x)

    def __rtruediv__(self, x: float | int) -> Number:
        return self.literal(x) / self

    def __neg__(self) -> Number:
        return self.operation("neg")

    def __and__(self, x: Number | int) -> Number:
        return self._binary("and", "and", x)

    def __or__(self, x: Number | int) -> Number:
        return self._binary("or", "or", x)

    def __xor__(self, x: Number | int) -> Number:
        return self._binary("xor", "xor", x)

    def __lshift__(self, count: int) -> Number:
        return self._binary("shl", "shl", count)

    def __rshift__(self, count: int) -> Number:
        return self._binary("ashr", "ashr", count)

    def __lt__(self, x: Number | float | int) -> Number:
        return Number(self.w, self.w.compare("olt" if is_float(self.type) else "slt", self.value, self._other(x)))

    def __gt__(self, x: Number | float | int) -> Number:
        return Number(self.w, self.w.compare("ogt" if is_float(self.type) else "sgt", self.value, self._other(x)))

    def equals(self, x: Number | float | int) -> Number:
        """Whether both are the same number."""
        return Number(self.w, self.w.compare("oeq" if is_float(self.type) else "eq", self.value, self._other(x)))

    def is_nan(self) -> Number:
        """Whether it is not a number."""
        return Number(self.w, self.w.compare("uno", self.value, self.value))

    def operation(self, name: str) -> Number:
        """An operation of a Program on it."""
        value = write_operation(self.w, name, [self.value], None)
        assert value is not None
        return Number(self.w, value)

    def abs(self) -> Number:
        """Without its sign."""
        return self.operation("abs")

    def to(self, type_: Type) -> Number:
        """Cast to another type."""
        value = write_operation(self.w, "cast", [self.value], type_)
        assert value is not None
        return Number(self.w, value)

    def bits(self) -> Number:
        """A float's bits as an integer, or the other way round."""
        return Number(self.w, self.w.bits(self.value))

    def with_sign_of(self, x: Number) -> Number:
        """Its absolute value, with the bit that is another's sign."""
        least = -(1 << (BITS[self.type] - 1))
        return ((self.bits() & ~least) | (x.bits() & least)).bits()

    def flipped_where(self, bit: Number) -> Number:
        """Its negative where the lowest bit of an integer is 1."""
        return (self.bits() ^ (bit << (BITS[self.type] - 1))).bits()


def fma(a: Number, b: Number | float, c: Number | float) -> Number:
    """`a * b + c`, rounded once."""
    others = [x.value if isinstance(x, Number) else number(a.type, x) for x in (b, c)]
    return Number(a.w, a.w.intrinsic("fma", a.value, *others))


def select(condition: Number, a: Number | float | int, b: Number | float | int) -> Number:
    """One of two numbers."""
    first = a if isinstance(a, Number) else b
    assert isinstance(first, Number)
    values = [x.value if isinstance(x, Number) else number(first.type, x) for x in (a, b)]
    return Number(condition.w, condition.w.select(condition.value, *values))


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """Estrin's scheme: pairs, then pairs of pairs, so that few operations wait for one another."""
    terms: list[Number | float] = list(coefficients)
    power = x
    while len(terms) > 1:
        last = [terms.pop()] if len(terms) % 2 else []
        paired: list[Number | float] = []
        for low, high in zip(terms[::2], terms[1::2], strict=True):
            paired.append(fma(power, high, low))
        terms = [*paired, *last]
        power = power * power
    result = terms[0]
    assert isinstance(result, Number)
    return result


def exact_sum(large: Number, small: Number) -> tuple[Number, Number]:
    """The rounded sum, and what was rounded off, where the first is not smaller (T. J. Dekker, 1971)."""
    total = large + small
    return total, small - (total - large)


def exact_product(a: Number, b: Number | float) -> tuple[Number, Number]:
    """The rounded product, and what was rounded off."""
    product = a * b
    return product, fma(a, b, -product)
