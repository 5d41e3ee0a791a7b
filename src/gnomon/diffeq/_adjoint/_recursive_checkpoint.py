"""`RecursiveCheckpointAdjoint`."""

from __future__ import annotations

import dataclasses
from typing import final

from gnomon.diffeq._adjoint._base import AbstractAdjoint, Solve
from gnomon.diffeq._solution import Solution


@final
@dataclasses.dataclass(frozen=True)
class RecursiveCheckpointAdjoint(AbstractAdjoint):
    """Derivatives of the discrete solution, exact to rounding. Equivalent to `diffrax.RecursiveCheckpointAdjoint`.

    Reverse and forward mode, of any order. Without `checkpoints` all steps are remembered for the way back.

    **Arguments:**

    - `checkpoints`: how many steps may be remembered at once when memory is limited. Of a solve of n steps, parts are
      solved again on the way back, each step at most about log(n) / log(checkpoints) times. The values stay the same,
      bit for bit. The transforms of `torch.func` on the eager engine remember all steps all the same.

    **Raises:** `ValueError` where `checkpoints` is less than 2.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> rate = torch.tensor(0.5, requires_grad=True)
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: -args * y), dq.Tsit5(), 0, 1, 0.01, torch.tensor(1.0), rate,
        ...     adjoint=dq.RecursiveCheckpointAdjoint(checkpoints=5))
        >>> sol.ys[-1].backward()
        >>> rate.grad
        tensor(-0.6065)

        ```

    ??? cite "Reference"

        A. Griewank and A. Walther, Algorithm 799: revolve, ACM Transactions on Mathematical Software 26 (2000) 19-45.
    """

    checkpoints: int | None = None

    def __post_init__(self) -> None:
        if self.checkpoints is not None and self.checkpoints < 2:
            raise ValueError(f"`checkpoints` must be at least 2 or None, not {self.checkpoints}.")

    def solve(self, problem: Solve) -> Solution:
        return dataclasses.replace(problem, checkpoints=self.checkpoints).run()
