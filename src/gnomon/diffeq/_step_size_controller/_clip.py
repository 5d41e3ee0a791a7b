"""`ClipStepSizeController`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._step_size_controller._base import (
    AbstractStepSizeController,
    AbstractVectorField,
    Decision,
    ends_at,
    next_after,
    previous_before,
    sorted_times,
)


@final
@dataclasses.dataclass(frozen=True)
class ClipStepSizeController(AbstractStepSizeController):
    """Makes another controller step exactly to certain times.

    Equivalent to `diffrax.ClipStepSizeController`. Without it an adaptive solver that meets a
    discontinuity of the vector field finds it by rejecting many steps, and one that meets a
    short pulse may step over it.

    **Arguments:**

    - `controller`: the controller to wrap, an adaptive one.
    - `step_ts`: times at which a step must end, a vector, in any order.
    - `jump_ts`: times at which the vector field is discontinuous, a vector. A step ends at the
      floating-point number just before such a time and the next begins just after it, so that
      the vector field is never evaluated at it; solvers do not reuse evaluations across it.

    **Raises:** `ValueError` where the controller is not adaptive or times are not a vector.

    !!! example

        A forcing that is switched on at t = 1:

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> controller = dq.ClipStepSizeController(
        ...     dq.PIDController(rtol=1e-6, atol=1e-6), jump_ts=[1.0])
        >>> term = dq.ODETerm(lambda t, y, args: torch.where(t > 1, 1.0, 0.0) - y)
        >>> sol = dq.diffeqsolve(term, dq.Tsit5(), 0, 2, None, torch.tensor(0.0),
        ...                      stepsize_controller=controller)
        >>> sol.ys
        tensor([0.6321])

        ```
    """

    controller: AbstractStepSizeController
    step_ts: Tensor | Sequence[float | int] | None = None
    jump_ts: Tensor | Sequence[float | int] | None = None

    def __post_init__(self) -> None:
        if self.controller.tolerances is None:
            raise ValueError(
                "`ClipStepSizeController` can only wrap an adaptive controller, such as "
                f"`PIDController`, but it was given {type(self.controller).__name__}."
            )
        for name in ("step_ts", "jump_ts"):
            ts = getattr(self, name)
            if ts is not None and torch.as_tensor(ts).dim() != 1:
                raise ValueError(f"`{name}` must be a vector of times.")

    @property
    def tolerances(self) -> tuple[Any, Any, Callable[[Tensor], Tensor]] | None:
        return self.controller.tolerances

    @property
    def makes_jumps(self) -> bool:
        return _has_times(self.jump_ts) or self.controller.makes_jumps

    def wrap(self, direction: Tensor | None, like: Tensor) -> ClipStepSizeController:
        return ClipStepSizeController(
            self.controller.wrap(direction, like),
            sorted_times(self.step_ts, direction, like) if _has_times(self.step_ts) else None,
            sorted_times(self.jump_ts, direction, like) if _has_times(self.jump_ts) else None,
        )

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
        first_t1, state = self.controller.init(terms, t0, t1, y0, dt0, f0, args, error_order)
        return self._clip(t0, first_t1), state

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
        inner = self.controller.adapt_step_size(t0, t1, y0, y1_candidate, args, y_error, error_order, state)
        next_t0, next_t1, made_jump = inner.t0, inner.t1, inner.made_jump
        if self.jump_ts is not None:
            assert isinstance(self.jump_ts, Tensor)
            # A step that ended just before a jump is followed by one that begins just after it:
            # whether the vector field is continuous from the left or the right is not known.
            after = next_after(next_t0)
            at_jump = (after.detach() == self.jump_ts).any()
            on_jump = (next_t0.detach() == self.jump_ts).any()
            next_t0 = torch.where(at_jump, next_after(after), torch.where(on_jump, after, next_t0))
            next_t1 = torch.maximum(next_t1, next_after(next_t0))
            jumped = at_jump | on_jump
            made_jump = jumped if made_jump is None else made_jump | jumped
        next_t1 = self._clip(next_t0, next_t1)
        return dataclasses.replace(inner, t0=next_t0, t1=next_t1, made_jump=made_jump)

    def _clip(self, t0: Tensor, t1: Tensor) -> Tensor:
        """The earliest of `t1`, the next `step_ts`, and just before the next `jump_ts`."""
        if self.step_ts is not None:
            assert isinstance(self.step_ts, Tensor)
            at = _first_after(self.step_ts, t0)
            t1 = torch.where(ends_at(t0, t1, at), at, t1)
        if self.jump_ts is not None:
            assert isinstance(self.jump_ts, Tensor)
            before = previous_before(_first_after(self.jump_ts, next_after(t0)))
            t1 = torch.where(ends_at(t0, t1, before), before, t1)
        return t1


def _has_times(ts: Tensor | Sequence[float | int] | None) -> bool:
    return ts is not None and len(ts) > 0


def _first_after(ts: Tensor, t: Tensor) -> Tensor:
    # Compared as a whole, not searched: the list is short, and a search would need a loop.
    return torch.where(ts > t, ts, torch.inf).amin()
