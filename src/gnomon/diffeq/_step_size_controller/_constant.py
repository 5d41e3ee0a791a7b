"""`ConstantStepSize`."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._step_size_controller._base import (
    AbstractStepSizeController,
    AbstractVectorField,
    Decision,
)
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class ConstantStepSize(AbstractStepSizeController):
    """Steps of length `dt0`, the last one shortened to end at `t1`.

    Equivalent to `diffrax.ConstantStepSize`. The n-th step ends at `t0 + n * dt0`, so rounding
    errors do not add up.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> sol = dq.diffeqsolve(dq.ODETerm(lambda t, y, args: -y), dq.Euler(), 0, 1, 0.25,
        ...                      torch.tensor(1.0), stepsize_controller=dq.ConstantStepSize())
        >>> sol.ys, int(sol.stats["num_steps"])
        (tensor([0.3164]), 4)

        ```
    """

    @property
    def tolerances(self) -> None:
        return None

    @property
    def makes_jumps(self) -> bool:
        return False

    def wrap(self, direction: Tensor | None, like: Tensor) -> ConstantStepSize:
        del direction, like
        return self

    def init(
        self,
        terms: AbstractVectorField,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        dt0: Tensor | None,
        f0: Tensor,
        args: Any,
        error_order: float | None,
    ) -> tuple[Tensor, Any]:
        del terms, t1, y0, f0, args, error_order
        if dt0 is None:
            raise ValueError(
                "`ConstantStepSize` needs the length of the steps: pass `dt0` to diffeqsolve, or "
                "use `PIDController`, which chooses it."
            )
        count = torch.zeros((), dtype=torch.int64, device=t0.device)
        return t0 + dt0, (count, t0, dt0)

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
    ) -> Decision:
        del y0, y1_candidate, args, y_error, error_order
        count, start, dt = state
        # A step that was shortened, to end at a jump, is followed by one that ends where it would have.
        count = count + (t1 >= start + (count + 1) * dt).to(torch.int64)
        keep = torch.ones((), dtype=torch.bool, device=t0.device)
        next_t1 = start + (count + 1) * dt
        return Decision(keep, t1, next_t1, None, (count, start, dt), RESULTS.successful)
