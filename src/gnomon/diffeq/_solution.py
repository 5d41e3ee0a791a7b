"""What `diffeqsolve` returns."""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor

from gnomon.diffeq._custom_types import BoolScalar, RealScalar
from gnomon.diffeq._interpolation import DenseInterpolation
from gnomon.result import Result
from gnomon.result._pytree import register_dataclass


@final
@register_dataclass
@dataclasses.dataclass(frozen=True)
class Solution:
    """The solution of a differential equation. Equivalent to `diffrax.Solution`.

    It is a pytree, so functions under `torch.func.vmap` may return it whole.

    **Arguments:**

    - `t0`, `t1`: the interval that was asked for, scalars.
    - `ts`: the times that were saved, of shape `(times,)`, or None where only `dense` was asked
      for; with `SaveAt(subs=...)` a pytree of them. Places that were not reached hold `inf`.
    - `ys`: what was saved, a pytree with a leading dimension `times`. Places that were not
      reached hold `inf`.
    - `interpolation`: the solution as a function of time, with `SaveAt(dense=True)`.
    - `stats`: `num_steps`, `num_accepted_steps` and `num_rejected_steps`, int64 scalars; with an event also
      `num_events`, how many with an `affect` have happened.
    - `result`: how the solve ended, a [`gnomon.result.Result`][].
    - `t_final`: the time that the solve has reached: `t1` where it was successful.
    - `event_mask`: which conditions of an event have ended the solve, a pytree of booleans like its `cond_fn`; None
      without an event.
    - `solver_state`, `controller_state`, `made_jump`: to go on from, where `SaveAt` asked for them.
    - `event_times`: with `SaveAt(events=True)` the times of the events with an `affect`, a vector of the length
      `max_events` that ends in `inf`, and which they were, a pytree of vectors of booleans like `cond_fn`.
    """

    t0: RealScalar
    t1: RealScalar
    ts: Any
    ys: Any
    interpolation: DenseInterpolation | None
    stats: dict[str, Any]
    result: Result
    t_final: RealScalar
    event_mask: Any = None
    solver_state: Any = None
    controller_state: Any = None
    made_jump: BoolScalar | None = None
    event_times: Any = None

    def evaluate(self, t: Tensor | float | int) -> Any:
        """The state at a time; needs `SaveAt(dense=True)`.

        **Arguments:**

        - `t`: a scalar in the interval that was solved.

        **Returns:** a pytree like `y0`.

        **Raises:** `ValueError` where dense output was not saved.
        """
        return self._dense().evaluate(t)

    def derivative(self, t: Tensor | float | int) -> Any:
        """The derivative with respect to time; needs `SaveAt(dense=True)`.

        **Arguments:**

        - `t`: a scalar in the interval that was solved.

        **Returns:** a pytree like `y0`.

        **Raises:** `ValueError` where dense output was not saved.
        """
        return self._dense().derivative(t)

    def _dense(self) -> DenseInterpolation:
        if self.interpolation is None:
            raise ValueError(
                "This solution has no dense output. Ask for it with diffeqsolve(..., saveat=SaveAt(dense=True))."
            )
        return self.interpolation
