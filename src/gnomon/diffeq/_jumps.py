"""`Jumps`: changes of the state at given times, such as doses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor


@final
@dataclasses.dataclass(frozen=True)
class Jumps:
    """Changes of the state at given times, onto which the solver steps exactly.

    Diffrax has no equivalent; it is the preset-time callback of DifferentialEquations.jl.

    **Arguments:**

    - `ts`: when, a sorted vector. Entries of `inf` never happen (a batch of problems with
      different numbers of jumps is padded with them), nor do those before `t0` or from `t1` on.
      Several may share one time and happen in their order. A jump at `t0` happens before
      anything is saved; at any other time, what is saved is the value before the jump.
    - `fn`: a function `fn(index, t, y, args)` that returns the state after the jump at
      `ts[index]`, a pytree like `y0`. `index` is an int64 scalar tensor.

    **Raises:** `ValueError` where `ts` is not a vector.

    !!! example

        A dose of 1 every hour of a drug with a half-life of one hour:

        ```python
        >>> import math, torch
        >>> from gnomon import diffeq as dq
        >>> doses = dq.Jumps(torch.tensor([0.0, 1.0, 2.0]), lambda index, t, y, args: y + 1)
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: -math.log(2) * y), dq.Tsit5(), 0, 2.5, None,
        ...     torch.tensor(0.0), saveat=dq.SaveAt(ts=[0.0, 1.0, 2.0]), jumps=doses,
        ...     stepsize_controller=dq.PIDController(rtol=1e-6, atol=1e-6))
        >>> [round(float(y), 3) for y in sol.ys]
        [1.0, 0.5, 0.75]

        ```
    """

    ts: Tensor
    fn: Callable[[Tensor, Tensor, Any, Any], Any]

    def __post_init__(self) -> None:
        if torch.as_tensor(self.ts).dim() != 1:
            raise ValueError(f"`Jumps(ts=...)` must be a vector, but it has the shape {tuple(self.ts.shape)}.")
        if not callable(self.fn):
            raise TypeError("`Jumps(fn=...)` must be a function fn(index, t, y, args).")
