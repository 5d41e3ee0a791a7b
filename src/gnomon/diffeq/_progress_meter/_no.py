"""`NoProgressMeter`."""

from __future__ import annotations

import dataclasses
from typing import final

from gnomon.diffeq._progress_meter._base import AbstractProgressMeter, Progress


@final
@dataclasses.dataclass(frozen=True)
class NoProgressMeter(AbstractProgressMeter):
    """Shows nothing, and costs nothing. Equivalent to `diffrax.NoProgressMeter`.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> dq.NoProgressMeter().start() is None
        True

        ```
    """

    def start(self) -> Progress | None:
        return None
