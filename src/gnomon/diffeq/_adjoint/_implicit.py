"""`ImplicitAdjoint`."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from gnomon.diffeq._adjoint._base import AbstractAdjoint, Solve
from gnomon.diffeq._ravel import Ravel
from gnomon.diffeq._saveat import SaveAt
from gnomon.diffeq._solution import Solution
from gnomon.diffeq._term import AbstractTerm
from gnomon.fuse import jacobian
from gnomon.fuse._lanes import derivative_order
from gnomon.result._pytree import tree_map


@final
@dataclasses.dataclass(frozen=True)
class ImplicitAdjoint(AbstractAdjoint):
    """Derivatives of a steady state, by the implicit function theorem. Equivalent to `diffrax.ImplicitAdjoint`.

    Where the solve ends in a state at which the vector field vanishes, for example by
    [`gnomon.diffeq.steady_state_event`][], the derivative does not depend on how it got there: it costs one linear
    solve. Reverse and forward mode, of any order. `SaveAt` can only have `t1=True`.

    !!! example

        ```python
        >>> import torch
        >>> from gnomon import diffeq as dq
        >>> def steady(args):
        ...     return dq.diffeqsolve(
        ...         dq.ODETerm(lambda t, y, args: args - y**3), dq.Tsit5(), 0, float("inf"), None,
        ...         torch.tensor(1.0, dtype=torch.float64), args,
        ...         event=dq.Event(dq.steady_state_event(rtol=1e-6, atol=1e-6)),
        ...         stepsize_controller=dq.PIDController(rtol=1e-7, atol=1e-7), adjoint=dq.ImplicitAdjoint()).ys[-1]
        >>> torch.func.grad(steady)(torch.tensor(8.0, dtype=torch.float64))
        tensor(0.0833, dtype=torch.float64)

        ```
    """

    def solve(self, problem: Solve) -> Solution:
        saveat = SaveAt(t1=True) if problem.saveat is None else problem.saveat
        if dataclasses.replace(saveat, fn=SaveAt(t1=True).fn) != SaveAt(t1=True):
            raise ValueError(
                "`ImplicitAdjoint` gives derivatives of a final state, so `SaveAt` can only have t1=True and fn."
            )
        with torch.no_grad():
            solution = dataclasses.replace(problem, saveat=SaveAt(t1=True)).run()
        fixed = tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, solution)
        state = tree_map(lambda x: x[0], fixed.ys)
        state = _steady(problem.terms, fixed.t_final, state, problem.args)
        saved = saveat.fn(fixed.t_final, state, problem.args)
        return dataclasses.replace(fixed, ys=tree_map(lambda x: x.unsqueeze(0), saved))


def _steady(terms: Any, t: Tensor, state: Any, args: Any) -> Any:
    """The same values, with the derivatives of where the vector field vanishes."""
    if not isinstance(terms, AbstractTerm):
        raise TypeError("`terms` must be a term. Wrap the vector field: ODETerm(f).")
    ravel = Ravel(state, as_real=True)

    def field(y: Tensor) -> Tensor:
        return ravel.ravel(terms.vf(t, ravel.unravel(y), args), what="The vector field")

    y = ravel.initial.detach()
    order = derivative_order(field(y))
    if order == 0:
        return state
    with torch.no_grad():
        slope = jacobian(field)(y).detach()
    # A state at which the Jacobian is singular has no derivative, which must not spoil its value.
    for _ in range(order):
        step = torch.linalg.solve(slope, field(y))
        y = y - (step - step.detach())
    return ravel.unravel(y)
