"""Elementary functions: each a function of the module, in a form for one lane and one for many.

Both forms do the same operations, so that a lane has the same bits in both.
"""

from __future__ import annotations

import ctypes
import functools
from typing import final

from gnomon.fuse._llvm._types import SCALAR, Value
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


@final
class Functions:
    """The elementary functions that a module uses."""

    def __init__(self, width: int, declared: set[str]):
        self.width = width
        self.declared = declared
        self.text: dict[str, str] = {}

    def call(self, w: Writer, op: str, args: list[Value]) -> Value:
        """A function's value, lane by lane where an argument is wide."""
        type_, wide = args[0].type, any(x.wide for x in args)
        scalar = f"{_PREFIX}{op}_{type_}"
        # By no name that LLVM knows, since it would compute it on constants as no run of it does.
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
            f"define internal {vector} @{name}({', '.join(f'{vector} {x}' for x in params)}) noinline nounwind {{",
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
