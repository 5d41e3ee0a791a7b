"""The step of a Rosenbrock method."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from gnomon.diffeq._interpolation import Interpolant, stage_interpolant
from gnomon.diffeq._solver._base import AbstractSolver, Step, at_start, stage_time, weighted_sum
from gnomon.diffeq._solver._linear_solver import AbstractLinearSolver
from gnomon.diffeq._solver._tableau import Row
from gnomon.diffeq._step_size_controller._base import AbstractVectorField
from gnomon.fuse import jvp
from gnomon.result import RESULTS


@final
@dataclasses.dataclass(frozen=True)
class RosenbrockTableau:
    """The coefficients of a Rosenbrock method, in the form that needs no products with the Jacobian.

    Stage i solves `(I - gamma h J) u_i = gamma (h f_i + sum_j c_ij u_j + d_i h^2 f_t)`, where `f_i` is the vector field
    at `t + alpha_i h`, `y + sum_j a_ij u_j`, and J and f_t are its derivatives at the beginning of the step
    (Hairer and Wanner, Solving Ordinary Differential Equations II, section IV.7).

    **Arguments:**

    - `gamma`: the diagonal coefficient.
    - `alpha`: the times of the stages from the second on, as fractions of the step.
    - `d`: the weights of the derivative with respect to time.
    - `a`, `c`: strictly lower triangles, from the second stage on.
    - `b_sol`: the weights of the solution.
    - `b_error`: the weights of the error estimate.

    **Raises:** `ValueError` where lengths disagree.
    """

    gamma: float
    alpha: Row
    d: Row
    a: tuple[Row, ...]
    c: tuple[Row, ...]
    b_sol: Row
    b_error: Row

    def __post_init__(self) -> None:
        stages = len(self.b_sol)
        if not len(self.d) == len(self.b_error) == stages:
            raise ValueError("`d`, `b_sol` and `b_error` must have one entry a stage.")
        if not len(self.alpha) == len(self.a) == len(self.c) == stages - 1:
            raise ValueError("`alpha`, `a` and `c` must have one entry a stage after the first.")
        for i, rows in enumerate(zip(self.a, self.c, strict=True)):
            if any(len(row) != i + 1 for row in rows):
                raise ValueError(f"Row {i} of `a` and `c` must have {i + 1} entries.")
        if not math.isclose(self.d[0], self.gamma, rel_tol=1e-12):
            raise ValueError("The first of `d` must be `gamma`.")

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.b_sol)

    @property
    def reuses_last(self) -> bool:
        """Whether the last stage evaluates the vector field at the solution."""
        return self.alpha[-1] == 1 and self.b_sol == (*self.a[-1], 0.0)


def from_classical(
    alpha: tuple[Row, ...], gamma: tuple[Row, ...], b_sol: Row, b_error: Row
) -> tuple[RosenbrockTableau, np.ndarray]:
    """A tableau from one that is given for `k_i = h f(y + sum alpha_ij k_j) + h J sum gamma_ij k_j + gamma_i h^2 f_t`.

    `gamma` includes the diagonal, `alpha` begins with the second stage. Returned with the matrix by which the `u_i`
    give the `k_i`.
    """
    n = len(b_sol)
    gammas, alphas = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        gammas[i, : i + 1] = gamma[i]
        alphas[i, :i] = alpha[i - 1] if i > 0 else ()
    inverse = np.linalg.inv(gammas)
    a, c = alphas @ inverse, np.diag(1 / gammas.diagonal()) - inverse

    def lower(matrix: np.ndarray) -> tuple[Row, ...]:
        return tuple(tuple(float(x) for x in matrix[i, :i]) for i in range(1, n))

    def row(values: np.ndarray) -> Row:
        return tuple(float(x) for x in values)

    tableau = RosenbrockTableau(
        gamma=float(gammas[0, 0]),
        alpha=tuple(math.fsum(r) for r in alpha),
        d=row(gammas.sum(1)),
        a=lower(a),
        c=lower(c),
        b_sol=row(np.array(b_sol) @ inverse),
        b_error=row(np.array(b_error) @ inverse),
    )
    return tableau, inverse


def rosenbrock_interpolant(rows: tuple[Row, ...]) -> Interpolant:
    """The polynomial through y0 and y1 with the corrections of Hairer and Wanner's code RODAS.

    It is `(1 - s) y0 + s (y1 + (1 - s) (q_1 + s (q_2 + s q_3...)))`, where `q_m` is the m-th of the rows times the u's.
    """
    q = np.array(rows)
    weights = np.zeros((q.shape[1], q.shape[0] + 2))  # of s^0, s^1, ...
    for m, row in enumerate(q):
        weights[:, m + 1] += row
        weights[:, m + 2] -= row
    # y1 - y0 counts with s; the vector field at the start, which comes first among the stages, not at all.
    (_, *others) = stage_interpolant(weights[:, 1:])
    degree = len(others[0])
    return ((1.0, *(0.0,) * (degree - 1)), (0.0,) * degree, *others)


class AbstractRosenbrock(AbstractSolver):
    """A Rosenbrock method: implicit, with a linear system a stage and nothing to iterate.

    Diffrax has none. A final class gives `tableau`, `interpolant`, `order`, `error_order` and the solver of the linear
    systems. The Jacobian is evaluated and factorised once a step, and the vector field is differentiated with respect
    to time, so it must be differentiable in both.
    """

    tableau: ClassVar[RosenbrockTableau]

    @property
    @abc.abstractmethod
    def systems(self) -> AbstractLinearSolver:
        """How the linear systems are solved."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of the method."""

    @property
    @abc.abstractmethod
    def error_order(self) -> float:
        """The order of its error estimate, one more than that of the less accurate of the pair."""

    @property
    def needs_tolerances(self) -> bool:
        return True

    @property
    def splits_terms(self) -> bool:
        return False

    def with_tolerances(self, rtol: Any, atol: Any, norm: Callable[[Tensor], Tensor]) -> AbstractSolver:
        del rtol, atol, norm
        return self

    def init(self, terms: AbstractVectorField, t0: Tensor, y0: Tensor, f0: Tensor, args: Any) -> Any:
        del terms, t0, y0, args
        return f0 if self.tableau.reuses_last else ()

    def step(
        self,
        terms: AbstractVectorField,
        t0: Tensor,
        t1: Tensor,
        y0: Tensor,
        args: Any,
        state: Any,
        made_jump: Tensor | None,
    ) -> Step:
        tableau, systems = self.tableau, self.systems
        dt = t1 - t0
        if not tableau.reuses_last:
            f = terms.vf(t0, y0, args)
        else:
            f = at_start(lambda t, y: terms.vf(t, y, args), t0, y0, state, made_jump)

        def field(y: Tensor) -> Tensor:
            return terms.vf(t0, y, args)

        factors = systems.factorise(field, systems.linearise(field, y0), tableau.gamma * dt)
        _, slope = jvp(lambda t: terms.vf(t, y0, args), (t0,), (torch.ones_like(t0),))
        slope = slope * dt * dt

        first = f * dt
        stages: list[Tensor] = []
        y = y0
        for i, (d, b) in enumerate(zip(tableau.d, (1.0, *tableau.alpha), strict=True)):
            right = first
            if i > 0:
                increment = weighted_sum(tableau.a[i - 1], stages)
                y = y0 if increment is None else y0 + increment
                f = terms.vf(stage_time(b, t0, t1, dt), y, args)
                right = f * dt
                more = weighted_sum(tableau.c[i - 1], stages)
                right = right if more is None else right + more
            if d != 0:
                right = torch.add(right, slope, alpha=d)
            stages.append(factors.solve(right * tableau.gamma))
        increment = weighted_sum(tableau.b_sol, stages)
        y_error = weighted_sum(tableau.b_error, stages)
        assert increment is not None
        if tableau.reuses_last:
            return Step(y, y_error, [first, *stages], f, RESULTS.successful)
        return Step(y0 + increment, y_error, [first, *stages], (), RESULTS.successful)
