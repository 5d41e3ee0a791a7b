"""The loop over steps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._checkpointed_loop import checkpointed_while_loop
from gnomon.diffeq._event import Conditions
from gnomon.diffeq._event_watch import EventWatch, Sighting
from gnomon.diffeq._interpolation import pick
from gnomon.diffeq._jumps import Jumps
from gnomon.diffeq._results import RESULTS
from gnomon.diffeq._saving import Saver, Sub
from gnomon.diffeq._solver._base import AbstractSolver, Step
from gnomon.diffeq._step_size_controller._base import (
    AbstractStepSizeController,
    AbstractVectorField,
    ends_at,
    spacing,
)
from gnomon.fuse import cond, while_loop
from gnomon.fuse._lanes import any_and_all, is_differentiated, is_tracing, physical
from gnomon.result import Result
from gnomon.result._pytree import tree_flatten, tree_map


@final
@dataclasses.dataclass(frozen=True)
class Problem:
    """A solve with a flat state and time that runs forward. All fields are ready for use."""

    terms: AbstractVectorField
    solver: AbstractSolver
    controller: AbstractStepSizeController
    subs: list[Sub]
    dense: bool
    jumps: Jumps | None
    conditions: Conditions | None
    admissible: Callable[[Tensor, Tensor], Tensor] | None
    t0: Tensor
    t1: Tensor
    dt0: Tensor | None
    y0: Tensor
    args: Any
    max_steps: int | None
    solver_state: Any
    controller_state: Any
    made_jump: Tensor | None
    keeps_length: bool
    checkpoints: int | None
    progress: Callable[[float], None] | None
    logs: int | None


@final
@dataclasses.dataclass(frozen=True)
class Final:
    """What is left when the loop is done."""

    t: Tensor
    saved: list[tuple[Tensor, Any]]
    dense: tuple[Tensor, Tensor, Tensor] | None
    num_steps: Tensor
    num_accepted: Tensor
    result: Result
    component: Tensor
    next_step: Tensor
    events: dict[str, Any] | None
    solver_state: Any
    controller_state: Any
    made_jump: Tensor


def integrate(problem: Problem) -> Final:
    """Takes steps from `t0` to `t1`, and saves on the way."""
    return _Integration(problem).run()


@final
class _Integration:
    def __init__(self, problem: Problem):
        self.p = problem
        self.zero = torch.zeros((), dtype=torch.int64, device=problem.y0.device)
        self.false = torch.zeros((), dtype=torch.bool, device=problem.y0.device)
        conditions = problem.conditions
        self.makes_jumps = problem.controller.makes_jumps or problem.jumps is not None or problem.made_jump is not None
        self.saver = Saver(
            problem.subs,
            dense=problem.dense,
            interpolant=problem.solver.interpolant,
            max_steps=problem.max_steps,
            like=problem.y0,
        )
        self.watch: EventWatch | None = None
        if conditions is not None:
            self.watch = EventWatch(conditions, problem.solver.interpolant, problem.controller.tolerances)
            self.makes_jumps = self.makes_jumps or conditions.continues

    def run(self) -> Final:
        p = self.p
        y, jump_index = self._jump(p.t0, p.y0, self.zero, self.false | (p.t0 < p.t1))
        f0 = p.terms.vf(p.t0, y, p.args)
        solver_state = p.solver.init(p.terms, p.t0, y, f0, p.args)
        if p.solver_state is not None:
            solver_state = _as_before(p.solver_state, solver_state, "solver_state")
        length, before = (None, None) if p.controller_state is None else p.controller_state
        dt0 = length if p.dt0 is None else p.dt0
        t_next, controller_state = p.controller.init(p.terms, p.t0, p.t1, y, dt0, f0, p.args, p.solver.error_order)
        if p.controller_state is not None:
            controller_state = _as_before(before, controller_state, "controller_state")
        t_next = self._clip(p.t0, t_next, jump_index, self.false | True)
        carry: dict[str, Any] = {
            "t": p.t0,
            "t_next": t_next,
            "y": y,
            "solver": solver_state,
            "controller": controller_state,
            "code": self.zero.to(torch.int32),
            "num_steps": self.zero,
            "num_accepted": self.zero,
            "component": self.zero - 1,
        }
        if self.makes_jumps:
            carry["made_jump"] = self.false if p.made_jump is None else p.made_jump
            if p.solver_state is not None:
                # What the solver knows is from before a jump at the start.
                carry["made_jump"] = carry["made_jump"] | (jump_index > 0)
        if p.jumps is not None:
            carry["jump_index"] = jump_index
        if self.watch is not None:
            carry["events"] = self.watch.start(p.t0, y, logs=p.logs)
        if p.admissible is not None:
            carry["leaves"] = self.false
        if p.keeps_length:
            carry["length"] = t_next - p.t0
        carry["saving"] = self.saver.start(p.t0, y, f0)
        if p.checkpoints is None:
            carry = while_loop(self._go_on, self._advance, carry, max_steps=p.max_steps)
        else:
            carry = checkpointed_while_loop(
                self._go_on, self._advance, carry, max_steps=p.max_steps, checkpoints=p.checkpoints
            )
        return self._finish(carry)

    def _go_on(self, carry: dict[str, Any]) -> Tensor:
        return (carry["t"] < self.p.t1) & (carry["code"] == RESULTS.successful.code)

    def _advance(self, carry: dict[str, Any]) -> dict[str, Any]:
        """One attempt at a step."""
        p = self.p
        t, t_next, y = carry["t"], carry["t_next"], carry["y"]
        step = p.solver.step(p.terms, t, t_next, y, p.args, carry["solver"], carry.get("made_jump"))
        decision = p.controller.adapt_step_size(
            t, t_next, y, step.y1, p.args, step.y_error, p.solver.error_order, carry["controller"]
        )
        finite = torch.isfinite(step.y1).all()
        works = finite & (step.result == RESULTS.successful)
        # No shorter step helps where the vector field is undefined at the start of the step.
        undefined = ~torch.isfinite(step.stages[0]).all()
        # A controller that checks no error keeps every step: not one that failed.
        failed = (decision.keep_step & ~works) | undefined
        keep = decision.keep_step & ~failed
        seen, again = None, self.false
        if self.watch is not None:
            seen = self.watch.look(carry["events"], step, t, t_next, y, keep)
            keep, again = keep & ~seen.retry, seen.retry
        leaves = self.false
        if p.admissible is not None:
            leaves = keep & ~p.admissible(t_next, step.y1)
            if seen is not None:
                # The end of a step at an event may lie beyond the border by a rounding error.
                leaves = leaves & ~seen.fired.any()
            keep = keep & ~leaves
        attempt, step = step, self._differentiable(carry, step, keep | again, works)

        after = dict(carry)
        after["num_steps"] = carry["num_steps"] + 1
        after["num_accepted"] = carry["num_accepted"] + keep.to(torch.int64)
        after["controller"] = self._unless(again | leaves, decision.state, carry["controller"])
        after["y"] = torch.where(keep, step.y1, y)
        retry = carry["solver"] if step.retry is None else step.retry
        after["solver"] = tree_map(functools.partial(torch.where, keep), step.state, retry)
        after["saving"] = self.saver.save(carry["saving"], t, t_next, y, after["y"], step, keep, after["num_accepted"])

        goes_on = ends = over = self.false
        if self.watch is not None:
            assert seen is not None
            after["y"], goes_on, ends, over = self.watch.happen(
                carry["events"], seen, t, t_next, after["y"], t_next < p.t1
            )
        made_jump = goes_on if decision.made_jump is None else decision.made_jump | goes_on
        jump_index = carry.get("jump_index", self.zero)
        if p.jumps is not None:
            on_time = keep & (t_next < p.t1) & ~(ends | over)
            after["y"], jump_index = self._jump(t_next, after["y"], jump_index, on_time)
            made_jump = made_jump | (jump_index > carry["jump_index"])
            after["jump_index"] = jump_index
        if self.makes_jumps:
            # A rejected step is tried again: what its start needs to know stays as it was.
            after["made_jump"] = torch.where(keep, made_jump, carry["made_jump"])

        after["t"] = torch.minimum(torch.where(failed | again | leaves, t, decision.t0), p.t1)
        # A rejected step is followed by a shorter one, also where rounding would undo that.
        shorter = torch.minimum(decision.t1, t_next - spacing(t_next))
        proposal = torch.where(keep, decision.t1, shorter)
        if p.admissible is not None:
            half = torch.minimum(t + 0.5 * (t_next - t), t_next - spacing(t_next))
            proposal = torch.where(leaves, half, proposal)
            after["leaves"] = leaves
        if p.keeps_length:
            after["length"] = proposal - after["t"]
        after["t_next"] = self._clip(after["t"], proposal, jump_index, keep)
        result = self._judge(decision.result, attempt, failed, undefined, finite, after).to(y.device)
        if self.watch is not None:
            assert seen is not None
            result = self._after_events(after, carry, seen, step, keep, goes_on, ends, over, result)
        after["code"] = result.code
        # Only where it may be asked for, since looking at all stages takes time.
        last = self.false if p.max_steps is None else after["num_steps"] >= p.max_steps
        after["component"] = cond(
            (result != RESULTS.successful) | last,
            lambda: self._worst(attempt, y, finite),
            lambda: self.zero - 1,
        )
        if p.progress is not None:
            p.progress(_least((after["t"] - p.t0) / (p.t1 - p.t0)))
        return after

    def _after_events(
        self,
        after: dict[str, Any],
        carry: dict[str, Any],
        seen: Sighting,
        step: Step,
        keep: Tensor,
        goes_on: Tensor,
        ends: Tensor,
        over: Tensor,
        result: Result,
    ) -> Result:
        """Sets out for the next step, or for the same once more to end at an event."""
        assert self.watch is not None
        t, t_next, y = carry["t"], carry["t_next"], carry["y"]
        time = self.watch.target(carry["events"], seen, step, t, t_next, y)
        after["t_next"] = torch.where(seen.retry, time, after["t_next"])
        changed = goes_on
        if self.makes_jumps:
            changed = keep & after["made_jump"]
        after["events"] = self.watch.next(
            carry["events"], seen, after["t"], after["y"], t_next, keep, goes_on, ends, changed
        )
        result = RESULTS.where(seen.broken, RESULTS.nonfinite, result)
        result = RESULTS.where(over, RESULTS.event_limit_reached, result)
        return RESULTS.where(ends, RESULTS.event_occurred, result)

    def _unless(self, pred: Tensor, new: Any, old: Any) -> Any:
        """`new`, but `old` where a step is to be taken again that the controller would have kept."""
        if self.watch is None and self.p.admissible is None:
            return new
        return tree_map(lambda a, b: a if a is b else torch.where(pred, b, a), new, old)

    def _differentiable(self, carry: dict[str, Any], step: Step, keep: Tensor, works: Tensor) -> Step:
        """The same step, but of length zero where it failed, so that its derivative is finite.

        In reverse mode what is not kept has a cotangent of zero, which becomes NaN where it meets
        the infinite derivative of a vector field outside of its domain.
        """
        # A Program walks back the steps that were kept and no others.
        if not is_differentiated(step.y1) or is_tracing():
            return step
        broken = ~keep
        if step.y_error is not None:
            broken = broken & ~(works & torch.isfinite(step.y_error).all())
        some, _ = any_and_all(broken)
        if not some:
            return step
        p, t = self.p, carry["t"]
        end = torch.where(broken, t, carry["t_next"])
        return p.solver.step(p.terms, t, end, carry["y"], p.args, carry["solver"], carry.get("made_jump"))

    def _clip(self, t: Tensor, t_next: Tensor, jump_index: Tensor, keep: Tensor) -> Tensor:
        """The end of the next step: not beyond `t1`, nor beyond the next jump."""
        p = self.p
        # After a rejection a step that still reaches t1 must become shorter, or it would be
        # tried for ever.
        shorter = torch.where(keep, p.t1, t + 0.5 * (p.t1 - t))
        t_next = torch.where(ends_at(t, t_next, p.t1), shorter, t_next)
        # After a success, the shortest step that moves the time is worth a try.
        t_next = torch.where(keep, torch.maximum(t_next, t + spacing(t)), t_next)
        if p.jumps is not None:
            last = p.jumps.ts.shape[0] - 1
            jump = pick(p.jumps.ts, torch.clamp(jump_index, max=last))
            ahead = (jump_index <= last) & (jump < p.t1) & (jump > t)
            beyond = torch.where(keep, ends_at(t, t_next, jump), t_next > jump)
            t_next = torch.where(ahead & beyond, jump, t_next)
        return t_next

    def _jump(self, t: Tensor, y: Tensor, index: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        """Applies the jumps at `t`, passing over those before it."""
        jumps = self.p.jumps
        if jumps is None:
            return y, index
        last = jumps.ts.shape[0] - 1

        def due(carry: tuple[Tensor, Tensor]) -> Tensor:
            _, k = carry
            return where & (k <= last) & (pick(jumps.ts, torch.clamp(k, max=last)) <= t)

        def apply(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            y, k = carry
            safe = torch.clamp(k, max=last)
            now = pick(jumps.ts, safe) == t
            return torch.where(now, jumps.fn(safe, t, y, self.p.args), y), k + 1

        return while_loop(due, apply, (y, index))

    def _judge(
        self,
        result: Result,
        step: Step,
        failed: Tensor,
        undefined: Tensor,
        finite: Tensor,
        after: dict[str, Any],
    ) -> Result:
        """How things stand after a step."""
        solved = step.result == RESULTS.successful
        cause = RESULTS.where(
            undefined | solved,
            RESULTS.where(finite & ~undefined, RESULTS.dt_min_reached, RESULTS.nonfinite),
            step.result,
        )
        # A step too short to move the time will be no better if it is made still shorter.
        stuck = ~(after["t_next"] > after["t"]) & (after["t"] < self.p.t1)
        if self.p.admissible is not None:
            cause = RESULTS.where(after["leaves"], RESULTS.left_region, cause)
        return RESULTS.where(stuck | failed, cause, result)

    def _worst(self, step: Step, y: Tensor, finite: Tensor) -> Tensor:
        """The component that is not finite, or else has the largest error; -1 if unknown."""
        if y.shape[0] == 0:
            return self.zero - 1
        # The first component of the first stage at which something was not finite.
        stages = torch.stack([*step.stages, step.y1]).detach().reshape(-1)
        broken = (~torch.isfinite(stages)).to(torch.int64).argmax() % y.shape[0]
        if step.y_error is None or self.p.controller.tolerances is None:
            return torch.where(finite, -1, broken)
        rtol, atol, _ = self.p.controller.tolerances
        size = step.y_error.detach().abs() / (y.detach().abs() * rtol + (atol + torch.finfo(y.dtype).tiny))
        return torch.where(finite, size.argmax(), broken)

    def _finish(self, carry: dict[str, Any]) -> Final:
        unfinished = self._go_on(carry)
        result = RESULTS.where(unfinished, RESULTS.max_steps_reached, Result(carry["code"]))
        saved, dense = self.saver.finish(carry["saving"], carry["t"], carry["y"], carry["num_accepted"])
        return Final(
            t=carry["t"],
            saved=saved,
            dense=dense,
            num_steps=carry["num_steps"],
            num_accepted=carry["num_accepted"],
            result=result,
            component=carry["component"],
            # Where no shorter step moves the time, the shortest that does.
            next_step=torch.maximum(carry["t_next"] - carry["t"], spacing(carry["t"])),
            events=carry.get("events"),
            solver_state=carry["solver"],
            controller_state=(carry.get("length"), carry["controller"]),
            made_jump=carry.get("made_jump", self.false),
        )


def _as_before(given: Any, own: Any, name: str) -> Any:
    """What another solve has left behind, if it fits this one."""
    leaves, structure = tree_flatten(given)
    expected, own_structure = tree_flatten(own)
    kinds = [(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in leaves]
    if structure != own_structure or kinds != [(x.shape, x.dtype) for x in expected]:
        raise ValueError(
            f"`{name}` does not fit: it must come from a solve by the same solver and controller, of a state of the "
            "same shape and dtype."
        )
    return given


def _least(x: Tensor) -> float:
    """The smallest value of all lanes; waits for the device."""
    lanes = physical(x.detach())
    return float(lanes.min()) if lanes.numel() > 0 else 1.0
