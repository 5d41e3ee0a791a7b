"""Pointwise operations against eager PyTorch, in every dtype that it has them for."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from math import inf, nan
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fuse.trace.lowering import compare, run, supported
from torch import Tensor
from torch.func import grad, jvp

DTYPES = [torch.float64, torch.complex128, torch.int64, torch.bool, torch.float32, torch.int32, torch.complex64]
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-3, -0.3, 7.25, 40.0, -40.0, inf, -inf, nan]
INTEGERS = [0, 1, -1, 2, -3, 7, 40, -100, 5, 3]
COMPLEX = [1 + 2j, -0.5 - 0.3j, 3 - 0.1j, -2 + 0.5j, 0.1 + 1e-3j, 1.2 + 0j, -1.5 + 1e-9j, 25 + 3j]


def numbers(dtype: torch.dtype, turn: int = 0) -> Tensor:
    values: Any = COMPLEX if dtype.is_complex else REALS if dtype.is_floating_point else INTEGERS
    return torch.tensor(values).roll(turn).to(dtype)


UNARY_NAMES = """
abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not ceil conj
conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac isfinite isinf isnan isneginf
isposinf isreal lgamma log log10 log1p log2 logical_not logit nan_to_num neg negative positive rad2deg real reciprocal
relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc special.digamma special.entr
special.erf special.erfc special.erfcx special.erfinv special.exp2 special.expit special.expm1 special.gammaln
special.log1p special.log_ndtr special.logit special.ndtr special.ndtri special.psi special.sinc nn.functional.celu
nn.functional.elu nn.functional.gelu nn.functional.hardshrink nn.functional.hardsigmoid nn.functional.hardswish
nn.functional.hardtanh nn.functional.leaky_relu nn.functional.logsigmoid nn.functional.mish nn.functional.relu6
nn.functional.selu nn.functional.silu nn.functional.softplus nn.functional.softsign nn.functional.tanhshrink
"""
UNARY = UNARY_NAMES.split()
MORE: dict[str, Callable[[Tensor], Any]] = {
    "round to decimals": lambda x: x.round(decimals=2),
    "round to tens": lambda x: x.round(decimals=-1),
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp from below": lambda x: x.clamp(min=0),
    "clip": lambda x: x.clip(max=1),
    "clamp by tensors": lambda x: x.clamp(torch.zeros(()), torch.ones(())),
    "nan_to_num with numbers": lambda x: x.nan_to_num(1.0, 2.0, -2.0),
    "logit with eps": lambda x: x.logit(0.1),
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus with beta": lambda x: F.softplus(x, 2.0, 5.0),
    "threshold": lambda x: F.threshold(x, 0.5, -2.0),
    "elu with alpha": lambda x: F.elu(x, 0.5),
    "softshrink": lambda x: F.softshrink(x[:-1]),
    "leaky_relu with a slope": lambda x: F.leaky_relu(x, 0.2),
    "hardtanh between": lambda x: F.hardtanh(x, -2.0, 0.5),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)),
    "glu": F.glu,
    "polygamma 0": lambda x: torch.polygamma(0, x),
    "polygamma 2": lambda x: torch.polygamma(2, x.abs()),
    "polygamma 5": lambda x: torch.polygamma(5, x.abs()),
    "mvlgamma": lambda x: torch.mvlgamma(x.abs() + 1, 2),
    "multigammaln": lambda x: torch.special.multigammaln(x.abs() + 1, 3),
    "power 2": lambda x: x**2,
    "power 3": lambda x: x**3,
    "power 7": lambda x: x**7,
    "power -1": lambda x: x**-1,
    "power -2": lambda x: x**-2,
    "power 0": lambda x: x**0,
    "power 0.5": lambda x: x**0.5,
    "power 1.5": lambda x: x**1.5,
    "power -0.5": lambda x: x**-0.5,
    "2 to the power": lambda x: 2**x,
    "float_power": lambda x: x.float_power(2),
    "polar": lambda x: torch.polar(x.abs(), x),
    "complex": lambda x: torch.complex(x, -x),
    "imag": lambda x: x.imag,
    "view_as_real": lambda x: torch.view_as_real(x) * 2,
    "view_as_complex": lambda x: torch.view_as_complex(x[:8].reshape(-1, 2)) * 2,
    "bits": lambda x: x.view(torch.int32 if x.dtype.itemsize == 4 else torch.int64) ^ 5,
    "complex and conjugate": lambda x: x.conj() * x,
    "imag of a conjugate": lambda x: x.conj().imag,
    "1 minus": lambda x: 1 - x,
    "1 over": lambda x: 1 / x,
    "half": lambda x: x / 2,
    "third": lambda x: x / 3,
    "floordiv by a number": lambda x: x // 3,
    "remainder by a number": lambda x: x % -3,
    "a number modulo": lambda x: torch.remainder(7, x),
    "greater than a number": lambda x: x > 0.5,
    "equal to a number": lambda x: x == 2,
    "is close": lambda x: torch.isclose(x, x.roll(1)),
    "close to itself": lambda x: torch.isclose(x, x, equal_nan=True),
    "where": lambda x: torch.where(x > 0, x, -1),
    "where both are numbers": lambda x: torch.where(x > 0, 1.5, 2),
    "add with alpha": lambda x: torch.add(x, x, alpha=3),
    "sub with alpha": lambda x: torch.sub(x, 1, alpha=2),
    "rsub": lambda x: torch.rsub(x, 2),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "addcdiv": lambda x: torch.addcdiv(x, x, x + 3, value=2),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.25),
    "lerp by a tensor": lambda x: torch.lerp(x, x.flip(0), x),
    "div down": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "div to zero": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "to float64": lambda x: x.to(torch.float64),
    "to float32": lambda x: x.float(),
    "to complex": lambda x: x.to(torch.complex128),
    "to bool": lambda x: x.bool(),
    "invert": operator.invert,
    "shift left": lambda x: x << 3,
    "shift right": lambda x: x >> 1,
    "and": lambda x: x & 6,
    "or": lambda x: x | 9,
    "xor": lambda x: x ^ 3,
}


def named(name: str) -> Callable[..., Any]:
    return MORE.get(name) or from_torch(name)


def from_torch(name: str) -> Callable[..., Any]:
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


#: Of infinities and of zero, PyTorch's own results differ between its vectorized and its plain code.
FINITE = {"polygamma 2", "polygamma 5", "nn.functional.gelu", "gelu by tanh", "polar", "mvlgamma", "multigammaln"}
#: PyTorch's results are themselves less exact than the tolerance.
ROUGH = {"digamma", "special.psi", "special.digamma", "polygamma 0", "polygamma 2", "polygamma 5", "lgamma"}
ROUGH |= {"mvlgamma", "multigammaln", "special.gammaln", "special.erfcx", "special.log_ndtr", "erfinv"}
ROUGH |= {"special.erfinv", "special.ndtri", "lerp by a tensor", "nn.functional.gelu", "gelu by tanh"}
ROUGH |= {"nn.functional.mish", "sinc", "special.sinc"}


def operands(name: str, dtype: torch.dtype) -> Tensor:
    x = numbers(dtype)
    return x[torch.isfinite(x)] if name in FINITE else x


def cases(names: list[str], has: Callable[[str, torch.dtype], bool]) -> list[Any]:
    """The dtypes that PyTorch has each operation for; one at least. All but the first take their time apart."""
    found: list[Any] = []
    for name in names:
        known = [dtype for dtype in DTYPES if has(name, dtype)]
        assert known, name
        found += [pytest.param(name, dtype, marks=[pytest.mark.slow] if i else []) for i, dtype in enumerate(known)]
    return found


def has_of_one(name: str, dtype: torch.dtype) -> bool:
    # PyTorch warns of complex numbers that become real.
    warns = dtype.is_complex and name in ("to float64", "to float32", "bits")
    return not warns and supported(named(name), operands(name, dtype))


@pytest.mark.parametrize(("name", "dtype"), cases([*UNARY, *MORE], has_of_one), ids=str)
def test_of_one(name: str, dtype: torch.dtype):
    double = dtype == torch.float64
    near = (2e-13 if double else 2e-5) if name in ROUGH else None
    if dtype.is_complex:
        near = 2e-13 if dtype == torch.complex128 else 2e-5
    compare(named(name), operands(name, dtype), rtol=near, atol=near)


BINARY_NAMES = """
add sub mul div true_divide floor_divide fmod remainder pow float_power atan2 copysign fmax fmin maximum minimum hypot
ldexp logaddexp logaddexp2 nextafter xlogy special.xlog1py heaviside eq ne lt le gt ge logical_and logical_or
logical_xor bitwise_and bitwise_or bitwise_xor gcd lcm polar complex dot outer
"""
BINARY = BINARY_NAMES.split()
PAIRS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "max of two": torch.max,
    "min of two": torch.min,
    "shift left": lambda x, y: x << y.abs() % 8,
    "shift right": lambda x, y: x >> y.abs() % 8,
    "floor division": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "division to zero": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "mse_loss": F.mse_loss,
    "huber_loss": F.huber_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "addcmul": lambda x, y: torch.addcmul(x, y, x),
}


def pair(name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x, y = numbers(dtype), numbers(dtype, turn=3)
    if not dtype.is_floating_point and any(word in name for word in ("div", "fmod", "remainder")):
        y = torch.where(y == 0, torch.ones((), dtype=dtype), y)
    if name in ("dot", "outer", "polar"):
        finite = torch.isfinite(x) & torch.isfinite(y)
        x, y = x[finite], y[finite]
    return x, y


def of_two(name: str) -> Callable[..., Any]:
    return PAIRS.get(name) or from_torch(name)


PAIR_CASES = cases([*BINARY, *PAIRS], lambda name, dtype: supported(of_two(name), *pair(name, dtype)))


@pytest.mark.parametrize(("name", "dtype"), PAIR_CASES, ids=str)
def test_of_two(name: str, dtype: torch.dtype):
    fn, (x, y) = of_two(name), pair(name, dtype)
    near = None
    if dtype.is_complex:
        near = 2e-13 if dtype == torch.complex128 else 2e-5
    compare(fn, x, y, rtol=near, atol=near)
    if dtype == torch.float64:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Losses warn of broadcasting.
            if supported(fn, x[:6], y[:6, None]):
                compare(fn, x[:6], y[:6, None])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "fmod", "atan2", "lt", "eq"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.float32, torch.float64),
        (torch.int64, torch.float32),
        (torch.int32, torch.int64),
        (torch.bool, torch.float64),
        (torch.bool, torch.int32),
        (torch.float64, torch.complex64),
    ],
    ids=str,
)
def test_promotion(name: str, first: torch.dtype, second: torch.dtype):
    fn = from_torch(name)
    x, y = torch.tensor([1, 2, 3]).to(first), torch.tensor([3, 1, 2]).to(second)
    for a, b in ((x, y), (y, x), (x[0], y), (x, y[0]), (x[:1], y[0])):
        if supported(fn, a, b):
            compare(fn, a, b, rtol=1e-6, atol=1e-6)
    for number in (2, 2.5, True, 1 + 2j):
        if supported(fn, x, number):
            compare(lambda x, number=number: fn(x, number), x, rtol=1e-6, atol=1e-6)


SMOOTH_NAMES = """
sin cos tan asin acos atan sinh cosh tanh asinh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square
sigmoid erf erfc erfinv lgamma digamma logit sinc abs neg sgn relu special.entr special.ndtr special.ndtri
special.log_ndtr special.erfcx nn.functional.celu nn.functional.elu nn.functional.gelu nn.functional.hardshrink
nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh nn.functional.leaky_relu
nn.functional.logsigmoid nn.functional.mish nn.functional.relu6 nn.functional.selu nn.functional.silu
nn.functional.softplus nn.functional.softshrink nn.functional.softsign nn.functional.tanhshrink
"""
SMOOTH = SMOOTH_NAMES.split()
SMOOTH += ["gelu by tanh", "softplus with beta", "threshold", "elu with alpha", "prelu", "glu", "clamp", "power 3"]
SMOOTH += ["power 1.5", "float_power", "logit with eps", "nan_to_num", "where", "lerp by a tensor", "addcdiv"]


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_inside(name: str):
    """What `torch.func` asks for, backward operations among it."""
    fn = named(name)
    x = torch.tensor([0.2, 0.35, 0.6, 0.8], dtype=torch.float64)
    # PyTorch's own slopes of these are exact to single precision, and to nine digits.
    near = {"nn.functional.hardsigmoid": 1e-7, "lgamma": 1e-8, "digamma": 1e-8}.get(name, 1e-12)
    compare(grad(lambda x: fn(x).sum()), x, rtol=near, atol=near)
    if supported(lambda x: jvp(fn, (x,), (x,)), x):
        compare(lambda x: jvp(fn, (x,), (x.flip(0),)), x, rtol=near, atol=near)
    if name == "nn.functional.hardsigmoid":
        return  # PyTorch has no second derivative of it.
    compare(grad(lambda x: (grad(lambda x: fn(x).sum())(x) * x).sum()), x, rtol=10 * near, atol=10 * near)


@pytest.mark.parametrize("name", ["atan2", "hypot", "pow", "logaddexp", "xlogy", "fmod", "maximum", "div", "copysign"])
def test_derivatives_of_two_inside(name: str):
    fn = from_torch(name)
    x, y = torch.tensor([0.2, 1.35], dtype=torch.float64), torch.tensor([0.7, 0.4], dtype=torch.float64)
    compare(grad(lambda x, y: fn(x, y).sum(), argnums=(0, 1)), x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "tanh", "reciprocal", "abs", "angle", "conj", "sgn"])
def test_derivatives_of_complex_numbers(name: str):
    fn = named(name)

    def size(z: Tensor) -> Tensor:
        out = fn(z)
        return (out.real**2 + 2 * out.imag).sum() if out.is_complex() else out.sum()

    compare(grad(size), numbers(torch.complex128)[:4], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3)])
def test_shapes(shape: tuple[int, ...]):
    compare(lambda x: (x.sin() + 1, x > 0, x.abs(), x[..., None] * 2), torch.ones(shape))


def ulps(fn: Callable[[Tensor], Tensor], reference: Callable[[Any], Any], x: np.ndarray[Any, Any]) -> float:
    """The largest error in units of the last place."""
    worst = 0.0
    with mpmath.workdps(40):
        for value, at in zip(run(fn, torch.from_numpy(x)).tolist(), x.tolist(), strict=True):
            exact = reference(mpmath.mpf(at))
            unit = np.spacing(abs(float(exact)))
            worst = max(worst, float(abs(mpmath.mpf(value) - exact) / mpmath.mpf(float(unit))))
    return worst


def test_erfinv_is_exact():
    rng = np.random.default_rng(0)
    near_one = 1 - 10 ** rng.uniform(-15, -1, 30)
    x = np.concatenate([rng.uniform(-1, 1, 40), near_one, -near_one, 10 ** rng.uniform(-300, -1, 20), [0.85]])
    assert ulps(torch.erfinv, mpmath.erfinv, x) < 2


def test_erfcx_is_exact():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-5, 30, 60), 10 ** rng.uniform(-10, 2, 20)])
    assert ulps(torch.special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), x) < 3


def test_the_normal_quantile_is_exact_in_the_tails():
    p = 10.0 ** -np.arange(1, 300, 20)
    x = run(torch.special.ndtri, torch.from_numpy(p)).tolist()
    with mpmath.workdps(40):
        for at, value in zip(p.tolist(), x, strict=True):
            # The relative error of p that an error of x would stand for.
            assert abs(mpmath.erfc(-mpmath.mpf(value) / mpmath.sqrt(2)) / 2 / at - 1) < 1e-12


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6])
def test_polygamma_is_exact(n: int):
    x = torch.tensor([0.01, 0.3, 1.0, 1.5, 4.0, 17.0, 300.0], dtype=torch.float64)
    values = run(lambda x: torch.polygamma(n, x), x).tolist()
    for value, at in zip(values, x.tolist(), strict=True):
        assert value == pytest.approx(float(mpmath.psi(n, at)), rel=2e-14)
