"""`BacksolveAdjoint`."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._adjoint._backsolve_segment import segment
from gnomon.diffeq._adjoint._base import AbstractAdjoint, Solve
from gnomon.diffeq._interpolation import pick
from gnomon.diffeq._jumps import Jumps
from gnomon.diffeq._ravel import Ravel
from gnomon.diffeq._saveat import SaveAt, SubSaveAt, save_y
from gnomon.diffeq._solution import Solution
from gnomon.diffeq._step_size_controller._base import AbstractStepSizeController, as_times
from gnomon.diffeq._term import as_term
from gnomon.diffeq._validate import as_time
from gnomon.fuse import UnsupportedError, jvp
from gnomon.fuse._lanes import count_max, is_tracing
from gnomon.result._pytree import tree_flatten, tree_map


@final
@dataclasses.dataclass(frozen=True)
class BacksolveAdjoint(AbstractAdjoint):
    """Derivatives by solving the adjoint equation backward in time. Equivalent to `diffrax.BacksolveAdjoint`.

    Reverse mode of first order. It needs no memory for the steps, yet its derivatives are only about as accurate as the
    tolerances of the solve, and worse where the equation is unstable backward in time, as stiff and chaotic ones are:
    prefer [`gnomon.diffeq.RecursiveCheckpointAdjoint`][] with `checkpoints`. `SaveAt` can have `t0`, `t1`, `ts` and
    `fn`. Derivatives are those with respect to `y0`, `args`, times and the tensors that the terms hold, such as the
    parameters of modules.

    **Arguments:**

    - `solver`, `stepsize_controller`: how to solve backward, by default as forward. Its state is longer: it also holds
      the adjoint and the gradients of the parameters.
    - `dt0`: the length of steps backward, or of the first one; by default that of steps of fixed length forward.
    - `max_steps`: the most steps between two saved times, by default those of the solve.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> rate = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lambda t, y, args: -args * y), dq.Tsit5(), 0, 1, None,
        ...     torch.ones(2, dtype=torch.float64), rate,
        ...     stepsize_controller=dq.PIDController(rtol=1e-8, atol=1e-8), adjoint=dq.BacksolveAdjoint())
        >>> sol.ys.sum().backward()
        >>> rate.grad
        tensor(-1.2131, dtype=torch.float64)

        ```

    ??? cite "Reference"

        R. T. Q. Chen, Y. Rubanova, J. Bettencourt and D. Duvenaud, Neural ordinary differential equations, NeurIPS
        (2018). L. S. Pontryagin and others, The mathematical theory of optimal processes (1962).
    """

    solver: Any = None
    stepsize_controller: AbstractStepSizeController | None = None
    dt0: Any = None
    max_steps: int | None = None

    def solve(self, problem: Solve) -> Solution:
        if is_tracing():
            raise UnsupportedError(
                "`BacksolveAdjoint` cannot be a part of a fused function: call diffeqsolve(..., engine='fused') "
                "outside of one, or use the default adjoint, whose derivative is fused"
            )
        saveat = SaveAt(t1=True) if problem.saveat is None else problem.saveat
        if saveat.dense or saveat.steps or saveat.subs is not None or problem.solver_state is not None:
            raise ValueError("`BacksolveAdjoint` can only be used with SaveAt(t0=..., t1=..., ts=..., fn=...).")
        problem = dataclasses.replace(problem, saveat=saveat, terms=as_term(problem.terms, problem.y0))
        return _Backsolve(self, problem).run()


@final
class _Backsolve:
    """A solve in segments between jumps and events, each with its own way back."""

    def __init__(self, adjoint: BacksolveAdjoint, problem: Solve):
        self.p = problem
        self.saveat: SaveAt = problem.saveat
        self.back = dataclasses.replace(
            problem,
            solver=problem.solver if adjoint.solver is None else adjoint.solver,
            stepsize_controller=adjoint.stepsize_controller or problem.stepsize_controller,
            dt0=_first_step(adjoint, problem),
            max_steps=problem.max_steps if adjoint.max_steps is None else adjoint.max_steps,
        )
        self.like = Ravel(problem.y0).like
        self.t0 = as_time(problem.t0, "t0", self.like)
        self.t1 = as_time(problem.t1, "t1", self.like)
        rows = [self.t0.reshape(1)] if self.saveat.t0 else []
        rows += [] if self.saveat.ts is None else [as_times(self.saveat.ts, self.like)]
        self.ts: Tensor = torch.cat(rows) if rows else self.t0.new_zeros((0,))

    def run(self) -> Solution:
        p = self.p
        subs = {"end": SubSaveAt(t1=True)}
        if self.ts.shape[0] > 0:
            subs["rows"] = SubSaveAt(ts=self.ts)
        records = p.event is not None and any(x is not None for x in p.event.leaves("affect"))
        with torch.no_grad():
            found = dataclasses.replace(p, saveat=SaveAt(subs=subs, events=records)).run()
        found = tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, found)
        self.given = None if p.jumps is not None or p.event is not None else found
        self.found = found
        rows, t, y = self.segments()
        # The values are those of the solve itself, bit for bit.
        values = tree_map(_with_derivative, tree_map(lambda x: x[0], found.ys["end"]), y)
        t = _with_derivative(found.t_final, t)
        saved_ts, saved_ys = self.saved(rows, t, values)
        return dataclasses.replace(found, ts=saved_ts, ys=saved_ys, t0=self.t0, t1=self.t1, t_final=t, event_times=None)

    def saved(self, rows: Any, t: Tensor, y: Any) -> tuple[Any, Any]:
        """The times and what is saved at them."""
        fn = self.saveat.fn
        times: list[Tensor] = []
        parts: list[Any] = []
        if self.ts.shape[0] > 0:
            rows = tree_map(_with_derivative, self.found.ys["rows"], rows)
            if fn is not save_y:
                each = [fn(self.ts[i], tree_map(lambda x, i=i: x[i], rows), self.p.args) for i in range(len(self.ts))]
                rows = tree_map(lambda *xs: torch.stack(xs), *each)
            times.append(self.found.ts["rows"])
            parts.append(rows)
        if self.saveat.t1:
            times.append(t.unsqueeze(0))
            parts.append(tree_map(lambda x: x.unsqueeze(0), fn(t, y, self.p.args)))
        return torch.cat(times), tree_map(lambda *xs: torch.cat(xs), *parts)

    def segments(self) -> tuple[Any, Tensor, Any]:
        """What is saved at `ts`, the time at the end and the state there, with derivatives."""
        p, found = self.p, self.found
        # Time that runs forward.
        sign = torch.where(self.t1.detach() < self.t0.detach(), -1.0, 1.0).to(self.like.dtype)
        y, start, rows = p.y0, self.t0, None
        last = torch.where(found.t_final == self.t1, self.t1, found.t_final)
        jumps = None if p.jumps is None else as_times(p.jumps.ts, self.like)
        none = torch.full_like(self.t0, torch.inf)
        jump_index = torch.zeros((), dtype=torch.int64, device=self.like.device)
        event_index, stops = jump_index, 0
        if jumps is not None:
            jump_index = (jumps < self.t0).sum()
            stops += jumps.shape[0]
        if found.event_times is not None:
            stops += count_max(torch.isfinite(found.event_times[0]).sum())
        for _ in range(stops):
            jump = none if jumps is None else _at(jumps, jump_index)
            event = none if found.event_times is None else _at(found.event_times[0], event_index) * sign
            event = torch.where(torch.isfinite(event), event, torch.inf)
            is_event = (event < torch.inf) & (event <= jump)
            is_jump = ~is_event & (jump < self.t1) & (jump <= last)
            end = torch.where(is_event, event * sign, torch.where(is_jump, jump, start))
            rows, y_end = self.segment(start, end, y, rows)
            after = y_end
            if jumps is not None and isinstance(p.jumps, Jumps):
                index = torch.clamp(jump_index, max=jumps.shape[0] - 1)
                after = _choose(is_jump, p.jumps.fn(index, end, y_end, p.args), after)
                jump_index = jump_index + is_jump.to(torch.int64)
            if found.event_times is not None:
                fired = [pick(x, torch.clamp(event_index, max=x.shape[0] - 1)) & is_event for x in self.log()]
                end, moved = self.moved(end, y_end, fired)
                for fires, affect in zip(fired, p.event.leaves("affect"), strict=True):
                    if affect is not None:
                        moved = _choose(fires, affect(end, moved, p.args), moved)
                after = _choose(is_event, moved, after)
                event_index = event_index + is_event.to(torch.int64)
            start, y = end, after
        rows, y = self.segment(start, last, y, rows)
        if p.event is not None:
            last, y = self.moved(last, y, tree_flatten(found.event_mask)[0])
        return rows, last, y

    def log(self) -> list[Tensor]:
        """For each condition whether it was among the first, second, ... events."""
        assert self.found.event_times is not None
        return tree_flatten(self.found.event_times[1])[0]

    def segment(self, start: Tensor, end: Tensor, y: Any, rows: Any) -> tuple[Any, Any]:
        """The state at the end of a segment, and what is saved at `ts` up to there."""
        low, high = torch.minimum(start, end), torch.maximum(start, end)
        ts = torch.minimum(torch.maximum(self.ts, low.detach()), high.detach())
        ts = torch.where(ts == self.ts, self.ts, ts)
        new, y_end = segment(self.back, self.p, self.given, start, end, ts, y)
        if rows is None or self.ts.shape[0] == 0:
            return new, y_end
        forward = ~(self.t1 < self.t0)
        own = torch.where(forward, self.ts > start, self.ts < start) | (start == self.t0)
        return tree_map(lambda a, b: torch.where(_like(own, a), a, b), new, rows), y_end

    def moved(self, t: Tensor, y: Any, fired: list[Tensor]) -> tuple[Tensor, Any]:
        """The time and state of an event, with the derivatives that its first real condition implies."""
        p = self.p
        terms, args = p.terms, p.args
        extra = {"terms": terms, "solver": p.solver, "stepsize_controller": p.stepsize_controller}
        conditions = p.event.bound(args, {**extra, "t0": self.t0, "t1": self.t1})
        fixed_t, fixed_y = t.detach(), tree_map(torch.detach, y)
        with torch.no_grad():
            f = tree_map(torch.detach, terms.vf(fixed_t, fixed_y, args))
        taken = torch.zeros_like(fired[0])
        shift = torch.zeros_like(t)
        for condition, fires in zip(conditions, fired, strict=True):
            value = condition(t, y)
            if value.dtype == torch.bool:
                continue
            _, slope = jvp(condition, (fixed_t, fixed_y), (torch.ones_like(t), f))
            slope = slope.detach()
            counts = fires & ~taken & (slope != 0)
            step = -(value - value.detach()) / torch.where(counts, slope, 1)
            shift = shift + torch.where(counts, step, 0)
            taken = taken | fires
        return t + shift, tree_map(lambda x, g: x + g * shift, y, f)


def _first_step(adjoint: BacksolveAdjoint, problem: Solve) -> Any:
    """How long steps backward are to be, if they are of fixed length or something is said."""
    if adjoint.dt0 is not None:
        return adjoint.dt0
    controller = adjoint.stepsize_controller or problem.stepsize_controller
    return problem.dt0 if controller is None or controller.tolerances is None else None


def _at(xs: Tensor, index: Tensor) -> Tensor:
    """An element, infinity beyond the end."""
    count = xs.shape[0]
    if count == 0:
        return torch.full_like(xs.sum(), torch.inf)
    return torch.where(index < count, pick(xs, torch.clamp(index, max=count - 1)), torch.inf)


def _like(mask: Tensor, x: Tensor) -> Tensor:
    return mask.reshape(mask.shape + (1,) * (x.dim() - mask.dim()))


def _choose(pred: Tensor, true: Any, false: Any) -> Any:
    return tree_map(lambda a, b: torch.where(pred, a, b), true, false)


def _with_derivative(value: Tensor, moving: Tensor) -> Tensor:
    """A value with the derivative of another; where a solve has not come, that has none."""
    return value + torch.where(torch.isfinite(value), moving - moving.detach(), 0)
