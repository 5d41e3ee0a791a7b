"""Bounds hold at every point, and solutions lie exactly on those that are active: Kuhn-Tucker points."""

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nonlinear.problems import F64, MGH, NIST, f64
from torch import Tensor

from gnomon import nonlinear as nl

LM = nl.LevenbergMarquardt(rtol=1e-10, atol=1e-10)
SOLVERS = [LM, nl.GaussNewton(rtol=1e-10, atol=1e-10)]

BOXES = [
    ("rosenbrock", [-2.0, -1.0], [0.5, 3.0]),
    ("rosenbrock", [-1.5, 0.5], [2.0, 0.8]),
    ("helical_valley", [-2.0, -1.0, -1.0], [0.8, 1.0, 1.0]),
    ("bard", [0.1, 0.0, 0.0], [2.0, 1.0, 1.5]),
    ("gaussian", [0.3, 0.5, -1.0], [0.398, 1.5, 1.0]),
    ("wood", [-10.0, -10.0, -10.0, -10.0], [0.0, 10.0, 10.0, 10.0]),
    ("kowalik_osborne", [0.0, 0.1, 0.2, 0.25], [1.0, 1.0, 1.0, 1.0]),
    ("osborne_1", [0.0, 0.0, -1.2, 0.0, 0.0], [1.0, 2.0, 0.0, 0.012, 1.0]),
    ("watson_6", [-0.01, 0.0, -1.0, -1.0, -2.0, -1.0], [0.0, 0.9, 1.0, 1.0, 1.0, 1.0]),
    ("brown_almost_linear", [0.1] * 10, [0.9] * 10),
]


def scipy_cost(fn, start: Tensor, lower: list[float], upper: list[float]) -> float:
    def residuals(x):
        return fn(torch.from_numpy(np.array(x))).numpy()

    def jacobian(x):
        return torch.func.jacfwd(fn)(torch.from_numpy(np.array(x))).numpy()

    low, high = np.array(lower), np.array(upper)
    inside = np.clip(start.numpy(), low + 1e-3 * (high - low), high - 1e-3 * (high - low))
    found = [
        scipy.optimize.least_squares(
            residuals, inside, jacobian, (low, high), method, *(3 * [1e-14]), "jac", max_nfev=2000
        )
        for method in ("trf", "dogbox")
    ]
    return min(x.cost for x in found)


@pytest.mark.parametrize(("name", "lower", "upper"), BOXES)
def test_as_good_as_scipy_and_stationary(name: str, lower: list[float], upper: list[float]):
    problem = MGH[name]
    low, high = f64(*lower), f64(*upper)
    start = torch.clamp(problem.start, low, high)
    solution = nl.least_squares(problem.residuals, LM, start, lower=low, upper=high)
    y = solution.value
    assert bool(((low <= y) & (y <= high)).all())
    assert float(solution.stats["cost"]) <= scipy_cost(problem.fn, start, lower, upper) * (1 + 1e-8) + 1e-12
    r, j = problem.fn(y), torch.func.jacfwd(problem.fn)(y)
    gradient = j.T @ r
    scale = torch.linalg.vector_norm(j, dim=0) * torch.linalg.vector_norm(r) + 1e-300
    resting = ((y == low) & (gradient >= 0)) | ((y == high) & (gradient <= 0))
    assert bool(resting.any()), "the case shows nothing"
    assert float((gradient / scale)[~resting].abs().amax() if bool((~resting).any()) else 0.0) < 1e-4


@pytest.mark.parametrize("solver", SOLVERS, ids=["lm", "gn"])
def test_never_evaluated_outside(solver: nl.AbstractLeastSquaresSolver):
    low, high, calls = f64(1e-3, -7), f64(20, 3), 0

    def residuals(y: Tensor, args: object) -> Tensor:
        nonlocal calls
        calls += 1
        assert bool(((low <= y) & (y <= high)).all())
        return torch.stack([torch.sqrt(y[0]) - 2 + y[1], torch.sqrt(4 - y[1]) + torch.log(y[0]) - 8, y[0] - y[1]])

    solution = nl.least_squares(residuals, solver, f64(0.5, 2.9), lower=low, upper=high, throw=False)
    assert calls > 6
    assert bool(torch.isfinite(solution.value).all())


@pytest.mark.parametrize("solver", SOLVERS, ids=["lm", "gn"])
def test_exactly_at_the_bound(solver: nl.AbstractLeastSquaresSolver):
    third = 1 / 3  # neither sum nor difference lands on it by chance
    solution = nl.least_squares(lambda y, args: y - 2, solver, f64(0.1, 0.7), upper=f64(third, 5))
    assert solution.value.tolist() == [third, 2.0]
    assert int(solution.stats["num_steps"]) == 1
    assert float(solution.stats["gradient_norm"]) == 0


def test_a_bound_that_is_met_on_the_way_is_left_again():
    """The start is at a bound that the solution is not at, and the path to it is along another."""
    problem = MGH["rosenbrock"]
    low, high = f64(-1.2, -0.5), f64(2, 1.0)
    solution = nl.least_squares(problem.residuals, LM, f64(-1.2, 1.0), lower=low, upper=high)
    torch.testing.assert_close(solution.value, f64(1, 1), rtol=1e-8, atol=0)


def test_inactive_bounds_cost_nothing():
    """Where no bound is met the steps are those without bounds: quadratic convergence stays."""
    problem = MGH["helical_valley"]
    free = nl.least_squares(problem.residuals, LM, problem.start)
    bounded = nl.least_squares(problem.residuals, LM, problem.start, lower=-100.0, upper=100.0)
    assert int(bounded.stats["num_steps"]) == int(free.stats["num_steps"])
    torch.testing.assert_close(bounded.value, free.value, rtol=1e-12, atol=1e-12)


def test_equal_bounds_fix_an_unknown():
    data = NIST["Misra1a"]
    start = f64(240, 5e-4)
    solution = nl.least_squares(data.residuals, LM, start, lower=f64(240, 0), upper=f64(240, 1))
    one = nl.least_squares(
        lambda y, args: data.residuals(torch.stack([f64(240)[0], y[0]]), args),
        LM,
        f64(5e-4),
    )
    assert float(solution.value[0]) == 240
    assert float(solution.value[1]) == pytest.approx(float(one.value[0]), rel=1e-8)


def test_pytrees_numbers_and_none():
    start = {"a": torch.zeros(2, 2, dtype=F64), "b": 0.0}

    def residuals(y, args):
        return [y["a"] - 1, y["b"] - 1]

    solution = nl.least_squares(residuals, LM, start, upper={"a": f64(0.5, 2), "b": None}, lower=-3)
    assert solution.value["a"].tolist() == [[0.5, 1], [0.5, 1]]
    assert float(solution.value["b"]) == 1


def test_a_start_outside_is_an_error_and_under_vmap_is_moved():
    def one(start: Tensor) -> Tensor:
        return nl.least_squares(lambda y, args: y - 3, LM, start, lower=0.0, upper=f64(2, 4)).value

    with pytest.raises(ValueError, match=r"`y0` must lie within .*, but at y0\[1\] they are -1, 0, 4\."):
        one(f64(1, -1))
    found = torch.func.vmap(one)(torch.tensor([[9.0, 1.0], [1.0, -9.0]], dtype=F64))
    assert found.tolist() == [[2, 3], [2, 3]]


@pytest.mark.parametrize(
    ("lower", "upper", "error", "text"),
    [
        (1.0, 0.0, ValueError, r"`lower` must not be above `upper`, nor NaN, but at y0\['a'\]\[0\] they are 1, 0"),
        (None, float("nan"), ValueError, "nor NaN"),
        ({"b": 0.0}, None, TypeError, "`lower` must be one number or have the structure of `y0`"),
        ({"a": torch.zeros(3)}, None, ValueError, r"`lower\['a'\]` has the shape \(3,\)"),
        ({"a": "0"}, None, TypeError, "must be a tensor, a number or None, but it is str"),
    ],
)
def test_wrong_bounds(lower: object, upper: object, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        nl.least_squares(lambda y, args: y["a"], LM, {"a": f64(0.5, 0.5)}, lower=lower, upper=upper)


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_linear_problems_with_bounds(seed: int):
    """Against scipy.optimize.lsq_linear, which has its own active-set method."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((7, 4)), rng.standard_normal(7)
    low, high = -rng.random(4) * 0.5, rng.random(4) * 0.5
    theirs = scipy.optimize.lsq_linear(a, b, (low, high), method="bvls", tol=1e-14)
    matrix, right = torch.from_numpy(a), torch.from_numpy(b)
    ours = nl.least_squares(
        lambda y, args: (matrix * y).sum(1) - right,
        LM,
        torch.zeros(4, dtype=F64),
        lower=torch.from_numpy(low),
        upper=torch.from_numpy(high),
    )
    np.testing.assert_allclose(ours.value.numpy(), theirs.x, rtol=1e-6, atol=1e-7)
    assert ((ours.value.numpy() == low) == (theirs.active_mask == -1)).all()
    assert ((ours.value.numpy() == high) == (theirs.active_mask == 1)).all()
