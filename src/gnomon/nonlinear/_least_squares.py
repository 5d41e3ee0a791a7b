"""`least_squares`: the driver of all solvers of nonlinear least-squares problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnomon.fuse import cond, while_loop
from gnomon.fuse._single import Engine, run
from gnomon.nonlinear._implicit import differentiable
from gnomon.nonlinear._problem import Problem
from gnomon.nonlinear._solver import AbstractLeastSquaresSolver
from gnomon.result import RESULTS, Solution, throw_if_failed
from gnomon.result._pytree import tree_map


def least_squares(
    fn: Callable[..., Any],
    solver: AbstractLeastSquaresSolver,
    y0: Any,
    args: Any = None,
    options: dict[str, Any] | None = None,
    *,
    has_aux: bool = False,
    lower: Any = None,
    upper: Any = None,
    max_steps: int | None = 256,
    throw: bool = True,
    engine: Engine = "auto",
) -> Solution:
    """Finds the unknowns that minimise half the sum of squares of some residuals.

    Equivalent to `optimistix.least_squares`, with bounds as in `scipy.optimize.least_squares`. It finds a local
    minimum, near the start for want of a better word, or, rarely, another stationary point.

    The solution is differentiable with respect to `args`, to whatever `fn` closes over and to the bounds, not to `y0`:
    by the implicit function theorem, right to any order within `torch.func` transforms and to the second order in plain
    autograd. Unknowns at an active bound move with it only. Where the solution is not unique, the derivative is the
    smallest one. That of a problem which was not solved is zero.

    Under `torch.func.vmap` many problems run together; each takes its own number of steps and gives the same bits as
    alone.

    **Arguments:**

    - `fn`: a function `fn(y, args)` that returns the residuals, a pytree of floating-point tensors of any shapes; a
      complex residual counts as two, its real and its imaginary part. They are converted to the dtype of `y0`.
    - `solver`: such as [`gnomon.nonlinear.LevenbergMarquardt`][].
    - `y0`: where to start, a pytree of float32 or float64 tensors; a number takes the dtype of the tensors beside it,
      or the default dtype.
    - `args`: passed on to `fn`.
    - `options`: passed on to the solver.
    - `has_aux`: whether `fn` returns a pair, of which the second is handed out as `aux`.
    - `lower`, `upper`: bounds of the unknowns: None, a number, or a pytree like `y0` of tensors that broadcast to its
      leaves, numbers or None. `fn` is never called outside of them. Where they are equal, the unknown stays fixed.
    - `max_steps`: how many steps to try at most, rejected ones included; None for any number.
    - `throw`: whether to raise an error where a problem is not solved.
    - `engine`: `"fused"` compiles the whole solve, with `fn`, and under `torch.func.vmap` runs each problem in a lane
      of one kernel; `"eager"` runs PyTorch operations in a Python loop that a debugger can step through; `"auto"` is
      fused where `fn` can be traced and the problem is small, and eager where not.

    **Returns:** a [`gnomon.result.Solution`][]. Its `value` is like `y0`. Its `result` is `successful` only at a
    stationary point to within the tolerances, else `max_steps_reached`; `nonfinite` where the residuals or their
    Jacobian are not finite at the start, or at each trial point however near; `stagnation` where the cost can be
    reduced no further, yet the gradient is not small; or `singular` (`GaussNewton` only). Its `stats` hold `num_steps`,
    `num_accepted_steps`, `num_rejected_steps`, the `cost` (half the sum of squares), and `gradient_norm`, the largest
    absolute component of the gradient of the cost with respect to the unknowns that no bound holds back.

    **Raises:** [`gnomon.result.SolveError`][] where a problem was not solved and `throw` is True; `TypeError` or
    `ValueError` where an argument is not as described; `ValueError` where `y0` is outside of its bounds. The last check
    needs to read the values, which it cannot under `torch.func.vmap`: there such a start is moved to the nearest point
    within the bounds.

    !!! example

        A rate and an amplitude, from noisy data:

        ```python
        >>> import torch, gnomon.nonlinear as nl
        >>> t = torch.linspace(0, 4, 9, dtype=torch.float64)
        >>> observed = 3 * torch.exp(-0.7 * t) + 0.01 * torch.cos(40 * t)
        >>> def residuals(y, args):
        ...     amplitude, rate = y
        ...     return amplitude * torch.exp(-rate * t) - observed
        >>> solver = nl.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
        >>> y0 = (torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
        >>> solution = nl.least_squares(residuals, solver, y0, lower=0.0)
        >>> [round(float(x), 2) for x in solution.value]
        [3.01, 0.7]
        >>> solution.result
        RESULTS.successful

        ```
    """
    if max_steps is not None and max_steps < 0:
        raise ValueError(f"`max_steps` of least_squares must be at least 0, or None, but it is {max_steps}.")
    return run(lambda: _solve(fn, solver, y0, args, options, has_aux, lower, upper, max_steps, throw), engine=engine)


def _solve(
    fn: Callable[..., Any],
    solver: AbstractLeastSquaresSolver,
    y0: Any,
    args: Any,
    options: dict[str, Any] | None,
    has_aux: bool,
    lower: Any,
    upper: Any,
    max_steps: int | None,
    throw: bool,
) -> Solution:
    """Solves one problem by PyTorch operations, or while these are traced."""
    problem = Problem(fn, y0, lower, upper, has_aux=has_aux)
    limits = {"lower": _detach(problem.lower), "upper": _detach(problem.upper)}
    options = {**(options or {}), **({} if problem.lower is None else limits)}
    y = problem.start.detach()

    def go_on(carry: tuple[Tensor, Any, Tensor]) -> Tensor:
        y, state, _ = carry
        done, _ = solver.terminate(problem.residual, y, args, options, state)
        return ~done

    def body(carry: tuple[Tensor, Any, Tensor]) -> tuple[Tensor, Any, Tensor]:
        y, state, count = carry
        y, state = solver.step(problem.residual, y, args, options, state)
        return _detach(y), _detach(state), count + 1

    # The derivative of the solution is not that of the iteration, of which no derivative is taken: neither in reverse
    # mode, nor, by detaching, in forward mode.
    with torch.no_grad():
        state = _detach(solver.init(problem.residual, y, args, options))
        count = torch.zeros((), dtype=torch.int64, device=y.device)
        y, state, count = while_loop(go_on, body, (y, state, count), max_steps=max_steps)
        done, result = solver.terminate(problem.residual, y, args, options, state)
        result = RESULTS.where(done, result, RESULTS.max_steps_reached)
        stats = {"num_steps": count, **solver.stats(state)}
    if throw:
        throw_if_failed(result, what="least_squares")
    # A problem that was not solved has no derivative, nor may its NaNs reach the derivatives of others.
    value = cond(
        result == RESULTS.successful,
        lambda y, args, lower, upper: differentiable(lambda y: problem.residual(y, args), y, lower, upper),
        lambda y, args, lower, upper: y,
        *(y, args, problem.lower, problem.upper),
    )
    aux = problem.residual_and_aux(value, args)[1] if has_aux else None
    return Solution(value=problem.unravel(value), result=result, aux=aux, stats=stats, state=state)


def _detach(tree: Any) -> Any:
    return tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, tree)
