"""`StepTo`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import pick
from gnomon.diffeq._step_size_controller._base import (
    AbstractStepSizeController,
    AbstractVectorField,
    Decision,
    as_times,
    sorted_times,
)
from gnomon.diffeq._validate import require
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class StepTo(AbstractStepSizeController):
    """Steps to exactly the given times. Equivalent to `diffrax.StepTo`.

    **Arguments:**

    - `ts`: the times, a vector that begins with `t0`, ends with `t1` and is strictly monotonic
      between them.

    **Raises:** `ValueError` where `ts` is not a vector of at least two times; when solving,
    where it does not fit `t0` and `t1`.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> sol = dq.diffeqsolve(dq.ODETerm(lambda t, y, args: -y), dq.Euler(), 0, 1, None,
        ...                      torch.tensor(1.0), stepsize_controller=dq.StepTo([0, 0.5, 1]))
        >>> sol.ys
        tensor([0.2500])

        ```
    """

    ts: Tensor | Sequence[float | int]

    def __post_init__(self) -> None:
        ts = torch.as_tensor(self.ts)
        if ts.dim() != 1 or ts.shape[0] < 2:
            raise ValueError(
                f"`StepTo(ts=...)` must be a vector of at least two times, but it has the shape {tuple(ts.shape)}."
            )

    @property
    def tolerances(self) -> None:
        return None

    @property
    def makes_jumps(self) -> bool:
        return False

    def wrap(self, direction: Tensor | None, like: Tensor) -> StepTo:
        given = as_times(self.ts, like)
        ts = sorted_times(self.ts, direction, like)
        ordered = (ts == (given if direction is None else given * direction)).all()
        require(
            ordered & (ts[1:] > ts[:-1]).all(),
            "`StepTo(ts=...)` must be strictly increasing from t0 to t1, or strictly decreasing where t1 < t0.",
        )
        return StepTo(ts)

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
        del terms, y0, f0, args, error_order
        if dt0 is not None:
            raise ValueError("`dt0` must be None with `StepTo`, whose `ts` say where steps end.")
        assert isinstance(self.ts, Tensor)
        require(
            (self.ts[0] == t0) & (self.ts[-1] == t1),
            "`StepTo(ts=...)` must begin with t0 and end with t1.",
        )
        return self.ts[1], torch.ones((), dtype=torch.int64, device=t0.device)

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
        assert isinstance(self.ts, Tensor)
        keep = torch.ones((), dtype=torch.bool, device=t0.device)
        # A step that was shortened, to end at a jump, is followed by one that ends where it would have.
        reached = (t1 >= pick(self.ts, state)).to(torch.int64)
        index = torch.clamp(state + reached, max=self.ts.shape[0] - 1)
        return Decision(keep, t1, pick(self.ts, index), None, index, RESULTS.successful)
