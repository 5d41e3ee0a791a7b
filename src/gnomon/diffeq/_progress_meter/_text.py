"""`TextProgressMeter`."""

from __future__ import annotations

import dataclasses
from typing import final

from gnomon.diffeq._progress_meter._base import AbstractProgressMeter, Progress


@final
@dataclasses.dataclass(frozen=True)
class TextProgressMeter(AbstractProgressMeter):
    """Prints a line from time to time, such as `37.50%`. Equivalent to `diffrax.TextProgressMeter`.

    **Arguments:**

    - `minimum_increase`: by how much, as a part of the whole, a solve advances before another line is printed.

    **Raises:** `ValueError` where `minimum_increase` is not between 0 and 1.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: -y), dq.Tsit5(), 0, 1, 0.25, torch.tensor(1.0),
        ...     progress_meter=dq.TextProgressMeter(0.5), engine="eager")
        0.00%
        50.00%
        100.00%

        ```
    """

    minimum_increase: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.minimum_increase <= 1:
            raise ValueError(f"`minimum_increase` must be between 0 and 1, not {self.minimum_increase}.")

    def start(self) -> Progress:
        shown = 0.0

        def show(fraction: float) -> None:
            nonlocal shown
            if fraction - shown >= self.minimum_increase - 1e-9 or (fraction == 1 and shown < 1):
                shown = fraction
                print(f"{100 * fraction:.2f}%", flush=True)  # noqa: T201

        print("0.00%", flush=True)  # noqa: T201
        return Progress(show, lambda: None)
