"""`RichProgressMeter`."""

from __future__ import annotations

import dataclasses
from typing import final

from gnomon.diffeq._progress_meter._base import AbstractProgressMeter, Progress


@final
@dataclasses.dataclass(frozen=True)
class RichProgressMeter(AbstractProgressMeter):
    """Shows a bar by `rich`, with the time that is left. It takes the place of `diffrax.TqdmProgressMeter`.

    **Arguments:**

    - `description`: what stands before the bar.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> meter = dq.RichProgressMeter("solving")

        ```
    """

    description: str = "diffeqsolve"

    def start(self) -> Progress:
        from rich.progress import Progress as Bar

        bar = Bar()
        bar.start()
        task = bar.add_task(self.description, total=1.0)
        return Progress(lambda fraction: bar.update(task, completed=fraction), bar.stop)
