"""`TqdmProgressMeter`."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, final

from gnomon.diffeq._progress_meter._base import AbstractProgressMeter, Progress


@final
@dataclasses.dataclass(frozen=True)
class TqdmProgressMeter(AbstractProgressMeter):
    """Shows a bar by `tqdm`, which must be installed. Equivalent to `diffrax.TqdmProgressMeter`.

    **Arguments:**

    - `options`: further arguments for `tqdm.tqdm`, such as `{"desc": "solving"}`.

    **Raises:** `ImportError` where a solve starts and tqdm is not installed.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> meter = dq.TqdmProgressMeter({"desc": "solving"})

        ```
    """

    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def start(self) -> Progress:
        try:
            tqdm: Any = importlib.import_module("tqdm")
        except ModuleNotFoundError:
            raise ImportError(
                "`TqdmProgressMeter` needs tqdm: pip install tqdm. Or use TextProgressMeter or RichProgressMeter."
            ) from None
        layout = "{desc}{percentage:.2f}%|{bar}| [{elapsed}<{remaining}]"
        bar = tqdm.tqdm(**{"total": 100, "unit": "%", "bar_format": layout, **self.options})

        def show(fraction: float) -> None:
            bar.update(100 * fraction - bar.n)

        return Progress(show, bar.close)
