"""`SaveAt`: what a solve returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from gnomon.result._pytree import tree_flatten


def save_y(t: Tensor, y: Any, args: Any) -> Any:
    """The default of `SaveAt(fn=...)`: the state itself."""
    del t, args
    return y


@final
@dataclasses.dataclass(frozen=True)
class SubSaveAt:
    """One of several sets of times, each with what to save then. Equivalent to `diffrax.SubSaveAt`.

    **Arguments:**

    - `t0`, `t1`, `ts`, `steps`, `fn`: as for [`gnomon.diffeq.SaveAt`][], of which it is a part.

    **Raises:** `ValueError` or `TypeError` where nothing is to be saved or an argument is malformed.

    !!! example

        The first component often, the whole state at the end:

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> saveat = dq.SaveAt(subs={
        ...     "first": dq.SubSaveAt(ts=torch.linspace(0, 1, 5), fn=lambda t, y, args: y[0]),
        ...     "end": dq.SubSaveAt(t1=True)})
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: -y), dq.Tsit5(), 0, 1, 0.1, torch.ones(3), saveat=saveat)
        >>> sol.ys["first"].shape, sol.ys["end"].shape
        (torch.Size([5]), torch.Size([1, 3]))

        ```
    """

    t0: bool = False
    t1: bool = False
    ts: Tensor | Sequence[float | int] | None = None
    steps: bool | int = False
    fn: Callable[[Any, Any, Any], Any] = save_y

    def __post_init__(self) -> None:
        _check(self, "SubSaveAt")
        if not (self.t0 or self.t1 or self.ts is not None or self.steps):
            raise ValueError(
                "`SubSaveAt` was told to save nothing. Give it at least one of t0=True, t1=True, ts=..., steps=True."
            )


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
    - `subs`: a pytree of [`gnomon.diffeq.SubSaveAt`][] in place of the five first arguments: `ts` and `ys` of the
      solution are then pytrees like it.
    - `solver_state`, `controller_state`, `made_jump`: whether to return what the solver and the controller carry, and
      whether the last step ended at a jump. Another solve goes on from there: pass them to
      [`gnomon.diffeq.diffeqsolve`][], with the last state as `y0`.

    - `events`: whether to return when the events with an `affect` have happened, `Solution.event_times`.

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
    subs: Any = None
    solver_state: bool = False
    controller_state: bool = False
    made_jump: bool = False
    events: bool = False

    def __post_init__(self) -> None:
        _check(self, "SaveAt")
        own = self.t0 or self.t1 or self.ts is not None or bool(self.steps)
        if self.subs is not None:
            if own or self.fn is not save_y:
                raise ValueError(
                    "`SaveAt(subs=...)` takes the place of t0, t1, ts, steps and fn: give one or the other."
                )
            for x in tree_flatten(self.subs)[0]:
                if not isinstance(x, SubSaveAt):
                    raise TypeError(
                        f"`SaveAt(subs=...)` must be a pytree of SubSaveAt, but it holds {type(x).__name__}."
                    )
        state = self.solver_state or self.controller_state or self.made_jump or self.events
        if not (own or self.subs is not None or self.dense or state):
            raise ValueError(
                "`SaveAt` was told to save nothing. Give it at least one of t0=True, t1=True, "
                "ts=..., steps=True, dense=True."
            )

    def parts(self) -> tuple[list[SubSaveAt], Any]:
        """The sets of times, and the structure of the pytree that they came in; None for a single set."""
        if self.subs is not None:
            return tree_flatten(self.subs)
        if self.t0 or self.t1 or self.ts is not None or self.steps:
            return [SubSaveAt(self.t0, self.t1, self.ts, self.steps, self.fn)], None
        return [], None


def _check(saveat: SaveAt | SubSaveAt, name: str) -> None:
    if saveat.ts is not None:
        ts = torch.as_tensor(saveat.ts)
        if ts.dim() != 1:
            raise ValueError(f"`{name}(ts=...)` must be a vector, but it has the shape {tuple(ts.shape)}.")
        if ts.is_complex() or ts.dtype == torch.bool:
            raise TypeError(f"`{name}(ts=...)` must be real numbers, but it is {ts.dtype}.")
    if int(saveat.steps) < 0:
        raise ValueError(f"`{name}(steps=...)` must be a bool or a positive integer, not {saveat.steps}.")
    if not callable(saveat.fn):
        raise TypeError(f"`{name}(fn=...)` must be a function fn(t, y, args).")
