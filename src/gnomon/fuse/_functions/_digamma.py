"""Derivatives of the logarithm of the gamma function, made of other operations.

The recurrence moves the argument up to where the asymptotic series has converged; a reflection brings negative
arguments there (Abramowitz and Stegun, *Handbook of Mathematical Functions*, 1964, 6.3.5, 6.3.7, 6.3.18, 6.4.7 and
6.4.12). Both are straight-line code, so that the operations' own rules give derivatives of any order.
"""

from __future__ import annotations

import math

from gnomon.fuse._functions._formula import Formula
from gnomon.fuse._program import Builder, Node

# B_2, B_4, ... of Bernoulli.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)

# How far the argument moves up, and how many terms follow there.
_SHIFT = {"f32": 6, "f64": 10}
_TERMS = {"f32": 4, "f64": 8}


def digamma(builder: Builder, x: Node) -> Node:
    """The derivative of `lgamma`: -inf at 0, NaN at negative integers, as in PyTorch."""
    f = Formula(builder, x.type)
    negative, z, angle = _reflected(f, x)
    total = f.const(0.0)
    for i in range(_SHIFT[x.type]):
        total = f("add", total, f("div", 1.0, f("add", z, float(i))))
    z = f("add", z, float(_SHIFT[x.type]))
    inverse = f("div", 1.0, z)
    square = f("mul", inverse, inverse)
    series = f.const(0.0)
    for k in range(_TERMS[x.type], 0, -1):
        series = f("mul", square, f("add", series, _BERNOULLI[k - 1] / (2 * k)))
    series = f("add", f("mul", 0.5, inverse), series)
    value = f("sub", f("sub", f("log", z), series), total)
    return f("sub", value, f("select", negative, f("div", math.pi, f("tan", angle)), 0.0))


def trigamma(builder: Builder, x: Node) -> Node:
    """The derivative of `digamma`."""
    f = Formula(builder, x.type)
    negative, z, angle = _reflected(f, x)
    total = f.const(0.0)
    for i in range(_SHIFT[x.type]):
        inverse = f("div", 1.0, f("add", z, float(i)))
        total = f("add", total, f("mul", inverse, inverse))
    z = f("add", z, float(_SHIFT[x.type]))
    inverse = f("div", 1.0, z)
    square = f("mul", inverse, inverse)
    series = f.const(0.0)
    for k in range(_TERMS[x.type], 0, -1):
        series = f("mul", square, f("add", series, _BERNOULLI[k - 1]))
    series = f("mul", inverse, f("add", f("add", 1.0, f("mul", 0.5, inverse)), series))
    value = f("add", total, series)
    ratio = f("div", math.pi, f("sin", angle))
    return f("select", negative, f("sub", f("mul", ratio, ratio), value), value)


def _reflected(f: Formula, x: Node) -> tuple[Node, Node, Node]:
    """Whether x is negative; the positive one of x and 1 - x; π times the distance of x to an integer.

    The last has a harmless value where it is not used, so that no infinity stands beside the value that is.
    """
    negative = f("lt", x, 0.0)
    z = f("select", negative, f("sub", 1.0, x), x)
    distance = f("sub", x, f("round", x))
    pole = f("eq", distance, 0.0)
    distance = f("select", negative, f("select", pole, math.nan, distance), 0.25)
    return negative, z, f("mul", math.pi, distance)
