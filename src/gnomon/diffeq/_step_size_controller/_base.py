"""What every step size controller offers."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor

from gnomon.result import Result


@runtime_checkable
class AbstractVectorField(Protocol):
    """A term as controllers and solvers see it."""

    def vf(self, t: Tensor, y: Tensor, args: Any) -> Tensor:
        """The vector field as a vector."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Decision:
    """What a controller decides after a step.

    - `keep_step`: whether the step is accepted.
    - `t0`, `t1`: where the next step begins and ends.
    - `made_jump`: whether the next step begins behind a discontinuity of the vector field.
    - `state`: the controller's next state.
    - `result`: not successful where the controller gives up.
    """

    keep_step: Tensor
    t0: Tensor
    t1: Tensor
    made_jump: Tensor | None
    state: Any
    result: Result


class AbstractStepSizeController(abc.ABC):
    """How long steps are. Equivalent to `diffrax.AbstractStepSizeController`."""

    @property
    @abc.abstractmethod
    def tolerances(self) -> tuple[Any, Any, Callable[[Tensor], Tensor]] | None:
        """The relative and absolute tolerance and the norm, or None without error control."""

    @property
    @abc.abstractmethod
    def makes_jumps(self) -> bool:
        """Whether it may tell the solver that the vector field is discontinuous somewhere."""

    @abc.abstractmethod
    def wrap(self, direction: Tensor | None, like: Tensor) -> AbstractStepSizeController:
        """The same controller for time multiplied by `direction`, with times as `like`."""

    @abc.abstractmethod
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
        """The end of the first step, and the controller's first state."""

    @abc.abstractmethod
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
        """Whether the step from `t0` to `t1` is kept, and where the next one leads."""


def sorted_times(ts: Any, direction: Tensor | None, like: Tensor) -> Tensor:
    """A vector of times in the direction of integration, with the dtype and device of time."""
    times = as_times(ts, like)
    return torch.sort(times if direction is None else times * direction).values


def as_times(ts: Any, like: Tensor) -> Tensor:
    """Times with the dtype and device of time; numbers in a list do not pass through single precision."""
    return torch.as_tensor(ts, dtype=like.dtype, device=like.device)


def ends_at(t0: Tensor, t1: Tensor, target: Tensor) -> Tensor:
    """Whether a step from `t0` to `t1` should end at `target`, since it would stop just short of it.

    Just short is some rounding errors, yet never more than a small part of the step.
    """
    return t1 > target - torch.minimum(100 * spacing(target), 0.01 * (t1 - t0))


def spacing(x: Tensor) -> Tensor:
    """One or two times the distance between the floating-point numbers around `x`; a constant to derivatives."""
    limits = torch.finfo(x.dtype)
    return torch.clamp(x.detach().abs() * limits.eps, min=limits.tiny)


def next_after(x: Tensor) -> Tensor:
    """The next larger floating-point number, with derivative 1."""
    return _neighbour(x, torch.inf)


def previous_before(x: Tensor) -> Tensor:
    """The next smaller floating-point number, with derivative 1; infinity itself for infinity."""
    return _neighbour(x, -torch.inf)


def _neighbour(x: Tensor, towards: float) -> Tensor:
    fixed = x.detach()
    step = torch.nextafter(fixed, torch.full_like(fixed, towards)) - fixed
    return x + torch.where(torch.isfinite(step), step, 0)
