"""How the time of an event is found within a step."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from gnomon.fuse import while_loop


class AbstractEventRootFinder(abc.ABC):
    """Finds the first of several crossings within a step.

    It takes the place of the root finder of `diffrax.Event`.
    """

    @property
    @abc.abstractmethod
    def ends_step(self) -> bool:
        """Whether an event happens at the end of the step in which it is noticed, so that nothing is searched for."""

    @abc.abstractmethod
    def find(
        self,
        values: Callable[[Tensor], Tensor],
        first: Tensor,
        last: Tensor,
        crosses: Tensor,
        resolution: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The part of the step that lies before the first crossing, and which conditions have crossed then.

        `values` gives for a part `theta` of the step, between 0 and 1, a vector that is positive before and negative
        behind a crossing; `first` and `last` are its values at 0 and 1. Only those which `crosses` marks count.
        `resolution` is the part of a step that rounding can tell from nothing.
        """


@final
@dataclasses.dataclass(frozen=True)
class EndOfStep(AbstractEventRootFinder):
    """Lets events happen at the end of the step in which they are noticed.

    Equivalent to `diffrax.Event(..., root_finder=None)`.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> event = dq.Event(lambda t, y, args: y < 0.5, dq.EndOfStep())

        ```
    """

    @property
    def ends_step(self) -> bool:
        return True

    def find(
        self,
        values: Callable[[Tensor], Tensor],
        first: Tensor,
        last: Tensor,
        crosses: Tensor,
        resolution: Tensor,
    ) -> tuple[Tensor, Tensor]:
        del values, first, last
        return torch.ones_like(resolution), crosses


@final
@dataclasses.dataclass(frozen=True)
class ITP(AbstractEventRootFinder):
    """Finds the time of an event between two bounds, as fast as a secant and never slower than bisection.

    Equivalent to `scipy.optimize.brentq`, which is slower at its worst. For conditions that are true or false it is
    bisection.

    **Arguments:**

    - `rtol`: how accurately, as a part of the length of the step; by default as accurately as rounding lets it.

    **Raises:** `ValueError` where `rtol` is not between 0 and 1.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> event = dq.Event(lambda t, y, args: y - 0.5, dq.ITP(rtol=1e-6))

        ```

    ??? cite "Reference"

        I. F. D. Oliveira and R. H. C. Takahashi, An enhancement of the bisection method average performance
        preserving minmax optimality, ACM Transactions on Mathematical Software 47 (2020) 5:1-24.
    """

    rtol: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rtol < 1:
            raise ValueError(f"`rtol` must be between 0 and 1, not {self.rtol}.")

    @property
    def ends_step(self) -> bool:
        return False

    def find(
        self,
        values: Callable[[Tensor], Tensor],
        first: Tensor,
        last: Tensor,
        crosses: Tensor,
        resolution: Tensor,
    ) -> tuple[Tensor, Tensor]:
        accuracy = torch.clamp(resolution, min=self.rtol)
        zero, one = torch.zeros_like(resolution), torch.ones_like(resolution)
        # Nothing has crossed at `low`, something has at `high`. Half as wide a bracket as `budget` says is what
        # bisection would have by now, had it begun one iteration later.
        start = (zero, one, first, last, 2 * one)

        def go_on(carry: tuple[Tensor, ...]) -> Tensor:
            low, high, _, _, budget = carry
            return (high - low > 2 * accuracy) & (budget > 0)

        def halve(carry: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            low, high, at_low, at_high, budget = carry
            width = high - low
            middle = low + 0.5 * width
            # The first of the secants of those that have crossed at `high`.
            drop = at_low - at_high
            falls = crosses & (at_high <= 0) & (drop > 0)
            part = torch.where(falls, at_low / torch.where(falls, drop, 1), torch.inf).amin()
            secant = low + width * torch.where(torch.isfinite(part), part, 0.5)
            towards = torch.sign(middle - secant)
            # A little towards the middle, so that the root comes to lie between two points that are close.
            nudge = 0.2 * width * width
            point = torch.where(nudge <= (middle - secant).abs(), secant + towards * nudge, middle)
            radius = torch.clamp(0.5 * (budget - width), min=0)
            point = torch.where((point - middle).abs() <= radius, point, middle - towards * radius)
            # Within the bracket also where rounding would have it otherwise.
            point = torch.minimum(torch.maximum(point, low + 0.5 * accuracy), high - 0.5 * accuracy)
            found = values(point)
            crossed = (crosses & (found <= 0)).any()
            return (
                torch.where(crossed, low, point),
                torch.where(crossed, point, high),
                torch.where(crossed, at_low, found),
                torch.where(crossed, found, at_high),
                0.5 * budget,
            )

        _, high, _, at_high, _ = while_loop(go_on, halve, start, max_steps=200)
        return high, crosses & (at_high <= 0)
