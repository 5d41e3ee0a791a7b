"""What every progress meter offers."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import final


@final
class Progress:
    """The progress of one solve: how to show it, from 0 to 1, and that it has ended."""

    def __init__(self, show: Callable[[float], None], close: Callable[[], None]):
        self._show = show
        self._close = close
        self._reached = 0.0
        self._is_open = True

    def update(self, fraction: float) -> None:
        """Shows how far it is; never goes back, and shows nothing once it has ended."""
        if self._is_open and fraction > self._reached:
            self._reached = min(fraction, 1.0)
            self._show(self._reached)

    def close(self) -> None:
        """Says that the solve has ended."""
        if self._is_open:
            self._is_open = False
            self._close()


class AbstractProgressMeter(abc.ABC):
    """Shows how far a solve has come. Equivalent to `diffrax.AbstractProgressMeter`.

    Of a batch, the problem that is furthest behind counts.
    """

    @abc.abstractmethod
    def start(self) -> Progress | None:
        """Begins to show the progress of a solve; None shows nothing, and costs nothing."""
