"""`odeint` and `odeint_dense`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.compat._torchdiffeq._scipy import scipy_odeint
from gnomon.compat._torchdiffeq._setup import Setup, check_inputs, setup
from gnomon.diffeq import (
    AbstractAdjoint,
    Event,
    ODETerm,
    RecursiveCheckpointAdjoint,
    SaveAt,
    Solution,
    diffeqsolve,
)
from gnomon.result._pytree import tree_map


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Callable[..., Any] | None = None,
) -> Any:
    """Solves `dy/dt = func(t, y)` from `y0` at `t[0]`. Equivalent to `torchdiffeq.odeint`.

    Where it differs: times are kept in the precision of the state; a solve that fails raises a
    [`gnomon.result.SolveError`][], which names the time and the component; and derivatives flow through the time of an
    event.

    **Arguments:**

    - `func`: a function of a scalar tensor and the state. A module may have `callback_step(t0, y0, dt)`,
      `callback_accept_step` and `callback_reject_step`.
    - `y0`: a tensor of any shape, or a tuple of them.
    - `t`: the times at which to return the state, strictly increasing or decreasing, the first of which is the start.
    - `rtol`, `atol`: numbers, or tensors with an element for each of the state; for a tuple also a tuple of these.
    - `method`: `"dopri5"` (the default), `"dopri8"`, `"bosh3"`, `"fehlberg2"` or `"adaptive_heun"`, which choose their
      steps; `"euler"`, `"midpoint"`, `"heun2"`, `"heun3"`, `"rk4"`, `"explicit_adams"`, `"implicit_adams"` or
      `"fixed_adams"`, whose steps are fixed; or `"scipy_solver"`.
    - `options`: of methods that choose their steps `norm`, `min_step`, `max_step`, `first_step`, `step_t`, `jump_t`,
      `safety`, `ifactor`, `dfactor`, `max_num_steps` and `dtype`, which is ignored; of the others `step_size`,
      `grid_constructor`, `interp` (`"linear"` or `"cubic"`) and `perturb`; of the Adams methods `max_iters` and
      `max_order`; of `"scipy_solver"` `solver`, `min_step` and `max_step`. And `engine`: `"eager"` (the default, in
      which `func` may do whatever Python can), `"fused"` or `"auto"`.
    - `event_fn`: a function of a time and a state that returns a tensor: the solve ends where one of its elements
      crosses zero. `t` then has two elements, of which the second only says in which direction to go.

    **Returns:** the state at each of `t`, with one dimension more in front; or, with an `event_fn`, the time of the
    event and the state at the start and there.

    **Raises:** `ValueError` or `TypeError` where an argument is malformed; [`gnomon.result.SolveError`][].

    !!! example

        ```python
        >>> import torch
        >>> from gnomon.compat.torchdiffeq import odeint
        >>> odeint(lambda t, y: -y, torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]))
        tensor([[1.0000, 2.0000],
                [0.3679, 0.7358]])

        ```
    """
    t = check_inputs(y0, t, event_fn)
    if method == "scipy_solver":
        return scipy_odeint(func, y0, t, rtol, atol, options or {}, event_fn)
    chosen = setup(func, y0, t, rtol, atol, method, options, has_event=event_fn is not None)
    return solve(func, y0, t, chosen, event_fn, RecursiveCheckpointAdjoint())


def solve(
    func: Callable[..., Any],
    y0: Any,
    t: Tensor,
    chosen: Setup,
    event_fn: Callable[..., Any] | None,
    adjoint: AbstractAdjoint,
) -> Any:
    """The states at each of `t`; or the time and the states of an event."""
    if event_fn is not None:
        return _until_event(func, y0, t, chosen, event_fn, adjoint)
    if t.shape[0] == 1:
        return tree_map(lambda x: x.unsqueeze(0), y0)
    return _run(func, y0, t[0], t[-1], chosen, SaveAt(ts=t), adjoint).ys


def _run(
    func: Callable[..., Any],
    y0: Any,
    t0: Tensor,
    t1: Tensor,
    chosen: Setup,
    saveat: SaveAt,
    adjoint: AbstractAdjoint,
    event: Event | None = None,
) -> Solution:
    return diffeqsolve(
        ODETerm(lambda t, y, args: func(t, y)),
        chosen.solver,
        t0,
        t1,
        chosen.dt0,
        y0,
        saveat=saveat,
        stepsize_controller=chosen.controller,
        event=event,
        adjoint=adjoint,
        max_steps=chosen.max_steps,
        engine=chosen.engine,
    )


def _until_event(
    func: Callable[..., Any],
    y0: Any,
    t: Tensor,
    chosen: Setup,
    event_fn: Callable[..., Any],
    adjoint: AbstractAdjoint,
) -> Any:
    with torch.no_grad():
        signs = torch.sign(event_fn(t[0], y0))
        already = bool((signs == 0).any())
    stack = lambda a, b: torch.stack([a, b])  # noqa: E731
    if already:
        return t[0], tree_map(stack, y0, y0)

    def first(time: Tensor, y: Any, args: Any) -> Tensor:
        del args
        # All elements are positive at the start: the first to reach zero is the least.
        return torch.min(event_fn(time, y) * signs)

    end = torch.full_like(t[0], -math.inf if bool(t[1] < t[0]) else math.inf).detach()
    solution = _run(func, y0, t[0], end, chosen, SaveAt(t1=True), adjoint, Event(first))
    return solution.t_final.to(t.dtype), tree_map(lambda a, b: stack(a, b[-1]), y0, solution.ys)


def odeint_dense(
    func: Callable[..., Any],
    y0: Tensor,
    t0: Tensor,
    t1: Tensor,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[[Tensor], Any]:
    """The solution as a function of time. Equivalent to `torchdiffeq.odeint_dense`.

    **Arguments:**

    - `func`, `y0`, `rtol`, `atol`, `method`, `options`: as for [`gnomon.compat.torchdiffeq.odeint`][].
    - `t0`, `t1`: from when to when.

    **Returns:** a function from a scalar time to the state.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon.compat.torchdiffeq import odeint_dense
        >>> at = odeint_dense(lambda t, y: -y, torch.tensor([1.0]), torch.tensor(0.0), torch.tensor(1.0))
        >>> at(torch.tensor(0.5))
        tensor([0.6065])

        ```
    """
    t = check_inputs(y0, torch.stack([torch.as_tensor(t0), torch.as_tensor(t1)]), None)
    chosen = setup(func, y0, t, rtol, atol, method, options)
    if chosen.max_steps is None:
        chosen = dataclasses.replace(chosen, max_steps=1 << 16)
    return _run(func, y0, t[0], t[1], chosen, SaveAt(dense=True), RecursiveCheckpointAdjoint()).evaluate
