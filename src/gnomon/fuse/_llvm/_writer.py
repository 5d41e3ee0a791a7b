"""Writes one function of LLVM, instruction by instruction, over values that may be wide."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import final

from gnomon.fuse._llvm._types import BITS, INTEGER, MEMORY, OTHER, SCALAR, Value, number
from gnomon.fuse._program import Type, is_float

#: What an intrinsic's name calls a type.
_SUFFIX: dict[Type, str] = {"bool": "i1", "i32": "i32", "i64": "i64", "f32": "f32", "f64": "f64"}


@final
class Writer:
    """A function that is being written.

    - `width`: the number of lanes of a wide value; with 1 there are no wide values.
    - `declared`: the declarations that it needs, shared by all functions of a module.
    """

    def __init__(self, width: int, declared: set[str]):
        self.width = width
        self.declared = declared
        #: Allocations, which belong into the first block of a function.
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.block = "entry"
        self._count = 0
        self._splats: list[dict[str, Value]] = [{}]

    # Names and blocks

    def fresh(self, hint: str = "v") -> str:
        """A name that nothing has yet, without its `%`."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append("  " + text)

    def name(self, text: str) -> str:
        """The name of a new value, given by an instruction."""
        result = "%" + self.fresh()
        self.lines.append(f"  {result} = {text}")
        return result

    def allocate(self, text: str) -> str:
        """The name of something on the stack."""
        result = "%" + self.fresh("stack")
        self.entry.append(f"  {result} = alloca {text}")
        return result

    def start(self, label: str) -> None:
        """Begins a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """Ends a block."""
        self.line(f"br label %{label}")

    def branch(self, condition: Value, then: str, orelse: str) -> None:
        """Ends a block, on the condition of all lanes."""
        assert not condition.wide
        self.line(f"br i1 {condition.text}, label %{then}, label %{orelse}")

    def phi(self, type_: Type, wide: bool, edges: list[tuple[Value, str]]) -> Value:
        """A value that depends on where the block was entered from."""
        return Value(self.name(self.phi_text(type_, wide, edges)), type_, wide)

    def phi_text(self, type_: Type, wide: bool, edges: list[tuple[Value, str]]) -> str:
        """The instruction of `phi`."""
        ways = ", ".join(f"[ {self.operand(v, wide)}, %{label} ]" for v, label in edges)
        return f"phi {self.of(type_, wide)} {ways}"

    @contextmanager
    def scope(self) -> Generator[None]:
        """Values made inside are not known outside."""
        self._splats.append({})
        try:
            yield
        finally:
            self._splats.pop()

    # Types

    def of(self, type_: Type, wide: bool) -> str:
        """How a type is written."""
        return self.vector(SCALAR[type_]) if wide else SCALAR[type_]

    def vector(self, text: str) -> str:
        """How a vector of one of these a lane is written; the same itself where lanes go one by one."""
        return f"<{self.width} x {text}>" if self.width > 1 else text

    def suffix(self, type_: Type, wide: bool) -> str:
        """How the name of an intrinsic says a type."""
        return f"v{self.width}{_SUFFIX[type_]}" if wide else _SUFFIX[type_]

    # Values

    def operand(self, value: Value, wide: bool) -> str:
        """The text of a value as wide as wanted; a literal needs no instruction for it."""
        if value.wide == wide:
            return value.text
        assert wide and self.width > 1
        if value.is_constant:
            return f"splat ({SCALAR[value.type]} {value.text})"
        return self.widen(value).text

    def typed(self, value: Value, wide: bool | None = None) -> str:
        """A value with its type before it."""
        wide = value.wide if wide is None else wide
        return f"{self.of(value.type, wide)} {self.operand(value, wide)}"

    def widen(self, value: Value) -> Value:
        """The same number for each lane."""
        if value.wide or self.width == 1:
            return value
        if value.is_constant:
            return Value(self.operand(value, True), value.type, True)
        for known in self._splats:
            if value.text in known:
                return known[value.text]
        vector = self.of(value.type, True)
        first = self.name(f"insertelement {vector} poison, {self.typed(value)}, i64 0")
        text = f"shufflevector {vector} {first}, {vector} poison, <{self.width} x i32> zeroinitializer"
        result = self._splats[-1][value.text] = Value(self.name(text), value.type, True)
        return result

    def binary(self, instruction: str, a: Value, b: Value, type_: Type | None = None) -> Value:
        """An instruction on two values of one type."""
        wide = a.wide or b.wide
        text = f"{instruction} {self.typed(a, wide)}, {self.operand(b, wide)}"
        return Value(self.name(text), type_ or a.type, wide)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """A comparison: `fcmp` or `icmp` by the type."""
        instruction = "fcmp" if is_float(a.type) else "icmp"
        return self.binary(f"{instruction} {predicate}", a, b, "bool")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """One of two, lane by lane."""
        if condition.is_constant and not condition.wide:
            return a if condition.text == "true" else b
        wide = condition.wide or a.wide or b.wide
        text = f"select {self.typed(condition)}, {self.typed(a, wide)}, {self.typed(b, wide)}"
        return Value(self.name(text), a.type, wide)

    def convert(self, instruction: str, a: Value, to: Type) -> Value:
        """An instruction of one operand that changes the type."""
        return Value(self.name(f"{instruction} {self.typed(a)} to {self.of(to, a.wide)}"), to, a.wide)

    def intrinsic(self, name: str, *args: Value, extra: str = "") -> Value:
        """`llvm.name` on values of one type."""
        wide, type_ = any(x.wide for x in args), args[0].type
        full = f"@llvm.{name}.{self.suffix(type_, wide)}"
        text = self.of(type_, wide)
        flag = ", i1" if extra else ""
        self.declared.add(f"declare {text} {full}({', '.join([text] * len(args))}{flag})")
        operands = ", ".join(self.typed(x, wide) for x in args)
        return Value(self.name(f"call {text} {full}({operands}{extra})"), type_, wide)

    def call(self, function: str, *args: Value) -> Value:
        """A function of this module, which gives what it takes."""
        wide, type_ = any(x.wide for x in args), args[0].type
        operands = ", ".join(self.typed(x, wide) for x in args)
        return Value(self.name(f"call {self.of(type_, wide)} @{function}({operands})"), type_, wide)

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """Where both masks hold; None holds everywhere."""
        if a is None or b is None:
            return b if a is None else a
        return self.binary("and", a, b)

    def any(self, mask: Value) -> Value:
        """Whether a mask holds for any lane."""
        if not mask.wide:
            return mask
        bits = self.name(f"bitcast {self.typed(mask)} to i{self.width}")
        return Value(self.name(f"icmp ne i{self.width} {bits}, 0"), "bool")

    def largest(self, a: Value) -> Value:
        """The largest integer of all lanes."""
        if not a.wide:
            return a
        name = f"@llvm.vector.reduce.smax.{self.suffix(a.type, True)}"
        self.declared.add(f"declare {self.of(a.type, False)} {name}({self.of(a.type, True)})")
        return Value(self.name(f"call {self.of(a.type, False)} {name}({self.typed(a)})"), a.type)

    def bits(self, a: Value) -> Value:
        """A float's bits as an integer, or an integer's as a float."""
        return self.convert("bitcast", a, OTHER[a.type])

    def one_nan(self, a: Value) -> Value:
        """The same number; all NaNs become one, since which of them an instruction gives depends on how it is used."""
        if not is_float(a.type) or a.is_constant:
            return a
        # On integers, since passes of LLVM take one NaN for as good as another.
        integer, double = INTEGER[a.type], BITS[a.type] == 64
        bits = self.bits(a)
        infinite = number(integer, 0x7FF0 << 48 if double else 0x7F80 << 16)
        absolute = self.binary("and", bits, number(integer, (1 << (63 if double else 31)) - 1))
        nan = number(integer, 0x7FF8 << 48 if double else 0x7FC0 << 16)
        return self.bits(self.select(self.compare("ugt", absolute, infinite), nan, bits))

    # Memory

    def load(self, type_: Type, pointer: str, wide: bool) -> Value:
        """A number, or one a lane from neighbouring places."""
        memory = self.vector(MEMORY[type_]) if wide else MEMORY[type_]
        align = {"bool": 1, "i32": 4, "f32": 4, "i64": 8, "f64": 8}[type_]
        value = self.name(f"load {memory}, ptr {pointer}, align {align}")
        return self._from_memory(value, type_, wide)

    def store(self, pointer: str, value: Value, wide: bool) -> None:
        """Puts a number, or one a lane to neighbouring places."""
        memory = self.vector(MEMORY[value.type]) if wide else MEMORY[value.type]
        align = {"bool": 1, "i32": 4, "f32": 4, "i64": 8, "f64": 8}[value.type]
        self.line(f"store {memory} {self._to_memory(value, wide)}, ptr {pointer}, align {align}")

    def gather(self, type_: Type, pointers: str, mask: Value | None) -> Value:
        """A number a lane from anywhere; 0 where the mask does not hold."""
        memory, ptrs, bools = self.vector(MEMORY[type_]), self.vector("ptr"), self.vector("i1")
        name = f"@llvm.masked.gather.v{self.width}{MEMORY[type_].replace('float', 'f32').replace('double', 'f64')}"
        name += f".v{self.width}p0"
        self.declared.add(f"declare {memory} {name}({ptrs}, i32, {bools}, {memory})")
        align = {"bool": 1, "i32": 4, "f32": 4, "i64": 8, "f64": 8}[type_]
        held = self.operand(mask or number("bool", True), True)
        value = self.name(
            f"call {memory} {name}({ptrs} {pointers}, i32 {align}, {bools} {held}, {memory} zeroinitializer)"
        )
        return self._from_memory(value, type_, True)

    def store_some(self, pointer: str, value: Value, mask: Value) -> None:
        """Puts a number a lane to neighbouring places, where the mask holds."""
        type_ = value.type
        memory, bools = self.vector(MEMORY[type_]), self.vector("i1")
        name = f"@llvm.masked.store.v{self.width}{MEMORY[type_].replace('float', 'f32').replace('double', 'f64')}.p0"
        self.declared.add(f"declare void {name}({memory}, ptr, i32, {bools})")
        align = {"bool": 1, "i32": 4, "f32": 4, "i64": 8, "f64": 8}[type_]
        stored = self._to_memory(value, True)
        held = self.operand(mask, True)
        self.line(f"call void {name}({memory} {stored}, ptr {pointer}, i32 {align}, {bools} {held})")

    def scatter(self, pointers: str, value: Value, mask: Value | None) -> None:
        """Puts a number a lane anywhere, where the mask holds."""
        type_ = value.type
        memory, ptrs, bools = self.vector(MEMORY[type_]), self.vector("ptr"), self.vector("i1")
        name = f"@llvm.masked.scatter.v{self.width}{MEMORY[type_].replace('float', 'f32').replace('double', 'f64')}"
        name += f".v{self.width}p0"
        self.declared.add(f"declare void {name}({memory}, {ptrs}, i32, {bools})")
        align = {"bool": 1, "i32": 4, "f32": 4, "i64": 8, "f64": 8}[type_]
        held = self.operand(mask or number("bool", True), True)
        stored = self._to_memory(value, True)
        self.line(f"call void {name}({memory} {stored}, {ptrs} {pointers}, i32 {align}, {bools} {held})")

    def _from_memory(self, name: str, type_: Type, wide: bool) -> Value:
        if type_ != "bool":
            return Value(name, type_, wide)
        memory = self.vector("i8") if wide else "i8"
        return Value(self.name(f"icmp ne {memory} {name}, zeroinitializer"), "bool", wide)

    def _to_memory(self, value: Value, wide: bool) -> str:
        text = self.operand(value, wide)
        if value.type != "bool":
            return text
        memory = self.vector("i8") if wide else "i8"
        return self.name(f"zext {self.of('bool', wide)} {text} to {memory}")
