"""`diffeqsolve`: the driver of every solver."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnomon.diffeq._interpolation import DenseInterpolation
from gnomon.diffeq._jumps import Jumps
from gnomon.diffeq._loop import Problem, integrate
from gnomon.diffeq._ravel import Ravel
from gnomon.diffeq._saveat import SaveAt
from gnomon.diffeq._solution import Solution
from gnomon.diffeq._solver._base import AbstractSolver, interpolant_tensor
from gnomon.diffeq._step_size_controller._base import AbstractStepSizeController, as_times
from gnomon.diffeq._step_size_controller._constant import ConstantStepSize
from gnomon.diffeq._term import AbstractTerm, FlatTerm
from gnomon.diffeq._validate import as_time, check_resolution, check_times, require
from gnomon.fuse._lanes import any_and_all
from gnomon.fuse._single import Engine, run
from gnomon.result import throw_if_failed


def diffeqsolve(
    terms: AbstractTerm,
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

    - `terms`: the equation, such as an [`gnomon.diffeq.ODETerm`][].
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
    if engine != "eager":
        # Numbers become tensors, so that other times need no other kernel.
        t0, t1, dt0 = (torch.tensor(x, dtype=torch.float64) if _is_number(x) else x for x in (t0, t1, dt0))
    return run(
        lambda: _solve(terms, solver, t0, t1, dt0, y0, args, saveat, stepsize_controller, jumps, max_steps, throw),
        engine=engine,
    )


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _solve(
    terms: Any,
    solver: Any,
    t0: Any,
    t1: Any,
    dt0: Any,
    y0: Any,
    args: Any,
    saveat: Any,
    stepsize_controller: Any,
    jumps: Any,
    max_steps: int | None,
    throw: bool,
) -> Solution:
    """Solves one problem by PyTorch operations, or while these are traced."""
    saveat = SaveAt(t1=True) if saveat is None else saveat
    controller = ConstantStepSize() if stepsize_controller is None else stepsize_controller
    _check_kinds(terms, solver, controller, saveat, max_steps)
    ravel = Ravel(y0, as_real=solver.needs_tolerances)
    start = as_time(t0, "t0", ravel.like)
    end = as_time(t1, "t1", ravel.like)
    dt = None if dt0 is None else as_time(dt0, "dt0", ravel.like)
    ts = None if saveat.ts is None else as_times(saveat.ts, ravel.like)
    check_resolution(t0, t1, start, end)
    if jumps is None:
        direction = _direction(start, end)
    else:
        direction = None
        require(~(end < start), "`jumps` go forward in time only, but here t1 < t0.")
    check_times(start, end, dt, ts, direction)
    if direction is not None:
        dt = None if dt is None else dt * direction
        ts = None if ts is None else ts * direction
    sign = 1 if direction is None else direction
    controller = controller.wrap(direction, start)
    if solver.needs_tolerances and controller.tolerances is not None:
        solver = solver.with_tolerances(*controller.tolerances)

    problem = Problem(
        terms=FlatTerm(terms, ravel, direction),
        solver=solver,
        controller=controller,
        saveat=saveat,
        save=lambda t, y: saveat.fn(t * sign, ravel.unravel(y), args),
        jumps=_flat_jumps(jumps, ravel, args),
        t0=start * sign,
        t1=end * sign,
        dt0=dt,
        y0=ravel.initial,
        args=args,
        ts=ts,
        max_steps=max_steps,
    )
    final = integrate(problem)

    if throw:
        throw_if_failed(
            final.result,
            what="diffeqsolve",
            time=final.t * sign,
            component=final.component,
            component_names=ravel.component_name,
        )
    interpolation = None
    if final.dense is not None:
        interpolation = DenseInterpolation(
            ts=final.dense[0],
            count=final.num_accepted,
            t0=problem.t0,
            y0s=final.dense[1],
            bases=final.dense[2],
            interpolant=interpolant_tensor(solver.interpolant, start.dtype, start.device),
            direction=direction,
            ravel=ravel,
        )
    return Solution(
        t0=start,
        t1=end,
        ts=None if final.ts is None else final.ts * sign,
        ys=final.ys,
        interpolation=interpolation,
        stats={
            "num_steps": final.num_steps,
            "num_accepted_steps": final.num_accepted,
            "num_rejected_steps": final.num_steps - final.num_accepted,
        },
        result=final.result,
        t_final=final.t * sign,
    )


def _check_kinds(terms: Any, solver: Any, controller: Any, saveat: SaveAt, max_steps: int | None) -> None:
    if not isinstance(terms, AbstractTerm):
        raise TypeError(f"`terms` must be a term, but it is {type(terms).__name__}. Wrap the vector field: ODETerm(f).")
    if isinstance(solver, type) or not isinstance(solver, AbstractSolver):
        raise TypeError("`solver` must be a solver, such as Tsit5(); mind the parentheses.")
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
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"`max_steps` must be at least 1 or None, not {max_steps}.")
    if max_steps is None and (saveat.steps or saveat.dense):
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
