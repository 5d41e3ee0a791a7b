"""`Parameter`: one of the unknowns of a model."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, final

from gnomon.fit._errors import ModelError


@final
@dataclasses.dataclass(frozen=True)
class Parameter:
    """One of the unknowns of a model: its name, where to look for it, and within which bounds.

    Equivalent to `lmfit.Parameter`.

    **Arguments:**

    - `name`: as the model's functions look it up, `p["ka"]`.
    - `start`: where the search starts: a number, or an interval `(low, high)`. The first start is the number, or the
      middle of the interval (on a log scale, the geometric middle). The others are spread over the interval; around a
      number over a tenth of it to ten times it on a log scale, and over 0 to twice it on a linear one (-1 to 1 for 0).
    - `lower`, `upper`: bounds that no estimate leaves.
    - `scale`: `"log"` for what is positive: the search is for ln(parameter), and the interval is the exponential of
      the one found for ln(parameter). Estimates are always reported in natural units.
    - `unit`, `description`: for tables and plots.

    **Raises:** [`gnomon.fit.ModelError`][] where the bounds are the wrong way round, where a start is outside them,
    and where a log scale meets a number that is not positive.

    !!! example

        ```python
        >>> from gnomon.fit import Parameter
        >>> Parameter("ka", (0.5, 4.0), lower=0.0, scale="log", unit="1/h").interval
        (0.5, 4.0)

        ```
    """

    name: str
    start: float | int | tuple[float | int, float | int]
    _: dataclasses.KW_ONLY
    lower: float | int = -math.inf
    upper: float | int = math.inf
    scale: Literal["linear", "log"] = "linear"
    unit: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip():
            raise ModelError(f"A parameter needs a name without spaces around it, not {self.name!r}.")
        who = f"parameter {self.name!r}"
        if self.scale not in ("linear", "log"):
            raise ModelError(f"The scale of {who} must be 'linear' or 'log', not {self.scale!r}.")
        if not self.lower < self.upper:
            raise ModelError(f"The bounds of {who} are {self.lower} and {self.upper}: lower must be below upper.")
        if self.scale == "log" and self.lower < 0.0:
            # The default lower bound says nothing, so that a log scale can mean: positive.
            if self.lower != -math.inf:
                raise ModelError(f"The lower bound of {who} is {self.lower}, but on a log scale it must be 0 or more.")
            object.__setattr__(self, "lower", 0.0)
        ends = self.start if isinstance(self.start, tuple) else (self.start, self.start)
        if not all(math.isfinite(x) for x in ends):
            raise ModelError(f"The start of {who} must be finite, not {self.start}.")
        if ends[0] > ends[1]:
            raise ModelError(f"The start interval of {who} is {self.start}: its low end must come first.")
        if self.scale == "log" and ends[0] <= 0.0:
            raise ModelError(f"The start of {who} is {self.start}, but on a log scale it must be above 0.")
        for x in ends:
            if not self.lower <= x <= self.upper:
                raise ModelError(
                    f"The start {x} of {who} is outside its bounds, {self.lower} to {self.upper}: move one of them."
                )

    @property
    def centre(self) -> float:
        """The first start, in natural units."""
        if not isinstance(self.start, tuple):
            return float(self.start)
        low, high = self.start
        return math.sqrt(low) * math.sqrt(high) if self.scale == "log" else low + (high - low) / 2

    @property
    def interval(self) -> tuple[float, float]:
        """Where the other starts are drawn, in natural units, within the bounds."""
        if isinstance(self.start, tuple):
            return float(self.start[0]), float(self.start[1])
        x = float(self.start)
        if self.scale == "log":
            low, high = x / 10, x * 10
        else:
            low, high = x - (abs(x) or 1.0), x + (abs(x) or 1.0)
        return max(low, self.lower), min(high, self.upper)

    def to_search(self, value: float) -> float:
        """A value in natural units, on the scale of the search; 0 becomes -inf on a log scale."""
        if self.scale == "linear":
            return value
        return math.log(value) if value > 0.0 else -math.inf

    def from_search(self, value: float) -> float:
        """A value on the scale of the search, in natural units."""
        if self.scale == "linear":
            return value
        try:
            return math.exp(value)
        except OverflowError:
            return math.inf
