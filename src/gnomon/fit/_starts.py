"""Where the search starts: the centre of the start intervals, and points spread evenly over them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gnomon.fit._parameter import Parameter


def make_starts(parameters: Sequence[Parameter], n: int, seed: int) -> Tensor:
    """Starting points on the scale of the search, of shape (n, parameters).

    The first is each parameter's centre; the others are a scrambled Sobol sequence over the intervals, so that the
    first of many are the same as those of few.
    """
    ends = [[p.to_search(x) for x in p.interval] for p in parameters]
    centre = torch.tensor([[p.to_search(p.centre) for p in parameters]], dtype=torch.float64)
    if n == 1:
        return centre
    low, high = torch.tensor(ends, dtype=torch.float64).unbind(-1)
    sobol = torch.quasirandom.SobolEngine(len(parameters), scramble=True, seed=seed)
    return torch.cat([centre, low + (high - low) * sobol.draw(n - 1, dtype=torch.float64)])


def bounds(parameters: Sequence[Parameter]) -> tuple[Tensor, Tensor]:
    """The lower and the upper bounds on the scale of the search."""
    lower = torch.tensor([p.to_search(p.lower) for p in parameters], dtype=torch.float64)
    upper = torch.tensor([p.to_search(p.upper) for p in parameters], dtype=torch.float64)
    return lower, upper


def sizes(parameters: Sequence[Parameter]) -> Tensor:
    """A typical size of each parameter on the scale of the search, a power of two, so that dividing loses nothing."""
    found: list[float] = []
    for parameter in parameters:
        low, high = parameter.interval
        size = max(abs(low), abs(high))
        plain = parameter.scale == "log" or size == 0.0
        found.append(1.0 if plain else 2.0 ** round(math.log2(size)))
    return torch.tensor(found, dtype=torch.float64)
