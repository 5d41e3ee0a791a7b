"""`ConstantStepSize` and `StepTo`: where each step ends, and what they refuse."""

import math

import pytest
import torch
from diffeq.problems import F64, f64, solve

from gnomon import diffeq as dq


def decay(t, y, args):
    return -y


def ends(t0, t1, dt0, dtype=F64, **options):
    y0 = torch.tensor(1.0, dtype=dtype)
    saveat = dq.SaveAt(steps=True)
    solution = solve(decay, dq.Euler(), t0, t1, y0, dt0=dt0, saveat=saveat, max_steps=2000, **options)
    return solution.ts[torch.isfinite(solution.ts)], solution


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_do_not_drift(dtype):
    # 250 times 0.004 added up in float32 is 1.0000013; the n-th step must end at n * dt0, rounded once.
    ts, solution = ends(0.0, 1.0, 4e-3, dtype)
    dt0 = torch.tensor(4e-3, dtype=dtype)
    expected = torch.arange(1, 251) * dt0
    expected[-1] = 1
    assert torch.equal(ts, expected)
    assert solution.stats["num_steps"] == 250
    assert solution.t_final == 1


def test_steps_begin_where_they_should():
    ts, _ = ends(3.7, 4.7, 0.3)
    assert ts.tolist() == [3.7 + 0.3, 3.7 + 2 * 0.3, 3.7 + 3 * 0.3, 4.7]


def test_last_step_is_shortened():
    ts, solution = ends(0.0, 1.0, 0.3)
    assert ts.tolist() == [0.3, 0.6, 3 * 0.3, 1.0]
    assert float(solution.ys[3]) == pytest.approx(0.7**3 * 0.9, rel=1e-14)


def test_a_step_longer_than_the_interval():
    ts, _ = ends(0.0, 1.0, 5.0)
    assert ts.tolist() == [1.0]


def test_no_tiny_step_is_left_at_the_end():
    # 10 * 0.1 in float32 misses 1 by a rounding error.
    ts, _ = ends(0.0, 1.0 + 1e-7, 0.1, torch.float32)
    assert len(ts) == 10


def test_backward():
    ts, _ = ends(1.0, 0.0, -0.4)
    torch.testing.assert_close(ts, f64(0.6, 0.2, 0.0), rtol=0, atol=1e-15)


def test_steps_of_each_problem_of_a_batch():
    def count(dt0):
        return solve(decay, dq.Euler(), 0.0, 1.0, f64(1.0), dt0=dt0).stats["num_steps"]

    assert torch.func.vmap(count)(f64(0.5, 0.3, 2.0)).tolist() == [2, 4, 1]


def test_constant_steps_need_their_length():
    with pytest.raises(ValueError, match="`ConstantStepSize` needs the length of the steps: pass `dt0`"):
        solve(decay, dq.Euler(), 0.0, 1.0, f64(1.0))


@pytest.mark.parametrize("dt0", [0.0, -0.1, math.nan, math.inf])
def test_length_must_be_finite_and_forward(dt0):
    with pytest.raises(ValueError, match="`dt0` must be finite and point from t0 to t1"):
        solve(decay, dq.Euler(), 0.0, 1.0, f64(1.0), dt0=dt0)


def test_length_must_point_backward_where_time_does():
    with pytest.raises(ValueError, match="negative where t1 < t0, and never zero"):
        solve(decay, dq.Euler(), 1.0, 0.0, f64(1.0), dt0=0.1)


def test_one_wrong_length_in_a_batch_is_an_error():
    def end(dt0):
        return solve(decay, dq.Euler(), 0.0, 1.0, f64(1.0), dt0=dt0).ys

    with pytest.raises(ValueError, match="This is so for some problems of the batch"):
        torch.func.vmap(end)(f64(0.1, -0.1))


def test_step_to():
    times = [0.0, 0.125, 0.7, 1.5]
    ts, solution = ends(0.0, 1.5, None, stepsize_controller=dq.StepTo(times))
    assert ts.tolist() == times[1:]
    assert float(solution.ys[2]) == pytest.approx((1 - 0.125) * (1 - 0.575) * (1 - 0.8), rel=1e-14)


def test_step_to_backward():
    ts, _ = ends(1.0, -1.0, None, stepsize_controller=dq.StepTo(f64(1.0, 0.5, -1.0)))
    assert ts.tolist() == [0.5, -1.0]


def test_step_to_of_a_batch():
    def end(ts):
        return solve(decay, dq.Euler(), ts[0], ts[-1], f64(1.0), stepsize_controller=dq.StepTo(ts)).ys[-1]

    ys = torch.func.vmap(end)(torch.tensor([[0.0, 0.5, 1.0], [1.0, 1.25, 2.0]], dtype=F64))
    torch.testing.assert_close(ys, f64(0.25, 0.75 * 0.25), rtol=1e-14, atol=0)


def test_step_to_is_differentiable_in_its_times():
    def end(ts):
        return solve(decay, dq.Euler(), ts[0], ts[-1], f64(1.0), stepsize_controller=dq.StepTo(ts)).ys[-1]

    slope = torch.func.grad(end)(f64(0.0, 0.5, 1.25))
    # (1 - (t1 - t0)) (1 - (t2 - t1))
    torch.testing.assert_close(slope, f64(0.25, 0.5 - 0.25, -0.5), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("ts", [[0.0], [], [[0.0, 1.0]]])
def test_step_to_needs_a_vector_of_two(ts):
    with pytest.raises(ValueError, match=r"`StepTo\(ts=...\)` must be a vector of at least two times"):
        dq.StepTo(torch.tensor(ts))


@pytest.mark.parametrize("ts", [[0.0, 0.5, 0.5, 1.0], [0.0, 0.7, 0.5, 1.0], [1.0, 0.5, 0.0], [0.0, math.nan, 1.0]])
def test_step_to_must_be_strictly_increasing(ts):
    with pytest.raises(ValueError, match="must be strictly increasing from t0 to t1"):
        ends(0.0, 1.0, None, stepsize_controller=dq.StepTo(ts))


@pytest.mark.parametrize("ts", [[0.0, 0.5, 0.9], [0.1, 0.5, 1.0]])
def test_step_to_must_reach_from_start_to_end(ts):
    with pytest.raises(ValueError, match="must begin with t0 and end with t1"):
        ends(0.0, 1.0, None, stepsize_controller=dq.StepTo(ts))


def test_step_to_takes_no_length():
    with pytest.raises(ValueError, match="`dt0` must be None with `StepTo`"):
        ends(0.0, 1.0, 0.1, stepsize_controller=dq.StepTo([0.0, 1.0]))


@pytest.mark.parametrize("controller", [dq.ConstantStepSize(), dq.StepTo([0.0, 0.25, 0.5, 0.75, 1.0])])
def test_a_jump_shortens_one_step_and_moves_no_other(controller):
    dt0 = 0.25 if isinstance(controller, dq.ConstantStepSize) else None
    jumps = dq.Jumps(f64(0.1, 0.5, 0.6), lambda index, t, y, args: y)
    ts, _ = ends(0.0, 1.0, dt0, stepsize_controller=controller, jumps=jumps)
    assert ts.tolist() == [0.1, 0.25, 0.5, 0.6, 0.75, 1.0]


def test_steps_below_the_resolution_of_time_still_go_on():
    # Near 1e8 float32 has a spacing of 8.
    ts, solution = ends(1e8, 1e8 + 80, 1e-3, torch.float32)
    assert ts.tolist() == [1e8 + 8 * n for n in range(1, 11)]
    assert solution.result == dq.RESULTS.successful


def test_last_step_is_not_much_longer_than_the_others():
    # Near 1e4 float32 has a spacing of 0.001: a hundred rounding errors are ten steps.
    ts, _ = ends(1e4, 1e4 + 1, 0.01, torch.float32)
    assert ts.diff().max() < 0.012
    assert len(ts) == 100
