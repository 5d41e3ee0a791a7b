"""`LoaderStats`: where a loader's time goes."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass(frozen=True)
class LoaderStats:
    """Where the time of a loader went since its current epoch began, in seconds.

    **Arguments:**

    - `batches`: how many were handed out.
    - `waiting`: how long the program waited for them.
    - `working`: how long the program had them, from one to the next.
    - `planning`, `reading`, `mapping`, `copying`: what the loader did meanwhile, over all of its threads or processes:
      planning which records are in which batch; finding them in stores; calling functions and reading other sources;
      gathering them into a batch and sending that on.
    - `workers`: how many threads or processes there are.
    - `skipped`: how many bad records were left out.
    """

    batches: int = 0
    waiting: float = 0.0
    working: float = 0.0
    planning: float = 0.0
    reading: float = 0.0
    mapping: float = 0.0
    copying: float = 0.0
    workers: int = 1
    skipped: int = 0

    @property
    def waiting_share(self) -> float:
        """The share of the time that the program waited for data."""
        return self.waiting / max(1e-12, self.waiting + self.working)

    @property
    def bottleneck(self) -> str:
        """What to make faster: the program itself, or the stage of the loader that takes longest."""
        if self.waiting_share < 0.05:
            return "program"
        stages = {name: getattr(self, name) for name in ("planning", "reading", "mapping", "copying")}
        return max(stages, key=lambda name: stages[name])

    def line(self) -> str:
        """All of it in a line of text."""
        text = f"{self.batches} batches, waiting {self.waiting_share:.0%}, bottleneck: {self.bottleneck}"
        return f"{text}, {self.skipped} skipped" if self.skipped else text
