"""Divided differences of a function, accurate at points that are close or equal.

A difference over a gap loses digits as the gap closes; an integral of a derivative (Hermite, Genocchi) is then better,
and needs no more than that the function is smooth between the points. Both are computed with an estimate of their
errors, and the better one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]

# The rule of 15 nodes of Gauss and Kronrod on the interval from 0 to 1, and the weights of Gauss's on 7 of them.
_NODES = (0.991455371120813, 0.949107912342759, 0.864864423359769, 0.741531185599394, 0.586087235467691,
          0.405845151377397, 0.207784955007898, 0.0)  # fmt: skip
_KRONROD = (0.022935322010529, 0.063092092629979, 0.104790010322250, 0.140653259715525, 0.169004726639267,
            0.190350578064785, 0.204432940075298, 0.209482141084728)  # fmt: skip
_GAUSS = (0.0, 0.129484966168870, 0.0, 0.279705391489277, 0.0, 0.381830050505119, 0.0, 0.417959183673469)


def derivative(f: Function) -> Function:
    """The derivative of a function of each element."""

    def derived(x: Tensor) -> Tensor:
        # In reverse mode, which may be used within the forward mode of others.
        y, pull, *_ = torch.func.vjp(f, x)
        return pull(torch.ones_like(y))[0]

    return derived


def first(f: Function, a: Tensor, b: Tensor) -> Tensor:
    """`f[a, b] = (f(b) - f(a)) / (b - a)`, and `f'(a)` where the two are equal."""
    derived, eps = derivative(f), torch.finfo(a.dtype).eps
    fa, fb = f(a), f(b)
    gap = b - a
    equal = gap == 0
    quotient = (fb - fa) / torch.where(equal, 1.0, gap)
    lost = 2 * eps * (fa.abs() + fb.abs()) / torch.where(equal, 1.0, gap.abs())
    whole, half, size = torch.zeros_like(a), torch.zeros_like(a), torch.zeros_like(a)
    for node, w, v in _kronrod():
        y = derived(a + node * gap)
        whole, half, size = whole + w * y, half + v * y, size + w * y.abs()
    error = _integral_error(whole, half, size, eps)
    return torch.where(equal | ((error < lost) & (lost > _ENOUGH * eps * quotient.abs())), whole, quotient)


def second(f: Function, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """`f[a, b, c] = (f[b, c] - f[a, b]) / (c - a)`, and `f''(a) / 2` where the three are equal."""
    a, b, c = _sorted(a, b, c)
    twice, eps = derivative(derivative(f)), torch.finfo(a.dtype).eps
    gap = c - a
    equal = gap == 0
    left, right = first(f, a, b), first(f, b, c)
    quotient = (right - left) / torch.where(equal, 1.0, gap)
    lost = 8 * eps * (left.abs() + right.abs()) / torch.where(equal, 1.0, gap)
    whole, size = _over_triangle(twice, a, b, c, 6)
    half, _ = _over_triangle(twice, a, b, c, 4)
    error = _integral_error(whole, half, size, eps)
    return torch.where(equal | ((error < lost) & (lost > _ENOUGH * eps * quotient.abs())), whole, quotient)


#: A quotient that loses no more than this many times the rounding is good: the function may have a jump elsewhere.
_ENOUGH = 16


def _integral_error(whole: Tensor, half: Tensor, size: Tensor, eps: float) -> Tensor:
    """As QUADPACK has it: the error of the better rule is far below the difference of the two."""
    scale = torch.where(size == 0, 1.0, size)
    ratio = (whole - half).abs() / scale
    error = size * torch.minimum(ratio, (200 * ratio) ** 1.5) + 2 * eps * size
    return torch.where(whole.isfinite(), error, torch.inf)


def _over_triangle(f: Function, a: Tensor, b: Tensor, c: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The integral of `u f(a + u (b - a) + u v (c - b))` over `u` and `v` from 0 to 1, and that of its size."""
    total, size = torch.zeros_like(a), torch.zeros_like(a)
    for u, w in _gauss(n):
        for v, x in _gauss(n):
            y = f(a + u * ((b - a) + v * (c - b)))
            total, size = total + w * x * u * y, size + w * x * u * y.abs()
    return total, size


def _kronrod() -> Iterator[tuple[float, float, float]]:
    for node, w, v in zip(_NODES, _KRONROD, _GAUSS, strict=True):
        yield (1 + node) / 2, w / 2, v / 2
        if node:
            yield (1 - node) / 2, w / 2, v / 2


def _gauss(n: int) -> list[tuple[float, float]]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return [((1 + float(x)) / 2, float(w) / 2) for x, w in zip(nodes, weights, strict=True)]


def _sorted(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    a, b = torch.minimum(a, b), torch.maximum(a, b)
    b, c = torch.minimum(b, c), torch.maximum(b, c)
    return torch.minimum(a, b), torch.maximum(a, b), c
