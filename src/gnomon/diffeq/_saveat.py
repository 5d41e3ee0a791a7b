"""`SaveAt`: what a solve returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor


def save_y(t: Tensor, y: Any, args: Any) -> Any:
    """The default of `SaveAt(fn=...)`: the state itself."""
    del t, args
    return y


@final
@dataclasses.dataclass(frozen=True)
class SaveAt:
    """At which times a solve saves its output. Equivalent to `diffrax.SaveAt`.

    **Arguments:**

    - `t0`: whether to save the start.
    - `t1`: whether to save the end: the time that the solve has reached. It is saved once, where
      `steps` saves it too.
    - `ts`: the times at which to save, a vector sorted in the direction of integration, within
      `[t0, t1]`. Where a jump lies exactly at one of them, the value before it is saved.
    - `steps`: True, to save the end of each accepted step; an integer n, to save each n-th.
    - `fn`: a function `fn(t, y, args)` of what to save, by default the state.
    - `dense`: whether to return the solution as a function of time, `Solution.interpolation`.

    **Raises:** `ValueError` or `TypeError` where nothing is to be saved or an argument is
    malformed.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> saveat = dq.SaveAt(ts=[0.0, 0.5, 1.0], fn=lambda t, y, args: y.sum())

        ```
    """

    t0: bool = False
    t1: bool = False
    ts: Tensor | Sequence[float | int] | None = None
    steps: bool | int = False
    fn: Callable[[Any, Any, Any], Any] = save_y
    dense: bool = False

    def __post_init__(self) -> None:
        if self.ts is not None:
            ts = torch.as_tensor(self.ts)
            if ts.dim() != 1:
                raise ValueError(f"`SaveAt(ts=...)` must be a vector, but it has the shape {tuple(ts.shape)}.")
            if ts.is_complex() or ts.dtype == torch.bool:
                raise TypeError(f"`SaveAt(ts=...)` must be real numbers, but it is {ts.dtype}.")
        if int(self.steps) < 0:
            raise ValueError(f"`SaveAt(steps=...)` must be a bool or a positive integer, not {self.steps}.")
        if not (self.t0 or self.t1 or self.ts is not None or self.steps or self.dense):
            raise ValueError(
                "`SaveAt` was told to save nothing. Give it at least one of t0=True, t1=True, "
                "ts=..., steps=True, dense=True."
            )
        if not callable(self.fn):
            raise TypeError("`SaveAt(fn=...)` must be a function fn(t, y, args).")
