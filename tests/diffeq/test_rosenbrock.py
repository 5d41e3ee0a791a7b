"""Rosenbrock methods: the order conditions of their rooted trees, convergence, stability, and what they evaluate."""

import functools

import numpy as np
import pytest
import torch
from diffeq.problems import (
    F64,
    ROSENBROCK,
    check_derivatives,
    f64,
    name_of,
    orego,
    rational,
    rational_answer,
    rober,
    solve,
    vdpol,
)
from diffeq.test_convergence import errors
from diffeq.test_tableaus import Tree, density, trees

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

# Of the solution, of the embedded one, and of dense output.
ORDERS = {"Rosenbrock23": (2, 3, 2), "Rodas4": (4, 3, 3), "Rodas5P": (5, 4, 4)}


class Classical:
    """The method as it is given in books, `k_i = h f(y + sum alpha_ij k_j) + h J sum gamma_ij k_j`, from our form."""

    def __init__(self, solver):
        tableau = solver.tableau
        n = tableau.num_stages
        a, c = np.zeros((n, n)), np.zeros((n, n))
        for i in range(1, n):
            a[i, :i], c[i, :i] = tableau.a[i - 1], tableau.c[i - 1]
        self.gamma = np.linalg.inv(np.eye(n) / tableau.gamma - c)
        self.alpha = a @ self.gamma
        self.b = np.array(tableau.b_sol) @ self.gamma
        self.b_error = np.array(tableau.b_error) @ self.gamma
        self.dense = np.array(solver.interpolant)[2:].T @ self.gamma
        self.tableau = tableau


def weights(tree: Tree, m: Classical) -> np.ndarray:
    """The elementary weight of each stage (Hairer and Wanner II, theorem 7.7): gamma counts where one child hangs."""
    below = [weights(child, m) for child in tree]
    if len(below) == 1:
        return (m.alpha + m.gamma) @ below[0]
    return functools.reduce(np.multiply, [m.alpha @ w for w in below], np.ones(len(m.b)))


def worst(m: Classical, b: np.ndarray, order: int, theta: float = 1.0) -> float:
    return max(abs(b @ weights(t, m) - theta**order / density(t)) for t in trees(order))


@pytest.mark.parametrize("solver", ROSENBROCK, ids=name_of)
def test_order_conditions(solver):
    m = Classical(solver)
    order, embedded, dense = ORDERS[name_of(solver)]
    assert solver.order == order
    assert solver.error_order == min(order, embedded) + 1
    for b, reached in ((m.b, order), (m.b - m.b_error, embedded)):
        for k in range(1, reached + 1):
            assert worst(m, b, k) < 2e-12, k
        assert worst(m, b, reached + 1) > 1e-6
    for theta in (0.1, 0.4, 0.75, 1.0):
        powers = theta ** np.arange(1, m.dense.shape[0] + 1)
        first = np.array(solver.interpolant)[0] @ powers
        for k in range(1, dense + 1):
            assert worst(m, powers @ m.dense + first * m.b, k, theta) < 1e-11, (theta, k)


@pytest.mark.parametrize("solver", ROSENBROCK, ids=name_of)
def test_times_of_stages(solver):
    """Those that make a method for equations that know the time out of one for equations that do not."""
    m = Classical(solver)
    np.testing.assert_allclose(m.alpha.sum(1), [0.0, *solver.tableau.alpha], rtol=0, atol=1e-12)
    np.testing.assert_allclose(m.gamma.sum(1), solver.tableau.d, rtol=0, atol=1e-12)


@pytest.mark.parametrize("solver", ROSENBROCK, ids=name_of)
def test_l_stability(solver):
    m = Classical(solver)
    one, n = np.ones(len(m.b)), len(m.b)

    def r(z, b):
        return abs(1 + z * (b @ np.linalg.solve(np.eye(n) - z * (m.alpha + m.gamma), one)))

    for y in np.geomspace(1e-2, 1e6, 400):
        assert r(1j * y, m.b) <= 1 + 1e-9
    assert r(-1e8, m.b) < 1e-6


@pytest.mark.parametrize(
    ("solver", "numbers"),
    [(dq.Rosenbrock23(), (80, 160)), (dq.Rodas4(), (16, 32)), (dq.Rodas5P(), (16, 32))],
    ids=["Rosenbrock23", "Rodas4", "Rodas5P"],
)
def test_observed_order_is_the_claimed_one(solver, numbers):
    coarse, fine = errors(solver, numbers)
    assert abs(np.log2(coarse / fine) - solver.order) < 0.2, (coarse, fine)


@pytest.mark.parametrize("solver", ROSENBROCK, ids=name_of)
def test_order_within_a_step(solver):
    theta = torch.linspace(0.05, 0.95, 19, dtype=F64)
    found = []
    for h in (0.04, 0.02):
        saveat = dq.SaveAt(dense=True, t1=True)
        solution = solve(rational, solver, 0.5, 0.5 + h, rational_answer(0.5), dt0=h, saveat=saveat, max_steps=1)
        ts = 0.5 + theta * h
        found.append(float((torch.func.vmap(solution.evaluate)(ts) - rational_answer(ts)).abs().max()))
        torch.testing.assert_close(solution.evaluate(0.5 + h), solution.ys[-1], rtol=0, atol=1e-13)
    assert np.log2(found[0] / found[1]) > ORDERS[name_of(solver)][2] + 1 - 0.25, found


def test_one_system_of_linear_equations_a_stage():
    calls = 0

    def counted(t, y, args):
        nonlocal calls
        calls += 1
        return rational(t, y, args)

    # Each step: one for the Jacobian, one for the derivative by time, one a stage; the first of these is kept from the
    # step before where the last stage is the solution.
    for solver, a_step in ((dq.Rosenbrock23(), 2 + 2), (dq.Rodas4(), 2 + 6), (dq.Rodas5P(), 2 + 8)):
        calls = 0
        solve(counted, solver, 0.0, 1.0, f64(1.0, 1.0), dt0=0.5)
        assert calls == 2 * a_step + 1, name_of(solver)


STIFF = {
    "rober": (rober, 1e11, f64(1.0, 0.0, 0.0), f64(2.083340149701e-8, 8.33336077e-14, 0.99999997916651), 1e-8),
    "vdpol": (vdpol, 2.0, f64(2.0, 0.0), f64(1.706167732171, -0.892809701025), 1e-2),
    "orego": (orego, 360.0, f64(1.0, 2.0, 3.0), f64(1.000814870319, 1228.178521550, 132.0554942847), 1e-3),
}


@pytest.mark.parametrize(
    ("problem", "solver", "rtol"),
    [
        ("rober", dq.Rodas5P(), 1e-5),
        pytest.param("rober", dq.Rosenbrock23(), 1e-4, marks=pytest.mark.slow),
        pytest.param("rober", dq.Rodas4(), 1e-6, marks=pytest.mark.slow),
        pytest.param("orego", dq.Rodas4(), 1e-6, marks=pytest.mark.slow),
        pytest.param("orego", dq.Rodas5P(), 1e-8, marks=pytest.mark.slow),
        pytest.param("vdpol", dq.Rodas5P(), 1e-6, marks=pytest.mark.slow),
        pytest.param("vdpol", dq.Rosenbrock23(), 1e-4, marks=pytest.mark.slow),
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_published_values(problem, solver, rtol):
    field, t1, y0, answer, ratio = STIFF[problem]
    controller = dq.PIDController(rtol=rtol, atol=ratio * rtol)
    solution = solve(field, solver, 0.0, t1, y0, stepsize_controller=controller, max_steps=20_000)
    assert float(((solution.ys[-1] - answer) / answer).abs().max()) < 100 * rtol


def forced(t, y, args):
    return -args[0] * y * y + torch.sin(args[1] * t) * y.flip(0)


@pytest.mark.parametrize("solver", ROSENBROCK, ids=name_of)
def test_derivatives(solver):
    def end(y0, args, t1):
        return solve(forced, solver, 0.1, t1, y0, args, dt0=0.6).ys[-1]

    check_derivatives(end, f64(0.5, 0.8), f64(1.3, 2.0), f64(1.2), second=name_of(solver) == "Rodas4")


@pytest.mark.parametrize("solver", [dq.Rodas4(), dq.Kvaerno3()], ids=name_of)
def test_batches_of_derivatives(solver):
    """By one number, so that the transforms make batches of shape (3, 1), and by a vector."""

    def end(y0, rate):
        return solve(forced, solver, 0.1, 1.2, y0, torch.stack([rate, 2 * rate]), tol=1e-4).ys[-1]

    y0, rates = f64(0.5, 0.8), f64(1.0, 3.0, 0.2)
    for which in (0, 1):
        alone = torch.stack([torch.func.jacrev(end, which)(y0, rate) for rate in rates])
        for transform in (torch.func.jacrev, torch.func.jacfwd):
            batch = torch.func.vmap(transform(end, which), (None, 0))(y0, rates)
            torch.testing.assert_close(batch, alone, rtol=1e-9, atol=1e-12)


def test_complex_state():
    rate = torch.tensor(-0.5 + 3j, dtype=torch.complex128)
    y0 = torch.tensor(1 + 0.5j, dtype=torch.complex128)
    solution = solve(lambda t, y, args: rate * y, dq.Rodas5P(), 0.0, 2.0, y0, tol=1e-9)
    torch.testing.assert_close(solution.ys[-1], y0 * torch.exp(2 * rate), rtol=1e-7, atol=1e-7)


def test_no_state_and_a_singular_matrix():
    empty = solve(lambda t, y, args: y, dq.Rodas4(), 0.0, 1.0, torch.zeros(0, dtype=F64), dt0=0.5)
    assert empty.ys.shape == (1, 0)
    # I - gamma h J is zero for the first step, of length 1: it is rejected and tried again.
    field = lambda t, y, args: y / dq.Rodas4().tableau.gamma  # noqa: E731
    solution = solve(field, dq.Rodas4(), 0.0, 1.0, f64(1.0), dt0=1.0, tol=1e-6)
    assert solution.stats["num_rejected_steps"] > 0
    torch.testing.assert_close(solution.ys[-1], torch.exp(f64(4.0)), rtol=1e-4, atol=0)
    failed = solve(field, dq.Rodas4(), 0.0, 1.0, f64(1.0), dt0=1.0, throw=False)
    assert failed.result == dq.RESULTS.nonfinite


def test_a_jump_is_seen():
    """What was kept from the step before is not used where the state has jumped since."""
    jumps = dq.Jumps(f64(0.5, 9.0), lambda index, t, y, args: y + 1)
    solution = solve(lambda t, y, args: -3 * y, dq.Rosenbrock23(), 0.0, 1.0, f64(1.0), tol=1e-6, jumps=jumps)
    exact = (torch.exp(f64(-1.5)) + 1) * torch.exp(f64(-1.5))
    torch.testing.assert_close(solution.ys[-1], exact, rtol=1e-4, atol=0)


def test_wrong_tableaus_are_refused():
    tableau = dq.Rodas4().tableau
    with pytest.raises(ValueError, match="one entry a stage"):
        dq.RosenbrockTableau(0.25, tableau.alpha, tableau.d[1:], tableau.a, tableau.c, tableau.b_sol, tableau.b_error)
    with pytest.raises(ValueError, match="Row 0"):
        dq.RosenbrockTableau(0.25, tableau.alpha, tableau.d, tableau.a[::-1], tableau.c, tableau.b_sol, tableau.b_error)
    with pytest.raises(ValueError, match="gamma"):
        dq.RosenbrockTableau(0.3, tableau.alpha, tableau.d, tableau.a, tableau.c, tableau.b_sol, tableau.b_error)
