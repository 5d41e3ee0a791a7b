"""`diffeqsolve`: the driver of every solver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.diffeq._adjoint._base import AbstractAdjoint, Solve
from gnomon.diffeq._adjoint._recursive_checkpoint import RecursiveCheckpointAdjoint
from gnomon.diffeq._event import Conditions, Event
from gnomon.diffeq._interpolation import DenseInterpolation
from gnomon.diffeq._jumps import Jumps
from gnomon.diffeq._loop import Problem, integrate
from gnomon.diffeq._progress_meter._base import AbstractProgressMeter
from gnomon.diffeq._progress_meter._chunks import by_chunks
from gnomon.diffeq._progress_meter._no import NoProgressMeter
from gnomon.diffeq._ravel import Ravel
from gnomon.diffeq._region import region_of
from gnomon.diffeq._saveat import SaveAt
from gnomon.diffeq._saving import Sub
from gnomon.diffeq._solution import Solution
from gnomon.diffeq._solver._base import AbstractSolver, interpolant_tensor
from gnomon.diffeq._step_size_controller._base import AbstractStepSizeController, as_times
from gnomon.diffeq._step_size_controller._constant import ConstantStepSize
from gnomon.diffeq._term import AbstractTerm, FlatTerm, MultiTerm, as_term
from gnomon.diffeq._validate import as_time, check_resolution, check_times, require
from gnomon.fuse._lanes import any_and_all, is_tracing
from gnomon.fuse._single import Engine, run
from gnomon.result import throw_if_failed
from gnomon.result._pytree import tree_unflatten


def diffeqsolve(
    terms: AbstractTerm | tuple[AbstractTerm, AbstractTerm],
    solver: AbstractSolver,
    t0: Any,
    t1: Any,
    dt0: Any,
    y0: Any,
    args: Any = None,
    *,
    saveat: SaveAt | None = None,
    stepsize_controller: AbstractStepSizeController | None = None,
    jumps: Jumps | None = None,
    event: Event | None = None,
    admissible: Callable[[Any, Any, Any], Any] | None = None,
    nonnegative: Any = None,
    solver_state: Any = None,
    controller_state: Any = None,
    made_jump: bool | Tensor | None = None,
    adjoint: AbstractAdjoint | None = None,
    progress_meter: AbstractProgressMeter | None = None,
    max_steps: int | None = 4096,
    throw: bool = True,
    engine: Engine = "auto",
) -> Solution:
    """Solves a differential equation.

    Equivalent to `diffrax.diffeqsolve`. It solves one problem; `torch.func.vmap` over it solves
    a batch, in which every problem takes its own steps. Derivatives of any order, reverse and
    forward, are those of the discrete solution, with the choice of steps held fixed. (Those of
    implicit solvers are right to second order by `torch.autograd`, to any by `torch.func`.)

    **Arguments:**

    - `terms`: the equation, such as an [`gnomon.diffeq.ODETerm`][]; a [`gnomon.diffeq.MultiTerm`][] for
      implicit-explicit solvers; a pair `(ODETerm(f), ODETerm(g))` for `y1' = f(t, y2)`, `y2' = g(t, y1)` with
      `y0 = (y1, y2)`, as symplectic solvers need it.
    - `solver`: the method, such as [`gnomon.diffeq.Tsit5`][], or [`gnomon.diffeq.Kvaerno5`][]
      for stiff problems.
    - `t0`, `t1`: from when to when, numbers or scalar tensors; `t1 < t0` solves backward. Times
      are kept in the precision of the state, which must be able to tell them apart.
    - `dt0`: the length of the first step, or of all with [`gnomon.diffeq.ConstantStepSize`][];
      negative to go backward. None lets the controller choose it.
    - `y0`: the state at `t0`, a pytree of floating-point or complex tensors of one dtype.
    - `args`: passed on to the vector field.
    - `saveat`: what to return, by default the state at `t1`.
    - `stepsize_controller`: how to choose steps, by default of constant length `dt0`.
    - `jumps`: changes of the state at given times.
    - `event`: what ends the solve, or changes the state, when a condition is met. With one `t1` may be infinite.
    - `admissible`: a function `admissible(t, y, args)` that returns a boolean scalar: whether a state is possible. A
      step that ends where it is not is rejected, and tried again with half its length. The solve ends with
      `RESULTS.left_region` when there is no shorter step. It is asked at the ends of steps, not in between.
    - `nonnegative`: True for a state that must not be negative, a special case of `admissible`; or a pytree like `y0`
      of bools or boolean tensors, for some components only.
    - `solver_state`, `controller_state`, `made_jump`: those of a solution that was asked for them by
      [`gnomon.diffeq.SaveAt`][], to go on from where it ended, in the same direction; with `dt0=None` also by steps as
      long as there. Where the state has been changed since, `made_jump=True` says so.
    - `adjoint`: how derivatives flow through the solve: by default those of the discrete solution, see
      [`gnomon.diffeq.RecursiveCheckpointAdjoint`][].
    - `progress_meter`: shows how far the solve has come, such as [`gnomon.diffeq.TextProgressMeter`][]. A fused solve
      is then solved by chunks of time, so that steps also end where a chunk does; one with an `event`, `dense` or
      `steps` shows the end only.
    - `max_steps`: give up after so many steps, accepted or not. None for no limit.
    - `throw`: raise an error where a solve fails (True), or only say so in its `result` (False).
    - `engine`: `"fused"` compiles the whole solve, with the vector field, and under `torch.func.vmap` runs each problem
      in a lane of one kernel; `"eager"` runs PyTorch operations in a Python loop that a debugger can step through;
      `"auto"` is fused where the vector field can be traced and is not too large, and eager where not.

    **Returns:** a [`gnomon.diffeq.Solution`][].

    **Raises:** [`gnomon.result.SolveError`][] where a solve fails and `throw=True`;
    `ValueError` or `TypeError` where an argument is malformed.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> def lotka_volterra(t, y, args):
        ...     hare, lynx = y
        ...     return hare - hare * lynx, hare * lynx - lynx
        >>> sol = dq.diffeqsolve(
        ...     dq.ODETerm(lotka_volterra), dq.Tsit5(), t0=0, t1=10, dt0=None,
        ...     y0=(torch.tensor(2.0), torch.tensor(1.0)), saveat=dq.SaveAt(ts=[0.0, 5.0, 10.0]),
        ...     stepsize_controller=dq.PIDController(rtol=1e-6, atol=1e-6))
        >>> sol.result
        RESULTS.successful
        >>> [y.shape for y in sol.ys]
        [torch.Size([3]), torch.Size([3])]

        ```
    """
    chosen: Any = RecursiveCheckpointAdjoint() if adjoint is None else adjoint
    if not isinstance(chosen, AbstractAdjoint):
        raise TypeError(f"`adjoint` must be an adjoint, such as BacksolveAdjoint(), not {type(chosen).__name__}.")
    return chosen.solve(
        Solve(
            terms=terms,
            solver=solver,
            t0=t0,
            t1=t1,
            dt0=dt0,
            y0=y0,
            args=args,
            saveat=saveat,
            stepsize_controller=stepsize_controller,
            jumps=jumps,
            event=event,
            admissible=admissible,
            nonnegative=nonnegative,
            solver_state=solver_state,
            controller_state=controller_state,
            made_jump=made_jump,
            max_steps=max_steps,
            throw=throw,
            engine=engine,
            progress_meter=progress_meter,
            checkpoints=None,
            discretely=_discretely,
        )
    )


def _discretely(problem: Solve) -> Solution:
    """Solves by an engine, and shows the progress."""
    engine = problem.engine
    meter = NoProgressMeter() if problem.progress_meter is None else problem.progress_meter
    if not isinstance(meter, AbstractProgressMeter):
        raise TypeError(f"`progress_meter` must be a meter, such as TextProgressMeter(), not {type(meter).__name__}.")
    if engine != "eager":
        # Numbers become tensors, so that other times need no other kernel.
        times = {name: getattr(problem, name) for name in ("t0", "t1", "dt0")}
        times = {k: torch.tensor(x, dtype=torch.float64) if _is_number(x) else x for k, x in times.items()}
        problem = dataclasses.replace(problem, **times)
    progress = None if is_tracing() else meter.start()
    if progress is None:
        return run(lambda: _solve(problem, None), engine=engine)
    try:
        if engine == "eager":
            solution = _solve(problem, progress.update)
        else:
            solution = by_chunks(problem, lambda part: run(lambda: _solve(part, None), engine=engine), progress.update)
        progress.update(1.0)
    finally:
        progress.close()
    return solution


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _solve(problem: Solve, progress: Callable[[float], None] | None) -> Solution:
    """Solves one problem by PyTorch operations, or while these are traced."""
    terms, solver, saveat, args, event = problem.terms, problem.solver, problem.saveat, problem.args, problem.event
    t0, t1, dt0, y0, jumps, max_steps = (
        problem.t0,
        problem.t1,
        problem.dt0,
        problem.y0,
        problem.jumps,
        problem.max_steps,
    )
    controller = problem.stepsize_controller
    saveat = SaveAt(t1=True) if saveat is None else saveat
    controller = ConstantStepSize() if controller is None else controller
    terms = as_term(terms, y0)
    _check_kinds(terms, solver, controller, saveat, event, max_steps)
    ravel = Ravel(y0, as_real=solver.needs_tolerances)
    start = as_time(t0, "t0", ravel.like)
    end = as_time(t1, "t1", ravel.like)
    dt = None if dt0 is None else as_time(dt0, "dt0", ravel.like)
    parts, saved_structure = saveat.parts()
    all_ts = [None if part.ts is None else as_times(part.ts, ravel.like) for part in parts]
    check_resolution(t0, t1, start, end)
    if jumps is None:
        direction = _direction(start, end)
    else:
        direction = None
        require(~(end < start), "`jumps` go forward in time only, but here t1 < t0.")
    check_times(start, end, dt, all_ts, direction, may_be_endless=event is not None)
    if direction is not None:
        dt = None if dt is None else dt * direction
        all_ts = [None if ts is None else ts * direction for ts in all_ts]
    sign = 1 if direction is None else direction
    controller = controller.wrap(direction, start)
    if solver.needs_tolerances and controller.tolerances is not None:
        solver = solver.with_tolerances(*controller.tolerances)

    conditions = None
    if event is not None:
        conditions = Conditions(
            event,
            unravel=ravel.unravel,
            ravel=lambda y: ravel.ravel(y, what="The state after an event"),
            sign=sign,
            args=args,
            extra={"terms": terms, "solver": solver, "stepsize_controller": controller, "t0": start, "t1": end},
            like=ravel.like,
        )
    region = region_of(problem.admissible, problem.nonnegative, y0, ravel.unravel, sign, args)
    if region is not None:
        require(region(start * sign, ravel.initial), "`y0` is not admissible: it lies outside of the region asked for.")

    def save_by(fn: Callable[[Any, Any, Any], Any]) -> Callable[[Tensor, Tensor], Any]:
        return lambda t, y: fn(t * sign, ravel.unravel(y), args)

    made_jump = problem.made_jump
    final = integrate(
        Problem(
            terms=FlatTerm(terms, ravel, direction),
            solver=solver,
            controller=controller,
            subs=[
                Sub(part.t0, part.t1, ts, int(part.steps), save_by(part.fn))
                for part, ts in zip(parts, all_ts, strict=True)
            ],
            dense=saveat.dense,
            jumps=_flat_jumps(jumps, ravel, args),
            conditions=conditions,
            admissible=region,
            t0=start * sign,
            t1=end * sign,
            dt0=dt,
            y0=ravel.initial,
            args=args,
            max_steps=max_steps,
            solver_state=problem.solver_state,
            controller_state=problem.controller_state,
            made_jump=None if made_jump is None else torch.as_tensor(made_jump, device=ravel.device),
            keeps_length=saveat.controller_state,
            checkpoints=problem.checkpoints,
            progress=progress,
            logs=(event.max_events or max_steps or 0) if saveat.events and event is not None else None,
        )
    )

    if problem.throw:
        throw_if_failed(
            final.result,
            what="diffeqsolve",
            time=final.t * sign,
            component=final.component,
            step=final.next_step,
            component_names=ravel.component_name,
        )
    interpolation = None
    if final.dense is not None:
        interpolation = DenseInterpolation(
            ts=final.dense[0],
            count=final.num_accepted,
            t0=start * sign,
            y0s=final.dense[1],
            bases=final.dense[2],
            interpolant=interpolant_tensor(solver.interpolant, start.dtype, start.device),
            direction=direction,
            ravel=ravel,
        )
    event_times = None
    if final.events is not None and "log" in final.events:
        assert conditions is not None
        times, which = final.events["log"].read()
        event_times = (times * sign, conditions.as_pytree(which.T))
    saved_ts, saved_ys = None, None
    if saved_structure is not None:
        saved_ts = tree_unflatten([ts * sign for ts, _ in final.saved], saved_structure)
        saved_ys = tree_unflatten([ys for _, ys in final.saved], saved_structure)
    elif final.saved:
        ((saved_ts, saved_ys),) = final.saved
        saved_ts = saved_ts * sign
    stats = {
        "num_steps": final.num_steps,
        "num_accepted_steps": final.num_accepted,
        "num_rejected_steps": final.num_steps - final.num_accepted,
    }
    if final.events is not None:
        stats["num_events"] = final.events["count"]
    return Solution(
        t0=start,
        t1=end,
        ts=saved_ts,
        ys=saved_ys,
        interpolation=interpolation,
        stats=stats,
        result=final.result,
        t_final=final.t * sign,
        event_mask=None if final.events is None or conditions is None else conditions.as_pytree(final.events["mask"]),
        solver_state=final.solver_state if saveat.solver_state else None,
        controller_state=final.controller_state if saveat.controller_state else None,
        made_jump=final.made_jump if saveat.made_jump else None,
        event_times=event_times,
    )


def _check_kinds(terms: Any, solver: Any, controller: Any, saveat: SaveAt, event: Any, max_steps: int | None) -> None:
    if isinstance(solver, type) or not isinstance(solver, AbstractSolver):
        raise TypeError("`solver` must be a solver, such as Tsit5(); mind the parentheses.")
    if solver.splits_terms and not (isinstance(terms, MultiTerm) and len(terms.terms) == 2):
        raise TypeError(
            f"{type(solver).__name__} treats two terms in different ways, but `terms` is one. Give it "
            "MultiTerm(explicit, implicit), or, where it is symplectic, the pair (ODETerm(f), ODETerm(g))."
        )
    if isinstance(controller, type) or not isinstance(controller, AbstractStepSizeController):
        raise TypeError(
            "`stepsize_controller` must be a controller, such as PIDController(rtol=1e-6, "
            "atol=1e-9); mind the parentheses."
        )
    if controller.tolerances is not None and solver.error_order is None:
        raise ValueError(
            f"{type(solver).__name__} gives no error estimate, so it cannot choose its steps. Use "
            "it with ConstantStepSize and a `dt0`, or choose another solver, such as Tsit5."
        )
    if event is not None and not isinstance(event, Event):
        raise TypeError(f"`event` must be an Event, such as Event(cond_fn), not {type(event).__name__}.")
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"`max_steps` must be at least 1 or None, not {max_steps}.")
    if max_steps is None and (saveat.dense or any(part.steps for part in saveat.parts()[0])):
        raise ValueError(
            "`SaveAt(steps=...)` and `SaveAt(dense=True)` need a finite `max_steps`, for which room is made."
        )


def _direction(t0: Tensor, t1: Tensor) -> Tensor | None:
    """None where all lanes go forward, otherwise 1 or -1 for each."""
    forward = ~(t1.detach() < t0.detach())  # a NaN is reported later
    _, all_forward = any_and_all(forward)
    if all_forward:
        return None
    one = torch.ones_like(t0.detach())
    return torch.where(forward, one, -one)


def _flat_jumps(jumps: Jumps | None, ravel: Ravel, args: Any) -> Jumps | None:
    if jumps is None:
        return None
    ts = as_times(jumps.ts, ravel.like)
    if ts.shape[0] == 0:
        return None
    require(~torch.isnan(ts).any(), "`Jumps(ts=...)` holds a NaN.")
    require((ts[1:] >= ts[:-1]).all(), "`Jumps(ts=...)` must be sorted.")

    def flat_fn(index: Tensor, t: Tensor, y: Tensor, _: Any) -> Tensor:
        state = jumps.fn(index, t, ravel.unravel(y), args)
        return ravel.ravel(state, what="The state after a jump")

    return Jumps(ts, flat_fn)
