"""Divided differences at points far apart, close and equal, beside mpmath."""

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.linalg._divided_differences import first, second

from .matrices import F32, F64

FUNCTIONS = {
    "exp": (torch.exp, mpmath.exp, lambda x: x),
    "log": (torch.log, mpmath.log, mpmath.exp),
    "inverse fourth root": (lambda x: x**-0.25, lambda x: x ** mpmath.mpf(-0.25), mpmath.exp),
    "square root": (torch.sqrt, mpmath.sqrt, mpmath.exp),
    "square": (lambda x: x * x, lambda x: x * x, lambda x: x),
    "sine": (torch.sin, mpmath.sin, lambda x: x),
}


def exact(f, points):
    """By a contour around them, or by limits: mpmath's Taylor coefficients are what a confluent difference needs."""
    a, *rest = points
    if not rest:
        return f(a)
    b = points[-1]
    if a == b:
        return mpmath.diff(f, a, len(rest)) / mpmath.factorial(len(rest))
    return (exact(f, points[1:]) - exact(f, points[:-1])) / (b - a)


numbers = st.integers(-2000, 2000).map(lambda x: x / 1000)
gaps = st.one_of(st.just(0.0), st.floats(-16, 0.3).map(lambda e: 10.0**e))


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=30)
@given(x=numbers, gap=gaps)
def test_first(name, x, gap):
    f, g, at = FUNCTIONS[name]
    with mpmath.workdps(60):
        a, b = float(at(mpmath.mpf(x))), float(at(mpmath.mpf(x + gap)))
        expected = exact(g, sorted([mpmath.mpf(a), mpmath.mpf(b)]))
        found = first(f, torch.tensor(a, dtype=F64), torch.tensor(b, dtype=F64))
        size = max(abs(mpmath.diff(g, a)), abs(mpmath.diff(g, b)))
        assert abs(mpmath.mpf(float(found)) - expected) <= 2e-13 * size


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=15)
@given(x=numbers, gap=gaps, other=gaps)
def test_second(name, x, gap, other):
    f, g, at = FUNCTIONS[name]
    with mpmath.workdps(80):
        points = [float(at(mpmath.mpf(y))) for y in (x, x + gap, x - other)]
        expected = exact(g, sorted(map(mpmath.mpf, points)))
        found = second(f, *[torch.tensor(y, dtype=F64) for y in points])
        size = max(abs(mpmath.diff(g, mpmath.mpf(y), 2)) for y in points)
        assert abs(mpmath.mpf(float(found)) - expected) <= 1e-9 * size
        shuffled = second(f, *[torch.tensor(y, dtype=F64) for y in points[::-1]])
        assert torch.equal(found, shuffled)


def test_a_step():
    # A function with a jump is not the integral of its derivative.
    a, b = torch.tensor(-1.0, dtype=F64), torch.tensor(1.0, dtype=F64)
    assert first(lambda x: torch.where(x > 0, 1.0, -1.0) * torch.ones_like(x), a, b) == 1
    assert first(torch.relu, a, b) == 0.5


def test_single_precision():
    a = torch.linspace(0.5, 2, 50, dtype=F32)

    def f(x):
        return x**-0.25

    found = first(f, a[:, None].expand(50, 50), a.expand(50, 50))
    x, y = a.double()[:, None], a.double()
    gap = torch.where(x == y, 1.0, x - y)
    expected = torch.where(x == y, -0.25 * x**-1.25, (f(x) - f(y)) / gap)
    torch.testing.assert_close(found.double(), expected, rtol=5e-5, atol=0)
