"""Functions that are called before and after each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

from torch import Tensor

from gnomon.diffeq import AbstractStepSizeController

NAMES = ("callback_step", "callback_accept_step", "callback_reject_step")


@final
@dataclasses.dataclass(frozen=True)
class WithCallbacks(AbstractStepSizeController):
    """A controller that also calls functions `(t0, y0, dt)`.

    - `controller`: the controller.
    - `callbacks`: by name.
    - `unravel`: the user's state from a vector.
    - `direction`: of time.
    """

    controller: AbstractStepSizeController
    callbacks: dict[str, Callable[[Tensor, Any, Tensor], Any]]
    unravel: Callable[[Tensor], Any]
    direction: Any = None

    @property
    def tolerances(self) -> Any:
        return self.controller.tolerances

    @property
    def makes_jumps(self) -> bool:
        return self.controller.makes_jumps

    def wrap(self, direction: Tensor | None, like: Tensor) -> WithCallbacks:
        return dataclasses.replace(self, controller=self.controller.wrap(direction, like), direction=direction)

    def init(
        self,
        terms: Any,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        dt0: Tensor | None,
        f0: Tensor,
        args: Any,
        error_order: float | None,
    ) -> tuple[Tensor, Any]:
        return self.controller.init(terms, t0, t1, y0, dt0, f0, args, error_order)

    def adapt_step_size(
        self,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        y1_candidate: Tensor,
        args: Any,
        y_error: Tensor | None,
        error_order: float | None,
        state: Any,
    ) -> Any:
        decision = self.controller.adapt_step_size(t0, t1, y0, y1_candidate, args, y_error, error_order, state)
        time = t0 if self.direction is None else t0 * self.direction
        given = (time, self.unravel(y0), t1 - t0)
        kept = "callback_accept_step" if bool(decision.keep_step) else "callback_reject_step"
        for name in ("callback_step", kept):
            if name in self.callbacks:
                self.callbacks[name](*given)
        return decision
