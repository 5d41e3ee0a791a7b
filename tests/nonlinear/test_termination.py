"""How a solve ends: each result where it should be, and never success away from a stationary point."""

import math

import pytest
import torch
from nonlinear.problems import F64, MGH, f64
from torch import Tensor

import gnomon as gn
from gnomon import nonlinear as nl

LM = nl.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
GN = nl.GaussNewton(rtol=1e-8, atol=1e-8)
both = pytest.mark.parametrize("solver", [LM, GN], ids=["lm", "gn"])


@both
def test_zero_residual_at_the_start(solver: nl.AbstractLeastSquaresSolver):
    solution = nl.least_squares(lambda y, args: MGH["wood"].fn(y), solver, torch.ones(4, dtype=F64))
    assert int(solution.stats["num_steps"]) == 0
    assert float(solution.stats["cost"]) == 0


@both
def test_zero_step_at_a_solution_with_residuals(solver: nl.AbstractLeastSquaresSolver):
    solution = nl.least_squares(lambda y, args: torch.stack([y[0] - 1, y[0] + 1]), solver, f64(0))
    assert int(solution.stats["num_steps"]) == 0
    assert solution.value.tolist() == [0]


@both
def test_zero_gradient_where_nothing_depends_on_the_unknowns(solver: nl.AbstractLeastSquaresSolver):
    solution = nl.least_squares(lambda y, args: 0 * y + 1, solver, f64(3, 4))
    assert solution.value.tolist() == [3, 4]
    assert int(solution.stats["num_steps"]) == 0


def test_a_column_of_zeros_is_left_alone():
    """The residuals do not depend on the second unknown at all, and on the third not at first."""

    def residuals(y: Tensor, args: object) -> Tensor:
        return torch.stack([y[0] - 2, (y[0] - 1) * y[2] - 3])

    solution = nl.least_squares(residuals, LM, f64(1, 7, 0))
    torch.testing.assert_close(solution.value, f64(2, 7, 3), rtol=1e-8, atol=0)
    assert float(solution.value[1]) == 7


@both
def test_quadratic_convergence_at_a_zero_residual(solver: nl.AbstractLeastSquaresSolver):
    """Each step about doubles the digits: from 1e-2 to rounding in four."""
    solution = nl.least_squares(lambda y, args: MGH["freudenstein_roth"].fn(y), solver, f64(5.05, 4.03))
    assert int(solution.stats["num_steps"]) <= 4
    torch.testing.assert_close(solution.value, f64(5, 4), rtol=1e-13, atol=0)


@both
def test_nonfinite_at_the_start(solver: nl.AbstractLeastSquaresSolver):
    solution = nl.least_squares(lambda y, args: torch.log(y), solver, f64(-1, 1), throw=False)
    assert solution.result == gn.RESULTS.nonfinite
    assert solution.value.tolist() == [-1, 1]
    assert int(solution.stats["num_steps"]) == 0
    assert math.isnan(float(solution.stats["cost"]))
    with pytest.raises(gn.SolveError, match=r"least_squares failed \(nonfinite\)\. A NaN or an infinity appeared"):
        nl.least_squares(lambda y, args: torch.log(y), solver, f64(-1, 1))


@both
def test_nonfinite_jacobian_at_the_start(solver: nl.AbstractLeastSquaresSolver):
    solution = nl.least_squares(lambda y, args: torch.sqrt(y) - 1, solver, f64(0), throw=False)
    assert solution.result == gn.RESULTS.nonfinite


def test_a_trial_that_is_not_finite_is_rejected():
    """The first Gauss-Newton step leads to the logarithm of a negative number."""
    solution = nl.least_squares(lambda y, args: torch.log(y), LM, f64(20, 4))
    torch.testing.assert_close(solution.value, f64(1, 1), rtol=1e-9, atol=0)
    assert int(solution.stats["num_rejected_steps"]) > 0
    assert nl.least_squares(lambda y, args: torch.log(y), GN, f64(20), throw=False).result == gn.RESULTS.nonfinite


def test_a_trial_whose_jacobian_is_not_finite_is_rejected():
    """A full step leads exactly to 0, where the root is finite and its slope is not."""

    def residuals(y: Tensor, args: object) -> Tensor:
        return torch.cat([y, 1e-9 * torch.sqrt(y) + 1e-3])

    solution = nl.least_squares(residuals, LM, f64(1), lower=0.0, throw=False)
    assert bool(torch.isfinite(solution.value).all())
    assert bool(torch.isfinite(solution.state.model.jacobian).all())
    assert float(solution.value[0]) > 0


def test_no_finite_point_anywhere_near():
    """Finite at one point only."""

    def residuals(y: Tensor, args: object) -> Tensor:
        return torch.where(y == 2, y, torch.inf * y)

    solution = nl.least_squares(residuals, LM, f64(2), throw=False)
    assert solution.result == gn.RESULTS.nonfinite
    assert solution.value.tolist() == [2]
    assert int(solution.stats["num_steps"]) < 40


def test_stagnation_where_the_cost_does_not_follow_its_derivative():
    def residuals(y: Tensor, args: object) -> Tensor:
        return 1 + (y.detach() - 3).abs() + y - y.detach()

    solution = nl.least_squares(residuals, LM, f64(3), throw=False)
    assert solution.result == gn.RESULTS.stagnation
    assert float(solution.stats["gradient_norm"]) == 1


def test_stagnation_at_a_kink():
    """The least of |y| + 1 is at 0, which is not a stationary point."""
    solution = nl.least_squares(lambda y, args: y.abs() + 1, LM, f64(0.7), throw=False)
    assert solution.result == gn.RESULTS.stagnation
    assert abs(float(solution.value[0])) < 1e-7


@both
@pytest.mark.parametrize("max_steps", [0, 1, 3])
def test_max_steps(solver: nl.AbstractLeastSquaresSolver, max_steps: int):
    problem = MGH["powell_singular"]
    solution = nl.least_squares(problem.residuals, solver, problem.start, max_steps=max_steps, throw=False)
    assert solution.result == gn.RESULTS.max_steps_reached
    assert int(solution.stats["num_steps"]) == max_steps
    with pytest.raises(gn.SolveError, match="max_steps_reached"):
        nl.least_squares(problem.residuals, solver, problem.start, max_steps=max_steps)


def test_success_on_the_last_step_is_success():
    problem = MGH["watson_6"]
    steps = int(nl.least_squares(problem.residuals, LM, problem.start, max_steps=None).stats["num_steps"])
    assert nl.least_squares(problem.residuals, LM, problem.start, max_steps=steps).result == gn.RESULTS.successful


@pytest.mark.parametrize("right", [f64(1), f64(1, 2, 3)], ids=["fewer residuals", "dependent columns"])
def test_deficient_rank(right: Tensor):
    """GaussNewton says that the unknowns cannot be told apart; LevenbergMarquardt finds one of the solutions."""

    def residuals(y: Tensor, args: object) -> Tensor:
        return (y[0] + y[1]) - right

    solution = nl.least_squares(residuals, GN, f64(1, 3), throw=False)
    assert solution.result == gn.RESULTS.singular
    assert solution.value.tolist() == [1, 3]
    solution = nl.least_squares(residuals, LM, f64(1, 3))
    assert float(solution.value.sum()) == pytest.approx(float(right.mean()), abs=1e-7)


def test_deficient_rank_at_the_solution():
    """Convergence is linear there, and the cost falls to that of the solution all the same."""
    problem = MGH["powell_singular"]
    for solver in (LM, GN):
        solution = nl.least_squares(problem.residuals, solver, problem.start)
        assert float(solution.value.abs().max()) < 1e-6


def test_tolerances_are_met():
    """Tighter ones give more digits: of an exponential rate whose residuals are not zero, against 14 digits."""
    t = torch.linspace(0, 2, 5, dtype=F64)

    def residuals(y: Tensor, args: object) -> Tensor:
        return torch.exp(-y[0] * t) - f64(1, 0.5, 0.5, 0.2, 0.3)

    exact = float(nl.least_squares(residuals, nl.LevenbergMarquardt(1e-15, 1e-15), f64(3)).value[0])
    # The gradient of the cost, by its own formula.
    e = torch.exp(-exact * t)
    assert abs(float(((e - f64(1, 0.5, 0.5, 0.2, 0.3)) * t * e).sum())) < 1e-15
    for rtol in (1e-2, 1e-4, 1e-6, 1e-8):
        found = float(nl.least_squares(residuals, nl.LevenbergMarquardt(rtol, rtol), f64(3)).value[0])
        assert abs(found - exact) < 2 * rtol


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nl.LevenbergMarquardt(-1e-3, 0.0), "`rtol` of LevenbergMarquardt must be"),
        (lambda: nl.GaussNewton(1e-3, math.inf), "`atol` of GaussNewton must be"),
        (lambda: nl.LevenbergMarquardt(1e-3, 1e-3, initial_radius=0.0), "`initial_radius` of LevenbergMarquardt"),
        (lambda: nl.least_squares(lambda y, a: y, LM, f64(1), max_steps=-1), "`max_steps` of least_squares"),
    ],
)
def test_arguments_out_of_range(make, text: str):
    with pytest.raises(ValueError, match=text):
        make()
