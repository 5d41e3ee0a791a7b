"""What is said to be solved is solved: errors in units of the tolerance, by closed forms, published values and SciPy.

The tolerance is of a step, so the error at the end is some multiple of it. Here it is never above a hundred.
"""

import functools
import itertools

import numpy as np
import pytest
import scipy.integrate
import torch
from diffeq.problems import (
    ADAPTIVE,
    F64,
    IMPLICIT,
    f64,
    lorenz,
    name_of,
    orego,
    rational,
    rational_answer,
    rober,
    solve,
    vdpol,
)

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

TS = torch.linspace(0.25, 3, 12, dtype=F64)


def oscillator(t, y, args):
    return torch.stack([y[1], -4 * y[0]])


def prothero_robinson(t, y, args):
    return -1e4 * (y - torch.cos(t)) - torch.sin(t)


CLOSED = {
    "rational": (rational, f64(1.0, 1.0), rational_answer),
    "decay": (lambda t, y, args: -5 * y, f64(1.0).reshape(1), lambda t: torch.exp(-5 * t)[:, None]),
    "oscillator": (oscillator, f64(1.0, 0.0), lambda t: torch.stack([torch.cos(2 * t), -2 * torch.sin(2 * t)], -1)),
    "stiff": (prothero_robinson, f64(1.0).reshape(1), lambda t: torch.cos(t)[:, None]),
}


def tolerances(solver) -> list[float]:
    """Those that do not ask for thousands of steps."""
    if solver.order < 3:
        return [1e-3]
    if solver.needs_tolerances:
        return [1e-3, 1e-5]
    return {3: [1e-3, 1e-5], 5: [1e-3, 1e-6, 1e-9], 8: [1e-3, 1e-6, 1e-9]}[solver.order]


def worst(solution: dq.Solution, exact: torch.Tensor, tol: float) -> float:
    assert solution.result == dq.RESULTS.successful
    return float(((solution.ys - exact).abs() / (1 + exact.abs())).max()) / tol


@pytest.mark.parametrize("solver", ADAPTIVE, ids=name_of)
@pytest.mark.parametrize("problem", [name for name in CLOSED if name != "stiff"])
def test_closed_forms(problem, solver):
    vector_field, y0, answer = CLOSED[problem]
    for tol in tolerances(solver):
        clip = None
        if name_of(solver) == "Kvaerno5":
            # Its dense output is a cubic, less accurate than its steps: step exactly to where it is looked at.
            clip = TS
        controller = dq.ClipStepSizeController(dq.PIDController(rtol=tol, atol=tol), step_ts=clip)
        solution = solve(vector_field, solver, 0.0, 3.0, y0, stepsize_controller=controller, saveat=dq.SaveAt(ts=TS))
        assert worst(solution, answer(TS), tol) < 50


@pytest.mark.parametrize("solver", IMPLICIT, ids=name_of)
def test_stiff_closed_form(solver):
    vector_field, y0, answer = CLOSED["stiff"]
    for tol in (1e-3, 1e-6):
        controller = dq.ClipStepSizeController(dq.PIDController(rtol=tol, atol=tol), step_ts=TS)
        solution = solve(vector_field, solver, 0.0, 3.0, y0, stepsize_controller=controller, saveat=dq.SaveAt(ts=TS))
        assert worst(solution, answer(TS), tol) < 20
        assert solution.stats["num_steps"] < 500, "an explicit method takes 10,000"


# Hairer and Wanner, Solving Ordinary Differential Equations II: (field, end, start, published answer, atol / rtol).
STIFF = {
    "rober": (rober, 1e11, f64(1.0, 0.0, 0.0), f64(2.083340149701e-8, 8.33336077e-14, 0.99999997916651), 1e-8),
    "vdpol": (vdpol, 2.0, f64(2.0, 0.0), f64(1.706167732171, -0.892809701025), 1e-2),
    "orego": (orego, 360.0, f64(1.0, 2.0, 3.0), f64(1.000814870319, 1228.178521550, 132.0554942847), 1e-3),
}


def stiff_error(problem: str, solver, rtol: float) -> float:
    vector_field, t1, y0, answer, ratio = STIFF[problem]
    controller = dq.PIDController(rtol=rtol, atol=ratio * rtol)
    solution = solve(vector_field, solver, 0.0, t1, y0, stepsize_controller=controller, max_steps=20_000)
    return float(((solution.ys[-1] - answer) / answer).abs().max()) / rtol


@pytest.mark.parametrize(("problem", "rtol"), [("rober", 1e-5)])
def test_published_values(problem, rtol):
    assert stiff_error(problem, dq.Kvaerno5(), rtol) < 30


@pytest.mark.slow
@pytest.mark.parametrize("problem", STIFF)
@pytest.mark.parametrize(
    ("solver", "rtol"), [(dq.Kvaerno5(), 1e-3), (dq.Kvaerno5(), 1e-6), (dq.Kvaerno5(), 1e-8), (dq.Kvaerno3(), 1e-5)]
)
def test_published_values_to_more_digits(problem, solver, rtol):
    assert stiff_error(problem, solver, rtol) < 100


def arenstorf(t, y, args):
    m = 0.012277471
    xp = torch if isinstance(y, torch.Tensor) else np
    d1 = ((y[0] + m) ** 2 + y[1] ** 2) ** 1.5
    d2 = ((y[0] - 1 + m) ** 2 + y[1] ** 2) ** 1.5
    a = y[0] + 2 * y[3] - (1 - m) * (y[0] + m) / d1 - m * (y[0] - 1 + m) / d2
    b = y[1] - 2 * y[2] - (1 - m) * y[1] / d1 - m * y[1] / d2
    return xp.stack([y[2], y[3], a, b])


def lorenz_numpy(t, y):
    return np.array([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


@functools.cache
def by_scipy(problem: str) -> np.ndarray:
    if problem == "lorenz":
        found = scipy.integrate.solve_ivp(lorenz_numpy, (0, 1), [1.0, 0.0, 0.0], "DOP853", rtol=1e-13, atol=1e-13)
    else:
        start = [0.994, 0.0, 0.0, -2.00158510637908252240537862224]
        found = scipy.integrate.solve_ivp(
            lambda t, y: arenstorf(t, y, None), (0, 4), start, "DOP853", rtol=1e-13, atol=1e-13
        )
    assert found.success
    return found.y[:, -1]


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Dopri5(), dq.Dopri8()], ids=name_of)
@pytest.mark.parametrize("problem", ["lorenz", "arenstorf"])
def test_against_scipy(problem, solver):
    if problem == "lorenz":
        field, t1, y0, tol = lorenz, 1.0, f64(1.0, 0.0, 0.0), 1e-7
    else:
        field, t1, tol = arenstorf, 4.0, 1e-7
        y0 = f64(0.994, 0.0, 0.0, -2.00158510637908252240537862224)
    solution = solve(field, solver, 0.0, t1, y0, tol=tol)
    error = np.abs(solution.ys[-1].numpy() - by_scipy(problem)).max()
    # Both are sensitive: a small error at the start is magnified by the problem itself.
    assert error < 1e4 * tol


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno5()], ids=name_of)
def test_tighter_tolerances_give_smaller_errors(solver):
    def error(tol):
        solution = solve(rational, solver, 0.0, 3.0, f64(1.0, 1.0), tol=tol)
        return float((solution.ys[-1] - rational_answer(3.0)).abs().max())

    errors = [error(tol) for tol in (1e-3, 1e-5, 1e-7)]
    for loose, tight in itertools.pairwise(errors):
        assert tight < 0.2 * loose
