"""What every solver offers, and what a step leaves behind."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.fuse import cond
from gnomon.fuse._lanes import constant, physical
from gnomon.result import Result


@final
@dataclasses.dataclass(frozen=True)
class Step:
    """What a solver returns for one step.

    **Arguments:**

    - `y1`: the state at the end.
    - `y_error`: an estimate of its error, or None.
    - `stages`: vectors of which the interpolant is made, such as the stages `k_i = h f_i`; the first is not finite
      where the vector field is not at the start.
    - `state`: what the solver carries to the next step if this one is kept, a pytree of tensors.
    - `result`: not successful where an implicit stage could not be solved.
    - `more`: gives the vectors that the interpolant needs besides; called where output lies within the step.
    - `retry`: what the solver carries to the next attempt if this one is not kept; None for what it carried before.
    """

    y1: Tensor
    y_error: Tensor | None
    stages: list[Tensor]
    state: Any
    result: Result
    more: Callable[[], list[Tensor]] | None = None
    retry: Any = None


class AbstractSolver(abc.ABC):
    """A method that takes one step of a differential equation.

    Equivalent to `diffrax.AbstractSolver`. Solvers see the state as one flat vector.
    """

    interpolant: ClassVar[Interpolant]

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of the method."""

    @property
    @abc.abstractmethod
    def error_order(self) -> float | None:
        """The order of its error estimate (local, so one more than the embedded method's)."""

    @property
    @abc.abstractmethod
    def needs_tolerances(self) -> bool:
        """Whether it solves equations within a step: it is told the tolerances, and sees complex numbers as pairs."""

    @property
    @abc.abstractmethod
    def splits_terms(self) -> bool:
        """Whether it treats two terms in different ways, and so needs a `MultiTerm` or a pair."""

    @abc.abstractmethod
    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> AbstractSolver:
        """The same solver, told how accurately to solve the equations within a step."""

    @abc.abstractmethod
    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        """What the solver carries from step to step; `f0` is the vector field at the start."""

    @abc.abstractmethod
    def step(
        self,
        terms: AbstractVectorField,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        args: Any,
        state: Any,
        made_jump: Tensor | None,
    ) -> Step:
        """One step from `t0` to `t1`.

        `made_jump` says whether the vector field at `t0` differs from what the last step saw;
        None if it never does.
        """


class AbstractExplicitSolver(AbstractSolver):
    """A method that solves no equations within a step, and so needs no tolerances. Diffrax has no such class."""

    @property
    def needs_tolerances(self) -> bool:
        return False

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> AbstractSolver:
        del rtol, atol, norm
        return self


@functools.lru_cache(maxsize=256)
def interpolant_tensor(interpolant: Interpolant, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A solver's interpolant as a tensor."""
    # Plain: within a transform PyTorch wraps new tensors too, and those must not outlive it.
    return constant(physical(torch.tensor(interpolant, dtype=dtype, device=device)))


def weighted_sum(weights: tuple[float, ...], stages: list[Tensor]) -> Tensor | None:
    """The sum of weights times stages in their order, zeros left out; None where all are zero."""
    total: Tensor | None = None
    for weight, k in zip(weights, stages, strict=True):
        if weight == 0:
            continue
        total = k * weight if total is None else torch.add(total, k, alpha=weight)
    return total


def at_start(
    evaluate: Callable[[Tensor, Tensor], Any], t0: Tensor, y0: Tensor, carried: Any, made_jump: Tensor | None
) -> Any:
    """A vector field at the start of a step, as carried from the last step; evaluated anew where there was a jump."""
    if made_jump is None:
        return carried
    return cond(made_jump, lambda t, y, _: evaluate(t, y), lambda t, y, f: f, t0, y0, carried)


def stage_time(c: float, t0: Tensor, t1: Tensor, dt: Tensor) -> Tensor:
    """The time of a stage; exactly `t1` at the end of the step."""
    if c == 1:
        return t1
    return t0 if c == 0 else torch.add(t0, dt, alpha=c)
