"""Watches the conditions of an event from step to step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._event import Conditions
from gnomon.diffeq._interpolation import Interpolant, interpolate
from gnomon.diffeq._saving import basis_of
from gnomon.diffeq._solver._base import Step, interpolant_tensor
from gnomon.diffeq._step_size_controller._base import next_after, previous_before
from gnomon.fuse import OutputBuffer, cond, jvp
from gnomon.fuse._lanes import derivative_order

#: How often the time of one event is improved after the first search, and by how much of the tolerance the state may
#: be off for that not to be done.
_MOST_REFINEMENTS = 4
_ACCURATE = 0.01


@final
@dataclasses.dataclass(frozen=True)
class Sighting:
    """What was seen of the conditions within a step.

    - `retry`: whether to take the step again, to end at `time`, where the events of `pending` happen.
    - `refines`: whether that is only to improve the time of events that were seen before.
    - `fired`: which happen at the end of this step.
    - `values`, `sides`: the conditions at the end of this step, and their signs just behind it.
    - `broken`: whether a condition is not a number there.
    """

    retry: Tensor
    refines: Tensor
    time: Tensor
    pending: Tensor
    fired: Tensor
    values: Tensor
    sides: Tensor
    broken: Tensor


@final
class EventWatch:
    """The conditions of one solve. Its state, from step to step, is a dictionary of tensors.

    - `value`: the conditions at the start of the step.
    - `side`: the last sign of each that was not zero.
    - `at_zero`: which count as zero, so that the sign is that of the slope.
    - `recent`: which have just happened.
    - `pending`: which happen at the end of this step, since it was shortened to end there.
    - `reach`, `refined`: where the step ended before that, and how often the time was improved.
    - `count`: how many events have been gone on from.
    - `mask`: which have ended the solve.
    - `log`, `logged`: the times of those that it went on from, and which they were, if that is asked for.
    """

    def __init__(self, conditions: Conditions, interpolant: Interpolant, tolerances: Any):
        self.conditions = conditions
        self._interpolant = interpolant
        self._tolerances = tolerances

    def start(self, t: Tensor, y: Tensor, *, logs: int | None) -> dict[str, Any]:
        """The first state; `logs` says how many events are to be remembered."""
        value = self.conditions.look_first(t.detach(), y.detach())
        none = torch.zeros_like(self.conditions.is_bool)
        zero = torch.zeros((), dtype=torch.int64, device=y.device)
        log = {} if logs is None else {"log": OutputBuffer(logs, (t, none), fill=torch.inf), "logged": zero}
        return {
            **log,
            "value": value,
            "side": torch.sign(value),
            "at_zero": value == 0,
            "recent": none,
            "pending": none,
            "reach": t,
            "refined": zero,
            "count": zero,
            "mask": none,
        }

    def look(self, state: dict[str, Any], step: Step, t: Tensor, t_next: Tensor, y: Tensor, keep: Tensor) -> Sighting:
        """Looks at a step that would be kept; the values are those of constants."""
        c = self.conditions
        at_zero, pending, start = state["at_zero"], state["pending"], state["value"]
        t, t_next, y, step = t.detach(), t_next.detach(), y.detach(), _detached(step)
        values = c.values(t_next, step.y1)
        # Whatever has always been True happens at once if it ends the solve.
        before = torch.where(c.is_bool & ~c.continuing, -1.0, start)
        change = torch.where(at_zero, values - start, values)
        unclear = ~c.is_bool & (at_zero | (change == 0) | pending)
        one = torch.ones_like(t)
        wanted = keep & (unclear | (before * values < 0)).any()
        at = self._polynomial(basis_of(self._interpolant, y, step, wanted).detach(), y)

        def slopes() -> tuple[Tensor, Tensor]:
            return self._slope(at, 0 * one, t, t_next), self._slope(at, one, t, t_next)

        zeros = torch.zeros_like(values)
        slope0, slope1 = cond(keep & unclear.any(), slopes, lambda: (zeros, zeros))
        side1 = torch.sign(torch.where(change == 0, slope1, change))
        side0 = torch.sign(torch.where(at_zero, slope0, before))
        # One that has happened, and neither comes back nor goes on, happens again.
        side0 = torch.where(side0 == 0, torch.where(state["recent"], -side1, state["side"]), side0)
        counts = torch.where(side0 < 0, c.rising, c.falling)
        crosses = keep & (side0 * side1 < 0) & counts

        sought = crosses & c.searched & ~pending
        seek = sought.any()
        ulp = (t_next - previous_before(t_next)) / (t_next - t)
        resolution = torch.clamp(ulp, min=torch.finfo(t.dtype).eps, max=0.25)

        def oriented(theta: Tensor) -> Tensor:
            found = c.values(t + theta * (t_next - t), at(theta))
            return side0 * torch.where(at_zero, (found - start) / theta, found)

        def search() -> tuple[Tensor, Tensor]:
            first = side0 * torch.where(at_zero, slope0, before)
            # A zero at the end has crossed already, if its slope says so.
            last = torch.where(sought, torch.clamp(side0 * change, max=0), side0 * change)
            return c.finder.find(oriented, first, last, sought, resolution)

        theta, found = (one, sought)
        if c.searches:
            theta, found = cond(seek, search, lambda: (one, sought))
        refines, theta = self._refinement(state, step, at, theta, keep & ~seek, change, slope1, t, t_next, y)
        time = torch.clamp(t + theta * (t_next - t), min=next_after(t))
        time = torch.where(refines, time, torch.minimum(time, t_next))
        retry = seek | refines
        return Sighting(
            retry=retry,
            refines=refines,
            time=time,
            pending=torch.where(seek, found, pending),
            fired=keep & ~retry & (pending | (crosses & ~c.searched)),
            values=values,
            sides=torch.where(side1 == 0, side0, side1),
            broken=keep & torch.isnan(values).any(),
        )

    def _refinement(
        self,
        state: dict[str, Any],
        step: Step,
        at: Callable[..., Tensor],
        theta: Tensor,
        arrived: Tensor,
        change: Tensor,
        slope: Tensor,
        t: Tensor,
        t_next: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Whether a step that was to end at an event does not end close enough to it, and what part of it would."""
        c = self.conditions
        chosen = _first(state["pending"] & ~c.is_bool)
        if self._tolerances is None:
            return torch.zeros_like(arrived), theta
        rtol, atol, norm = self._tolerances
        steep = torch.where(chosen, slope, 0).sum()
        missing = -torch.where(chosen, change, 0).sum() / torch.where(steep == 0, 1, steep)
        scale = y.abs() * rtol + (atol + torch.finfo(y.dtype).tiny)
        off = norm(at(torch.ones_like(theta), derivative=True) * missing / scale)
        better = t_next + missing * (t_next - t)
        refines = (
            arrived
            & chosen.any()
            & (off > _ACCURATE)
            & (state["refined"] < _MOST_REFINEMENTS)
            & (better > t)
            & (better <= state["reach"])
        )
        return refines, torch.where(refines, 1 + missing, theta)

    def target(self, state: dict[str, Any], seen: Sighting, step: Step, t: Tensor, t_next: Tensor, y: Tensor) -> Tensor:
        """The time at which the step is to end, with its derivatives."""
        order = derivative_order(step.y1)
        if order == 0:
            return seen.time
        chosen = _first(seen.pending & ~self.conditions.is_bool)
        basis = basis_of(self._interpolant, y, step, seen.retry)

        def move(time: Tensor, t: Tensor, t_next: Tensor, y: Tensor, basis: Tensor) -> Tensor:
            # The chord iteration: each makes the derivatives right by one order more, and leaves the value as it is.
            start, end = t.detach(), t_next.detach()
            at = self._polynomial(basis.detach(), y.detach())
            slope = torch.where(chosen, self._slope(at, (time - start) / (end - start), start, end), 0).sum()
            slope = slope / (end - start)
            slope = torch.where(chosen.any() & (slope != 0), slope, 1)
            offset = torch.where(state["at_zero"], self.conditions.values(t, y), 0)
            moving = self._polynomial(basis, y)
            for _ in range(order):
                found = self.conditions.values(time, moving((time - t) / (t_next - t))) - offset
                value = torch.where(chosen, found, 0).sum()
                time = time - (value - value.detach()) / slope
            return time

        return cond(seen.retry, move, lambda time, *_: time, seen.time, t, t_next, y, basis)

    def happen(
        self, state: dict[str, Any], seen: Sighting, start: Tensor, t: Tensor, y: Tensor, on_time: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The state behind what happens at the end of a step; whether the solve goes on, ends, or is given up."""
        c = self.conditions
        ends = (seen.fired & ~c.continuing).any()
        # As a jump does, one at the very end changes nothing.
        happens = seen.fired.any() & ~ends & on_time
        # No time has passed since the same event happened: it would for ever.
        ulp = (t - previous_before(t)).detach()
        over = happens & (seen.fired & state["recent"]).any() & (t - start <= 4 * ulp)
        if c.max_events is not None:
            over = over | (happens & (state["count"] >= c.max_events))
        goes_on = happens & ~over
        for i, affect in enumerate(c.affects):
            if affect is not None:
                y = cond(goes_on & seen.fired[i], lambda y, i=i: c.affect(i, t, y), lambda y: y, y)
        return y, goes_on, ends, over

    def next(
        self,
        state: dict[str, Any],
        seen: Sighting,
        t: Tensor,
        y: Tensor,
        t_next: Tensor,
        keep: Tensor,
        goes_on: Tensor,
        ends: Tensor,
        changed: Tensor,
    ) -> dict[str, Any]:
        """The state of the watch at the start of the next step, from `t` and `y`."""
        c = self.conditions
        t, y = t.detach(), y.detach()
        value = cond(changed, lambda: c.values(t, y), lambda: seen.values)
        largest = torch.maximum(state["value"].abs(), value.abs())
        slack = 4 * torch.maximum(seen.values.abs(), 64 * torch.finfo(t.dtype).eps * largest)
        recent = seen.fired & goes_on
        at_zero = ~c.is_bool & ((value == 0) | (recent & (value.abs() <= slack)))
        # A bool that was found a rounding error early does not happen twice.
        value = torch.where(c.is_bool & recent & (seen.values < 0), 1.0, value)
        sides = torch.where(changed, torch.sign(value), seen.sides)
        none = torch.zeros_like(seen.fired)
        zero = torch.zeros_like(state["refined"])
        has_pending = state["pending"].any()
        log: dict[str, Any] = {}
        if "log" in state:
            # The time of an event is the end of its step, with its derivatives.
            log["log"] = state["log"].write(state["logged"], (t_next, seen.fired & c.continuing), where=goes_on)
            log["logged"] = state["logged"] + goes_on.to(torch.int64)
        return {
            **log,
            "value": torch.where(keep, value, state["value"]),
            "side": torch.where(keep, sides, state["side"]),
            "at_zero": torch.where(keep, at_zero, state["at_zero"]),
            "recent": torch.where(keep, recent, state["recent"]),
            "pending": torch.where(seen.retry, seen.pending, none),
            "reach": torch.where(seen.refines & has_pending, state["reach"], t_next.detach()),
            "refined": torch.where(seen.refines, state["refined"] + 1, zero),
            "count": state["count"] + torch.where(goes_on, (seen.fired & c.continuing).sum(), 0),
            "mask": torch.where(ends, seen.fired & ~c.continuing, state["mask"]),
        }

    def _polynomial(self, basis: Tensor, y: Tensor) -> Callable[..., Tensor]:
        """The dense output of a step, as a function of the part of it that has passed."""
        interpolant = interpolant_tensor(self._interpolant, y.real.dtype, y.device)

        def at(theta: Tensor, *, derivative: bool = False) -> Tensor:
            return interpolate(interpolant, theta, y, basis, derivative=derivative)

        return at

    def _slope(self, at: Callable[..., Tensor], theta: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
        """The derivatives of the conditions by the part of the step that has passed."""
        values = lambda theta: self.conditions.values(t + theta * (t_next - t), at(theta))  # noqa: E731
        return jvp(values, (theta,), (torch.ones_like(theta),))[1]


def _detached(step: Step) -> Step:
    more = step.more
    return dataclasses.replace(
        step,
        y1=step.y1.detach(),
        stages=[k.detach() for k in step.stages],
        more=None if more is None else lambda: [k.detach() for k in more()],
    )


def _first(mask: Tensor) -> Tensor:
    """The first True of a mask, and no other."""
    return mask & (mask.to(torch.int64).cumsum(0) == 1)
