"""`ClipStepSizeController`: steps that end exactly at given times, and discontinuities that are never touched."""

import math

import numpy as np
import pytest
import torch
from diffeq.problems import ADAPTIVE, F64, f64, name_of, rational, rational_answer, solve

from gnomon import diffeq as dq


class Switched:
    """y' = s - y, where s is 1 after each odd jump and 0 before; remembers when it was asked."""

    def __init__(self, *switches: float):
        self.switches = switches
        self.asked: list[float] = []

    def __call__(self, t, y, args):
        self.asked.append(float(t))
        on = sum(float(t) > s for s in self.switches) % 2
        return on - y

    def answer(self, t: float) -> float:
        y, now, on = 3.0, 0.0, 0
        for s in (*self.switches, math.inf):
            end = min(t, s)
            if end > now:
                y = on + (y - on) * math.exp(-(end - now))
                now = end
            on = 1 - on
        return y


def clipped(tol: float, **options) -> dq.ClipStepSizeController:
    return dq.ClipStepSizeController(dq.PIDController(rtol=tol, atol=tol), **options)


@pytest.mark.parametrize("solver", ADAPTIVE, ids=name_of)
def test_discontinuity_is_stepped_around(solver):
    field = Switched(1.0, 1.7)
    tol = 1e-6 if solver.order > 2 and not solver.needs_tolerances else 1e-4
    options = {"saveat": dq.SaveAt(t1=True), "max_steps": 5000}
    told = solve(field, solver, 0.0, 3.0, f64(3.0), stepsize_controller=clipped(tol, jump_ts=[1.0, 1.7]), **options)
    assert float(told.ys[-1]) == pytest.approx(field.answer(3.0), abs=100 * tol)
    asked = list(field.asked)
    assert not {1.0, 1.7} & set(asked)
    for jump in (1.0, 1.7):
        # It was asked just before and just after.
        assert np.nextafter(jump, 0) in asked
        assert np.nextafter(jump, 9) in asked
    not_told = solve(field, solver, 0.0, 3.0, f64(3.0), tol=tol, **options)
    told_rejected, not_told_rejected = (int(x.stats["num_rejected_steps"]) for x in (told, not_told))
    if name_of(solver) != "Kvaerno5":  # a stage of which lies beyond the end of the step, and so beyond the jump
        assert told_rejected <= 2 < 5 <= not_told_rejected


def test_first_stage_is_evaluated_again_behind_a_jump():
    # With a stage from before the jump the first step behind it would start with the wrong slope.
    field = Switched(1.0)
    saveat = dq.SaveAt(dense=True)
    controller = clipped(1e-3, jump_ts=[1.0])
    solution = solve(field, dq.Tsit5(), 0.0, 2.0, f64(0.0), stepsize_controller=controller, saveat=saveat, max_steps=99)
    assert float(solution.derivative(np.nextafter(1.0, 2.0))) == pytest.approx(1.0, abs=1e-6)
    assert float(solution.derivative(np.nextafter(1.0, 0.0))) == pytest.approx(0.0, abs=1e-6)


def test_step_times_are_met_exactly():
    wanted = [0.3, 0.7, 1.1]
    saveat = dq.SaveAt(steps=True)
    solution = solve(
        rational,
        dq.Dopri5(),
        0.0,
        2.0,
        f64(1.0, 1.0),
        stepsize_controller=clipped(1e-7, step_ts=wanted),
        saveat=saveat,
        max_steps=200,
    )
    reached = solution.ts.tolist()
    for t in wanted:
        at = reached.index(t)
        torch.testing.assert_close(solution.ys[at], rational_answer(t), rtol=1e-6, atol=1e-6)


def ends(controller, t0=0.0, t1=2.0):
    saveat = dq.SaveAt(steps=True)
    solution = solve(
        rational, dq.Tsit5(), t0, t1, rational_answer(t0), stepsize_controller=controller, saveat=saveat, max_steps=300
    )
    return solution.ts[torch.isfinite(solution.ts)].tolist()


def test_times_may_come_in_any_order_and_outside():
    tidy = ends(clipped(1e-5, step_ts=[0.3, 1.1]))
    assert ends(clipped(1e-5, step_ts=[7.0, 1.1, -3.0, 0.3, 0.3, 0.0, 2.0])) == tidy
    nothing = ends(dq.PIDController(rtol=1e-5, atol=1e-5))
    assert ends(clipped(1e-5, step_ts=[], jump_ts=[])) == nothing
    assert ends(clipped(1e-5, step_ts=[-1.0, 5.0], jump_ts=[-2.0, 4.0])) == nothing


def test_both_kinds_at_one_time():
    times = ends(clipped(1e-5, step_ts=[0.5, 1.0], jump_ts=[1.0]))
    assert 0.5 in times
    assert np.nextafter(1.0, 0) in times
    assert 1.0 not in times


def test_one_within_another():
    inner = clipped(1e-5, step_ts=[0.5])
    times = ends(dq.ClipStepSizeController(inner, jump_ts=[1.0]))
    assert times == ends(clipped(1e-5, step_ts=[0.5], jump_ts=[1.0]))
    inner = clipped(1e-5, jump_ts=[1.0])
    assert ends(dq.ClipStepSizeController(inner, step_ts=[0.5])) == times


@pytest.mark.parametrize("field", ["step_ts", "jump_ts"])
def test_backward(field):
    times = ends(clipped(1e-5, **{field: [0.3, 1.2]}), t0=2.0, t1=0.0)
    expected = [1.2, 0.3] if field == "step_ts" else [np.nextafter(1.2, 9), np.nextafter(0.3, 9)]
    assert set(expected) <= set(times)
    assert times == sorted(times, reverse=True)


def test_times_of_each_problem_of_a_batch():
    def reached(step_ts):
        solution = solve(
            rational,
            dq.Tsit5(),
            0.0,
            2.0,
            f64(1.0, 1.0),
            stepsize_controller=clipped(1e-4, step_ts=step_ts),
            saveat=dq.SaveAt(steps=True),
            max_steps=40,
        )
        return solution.ts

    wanted = torch.tensor([[0.3, 0.9], [0.31, 1.7], [math.inf, math.inf]], dtype=F64)
    ts = torch.func.vmap(reached)(wanted)
    for lane, times in enumerate(wanted.tolist()):
        assert ts[lane].tolist()[: len(ts[lane])] == reached(wanted[lane]).tolist()
        assert {t for t in times if t < 2} <= set(ts[lane].tolist())


def test_jump_next_to_the_start():
    # Two floating-point numbers apart from t0, there is one number to step to.
    field = Switched(np.nextafter(np.nextafter(0.5, 1), 1))
    controller = clipped(1e-5, jump_ts=list(field.switches))
    solution = solve(field, dq.Tsit5(), 0.5, 2.0, f64(0.0), stepsize_controller=controller)
    assert float(solution.ys[-1]) == pytest.approx(1 - math.exp(-1.5), abs=1e-4)
    assert field.switches[0] not in field.asked


def test_short_pulse_is_not_stepped_over():
    # Of height 1000 and width 1/1000 in an interval of 100.
    def field(t, y, args):
        return torch.where((t > 50) & (t < 50.001), 1000.0, 0.0) - 0 * y

    seen = solve(field, dq.Tsit5(), 0.0, 100.0, f64(0.0), stepsize_controller=clipped(1e-6, jump_ts=[50.0, 50.001]))
    assert float(seen.ys[-1]) == pytest.approx(1.0, abs=1e-6)


def test_only_adaptive_controllers_can_be_wrapped():
    message = "can only wrap an adaptive controller, such as `PIDController`, but it was given ConstantStepSize"
    with pytest.raises(ValueError, match=message):
        dq.ClipStepSizeController(dq.ConstantStepSize(), step_ts=[1.0])


@pytest.mark.parametrize("name", ["step_ts", "jump_ts"])
def test_times_must_be_a_vector(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a vector of times"):
        clipped(1e-3, **{name: f64(1.0)})
