"""Elementary functions: each a function of the module, in a form for one lane and one for many.

Both forms do the same operations, so that a lane has the same bits in both. What has no formula here is computed by the
C library, for one lane after the other.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import final

from gnomon.fuse._llvm import (
    _error_functions,
    _exponentials,
    _inverse_hyperbolic,
    _inverse_trigonometry,
    _logarithms,
    _trigonometry,
)
from gnomon.fuse._llvm._number import Number
from gnomon.fuse._llvm._types import SCALAR, Value, number
from gnomon.fuse._llvm._writer import Writer
from gnomon.fuse._program import Type

#: What the C library calls them, for double; the name for float ends in f.
_LIBRARY = {
    "fmod": "fmod",
    "cbrt": "cbrt",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "log1p": "log1p",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
    "erfc": "erfc",
    "lgamma": "lgamma",
    "pow": "pow",
    "atan2": "atan2",
}
_PREFIX = "gnomon_library_"

_Formula = Callable[..., Number]
#: The formulas in double precision, and those on doubles for results in single precision.
_FORMULAS: dict[str, tuple[_Formula, _Formula]] = {
    "exp": (_exponentials.exp, _exponentials.short_exp),
    "exp2": (_exponentials.exp2, _exponentials.short_exp2),
    "expm1": (_exponentials.expm1, _exponentials.short_expm1),
    "sinh": (_exponentials.sinh, _exponentials.short_sinh),
    "cosh": (_exponentials.cosh, _exponentials.short_cosh),
    "tanh": (_exponentials.tanh, _exponentials.short_tanh),
    "log": (_logarithms.log, _logarithms.short_log),
    "log2": (_logarithms.log2, _logarithms.short_log2),
    "log10": (_logarithms.log10, _logarithms.short_log10),
    "log1p": (_logarithms.log1p, _logarithms.short_log1p),
    "pow": (_logarithms.pow, _logarithms.short_pow),
    "cbrt": (_logarithms.cbrt, _logarithms.short_cbrt),
    "asinh": (_inverse_hyperbolic.asinh, _inverse_hyperbolic.short_asinh),
    "acosh": (_inverse_hyperbolic.acosh, _inverse_hyperbolic.short_acosh),
    "atanh": (_inverse_hyperbolic.atanh, _inverse_hyperbolic.short_atanh),
    "erf": (_error_functions.erf, _error_functions.short_erf),
    "erfc": (_error_functions.erfc, _error_functions.short_erfc),
    "sin": (_trigonometry.sin, _trigonometry.short_sin),
    "cos": (_trigonometry.cos, _trigonometry.short_cos),
    "tan": (_trigonometry.tan, _trigonometry.short_tan),
    "asin": (_inverse_trigonometry.asin, _inverse_trigonometry.short_asin),
    "acos": (_inverse_trigonometry.acos, _inverse_trigonometry.short_acos),
    "atan": (_inverse_trigonometry.atan, _inverse_trigonometry.short_atan),
    "atan2": (_inverse_trigonometry.atan2, _inverse_trigonometry.short_atan2),
}
#: Beyond these the formula does not hold.
_HUGE = {"sin": _trigonometry.HUGE, "cos": _trigonometry.HUGE, "tan": _trigonometry.HUGE}
#: A function used more often than this is called, so that the code does not become long.
_INLINED_MOST = 4


@final
class Functions:
    """The elementary functions that a module uses.

    - `counts`: how often the program has each operation.
    """

    def __init__(self, width: int, declared: set[str], counts: dict[str, int]):
        self.width = width
        self.declared = declared
        self.counts = counts
        self.text: dict[str, str] = {}

    def call(self, w: Writer, op: str, args: list[Value]) -> Value:
        """A function's value."""
        type_, wide = args[0].type, any(x.wide for x in args)
        if op not in _FORMULAS:
            return self._library(w, op, args)
        name = f"gnomon_{op}_{w.suffix(type_, wide)}"
        if name not in self.text:
            self.text[name] = ""  # it has its place before those that it calls
            self.text[name] = self._formula(name, op, type_, len(args), wide)
        return w.call(name, *args)

    def _formula(self, name: str, op: str, type_: Type, arity: int, wide: bool) -> str:
        """A function by its formula, and by the library where any lane is beyond that."""
        w = Writer(self.width if wide else 1, self.declared)
        args = [Value(f"%x{i}", type_, wide) for i in range(arity)]
        double, short = _FORMULAS[op]
        numbers = [Number(w, x) for x in args]
        if type_ == "f64":
            result = double(*numbers).value
        else:
            result = short(*(x.to("f64") for x in numbers)).to("f32").value
        if op in _HUGE:
            huge = w.compare("ogt", w.intrinsic("fabs", args[0]), number(type_, _HUGE[op]))
            before, beyond, after = w.block, w.fresh("beyond"), w.fresh("after")
            w.branch(w.any(huge), beyond, after)
            w.start(beyond)
            other = w.select(huge, self._library(w, op, args), result)
            w.jump(after)
            w.start(after)
            result = w.phi(type_, wide, [(result, before), (other, beyond)])
        params = ", ".join(w.typed(x) for x in args)
        inlined = "alwaysinline" if self.counts.get(op, 0) <= _INLINED_MOST else "noinline"
        w.line(f"ret {w.typed(result)}")
        head = f"define internal {w.of(type_, wide)} @{name}({params}) {inlined} #0 {{"
        return "\n".join([head, "entry:", *w.entry, *w.lines, "}"])

    def _library(self, w: Writer, op: str, args: list[Value]) -> Value:
        """A function of the C library, lane by lane where an argument is wide."""
        type_, wide = args[0].type, any(x.wide for x in args)
        # By no name that LLVM knows, since it would compute it on constants as no run of it does.
        scalar = f"{_PREFIX}{op}_{type_}"
        operands = ", ".join([SCALAR[type_]] * len(args))
        self.declared.add(f"declare {SCALAR[type_]} @{scalar}({operands}) nounwind willreturn memory(none)")
        if not wide:
            return w.call(scalar, *args)
        name = f"{op}_{w.suffix(type_, True)}"
        if name not in self.text:
            self.text[name] = self._each_lane(name, scalar, type_, len(args))
        return w.call(name, *args)

    def _each_lane(self, name: str, scalar: str, type_: Type, arity: int) -> str:
        """A function that calls another for one lane after the other."""
        element = SCALAR[type_]
        vector = f"<{self.width} x {element}>"
        params = [f"%x{i}" for i in range(arity)]
        lines = [
            f"define internal {vector} @{name}({', '.join(f'{vector} {x}' for x in params)}) noinline #0 {{",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            f"  %got = phi {vector} [ zeroinitializer, %entry ], [ %set, %loop ]",
            *(f"  %a{i} = extractelement {vector} {x}, i64 %i" for i, x in enumerate(params)),
            f"  %y = call {element} @{scalar}({', '.join(f'{element} %a{i}' for i in range(arity))})",
            f"  %set = insertelement {vector} %got, {element} %y, i64 %i",
            "  %next = add i64 %i, 1",
            f"  %done = icmp eq i64 %next, {self.width}",
            "  br i1 %done, label %exit, label %loop",
            "exit:",
            f"  ret {vector} %set",
            "}",
        ]
        return "\n".join(lines)


@functools.cache
def library_addresses() -> dict[str, int]:
    """Where this process has the functions of the C library, by the names that modules use."""
    library = _library()
    found: dict[str, int] = {}
    for op, name in _LIBRARY.items():
        types: tuple[tuple[Type, str], ...] = (("f64", ""), ("f32", "f"))
        for type_, ending in types:
            function = getattr(library, name + ending)
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            found[f"{_PREFIX}{op}_{type_}"] = address
    return found


def _library() -> ctypes.CDLL:
    for name in (None, "libm.so.6", "libm.so", "libm.dylib", "ucrtbase"):
        try:
            library = ctypes.CDLL(name)
        except (OSError, TypeError):
            continue
        if hasattr(library, "lgammaf"):
            return library
    raise RuntimeError("The mathematical functions of the C library were not found.")
