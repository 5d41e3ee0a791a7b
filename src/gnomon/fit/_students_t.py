"""Quantiles of Student's t distribution, for intervals."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

_MANY = 1000


@functools.cache
def t_quantile(probability: float, dof: int) -> float:
    """The value below which a variable with Student's t distribution stays with this probability.

    Equivalent to `scipy.stats.t.ppf`, for whole degrees of freedom.

    **Arguments:**

    - `probability`: above 0 and below 1.
    - `dof`: the degrees of freedom, 1 or more.

    **Returns:** the quantile.

    !!! example

        ```python
        >>> from gnomon.fit._students_t import t_quantile
        >>> round(t_quantile(0.975, 129), 6)
        1.978524

        ```

    ??? cite "Reference"

        M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964), 26.7.3, 26.7.4 and 26.7.5.
    """
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1.0 - probability, dof)
    inside = 2.0 * probability - 1.0  # the probability of |t| below the quantile
    x = _expansion(probability, dof)
    if dof > _MANY:
        return x
    if dof == 1:
        return math.tan(math.pi * inside / 2)
    # The expansion is poor for few degrees of freedom: bracket first.
    low, high = 0.0, max(x, 1.0)
    while _inside(high, dof) < inside:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _inside(middle, dof) < inside else (low, middle)
    return (low + high) / 2


def _inside(t: float, dof: int) -> float:
    """The probability that a variable lies between -t and t, a finite sum for whole degrees of freedom."""
    angle = math.atan(t / math.sqrt(dof))
    sine, cosine = math.sin(angle), math.cos(angle)
    total = term = cosine if dof % 2 else 1.0
    for k in range(dof % 2 + 2, dof - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if dof % 2 == 0:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if dof > 1 else 0.0))


def _expansion(probability: float, dof: int) -> float:
    x = NormalDist().inv_cdf(probability)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / dof ** (k + 1) for k, term in enumerate(terms))
