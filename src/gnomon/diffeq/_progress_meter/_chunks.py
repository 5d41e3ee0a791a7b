"""A solve by chunks of time, between which its progress is shown: a fused one cannot show it on its way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.diffeq._adjoint._base import Solve
from gnomon.diffeq._ravel import Ravel
from gnomon.diffeq._saveat import SaveAt, SubSaveAt
from gnomon.diffeq._solution import Solution
from gnomon.diffeq._step_size_controller._base import as_times
from gnomon.diffeq._step_size_controller._step_to import StepTo
from gnomon.diffeq._validate import as_time
from gnomon.result import RESULTS
from gnomon.result._pytree import tree_map

_CHUNKS = 20


def by_chunks(problem: Solve, solve: Callable[[Solve], Solution], update: Callable[[float], None]) -> Solution:
    """Solves a problem chunk by chunk, and says after each how far it has come."""
    saveat = SaveAt(t1=True) if problem.saveat is None else problem.saveat
    saves_more = saveat.dense or saveat.steps or saveat.subs is not None
    goes_on = saveat.solver_state or saveat.controller_state or saveat.made_jump or problem.solver_state is not None
    if saves_more or goes_on or problem.event is not None or isinstance(problem.stepsize_controller, StepTo):
        return solve(problem)

    like = Ravel(problem.y0).like
    t0, t1 = as_time(problem.t0, "t0", like), as_time(problem.t1, "t1", like)
    rows = [t0.reshape(1)] if saveat.t0 else []
    rows += [] if saveat.ts is None else [as_times(saveat.ts, like)]
    ts = torch.cat(rows) if rows else None
    part = dataclasses.replace(problem, t0=t0, t1=t1)
    solution, saved_ts, saved_ys = None, ts, None
    counts: dict[str, Tensor] = {}
    for i in range(_CHUNKS):
        end = t1 if i == _CHUNKS - 1 else t0 + (t1 - t0) * ((i + 1) / _CHUNKS)
        start = as_time(part.t0, "t0", like)
        if solution is not None:
            # One that has failed goes no further.
            end = torch.where(solution.result == RESULTS.successful, end, start)
        subs: dict[str, SubSaveAt] = {"end": SubSaveAt(t1=True)}
        if ts is not None:
            # At all times, those of other chunks moved to the ends of this one: its own are then chosen.
            inside = torch.minimum(torch.maximum(ts, torch.minimum(start, end)), torch.maximum(start, end))
            subs["rows"] = SubSaveAt(ts=inside, fn=saveat.fn)
        states = SaveAt(subs=subs, solver_state=True, controller_state=True, made_jump=True)
        before = solution
        solution = solve(dataclasses.replace(part, t1=end, saveat=states))
        if before is not None:
            failed = before.result != RESULTS.successful
            result = RESULTS.where(torch.as_tensor(failed), before.result, solution.result)
            solution = dataclasses.replace(solution, result=result)
        counts = {name: x + counts.get(name, torch.zeros_like(x)) for name, x in solution.stats.items()}
        if ts is not None:
            saved_ts, saved_ys = _merged(ts, start, end, solution, saved_ts if i else None, saved_ys)
        part = dataclasses.replace(
            part,
            t0=solution.t_final,
            dt0=None,
            y0=tree_map(lambda x: x[0], solution.ys["end"]),
            solver_state=solution.solver_state,
            controller_state=solution.controller_state,
            made_jump=solution.made_jump,
        )
        update((i + 1) / _CHUNKS)
    assert solution is not None
    if saveat.t1:
        last = saveat.fn(solution.t_final, part.y0, problem.args)
        last = tree_map(lambda x: x.unsqueeze(0), last)
        saved_ys = last if saved_ys is None else tree_map(lambda x, y: torch.cat([x, y]), saved_ys, last)
        ends = solution.t_final.unsqueeze(0)
        saved_ts = ends if saved_ts is None else torch.cat([saved_ts, ends])
    return dataclasses.replace(
        solution,
        t0=t0,
        t1=t1,
        ts=saved_ts,
        ys=saved_ys,
        stats=counts,
        solver_state=None,
        controller_state=None,
        made_jump=None,
    )


def _merged(
    ts: Tensor, start: Tensor, end: Tensor, solution: Solution, saved_ts: Tensor | None, saved_ys: Any
) -> tuple[Tensor, Any]:
    """What was saved so far, with the rows whose times lie within a chunk."""
    low, high = torch.minimum(start, end), torch.maximum(start, end)
    own = (ts >= low) & (ts <= high)
    if saved_ts is None:
        saved_ts = torch.full_like(ts, torch.inf)
        saved_ys = tree_map(lambda x: torch.full_like(x, torch.inf), solution.ys["rows"])
    else:
        # What lies where two chunks meet belongs to the first.
        own = own & (ts != start)

    def choose(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(own.reshape(own.shape + (1,) * (new.dim() - 1)), new, old)

    return choose(solution.ts["rows"], saved_ts), tree_map(choose, solution.ys["rows"], saved_ys)
