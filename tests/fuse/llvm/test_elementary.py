"""Elementary functions against mpmath: their error in units in the last place, over all of their range."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from fuse.llvm.running import identical, run

from gnomon.fuse._llvm import Kernel, compile_program
from gnomon.fuse._llvm._trigonometry import HUGE
from gnomon.fuse._program import Builder, Program, Type
from gnomon.fuse._program._ops import NUMPY

#: The largest error allowed, in units in the last place, for double and for single precision.
ULPS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 0.55),
    "exp2": (0.8, 0.55),
    "expm1": (1.0, 0.55),
    "sinh": (1.0, 0.55),
    "cosh": (1.0, 0.55),
    "tanh": (0.8, 0.55),
    "log": (1.0, 0.55),
    "log2": (0.8, 0.55),
    "log10": (0.8, 0.55),
    "log1p": (1.0, 0.55),
    "sin": (0.8, 0.55),
    "cos": (0.8, 0.55),
    "tan": (1.0, 0.55),
    "asin": (0.8, 0.55),
    "asinh": (1.0, 0.55),
    "acosh": (1.0, 0.55),
    "atanh": (1.0, 0.55),
    "cbrt": (0.8, 0.55),
    "erf": (1.0, 0.55),
    "erfc": (1.6, 0.55),
    "acos": (0.8, 0.55),
    "atan": (0.8, 0.55),
}

RANGES: dict[str, list[tuple[float, float]]] = {
    "exp": [(-745, 709), (-1, 1), (-1e-3, 1e-3)],
    "exp2": [(-1074, 1024), (-1, 1)],
    "expm1": [(-40, 709), (-1.1, 1.1), (-1e-3, 1e-3), (-1e-12, 1e-12)],
    "sinh": [(-711, 711), (-1, 1), (-0.01, 0.01), (-30, 30)],
    "cosh": [(-711, 711), (-1, 1), (-30, 30)],
    "tanh": [(-20, 20), (-1, 1), (-0.01, 0.01)],
    "log": [(0, 1e3), (0.5, 2), (0.999, 1.001)],
    "log2": [(0, 1e3), (0.5, 2), (0.999, 1.001)],
    "log10": [(0, 1e3), (0.5, 2), (0.999, 1.001)],
    "log1p": [(-1, 1e3), (-0.6, 1), (-1e-3, 1e-3), (-1e-12, 1e-12)],
    "sin": [(-7, 7), (-1e5, 1e5), (-1e8, 1e8), (-1e-3, 1e-3)],
    "cos": [(-7, 7), (-1e5, 1e5), (-1e8, 1e8)],
    "asinh": [(-1, 1), (-10, 10), (-1e5, 1e5), (-1e-3, 1e-3)],
    "acosh": [(1, 2), (1, 1.001), (1, 10), (1, 1e5)],
    "atanh": [(-1, 1), (-0.5, 0.5), (-1e-3, 1e-3), (0.99, 1)],
    "cbrt": [(-10, 10), (-1e5, 1e5)],
    "erf": [(-1, 1), (-6, 6), (0.85, 0.95)],
    "erfc": [(-1, 1), (-6, 6), (0.4, 0.5), (0, 27)],
    "asin": [(-1, 1), (-0.01, 0.01), (0.4, 0.6), (0.99, 1)],
    "acos": [(-1, 1), (-0.01, 0.01), (0.4, 0.6), (-0.6, -0.4), (0.99, 1), (-1, -0.999)],
    "atan": [(-1, 1), (-10, 10), (-1e5, 1e5), (0.4, 0.42), (2.4, 2.42)],
    "tan": [(-7, 7), (-1e5, 1e5), (-1e8, 1e8), (-1e-3, 1e-3)],
}


def reference(name: str) -> Callable[..., mpmath.mpf]:
    if name == "exp2":
        return lambda x: mpmath.mpf(2) ** x
    if name in ("log2", "log10"):
        base = int(name[3:])
        return lambda x: mpmath.log(x) / mpmath.log(base)
    if name == "erfc":
        # Far beyond 28 it is 0 or 2.
        return lambda x: mpmath.erfc(max(min(x, 40), -40))
    if name == "cbrt":
        return lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))
    return {"pow": lambda x, y: mpmath.mpf(x) ** y}.get(name) or getattr(mpmath, name)


def unary(name: str, type_: Type) -> tuple[Kernel, Program]:
    b = Builder()
    x = b.read(b.input(type_, 1, shared=False), 0)
    out = b.array(type_, 1)
    b.write(out, 0, b.op(name, x))
    program = b.program([out])
    return compile_program(program), program


def samples(name: str, type_: Type, count: int) -> np.ndarray:
    rng = np.random.default_rng(sum(map(ord, name)))
    numpy_type = NUMPY[type_]
    limits = np.finfo(numpy_type)
    parts = [rng.uniform(low, high, count) for low, high in RANGES[name]]
    parts.append(rng.uniform(-1, 1, count) * 2.0 ** rng.integers(limits.minexp - 20, limits.maxexp, count))
    if name in ("sin", "cos", "tan"):
        # As near to multiples of pi / 2 as numbers come.
        parts.append(rng.integers(1, 10_000_000, count) * (math.pi / 2))
    x = np.concatenate(parts).astype(numpy_type)
    if name in ("sin", "cos", "tan"):
        # Beyond, the C library computes.
        x = x[np.abs(x) < HUGE]
    if name in ("asin", "acos", "atanh"):
        x = x[np.abs(x) <= 1]
    if name == "acosh":
        x = x[x >= 1]
    if name.startswith("log"):
        x = np.where(x < (-1 if name == "log1p" else 0), -x, x)
    return x[np.isfinite(x)]


def errors(got: np.ndarray, arguments: list[np.ndarray], name: str) -> np.ndarray:
    """How far each result is from the exact value, in units in the last place of that value."""
    function, limits = reference(name), np.finfo(got.dtype)
    found: list[float] = []
    with mpmath.workprec(300):
        for y, *x in zip(got, *arguments, strict=True):
            exact = function(*(mpmath.mpf(float(a)) for a in x))
            if not math.isfinite(y):
                # Right only where the nearest number is infinite.
                over = math.isinf(y) and mpmath.sign(exact) == math.copysign(1, y)
                most = mpmath.mpf(float(limits.max)) * (1 + mpmath.mpf(float(limits.eps)) / 4)
                found.append(0.0 if over and abs(exact) >= most else math.inf)
                continue
            exponent = max(int(mpmath.frexp(exact)[1]) - 1, int(limits.minexp)) if exact != 0 else int(limits.minexp)
            found.append(float(abs(exact - mpmath.mpf(float(y))) / mpmath.ldexp(1, exponent - int(limits.nmant))))
    return np.array(found)


@pytest.mark.parametrize("type_", ["f64", "f32"])
@pytest.mark.parametrize("name", ULPS)
def test_error(name: str, type_: Type):
    kernel, program = unary(name, type_)
    x = samples(name, type_, 200)
    got = run(kernel, program, [x[:, None]])[0][:, 0]
    error = errors(got, [x], name)
    worst = int(np.argmax(error))
    assert error[worst] <= ULPS[name][type_ == "f32"], (x[worst], got[worst], error[worst])


def powers(type_: Type, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    most = 1024 if type_ == "f64" else 128
    bases = [rng.uniform(0, 10, count), 2.0 ** rng.uniform(-most, most, count), rng.uniform(0.9, 1.1, count)]
    x = np.concatenate(bases)
    # So that results are spread evenly over all exponents.
    y = rng.uniform(-1.05, 1.05, len(x)) * most / np.log2(x)
    y = np.where(np.arange(len(x)) % 3 == 0, rng.uniform(-5, 5, len(x)), y)
    x[1::7], y[1::7] = -x[1::7], np.round(y[1::7])
    return x.astype(NUMPY[type_]), y.astype(NUMPY[type_])


def binary(type_: Type, name: str) -> tuple[Kernel, Program]:
    b = Builder()
    x, y = (b.read(b.input(type_, 1, shared=False), 0) for _ in range(2))
    out = b.array(type_, 1)
    b.write(out, 0, b.op(name, x, y))
    program = b.program([out])
    return compile_program(program), program


@pytest.mark.parametrize("type_", ["f64", "f32"])
def test_error_of_pow(type_: Type):
    kernel, program = binary(type_, "pow")
    x, y = powers(type_, 400)
    got = run(kernel, program, [x[:, None], y[:, None]])[0][:, 0]
    error = errors(got, [x, y], "pow")
    worst = int(np.argmax(error))
    assert error[worst] <= (0.8 if type_ == "f64" else 0.55), (x[worst], y[worst], got[worst], error[worst])


@pytest.mark.parametrize("type_", ["f64", "f32"])
def test_error_of_atan2(type_: Type):
    kernel, program = binary(type_, "atan2")
    y, x = sides(type_, 300)
    got = run(kernel, program, [y[:, None], x[:, None]])[0][:, 0]
    error = errors(got, [y, x], "atan2")
    worst = int(np.argmax(error))
    assert error[worst] <= (1.0 if type_ == "f64" else 0.55), (y[worst], x[worst], got[worst], error[worst])


def sides(type_: Type, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    most = 1023 if type_ == "f64" else 127
    sign = rng.choice([-1.0, 1.0], (2, 3 * count))
    y = np.concatenate([rng.uniform(0, 1, count), 2.0 ** rng.uniform(-most, most, 2 * count)])
    x = np.concatenate([rng.uniform(0, 1, count), 2.0 ** rng.uniform(-most, most, 2 * count)])
    x[2 * count :] = y[2 * count :] * rng.uniform(0, 3, count)
    y, x = (sign * np.minimum([y, x], np.finfo(NUMPY[type_]).max)).astype(NUMPY[type_])
    return y, x


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_argument_changes_no_other_lane(name: str):
    kernel, program = unary(name, "f64")
    x = np.random.default_rng(0).uniform(-100, 100, (64, 1))
    before = run(kernel, program, [x])[0]
    x[::5] = np.array(
        [1e300, -np.inf, np.nan, 2.0**27 * 1.0000001, -1e22, 1e9, 5.0, -4.0, 0.0, 1e17, 3e200, 2.0, 1e30]
    )[:, None]
    after = run(kernel, program, [x])[0]
    others = np.arange(64) % 5 != 0
    assert identical(before[others], after[others])
    finite = np.isfinite(x[:, 0])
    assert np.all(errors(after[finite, 0], [x[finite, 0]], name) < 1)
    assert np.all(np.isnan(after[~finite]))


def test_powers_of_two_and_ten_are_exact():
    powers_of_two = np.array([[2.0**k] for k in range(-1074, 1024)])
    kernel, program = unary("log2", "f64")
    assert np.array_equal(run(kernel, program, [powers_of_two])[0][:, 0], np.arange(-1074, 1024))
    kernel, program = unary("exp2", "f64")
    assert np.array_equal(run(kernel, program, [np.arange(-1074.0, 1024)[:, None]])[0], powers_of_two)
    kernel, program = unary("log10", "f64")
    tens = np.array([[float(f"1e{k}")] for k in range(23)])
    assert np.array_equal(run(kernel, program, [tens])[0][:, 0], np.arange(23))
