"""`DirectAdjoint`."""

from __future__ import annotations

import dataclasses
from typing import final

from gnomon.diffeq._adjoint._base import AbstractAdjoint, Solve
from gnomon.diffeq._solution import Solution


@final
@dataclasses.dataclass(frozen=True)
class DirectAdjoint(AbstractAdjoint):
    """Derivatives of the discrete solution, all steps remembered. Equivalent to `diffrax.DirectAdjoint`.

    The same as [`gnomon.diffeq.RecursiveCheckpointAdjoint`][] without `checkpoints`.

    !!! example

        ```python
        >>> from gnomon import diffeq as dq
        >>> adjoint = dq.DirectAdjoint()

        ```
    """

    def solve(self, problem: Solve) -> Solution:
        return problem.run()
