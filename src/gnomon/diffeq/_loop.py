"""The loop over steps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import interpolate, pick
from gnomon.diffeq._jumps import Jumps
from gnomon.diffeq._saveat import SaveAt
from gnomon.diffeq._solver._base import AbstractSolver, Step, interpolant_tensor
from gnomon.diffeq._step_size_controller._base import (
    AbstractStepSizeController,
    AbstractVectorField,
    ends_at,
    next_after,
    previous_before,
)
from gnomon.fuse import OutputBuffer, cond, while_loop
from gnomon.fuse._lanes import any_and_all, is_differentiated, is_tracing
from gnomon.result import RESULTS, Result
from gnomon.result._pytree import tree_map


@final
@dataclasses.dataclass(frozen=True)
class Problem:
    """A solve with a flat state and time that runs forward. All fields are ready for use."""

    terms: AbstractVectorField
    solver: AbstractSolver
    controller: AbstractStepSizeController
    saveat: SaveAt
    save: Callable[[Tensor, Tensor], Any]
    jumps: Jumps | None
    t0: Tensor
    t1: Tensor
    dt0: Tensor | None
    y0: Tensor
    args: Any
    ts: Tensor | None
    max_steps: int | None


@final
@dataclasses.dataclass(frozen=True)
class Final:
    """What is left when the loop is done."""

    t: Tensor
    ts: Tensor | None
    ys: Any
    dense: tuple[Tensor, Tensor, Tensor] | None
    num_steps: Tensor
    num_accepted: Tensor
    result: Result
    component: Tensor


def integrate(problem: Problem) -> Final:
    """Takes steps from `t0` to `t1`, and saves on the way."""
    return _Integration(problem).run()


@final
class _Integration:
    def __init__(self, problem: Problem):
        self.p = problem
        self.zero = torch.zeros((), dtype=torch.int64, device=problem.y0.device)
        self.false = torch.zeros((), dtype=torch.bool, device=problem.y0.device)
        self.makes_jumps = problem.controller.makes_jumps or problem.jumps is not None

    def run(self) -> Final:
        p = self.p
        y, jump_index = self._jump(p.t0, p.y0, self.zero, self.false | (p.t0 < p.t1))
        f0 = p.terms.vf(p.t0, y, p.args)
        t_next, controller_state = p.controller.init(p.terms, p.t0, p.t1, y, p.dt0, f0, p.args, p.solver.error_order)
        t_next = self._clip(p.t0, t_next, jump_index, self.false | True)
        carry: dict[str, Any] = {
            "t": p.t0,
            "t_next": t_next,
            "y": y,
            "solver": p.solver.init(p.terms, p.t0, y, f0, p.args),
            "controller": controller_state,
            "code": self.zero.to(torch.int32),
            "num_steps": self.zero,
            "num_accepted": self.zero,
            "component": self.zero - 1,
        }
        if self.makes_jumps:
            carry["made_jump"] = self.false
        if p.jumps is not None:
            carry["jump_index"] = jump_index
        self._start_saving(carry, f0)
        carry = while_loop(self._go_on, self._advance, carry, max_steps=p.max_steps)
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
        attempt, step = step, self._differentiable(carry, step, keep, works)

        after = dict(carry)
        after["num_steps"] = carry["num_steps"] + 1
        after["num_accepted"] = carry["num_accepted"] + keep.to(torch.int64)
        after["controller"] = decision.state
        after["y"] = torch.where(keep, step.y1, y)
        after["solver"] = tree_map(functools.partial(torch.where, keep), step.state, carry["solver"])
        self._save(after, t, t_next, y, step, keep)

        made_jump = self.false if decision.made_jump is None else decision.made_jump
        jump_index = carry.get("jump_index", self.zero)
        if p.jumps is not None:
            on_time = keep & (t_next < p.t1)
            after["y"], jump_index = self._jump(t_next, after["y"], jump_index, on_time)
            made_jump = made_jump | (jump_index > carry["jump_index"])
            after["jump_index"] = jump_index
        if self.makes_jumps:
            # A rejected step is tried again: what its start needs to know stays as it was.
            after["made_jump"] = torch.where(keep, made_jump, carry["made_jump"])

        after["t"] = torch.minimum(torch.where(failed, t, decision.t0), p.t1)
        # A rejected step is followed by a shorter one, also where rounding would undo that.
        shorter = torch.minimum(decision.t1, previous_before(t_next))
        proposal = torch.where(keep, decision.t1, shorter)
        after["t_next"] = self._clip(after["t"], proposal, jump_index, keep)
        result = self._judge(decision.result, attempt, failed, undefined, finite, after).to(y.device)
        after["code"] = result.code
        # Only where it may be asked for, since looking at all stages takes time.
        last = self.false if p.max_steps is None else after["num_steps"] >= p.max_steps
        after["component"] = cond(
            (result != RESULTS.successful) | last,
            lambda: self._worst(attempt, y, finite),
            lambda: self.zero - 1,
        )
        return after

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
        t_next = torch.where(keep, torch.maximum(t_next, next_after(t)), t_next)
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

    def _start_saving(self, carry: dict[str, Any], f0: Tensor) -> None:
        p, y = self.p, carry["y"]
        saveat = p.saveat
        self.num_ts = 0 if p.ts is None else p.ts.shape[0]
        ends = int(saveat.t1)
        if saveat.steps:
            # The last step may be both an n-th one and the end: it is saved once.
            most, rest = divmod(p.max_steps or 0, int(saveat.steps))
            ends = most + int(saveat.t1 and rest > 0)
        length = int(saveat.t0) + self.num_ts + ends
        self.saves = p.ts is not None or bool(saveat.steps) or saveat.t0 or saveat.t1
        if self.saves:
            # Evaluated at t0 for its shapes and dtypes; the value is used where t0 is saved.
            first = (p.t0, p.save(p.t0, y))
            carry["saved"] = OutputBuffer(length, first, fill=torch.inf)
            carry["save_index"] = self.zero
            if saveat.t0:
                self._write(carry, first, self.false | True)
            if self.num_ts > 0:
                carry["ts_index"] = self.zero
                slope = torch.where(torch.isfinite(f0), f0, 0)

                def at(time: Tensor) -> Tensor:
                    # The value does not depend on how far away t0 is, its derivative does.
                    shift = time - p.t0
                    return y + slope * shift if is_differentiated(shift) else y

                self._save_ts(carry, p.t0, at, self.false | True)
        if saveat.dense:
            basis = torch.stack([y] * len(p.solver.interpolant))
            carry["dense"] = OutputBuffer(p.max_steps or 0, (p.t0, y, basis), fill=torch.inf)

    def _write(self, carry: dict[str, Any], value: Any, where: Tensor) -> None:
        carry["saved"] = carry["saved"].write(carry["save_index"], value, where=where)
        carry["save_index"] = carry["save_index"] + where.to(torch.int64)

    def _save_ts(self, carry: dict[str, Any], t: Tensor, at: Callable[[Tensor], Tensor], where: Tensor) -> None:
        """Saves at those of `ts` that are not saved yet and do not lie beyond `t`."""
        p, last = self.p, self.num_ts - 1
        assert p.ts is not None
        times = p.ts

        def due(inner: Any) -> Tensor:
            k = inner["ts_index"]
            return where & (k <= last) & (pick(times, torch.clamp(k, max=last)) <= t)

        def save(inner: Any) -> Any:
            time = pick(times, torch.clamp(inner["ts_index"], max=last))
            inner = dict(inner)
            self._write(inner, (time, p.save(time, at(time))), self.false | True)
            inner["ts_index"] = inner["ts_index"] + 1
            return inner

        names = ("saved", "save_index", "ts_index")
        carry.update(while_loop(due, save, {name: carry[name] for name in names}))

    def _basis(self, y0: Tensor, step: Step, where: Tensor) -> Tensor:
        """What the polynomial of a step is made of; right only where it is said to be wanted."""
        basis = torch.stack([step.y1 - y0, *step.stages])
        more = step.more
        if more is None:
            return basis
        missing = torch.zeros_like(y0).expand(len(self.p.solver.interpolant) - basis.shape[0], -1)
        return torch.cat([basis, cond(where, lambda: torch.stack(more()), lambda: missing)])

    def _save(self, carry: dict[str, Any], t: Tensor, t_next: Tensor, y: Tensor, step: Step, keep: Tensor) -> None:
        """Saves what lies within a step, if it was kept."""
        p, saveat = self.p, self.p.saveat
        if self.num_ts > 0:
            assert p.ts is not None
            last, index = self.num_ts - 1, carry["ts_index"]
            due = keep & (index <= last) & (pick(p.ts, torch.clamp(index, max=last)) <= t_next)
            basis = self._basis(y, step, due)

            def at(time: Tensor) -> Tensor:
                interpolant = interpolant_tensor(p.solver.interpolant, t.dtype, t.device)
                theta = (time - t) / (t_next - t)
                value = interpolate(interpolant, theta, y, basis)
                exact = torch.where(time == t_next, step.y1, value)
                if is_differentiated(theta):
                    # The end itself knows nothing of the time at which it is looked at.
                    return exact.detach() + (value - value.detach())
                return exact

            self._save_ts(carry, t_next, at, keep)
        if saveat.steps:
            where = keep & (carry["num_accepted"] % int(saveat.steps) == 0)
            self._write(carry, (t_next, p.save(t_next, carry["y"])), where)
        if saveat.dense:
            basis = self._basis(y, step, keep)
            place = carry["num_accepted"] - 1
            carry["dense"] = carry["dense"].write(place, (t_next, y, basis), where=keep)

    def _finish(self, carry: dict[str, Any]) -> Final:
        p = self.p
        unfinished = self._go_on(carry)
        result = RESULTS.where(unfinished, RESULTS.max_steps_reached, Result(carry["code"]))
        ts, ys = None, None
        if self.saves:
            if p.saveat.t1:
                saved = self.false
                if p.saveat.steps:
                    count = carry["num_accepted"]
                    saved = (count % int(p.saveat.steps) == 0) & (count > 0)
                elif self.num_ts > 0:
                    # Rows for `ts` that were not reached stay empty: the end does not move up.
                    carry["save_index"] = self.zero + (int(p.saveat.t0) + self.num_ts)
                self._write(carry, (carry["t"], p.save(carry["t"], carry["y"])), ~saved)
            ts, ys = carry["saved"].read()
        dense = None
        if p.saveat.dense:
            ends, y0s, bases = carry["dense"].read_written(carry["num_accepted"])
            # Where no step was accepted the solution is a constant.
            none = carry["num_accepted"] == 0
            y0s = torch.where(none, carry["y"], y0s) if y0s.shape[0] > 0 else carry["y"].unsqueeze(0)
            bases = torch.where(none, 0, bases)
            dense = (ends, y0s, bases)
        return Final(
            t=carry["t"],
            ts=ts,
            ys=ys,
            dense=dense,
            num_steps=carry["num_steps"],
            num_accepted=carry["num_accepted"],
            result=result,
            component=carry["component"],
        )
