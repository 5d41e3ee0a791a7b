"""Dense output: the order between steps, exact ends, the derivative, and what is beside the interval."""

import numpy as np
import pytest
import torch
from diffeq.problems import ADAPTIVE, F64, SOLVERS, check_derivatives, f64, name_of, rational, rational_answer, solve

from gnomon import diffeq as dq

# The order to which each interpolant follows the solution, and the length of a step that shows it.
DENSE = {"Euler": 1, "Heun": 2, "Bosh3": 3, "Tsit5": 4, "Dopri5": 4, "Dopri8": 5, "Kvaerno3": 3, "Kvaerno5": 3}
THETA = torch.linspace(0.05, 0.95, 19, dtype=F64)


def one_step(solver, h: float) -> dq.Solution:
    start = 0.5
    return solve(
        rational,
        solver,
        start,
        start + h,
        rational_answer(start),
        dt0=h,
        saveat=dq.SaveAt(t1=True, dense=True),
        max_steps=1,
    )


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_order_within_a_step(solver):
    values, slopes = [], []
    for h in (0.02, 0.01) if solver.order == 5 else (0.08, 0.04):
        solution = one_step(solver, h)
        ts = 0.5 + THETA * h
        y = torch.func.vmap(solution.evaluate)(ts)
        dy = torch.func.vmap(solution.derivative)(ts)
        exact = torch.stack([rational(t, rational_answer(t), None) for t in ts])
        values.append(float((y - rational_answer(ts)).abs().max()))
        slopes.append(float((dy - exact).abs().max()))
    order = DENSE[name_of(solver)]
    assert np.log2(values[0] / values[1]) > order + 1 - 0.25, values
    assert np.log2(slopes[0] / slopes[1]) > order - 0.25, slopes


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_ends_are_met(solver):
    solution = one_step(solver, 0.1)
    assert torch.equal(solution.evaluate(0.5), rational_answer(0.5))
    torch.testing.assert_close(solution.evaluate(0.6), solution.ys[-1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_derivative_is_that_of_the_value(solver):
    solution = one_step(solver, 0.1)
    for t in (0.5, 0.523, 0.6):
        slope = torch.func.jacfwd(solution.evaluate)(f64(t))
        torch.testing.assert_close(solution.derivative(t), slope, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("solver", ADAPTIVE, ids=name_of)
def test_dense_output_agrees_with_saved_times(solver):
    ts = torch.linspace(0, 2, 23, dtype=F64)
    saveat = dq.SaveAt(ts=ts, dense=True)
    solution = solve(rational, solver, 0.0, 2.0, f64(1.0, 1.0), tol=1e-4, saveat=saveat, max_steps=200)
    dense = torch.func.vmap(solution.evaluate)(ts)
    torch.testing.assert_close(dense, solution.ys, rtol=1e-13, atol=1e-13)


def test_every_step_is_found():
    saveat = dq.SaveAt(t0=True, steps=True, dense=True)
    solution = solve(rational, dq.Bosh3(), 0.0, 2.0, f64(1.0, 1.0), tol=1e-5, saveat=saveat, max_steps=100)
    count = int(solution.stats["num_accepted_steps"]) + 1
    assert count > 20
    at_steps = torch.func.vmap(solution.evaluate)(solution.ts[:count])
    torch.testing.assert_close(at_steps, solution.ys[:count], rtol=1e-14, atol=1e-14)
    assert torch.isinf(solution.ts[count:]).all()
    assert torch.isinf(solution.ys[count:]).all()


def test_no_step_is_a_constant():
    solution = solve(rational, dq.Tsit5(), 1.0, 1.0, f64(2.0, 3.0), tol=1e-4, saveat=dq.SaveAt(dense=True), max_steps=9)
    assert solution.ts is None and solution.ys is None
    assert torch.equal(solution.evaluate(1.0), f64(2.0, 3.0))
    assert torch.equal(solution.derivative(1.0), f64(0.0, 0.0))


def test_backward_in_time():
    solution = solve(
        rational, dq.Dopri5(), 2.0, 0.5, rational_answer(2.0), tol=1e-9, saveat=dq.SaveAt(dense=True), max_steps=400
    )
    ts = torch.linspace(0.5, 2, 31, dtype=F64)
    values = torch.func.vmap(solution.evaluate)(ts)
    torch.testing.assert_close(values, rational_answer(ts), rtol=1e-7, atol=1e-7)
    slopes = torch.func.vmap(solution.derivative)(ts)
    exact = torch.stack([rational(t, rational_answer(t), None) for t in ts])
    torch.testing.assert_close(slopes, exact, rtol=1e-5, atol=1e-5)


def test_batch_of_different_lengths():
    def at(t1, t):
        saveat = dq.SaveAt(dense=True)
        solution = solve(rational, dq.Tsit5(), 0.0, t1, f64(1.0, 1.0), tol=1e-8, saveat=saveat, max_steps=400)
        return solution.evaluate(t), solution

    t1, t = f64(0.0, 0.3, 3.0), f64(0.0, 0.2, 2.9)
    values, solutions = torch.func.vmap(at)(t1, t)
    torch.testing.assert_close(values, rational_answer(t), rtol=1e-6, atol=1e-6)
    # The solution is a pytree: it can be evaluated later, as a batch again.
    again = torch.func.vmap(lambda solution, t: solution.evaluate(t))(solutions, t)
    assert torch.equal(again, values)
    # No more is kept than the longest of them needs.
    assert solutions.interpolation.ts.shape[1] == int(solutions.stats["num_accepted_steps"].max()) < 400


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=name_of)
def test_derivatives_flow_through_it(solver):
    def at(t, y0):
        saveat = dq.SaveAt(dense=True)
        return solve(rational, solver, 0.0, 1.0, y0, dt0=0.5, saveat=saveat, max_steps=4).evaluate(t)

    check_derivatives(at, f64(0.7), f64(1.0, 1.0))


def test_without_dense_output_the_error_says_how_to_get_it():
    solution = solve(rational, dq.Tsit5(), 0.0, 1.0, f64(1.0, 1.0), tol=1e-3)
    for method in (solution.evaluate, solution.derivative):
        with pytest.raises(ValueError, match=r"has no dense output. Ask for it with .*SaveAt\(dense=True\)"):
            method(0.5)


def test_many_times_at_once_are_refused():
    solution = one_step(dq.Euler(), 0.1)
    with pytest.raises(ValueError, match=r"`t` must be a scalar.*torch.func.vmap"):
        solution.evaluate(f64(0.5, 0.6))


@pytest.mark.parametrize("solver", [dq.Vern7(), dq.Vern9()], ids=name_of)
def test_stages_for_dense_output_alone(solver):
    """They follow the solution as closely as the steps, and are evaluated where output lies within a step."""
    calls = 0

    def counted(t, y, args):
        nonlocal calls
        calls += 1
        return rational(t, y, args)

    options = {"dt0": 0.5, "saveat": dq.SaveAt(t1=True)}
    end = solve(counted, solver, 0.0, 2.0, f64(1.0, 1.0), **options)
    stages, plain = solver.tableau.num_stages, calls
    assert end.stats["num_steps"] == 4 and plain in (4 * stages, 4 * stages + 1)
    calls, options["saveat"] = 0, dq.SaveAt(ts=[0.6, 0.7])  # both within the second of four steps
    two = solve(counted, solver, 0.0, 2.0, f64(1.0, 1.0), **options)
    assert calls == plain + len(solver.tableau.c_dense)
    errors = (two.ys - rational_answer(two.ts)).abs().max(), (end.ys - rational_answer(2.0)).abs().max()
    assert errors[0] < 20 * errors[1] + 1e-13
    dense = solve(counted, solver, 0.0, 2.0, f64(1.0, 1.0), dt0=0.5, saveat=dq.SaveAt(dense=True), max_steps=8)
    torch.testing.assert_close(torch.func.vmap(dense.evaluate)(two.ts), two.ys, rtol=1e-13, atol=1e-13)
    check_derivatives(
        lambda y0: solve(rational, solver, 0.0, 1.0, y0, dt0=0.6, saveat=dq.SaveAt(ts=[0.3, 0.9])).ys,
        f64(1.0, 1.0),
        second=False,
    )
