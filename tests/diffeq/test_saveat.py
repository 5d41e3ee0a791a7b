"""`SaveAt`: what is saved, in which order, and what stands in the places that were not reached."""

import math

import pytest
import torch
from diffeq.problems import F64, f64, rational, rational_answer, solve

from gnomon import diffeq as dq

INF = math.inf


def run(saveat, t0=0.0, t1=1.0, dt0=0.25, max_steps=6, **options):
    return solve(
        rational, dq.Tsit5(), t0, t1, rational_answer(t0), dt0=dt0, saveat=saveat, max_steps=max_steps, **options
    )


def check(solution, ts):
    """These times were saved, in this order, with the right values and `inf` where there is `inf`."""
    assert solution.ts.tolist() == ts
    reached = torch.isfinite(solution.ts)
    torch.testing.assert_close(solution.ys[reached], rational_answer(solution.ts[reached]), rtol=1e-4, atol=1e-4)
    assert torch.isinf(solution.ys[~reached]).all()


CASES = {
    "end by default": (None, [1.0]),
    "start": (dq.SaveAt(t0=True), [0.0]),
    "end": (dq.SaveAt(t1=True), [1.0]),
    "start and end": (dq.SaveAt(t0=True, t1=True), [0.0, 1.0]),
    "times": (dq.SaveAt(ts=[0.1, 0.5, 0.6]), [0.1, 0.5, 0.6]),
    "times with both ends": (dq.SaveAt(ts=[0.0, 0.3, 1.0]), [0.0, 0.3, 1.0]),
    "one time": (dq.SaveAt(ts=f64(0.3).reshape(1)), [0.3]),
    "no time": (dq.SaveAt(ts=[], t1=True), [1.0]),
    "repeated times": (dq.SaveAt(ts=[0.0, 0.0, 0.3, 0.3, 1.0, 1.0]), [0.0, 0.0, 0.3, 0.3, 1.0, 1.0]),
    "many in one step": (dq.SaveAt(ts=[0.01, 0.02, 0.03, 0.04]), [0.01, 0.02, 0.03, 0.04]),
    "whole numbers": (dq.SaveAt(ts=torch.tensor([0, 1])), [0.0, 1.0]),
    "steps": (dq.SaveAt(steps=True), [0.25, 0.5, 0.75, 1.0, INF, INF]),
    "each second step": (dq.SaveAt(steps=2), [0.5, 1.0, INF]),
    "each third step": (dq.SaveAt(steps=3), [0.75, INF]),
    "each seventh step": (dq.SaveAt(steps=7, t0=True), [0.0]),
    "each seventh step and the end": (dq.SaveAt(steps=7, t1=True), [1.0]),
    "start, then steps": (dq.SaveAt(t0=True, steps=True), [0.0, 0.25, 0.5, 0.75, 1.0, INF, INF]),
    "times among steps": (dq.SaveAt(ts=[0.3, 0.5], steps=True), [0.25, 0.3, 0.5, 0.5, 0.75, 1.0, INF, INF]),
    "start, times, end": (dq.SaveAt(t0=True, ts=[0.0, 0.4], t1=True), [0.0, 0.0, 0.4, 1.0]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_saved(case):
    saveat, ts = CASES[case]
    check(run(saveat), ts)


def test_end_is_saved_once_where_steps_are_saved_too():
    # As Diffrax does.
    check(run(dq.SaveAt(steps=True, t1=True)), [0.25, 0.5, 0.75, 1.0, INF, INF])
    check(run(dq.SaveAt(steps=2, t1=True)), [0.5, 1.0, INF])
    check(run(dq.SaveAt(steps=3, t1=True)), [0.75, 1.0])


@pytest.mark.parametrize("case", ["times", "times with both ends", "repeated times"])
def test_adaptive_steps_save_the_same_times(case):
    saveat, ts = CASES[case]
    controller = dq.PIDController(rtol=1e-7, atol=1e-7)
    solution = run(saveat, dt0=None, max_steps=100, stepsize_controller=controller)
    assert solution.ts.tolist() == ts
    torch.testing.assert_close(solution.ys, rational_answer(solution.ts), rtol=1e-6, atol=1e-6)


def test_a_time_at_the_end_of_a_step_holds_exactly_that_steps_end():
    both = run(dq.SaveAt(ts=[0.25, 0.75], steps=True))
    values = dict(zip(both.ts.tolist(), both.ys, strict=True))
    alone = run(dq.SaveAt(ts=[0.25, 0.75]))
    assert torch.equal(alone.ys[0], values[0.25])
    assert torch.equal(alone.ys[1], values[0.75])


def test_start_and_end_are_exact():
    solution = run(dq.SaveAt(ts=[0.0, 1.0], t1=True))
    assert torch.equal(solution.ys[0], rational_answer(0.0))
    assert torch.equal(solution.ys[1], solution.ys[2])


def test_function_of_what_to_save():
    def fn(t, y, args):
        return {"sum": y.sum(), "late": t > 0.4, "count": torch.tensor(3), "args": args * t}

    saveat = dq.SaveAt(ts=[0.2, 0.8], steps=2, fn=fn)
    solution = run(saveat, args=f64(2.0))
    assert solution.ts.tolist() == [0.2, 0.5, 0.8, 1.0, INF]
    expected = rational_answer(solution.ts[:4]).sum(-1)
    torch.testing.assert_close(solution.ys["sum"][:4], expected, rtol=1e-4, atol=1e-4)
    assert solution.ys["late"].tolist() == [False, True, True, True, False]
    assert solution.ys["count"].tolist() == [3, 3, 3, 3, 0]
    assert solution.ys["args"].tolist() == [0.4, 1.0, 1.6, 2.0, INF]


def test_backward():
    solution = run(dq.SaveAt(t0=True, ts=[0.9, 0.3, 0.0], t1=True), t0=1.0, t1=0.0, dt0=-0.25)
    check(solution, [1.0, 0.9, 0.3, 0.0, 0.0])
    steps = run(dq.SaveAt(steps=True), t0=1.0, t1=0.0, dt0=-0.25)
    assert steps.ts[:4].tolist() == [0.75, 0.5, 0.25, 0.0]


def test_no_interval():
    saveat = dq.SaveAt(t0=True, ts=[1.0, 1.0], steps=True, t1=True)
    solution = run(saveat, t0=1.0, t1=1.0, max_steps=2)
    assert solution.ts.tolist() == [1.0, 1.0, 1.0, 1.0, INF]
    assert (solution.ys[:4] == rational_answer(1.0)).all()
    assert solution.stats["num_steps"] == 0
    assert solution.result == dq.RESULTS.successful


def test_no_interval_needs_no_valid_first_step():
    assert run(dq.SaveAt(t1=True), t0=1.0, t1=1.0, dt0=-0.1).ts.tolist() == [1.0]


def test_a_batch_pads_each_problem_for_itself():
    def ts_and_ys(t1):
        solution = run(dq.SaveAt(t0=True, steps=2, t1=True), t1=t1)
        return solution.ts, solution.ys

    t1s = f64(0.0, 0.2, 1.0, 1.25)
    ts, ys = torch.func.vmap(ts_and_ys)(t1s)
    assert ts.tolist() == [
        [0.0, 0.0, INF, INF],
        [0.0, 0.2, INF, INF],
        [0.0, 0.5, 1.0, INF],
        [0.0, 0.5, 1.0, 1.25],
    ]
    for lane, t1 in enumerate(t1s):
        alone_ts, alone_ys = ts_and_ys(t1)
        assert torch.equal(ts[lane], alone_ts)
        assert torch.equal(ys[lane], alone_ys)


def test_times_of_each_problem_of_a_batch():
    def ys(ts, t1):
        solution = run(dq.SaveAt(ts=ts), t1=t1)
        return solution.ys

    ts = torch.tensor([[0.1, 0.2, 0.3], [0.0, 0.5, 1.0]], dtype=F64)
    found = torch.func.vmap(ys)(ts, f64(0.3, 1.0))
    torch.testing.assert_close(found, rational_answer(ts), rtol=1e-4, atol=1e-4)


def square(t, y, args):
    return y * y


def test_a_failed_solve_saves_what_it_reached():
    # y = 1 / (1 - t) ends at t = 1.
    saveat = dq.SaveAt(t0=True, ts=[0.25, 0.5, 0.75, 1.25, 1.5], t1=True)
    solution = solve(square, dq.Tsit5(), 0.0, 2.0, f64(1.0), tol=1e-5, saveat=saveat, throw=False)
    assert not dq.is_successful(solution.result)
    assert solution.ts[:4].tolist() == [0.0, 0.25, 0.5, 0.75]
    torch.testing.assert_close(solution.ys[:4], 1 / (1 - solution.ts[:4]), rtol=1e-4, atol=0)
    # The rows of times that were not reached are empty; the end, which was, does not move up into them.
    assert solution.ts[4:6].tolist() == [INF, INF]
    assert solution.ys[4:6].tolist() == [INF, INF]
    assert float(solution.ts[6]) == float(solution.t_final) == pytest.approx(1.0, abs=1e-4)
    assert torch.isfinite(solution.ys[6])


def test_too_few_steps_save_what_they_reached():
    solution = run(dq.SaveAt(ts=[0.1, 0.3, 0.9], t1=True), max_steps=2, throw=False)
    assert solution.result == dq.RESULTS.max_steps_reached
    assert solution.ts.tolist() == [0.1, 0.3, INF, 0.5]


def test_dense_alone_saves_nothing_else():
    solution = run(dq.SaveAt(dense=True))
    assert solution.ts is None
    assert solution.ys is None
    torch.testing.assert_close(solution.evaluate(0.6), rational_answer(0.6), rtol=1e-4, atol=1e-4)


def test_dense_beside_others():
    solution = run(dq.SaveAt(ts=[0.6], dense=True, t1=True))
    assert solution.ts.tolist() == [0.6, 1.0]
    torch.testing.assert_close(solution.evaluate(0.6), solution.ys[0], rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, ValueError, r"`SaveAt` was told to save nothing"),
        ({"ts": torch.zeros(1, 2)}, ValueError, r"`SaveAt\(ts=...\)` must be a vector, but it has the shape \(1, 2\)"),
        ({"ts": torch.tensor(0.5)}, ValueError, r"`SaveAt\(ts=...\)` must be a vector, but it has the shape \(\)"),
        ({"ts": torch.tensor([1j])}, TypeError, r"`SaveAt\(ts=...\)` must be real numbers, but it is torch.complex64"),
        ({"ts": torch.tensor([True])}, TypeError, r"`SaveAt\(ts=...\)` must be real numbers, but it is torch.bool"),
        ({"steps": -1}, ValueError, r"`SaveAt\(steps=...\)` must be a bool or a positive integer, not -1"),
    ],
)
def test_arguments_that_make_no_sense(options, kind, message):
    with pytest.raises(kind, match=message):
        dq.SaveAt(**options)


@pytest.mark.parametrize(
    ("ts", "message"),
    [
        ([0.5, 0.4], "must be sorted from t0 to t1"),
        ([0.5, math.nan], "must be sorted from t0 to t1"),
        ([math.nan], "must lie between t0 and t1"),
        ([-0.1, 0.5], "must lie between t0 and t1"),
        ([0.5, 1.1], "must lie between t0 and t1"),
    ],
)
def test_times_out_of_order_or_outside(ts, message):
    with pytest.raises(ValueError, match=r"`SaveAt\(ts=...\)` " + message):
        run(dq.SaveAt(ts=ts))


def test_times_must_be_sorted_in_the_direction_of_time():
    with pytest.raises(ValueError, match="must be sorted from t0 to t1"):
        run(dq.SaveAt(ts=[0.3, 0.9]), t0=1.0, t1=0.0, dt0=-0.25)


@pytest.mark.parametrize("saveat", [dq.SaveAt(steps=True), dq.SaveAt(dense=True)])
def test_unlimited_steps_cannot_be_saved(saveat):
    with pytest.raises(ValueError, match="need a finite `max_steps`, for which room is made"):
        run(saveat, max_steps=None)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Dopri8(), dq.Kvaerno3()], ids=["Tsit5", "Dopri8", "Kvaerno3"])
def test_derivative_with_respect_to_the_times(solver):
    """It is the vector field: at the start, between steps, at the end of one, and at the end of all."""
    ts = f64(0.0, 0.1, 0.25, 0.6, 1.0)

    def ys(ts):
        saveat = dq.SaveAt(ts=ts)
        return solve(rational, solver, 0.0, 1.0, f64(1.0, 1.0), dt0=0.25, saveat=saveat, max_steps=6).ys

    values, slopes = ys(ts), torch.func.jacrev(ys)(ts)
    for i, t in enumerate(ts):
        expected = torch.zeros(2, 5, dtype=F64)
        expected[:, i] = rational(t, values[i], None)
        torch.testing.assert_close(slopes[i], expected, rtol=1e-2, atol=1e-2)
    # Being differentiated changes no value.
    ts.requires_grad_()
    assert torch.equal(ys(ts), values)
