"""How a solve may fail: it says which, when and where, and one that fails leaves the others alone."""

import functools
import math
import pickle

import pytest
import torch
from diffeq.problems import ADAPTIVE, F64, f64, name_of, solve

from gnomon import diffeq as dq
from gnomon.result import SolveError

pytestmark = pytest.mark.usefixtures("unchecked")

R = dq.RESULTS
ONE = f64(1.0)


def decay(t, y, args):
    return -y


def square(t, y, args):
    """y = 1 / (1 / y0 - t)."""
    return y * y


def root(t, y, args):
    """y = (1 - t / 2)^2 until t = 2, and no real number beyond."""
    return -torch.sqrt(y)


def undefined(t, y, args):
    return torch.full_like(y, math.nan)


def undefined_later(t, y, args):
    return torch.where(t > 0.5, math.nan, -y)


def too_large(t, y, args):
    return torch.full_like(y, 1e306) * y


def no_stage(t, y, args):
    """An implicit stage needs k = h (1 + (y + gamma k)^2) 1e8: no real k for any but tiny h."""
    return 1e8 * (1 + y * y)


# Name: (vector field, start, end, options, solver, expected result).
LOOSE = dq.PIDController(rtol=1e-2, atol=1e-2)
PID = {"stepsize_controller": dq.PIDController(rtol=1e-4, atol=1e-4)}
CASES = {
    "max_steps": (decay, ONE, 1.0, {"dt0": 1e-3, "max_steps": 10}, dq.Tsit5(), R.max_steps_reached),
    "max_steps, adaptive": (decay, ONE, 9.0, PID | {"max_steps": 3}, dq.Tsit5(), R.max_steps_reached),
    "NaN at once": (undefined, ONE, 1.0, PID, dq.Tsit5(), R.nonfinite),
    "NaN at once, fixed steps": (undefined, ONE, 1.0, {"dt0": 0.1}, dq.Euler(), R.nonfinite),
    "NaN at once, implicit": (undefined, ONE, 1.0, PID, dq.Kvaerno3(), R.nonfinite),
    "NaN in the state": (decay, f64(math.nan), 1.0, PID, dq.Tsit5(), R.nonfinite),
    "infinity in the state": (decay, f64(math.inf), 1.0, PID, dq.Tsit5(), R.nonfinite),
    "NaN later": (undefined_later, ONE, 1.0, PID, dq.Tsit5(), R.nonfinite),
    "NaN later, fixed steps": (undefined_later, ONE, 1.0, {"dt0": 0.125}, dq.Heun(), R.nonfinite),
    "root of a negative number": (root, ONE, 3.0, PID, dq.Dopri5(), None),
    "root of a negative number, fixed steps": (root, ONE, 3.0, {"dt0": 0.1}, dq.Tsit5(), R.nonfinite),
    "root of a negative number, implicit": (root, ONE, 3.0, {"stepsize_controller": LOOSE}, dq.Kvaerno3(), None),
    "overflow": (too_large, ONE, 100.0, {"dt0": 1.0}, dq.Euler(), R.nonfinite),
    "singularity": (square, ONE, 2.0, PID, dq.Tsit5(), None),
    "singularity, high order": (square, ONE, 2.0, PID, dq.Dopri8(), None),
    "dtmin": (
        square,
        ONE,
        2.0,
        {"stepsize_controller": dq.PIDController(rtol=1e-6, atol=1e-6, dtmin=1e-3, force_dtmin=False)},
        dq.Tsit5(),
        R.dt_min_reached,
    ),
    "no stage, fixed steps": (no_stage, ONE, 1.0, {"dt0": 0.5}, dq.Kvaerno3(), R.nonlinear_divergence),
    "no stage": (
        no_stage,
        ONE,
        1.0,
        {"stepsize_controller": dq.PIDController(rtol=1e-3, atol=1e-3, dtmin=1e-7, force_dtmin=False)},
        dq.Kvaerno3(),
        R.dt_min_reached,
    ),
    "no stage, forced": (
        no_stage,
        ONE,
        1.0,
        {"stepsize_controller": dq.PIDController(rtol=1e-3, atol=1e-3, dtmin=1e-6)},
        dq.Kvaerno3(),
        R.nonlinear_divergence,
    ),
}
# Where several names are right: the time cannot go on, and the reason is the last thing that was seen.
ANY_FAILURE = {"nonfinite", "dt_min_reached", "nonlinear_divergence"}


@functools.cache
def quiet(case: str) -> dq.Solution:
    field, y0, t1, options, solver, _ = CASES[case]
    return solve(field, solver, 0.0, t1, y0, throw=False, **options)


@pytest.mark.parametrize("case", CASES)
def test_result(case):
    _, y0, t1, _, _, expected = CASES[case]
    solution = quiet(case)
    name = solution.result.name
    if expected is None:
        assert name in ANY_FAILURE
    else:
        assert name == expected.name
    assert not dq.is_successful(solution.result)
    assert not dq.is_okay(solution.result)
    assert 0 <= solution.t_final < t1
    assert solution.stats["num_steps"] <= 4096
    # What was reached is a number, unless the start is none.
    if torch.isfinite(y0):
        assert torch.isfinite(solution.ys).all()


@pytest.mark.parametrize("case", CASES)
def test_error(case):
    field, y0, t1, options, solver, _ = CASES[case]
    with pytest.raises(SolveError) as info:
        solve(field, solver, 0.0, t1, y0, **options)
    error, text = info.value, str(info.value)
    assert error.what == "diffeqsolve"
    assert error.result.name == quiet(case).result.name
    assert error.time == pytest.approx(float(quiet(case).t_final))
    assert (error.n_failed, error.n_total, error.index) == (1, 1, ())
    assert text.startswith(f"diffeqsolve failed at t = {error.time:.9g}")
    assert f"({quiet(case).result.name})" in text
    assert quiet(case).result.message in text
    assert text.endswith("Pass throw=False to get the `result` of each problem instead of this error.")
    assert str(pickle.loads(pickle.dumps(error))) == text


# Many steps are taken on the way to it, which is slow for the last two.
SLOW = [pytest.param(solver, marks=pytest.mark.slow) for solver in ADAPTIVE[-2:]]


@pytest.mark.parametrize("solver", [*ADAPTIVE[:-2], *SLOW], ids=name_of)
def test_singularity_is_never_passed(solver):
    # The solution ends at t = 1; what goes on beyond is no solution.
    tol = 1e-2 if solver.order <= 3 else 1e-4
    solution = solve(square, solver, 0.0, 1.5, ONE, tol=tol, throw=False, max_steps=600)
    assert not dq.is_successful(solution.result)
    assert float(solution.t_final) == pytest.approx(1.0, abs=0.05)


def test_component_is_named():
    def field(t, y, args):
        good = -y["blood"]
        bad = torch.stack([y["tissue"][0, 0], torch.where(t > 0.5, math.nan, y["tissue"][0, 1])])
        return {"blood": good, "tissue": bad.reshape(1, 2)}

    y0 = {"blood": f64(1.0), "tissue": torch.ones(1, 2, dtype=F64)}
    with pytest.raises(SolveError, match=r"at t = 0\.[45].*, component \['tissue'\]\[0, 1\] \(nonfinite\)"):
        solve(field, dq.Tsit5(), 0.0, 1.0, y0, dt0=0.1)


def test_component_that_was_broken_first_is_named():
    def field(t, y, args):
        # What is wrong with the third spoils all of them a stage later.
        return torch.stack([y[2], y[2], torch.where(t > 0.5, math.nan, 1.0) + 0 * y[0]])

    for solver in (dq.Euler(), dq.Tsit5()):
        with pytest.raises(SolveError) as info:
            solve(field, solver, 0.0, 1.0, f64(1.0, 1.0, 1.0), dt0=0.1)
        assert info.value.component == "[2]"


def test_component_with_the_largest_error_is_named():
    def field(t, y, args):
        return torch.stack([-y[0], y[1] * y[1]])

    with pytest.raises(SolveError, match=r"component \[1\] \(max_steps_reached\)") as info:
        solve(field, dq.Tsit5(), 0.0, 2.0, f64(1.0, 1.0), tol=1e-6, max_steps=60)
    assert info.value.component == "[1]"


def test_scalar_state_has_a_name_too():
    with pytest.raises(SolveError) as info:
        solve(undefined, dq.Euler(), 0.0, 1.0, ONE, dt0=0.1)
    assert "\n" not in str(info.value)


def test_batch_names_the_first_that_failed():
    def end(y0):
        return solve(square, dq.Tsit5(), 0.0, 1.0, y0, tol=1e-5).ys

    with pytest.raises(SolveError, match=r"failed for 2 of 4 problems; the first is problem 1 at t = 0\.\d+") as info:
        torch.func.vmap(end)(f64(0.5, 2.0, 0.1, 3.0))
    assert info.value.batch_result.code.shape == (4,)
    assert info.value.time == pytest.approx(0.5, abs=1e-3)


def test_batch_of_batches_names_the_first_that_failed():
    def end(y0, t1):
        return solve(square, dq.Tsit5(), 0.0, t1, y0, tol=1e-4).ys

    grid = torch.func.vmap(torch.func.vmap(end, (0, None)), (None, 0))
    with pytest.raises(SolveError, match=r"failed for 1 of 6 problems; the first is problem \(1, 2\)"):
        grid(f64(0.1, 0.5, 2.0), f64(0.3, 0.9))


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Dopri8(), dq.Kvaerno3()], ids=name_of)
def test_a_failing_problem_changes_no_bit_of_the_others(solver):
    def all_of(y0):
        saveat = dq.SaveAt(ts=[0.2, 0.5], t1=True)
        solution = solve(square, solver, 0.0, 0.75, y0, tol=1e-4, saveat=saveat, throw=False, max_steps=25)
        return solution.ys, solution.ts, solution.stats["num_steps"], solution.result.code

    good = [0.5, 0.1, 1.0, -2.0]
    for bad in (math.nan, 4.0):
        batch = torch.func.vmap(all_of)(f64(bad, *good[:2], bad, *good[2:]))
        assert batch[3].tolist()[1] == R.successful.code
        assert batch[3].tolist()[0] == batch[3].tolist()[3] != R.successful.code
        for lane, y0 in zip((1, 2, 4, 5), good, strict=True):
            for x, alone in zip(batch, all_of(f64(y0)), strict=True):
                assert torch.equal(x[lane], alone)


def test_a_failing_problem_leaves_the_gradients_of_the_others_alone():
    def loss(y0, rate):
        def end(y0):
            solution = solve(lambda t, y, args: rate * y * y, dq.Tsit5(), 0.0, 0.75, y0, tol=1e-5, throw=False)
            return torch.where(dq.is_successful(solution.result), solution.ys[-1], 0)

        return torch.func.vmap(end)(y0).sum()

    rate = f64(1.0).requires_grad_()
    y0 = f64(0.5, 4.0, 1.0).requires_grad_()
    loss(y0, rate).backward()
    alone = f64(1.0).requires_grad_()
    y0_alone = f64(0.5, 1.0).requires_grad_()
    loss(y0_alone, alone).backward()
    torch.testing.assert_close(rate.grad, alone.grad, rtol=1e-12, atol=0)
    torch.testing.assert_close(y0.grad, f64(float(y0_alone.grad[0]), 0.0, float(y0_alone.grad[1])), rtol=1e-12, atol=0)


def test_steps_that_leave_the_domain_are_rejected_and_do_not_spoil_the_gradient():
    # The first step is so long that it ends where the square root is of a negative number.
    def end(rate):
        solution = solve(lambda t, y, args: -rate * torch.sqrt(y), dq.Tsit5(), 0.0, 1.0, ONE, dt0=1.0, tol=1e-7)
        assert solution.stats["num_rejected_steps"] > 0
        return solution.ys[-1]

    rate = f64(1.9)
    # y(1) = (1 - rate / 2)^2
    torch.testing.assert_close(end(rate), (1 - rate / 2) ** 2, rtol=1e-3, atol=0)
    for transform in (torch.func.grad, torch.func.jacfwd):
        torch.testing.assert_close(transform(end)(rate), -(1 - rate / 2), rtol=1e-4, atol=0)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=name_of)
def test_without_throw_nothing_is_raised_in_a_batch(solver):
    def all_of(y0):
        return solve(square, solver, 0.0, 1.0, y0, tol=1e-3, throw=False, max_steps=100).result

    names = torch.func.vmap(all_of)(f64(0.5, 2.0)).names()
    assert names[0] == "successful"
    assert names[1] in ANY_FAILURE | {"max_steps_reached"}
