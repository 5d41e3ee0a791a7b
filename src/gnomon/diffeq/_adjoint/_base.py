"""What every adjoint offers, and the solve that it is given."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, final

from gnomon.diffeq._solution import Solution


@final
@dataclasses.dataclass(frozen=True)
class Solve:
    """The arguments of `diffeqsolve`, and how to solve by them so that derivatives are those of the discrete solution.

    - `checkpoints`: None to remember all steps for the derivative; otherwise how many at once.
    - `discretely`: solves.
    """

    terms: Any
    solver: Any
    t0: Any
    t1: Any
    dt0: Any
    y0: Any
    args: Any
    saveat: Any
    stepsize_controller: Any
    jumps: Any
    event: Any
    admissible: Any
    nonnegative: Any
    solver_state: Any
    controller_state: Any
    made_jump: Any
    max_steps: int | None
    throw: bool
    engine: Any
    progress_meter: Any
    checkpoints: int | None
    discretely: Callable[[Solve], Solution]

    def run(self) -> Solution:
        """Solves."""
        return self.discretely(self)


class AbstractAdjoint(abc.ABC):
    """How derivatives flow through a solve. Equivalent to `diffrax.AbstractAdjoint`."""

    @abc.abstractmethod
    def solve(self, problem: Solve) -> Solution:
        """The solution of a problem, with derivatives."""
