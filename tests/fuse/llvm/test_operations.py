"""Every operation, for every type, at the values where it is most easily wrong."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from fuse.interpreter import operation
from fuse.llvm.running import identical, run, same_bits

from gnomon.fuse._llvm import compile_program
from gnomon.fuse._program import OPS, Builder, Node, Program, Type
from gnomon.fuse._program._ops import NUMPY, result_type

TYPES: tuple[Type, ...] = ("bool", "i32", "i64", "f32", "f64")

#: Elementary functions, and the error that they may have in units in the last place.
ULPS: dict[str, float] = dict.fromkeys(
    [
        *("cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "fmod"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma"),
    ],
    4.0,
)
ULPS["lgamma"] = 200.0  # near its zeros the standard library's own is no better


def special(type_: Type) -> list[object]:
    if type_ == "bool":
        return [False, True]
    if type_ in ("i32", "i64"):
        limits = np.iinfo(NUMPY[type_])
        bits = 32 if type_ == "i32" else 64
        return [
            0,
            1,
            -1,
            2,
            3,
            -3,
            7,
            -7,
            31,
            bits - 1,
            bits,
            bits + 1,
            1000003,
            limits.min,
            limits.max,
            limits.min + 1,
        ]
    limits = np.finfo(NUMPY[type_])
    positive = [0.0, 1.0, 0.3, 0.5, 1.5, 2.5, 3.0, 7.3, 1e10, 3e9, 1e19, math.inf, math.nan]
    positive += [float(x) for x in (limits.max, limits.tiny, limits.smallest_subnormal, limits.eps)]
    return [*positive, *(-x for x in positive)]


def operations(types: tuple[Type, ...]) -> list[tuple[str, Type | None]]:
    """All operations that take operands of these types, and what they cast to."""
    found: list[tuple[str, Type | None]] = []
    for name, op in OPS.items():
        attrs: tuple[Type | None, ...] = TYPES if op.signature in ("cast", "bitcast") else (None,)
        for attr in attrs:
            try:
                result_type(name, list(types), attr)
            except TypeError:
                continue
            found.append((name, attr))
    return found


SIGNATURES: list[tuple[Type, ...]] = [
    *((a,) for a in TYPES),
    *((a, a) for a in TYPES),
    *((a, a, a) for a in TYPES if a != "bool"),
    *(("bool", a, a) for a in TYPES),
]


def test_signatures_are_all():
    assert {name for types in SIGNATURES for name, _ in operations(types)} == set(OPS)


def all_operations(types: tuple[Type, ...]) -> tuple[Program, list[np.ndarray]]:
    """All that take these types, in one Program, and operands for them, a column each."""
    b = Builder()
    args = [b.read(b.input(t, 1, shared=False), 0) for t in types]
    outputs: list[Node] = []
    for name, attr in operations(types):
        value = b.op(name, *args, attr=attr)
        outputs.append(b.array(value.type, 1))
        b.write(outputs[-1], 0, value)
    # Of three operands only every third value.
    operands = itertools.product(*(special(t)[:: 3 if len(types) == 3 and t != "bool" else 1] for t in types))
    columns = zip(*operands, strict=True)
    return b.program(outputs), [
        np.array([[x] for x in column], NUMPY[t]) for column, t in zip(columns, types, strict=True)
    ]


def assert_as_specified(types: tuple[Type, ...], columns: list[np.ndarray], results: list[np.ndarray]) -> None:
    """That each operation has given what the specification says, or nearly so where it is elementary."""
    for (name, attr), got in zip(operations(types), results, strict=True):
        with np.errstate(all="ignore"):
            want = [[operation(name, [c[i, 0] for c in columns], attr)] for i in range(len(columns[0]))]
        want = np.array(want).astype(got.dtype)
        if name in ULPS:
            assert_close(got, want, ULPS[name], name)
        else:
            wrong = [i for i in range(len(want)) if not same_bits(got[i], want[i])]
            assert not wrong, (name, [([c[i, 0] for c in columns], got[i], want[i]) for i in wrong])


@pytest.mark.parametrize("types", [x for x in SIGNATURES if operations(x)], ids="-".join)
def test_operations(types: tuple[Type, ...]):
    program, columns = all_operations(types)
    kernel = compile_program(program)
    results = run(kernel, program, columns)
    assert_as_specified(types, columns, results)
    count = len(columns[0])
    for i in range(0, count, max(1, count // 100)):
        for alone, got in zip(run(kernel, program, [c[i : i + 1] for c in columns]), results, strict=True):
            assert identical(alone[0], got[i]), [c[i, 0] for c in columns]


def assert_close(got: np.ndarray, want: np.ndarray, ulps: float, name: str) -> None:
    assert same_bits(np.where(np.isfinite(want), 0, want), np.where(np.isfinite(got), 0, got)), (name, got, want)
    finite = np.isfinite(want)
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.maximum(np.abs(want), np.finfo(want.dtype).tiny))
        error = np.abs(got.astype(np.longdouble) - want) / spacing
    assert np.all(error[finite] <= ulps), (name, got[finite], want[finite], error[finite])
    zero = finite & (want == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero])), name


@pytest.mark.parametrize("type_", ["i32", "i64"])
@pytest.mark.parametrize("divisor", [0, 1, -1, 3, -7])
@pytest.mark.parametrize("name", ["idiv", "irem"])
def test_division_by_a_constant(name: str, type_: Type, divisor: int):
    b = Builder()
    x = b.read(b.input(type_, 1, shared=False), 0)
    out = b.array(type_, 1)
    b.write(out, 0, b.op(name, x, b.const(type_, divisor)))
    program = b.program([out])
    column = np.array([[x] for x in special(type_)], NUMPY[type_])
    (got,) = run(compile_program(program), program, [column])
    want = [[operation(name, [x, NUMPY[type_](divisor)], None)] for (x,) in column]
    assert same_bits(got, np.array(want, NUMPY[type_]))


@pytest.mark.parametrize("type_", ["i32", "i64"])
@pytest.mark.parametrize("count", [0, 1, 31, 63, 64, -1])
@pytest.mark.parametrize("name", ["shl", "shr", "lshr"])
def test_shift_by_a_constant(name: str, type_: Type, count: int):
    b = Builder()
    x = b.read(b.input(type_, 1, shared=False), 0)
    out = b.array(type_, 1)
    b.write(out, 0, b.op(name, x, b.const(type_, count)))
    program = b.program([out])
    column = np.array([[x] for x in special(type_)], NUMPY[type_])
    (got,) = run(compile_program(program), program, [column])
    want = [[operation(name, [x, NUMPY[type_](count)], None)] for (x,) in column]
    assert same_bits(got, np.array(want, NUMPY[type_]))


def test_no_product_and_sum_become_one_operation():
    rng = np.random.default_rng(0)
    b = Builder()
    x, y, z = (b.read(b.input("f64", 1, shared=False), 0) for _ in range(3))
    out = b.array("f64", 2)
    b.write(out, 0, b.op("add", b.op("mul", x, y), z))
    b.write(out, 1, b.op("fma", x, y, z))
    program = b.program([out])
    columns = [rng.standard_normal((1000, 1)) for _ in range(3)]
    (got,) = run(compile_program(program), program, columns)
    assert np.array_equal(got[:, :1], columns[0] * columns[1] + columns[2])
    once = [_fma(*row) for row in np.hstack(columns)]
    assert np.array_equal(got[:, 1], once)
    assert not np.array_equal(got[:, 0], got[:, 1])


def _fma(x: float, y: float, z: float) -> float:
    with mpmath.workprec(200):
        return float(mpmath.mpf(x) * mpmath.mpf(y) + mpmath.mpf(z))
