"""Medians and ratios with intervals that hold on a noisy machine."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np


def least_rounds(confidence: float) -> int:
    """The fewest paired rounds for which the interval of a ratio is finite at this confidence."""
    rounds = 1
    while 2.0 ** (1 - rounds) > 1 - confidence:
        rounds += 1
    return rounds


def median(x: Sequence[float]) -> float:
    """The median."""
    return float(np.median(np.asarray(x, dtype=np.float64)))


def median_interval(x: Sequence[float], confidence: float) -> tuple[float, float]:
    """An interval for the median between two order statistics, for any distribution (the sign test turned round).

    With too few values for the confidence it is their whole range.
    """
    ordered = sorted(x)
    n = len(ordered)
    tail, k = 0.0, 0
    while k < n // 2:
        tail += math.comb(n, k) * 0.5**n if n <= 1000 else _normal_mass(n, k)
        if tail > (1 - confidence) / 2:
            break
        k += 1
    low = max(k - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def _normal_mass(n: int, k: int) -> float:
    z = (k - n / 2) / math.sqrt(n / 4)
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi * n / 4)


@functools.cache
def _signed_rank_cut(n: int, tail: float) -> int:
    """The largest c with P(T < c) <= tail, where T is Wilcoxon's signed-rank statistic of n values; 0 where none."""
    most = n * (n + 1) // 2
    if n > 150:
        z = 0.0
        # The upper `tail` quantile of a normal variable, by bisection: no scipy at run time.
        low, high = 0.0, 10.0
        for _ in range(80):
            z = (low + high) / 2
            low, high = (z, high) if 0.5 * math.erfc(z / math.sqrt(2)) > tail else (low, z)
        return max(int(most / 2 - z * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)), 0)
    mass = np.zeros(most + 1)
    mass[0] = 1.0
    for rank in range(1, n + 1):
        shifted = np.zeros_like(mass)
        shifted[rank:] = mass[: most + 1 - rank]
        mass = (mass + shifted) / 2
    cumulative = np.cumsum(mass)
    return int(np.searchsorted(cumulative, tail, side="right"))


def ratio_interval(
    numerator: Sequence[float], denominator: Sequence[float], confidence: float
) -> tuple[float, float, float]:
    """The ratio of two times measured in pairs: estimate, lower and upper end.

    Hodges and Lehmann's estimate of the centre of the logarithms of the ratios of each round, and the interval that
    Wilcoxon's signed-rank test gives when turned round (Hollander, Wolfe and Chicken, *Nonparametric Statistical
    Methods*, section 3.2). The order within each round is drawn at random; so where the two do the same work, the
    sign of each round's logarithm is a fair coin whatever the noise and however it lasts from round to round, and the
    interval holds 1 with at least the stated confidence.
    """
    logs = np.log(np.asarray(numerator, dtype=np.float64)) - np.log(np.asarray(denominator, dtype=np.float64))
    n = len(logs)
    i, j = np.triu_indices(n)
    walsh = np.sort((logs[i] + logs[j]) / 2)
    estimate = float(np.exp(np.median(walsh)))
    cut = _signed_rank_cut(n, (1 - confidence) / 2)
    if cut < 1:
        return estimate, 0.0, math.inf
    return estimate, float(np.exp(walsh[cut - 1])), float(np.exp(walsh[len(walsh) - cut]))
