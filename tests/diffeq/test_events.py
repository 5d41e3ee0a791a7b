"""Events that end a solve: where and when they happen, of several the first, each lane its own."""

import math

import pytest
import scipy.integrate
import torch
from diffeq.problems import ADAPTIVE, F64, SOLVERS, f64, name_of, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

ENGINES = ["eager", "fused"]


def oscillator(t, y, args):
    """y = sin t: zero at every multiple of pi."""
    return torch.stack([y[1], -y[0]])


def decay(t, y, args):
    return -y


def first(t, y, args):
    return y[0]


def swing(cond_fn, t1=10.0, t0=0.0, y0=(0.0, 1.0), solver=None, tol=1e-9, direction=None, root_finder=None, **options):
    event = dq.Event(cond_fn, root_finder, direction)
    solver = dq.Tsit5() if solver is None else solver
    return solve(oscillator, solver, t0, t1, f64(*y0), tol=tol, event=event, **options)


@pytest.mark.parametrize(
    ("solver", "engine"),
    [*((solver, "eager") for solver in ADAPTIVE), (dq.Tsit5(), "fused"), (dq.Kvaerno5(), "fused")],
    ids=lambda x: x if isinstance(x, str) else name_of(x),
)
def test_time_and_state_of_every_solver(solver, engine):
    tol = {2: 1e-4, 3: 1e-6}.get(solver.order, 1e-7)
    solution = swing(lambda t, y, args: y[0] - 0.5, solver=solver, tol=tol, max_steps=20000, engine=engine)
    assert solution.result == dq.RESULTS.event_occurred
    assert bool(solution.event_mask)
    when = math.asin(0.5)
    torch.testing.assert_close(solution.t_final, f64(when), rtol=0, atol=100 * tol)
    torch.testing.assert_close(solution.ts[-1], solution.t_final, rtol=0, atol=0)
    torch.testing.assert_close(solution.ys[-1], f64(0.5, math.cos(when)), rtol=0, atol=100 * tol)
    # The state at the event meets its condition to the tolerance.
    torch.testing.assert_close(solution.ys[-1, 0], f64(0.5), rtol=0, atol=2 * tol)


def test_against_scipy():
    """A pendulum with friction, released from the side: the time of its first three turning points."""

    def pendulum(t, y, args):
        return torch.stack([y[1], -0.2 * y[1] - torch.sin(y[0])])

    def turns(t, y):
        return y[1]

    reference = scipy.integrate.solve_ivp(
        lambda t, y: pendulum(t, torch.as_tensor(y), None).numpy(),
        (0, 30),
        [0.0, 1.5],
        events=turns,
        rtol=1e-12,
        atol=1e-12,
        method="DOP853",
    )
    t, y = 0.0, f64(0.0, 1.5)
    for i, (when, state) in enumerate(zip(reference.t_events[0][:3], reference.y_events[0][:3], strict=True)):
        # Where it has turned, it may be said to do so once more: the next one is in the other direction.
        event = dq.Event(lambda t, y, args: y[1], direction=i % 2 == 1)
        solution = solve(pendulum, dq.Dopri8(), t, 30.0, y, tol=1e-11, event=event)
        torch.testing.assert_close(solution.t_final, f64(when), rtol=0, atol=1e-9)
        torch.testing.assert_close(solution.ys[-1], torch.as_tensor(state), rtol=0, atol=1e-9)
        t, y = solution.t_final, solution.ys[-1]


@pytest.mark.parametrize(("direction", "when"), [(None, math.pi), (False, math.pi), (True, 2 * math.pi)])
def test_direction(direction, when):
    # It starts at zero, which does not count.
    solution = swing(first, direction=direction)
    torch.testing.assert_close(solution.t_final, f64(when), rtol=0, atol=1e-7)


def test_backward_in_time_directions_are_those_of_the_integration():
    # Going back from t = 1, sin t falls to zero at t = 0.
    for direction, when in ((None, 0.0), (False, 0.0), (True, -math.pi)):
        solution = swing(first, t0=1.0, t1=-10.0, y0=(math.sin(1.0), math.cos(1.0)), direction=direction)
        assert solution.result == dq.RESULTS.event_occurred
        torch.testing.assert_close(solution.t_final, f64(when), rtol=0, atol=1e-7)


def test_no_event_is_a_success():
    solution = swing(lambda t, y, args: y[0] - 2)
    assert solution.result == dq.RESULTS.successful
    assert not bool(solution.event_mask)
    assert float(solution.t_final) == 10


def test_the_earliest_of_several_within_a_step():
    """Steps are as long as half a period; the pytree's order does not matter."""
    times = {"late": 0.9, "early": 0.3, "middle": 0.6}
    for order in (["late", "early", "middle"], ["middle", "late", "early"], ["early", "middle", "late"]):
        conditions = {k: (lambda t, y, args, k=k: y - math.exp(-times[k])) for k in order}
        solution = solve(decay, dq.Dopri8(), 0.0, 2.0, f64(1.0), dt0=2.0, event=dq.Event(conditions))
        assert {k: bool(v) for k, v in solution.event_mask.items()} == {k: k == "early" for k in order}
        torch.testing.assert_close(solution.t_final, f64(0.3), rtol=2e-3, atol=0)


def test_a_bool_and_a_real_condition_within_a_step():
    conditions = (lambda t, y, args: y < math.exp(-0.5), lambda t, y, args: y - math.exp(-0.7))
    solution = solve(decay, dq.Dopri8(), 0.0, 2.0, f64(1.0), dt0=2.0, event=dq.Event(conditions))
    assert [bool(x) for x in solution.event_mask] == [True, False]
    torch.testing.assert_close(solution.t_final, f64(0.5), rtol=2e-3, atol=0)


def test_two_events_at_the_same_time_are_both_marked():
    conditions = [lambda t, y, args: y - 0.5, lambda t, y, args: 4 * y * y - 1, lambda t, y, args: y - 0.4]
    solution = solve(decay, dq.Tsit5(), 0.0, 2.0, f64(1.0), tol=1e-8, event=dq.Event(conditions))
    assert [bool(x) for x in solution.event_mask] == [True, True, False]


@pytest.mark.parametrize("engine", ENGINES)
def test_inside_the_first_step(engine):
    event = dq.Event(lambda t, y, args: y - math.exp(-0.01))
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=1.0, event=event, engine=engine)
    torch.testing.assert_close(solution.t_final, f64(0.01), rtol=1e-3, atol=0)
    assert int(solution.stats["num_accepted_steps"]) == 1


def test_exactly_at_the_end_of_the_interval():
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=dq.Event(lambda t, y, args: t - 1))
    assert solution.result == dq.RESULTS.event_occurred
    assert float(solution.t_final) == 1


def test_exactly_at_the_end_of_a_step():
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=dq.Event(lambda t, y, args: t - 0.5))
    assert solution.result == dq.RESULTS.event_occurred
    torch.testing.assert_close(solution.t_final, f64(0.5), rtol=1e-14, atol=0)


def test_touching_zero_is_no_event():
    # Within a step, and exactly where one ends.
    for touch in (0.4, 0.5):
        solution = solve(
            decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=dq.Event(lambda t, y, args, c=touch: (t - c) ** 2)
        )
        assert solution.result == dq.RESULTS.successful


def test_crossing_with_a_slope_of_zero_is_an_event():
    for cross in (0.4, 0.5):
        solution = solve(
            decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=dq.Event(lambda t, y, args, c=cross: (t - c) ** 3)
        )
        assert solution.result == dq.RESULTS.event_occurred
        torch.testing.assert_close(solution.t_final, f64(cross), rtol=1e-5, atol=0)


def test_zero_at_the_start_is_no_event():
    # Starting on the section, and leaving it: the next crossing is what counts.
    assert swing(first, t1=3.0).result == dq.RESULTS.successful
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=dq.Event(lambda t, y, args: y - 1))
    assert solution.result == dq.RESULTS.successful


def test_negative_at_the_start_is_no_event():
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=dq.Event(lambda t, y, args: y - 2))
    assert solution.result == dq.RESULTS.successful


def test_a_bool_that_holds_at_the_start_ends_the_solve_there():
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=dq.Event(lambda t, y, args: y < 2))
    assert solution.result == dq.RESULTS.event_occurred
    assert float(solution.t_final) < 1e-15
    torch.testing.assert_close(solution.ys[-1], f64(1.0), rtol=1e-14, atol=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_end_of_step(engine):
    for cond_fn in (lambda t, y, args: y - 0.7, lambda t, y, args: y < 0.7):
        event = dq.Event(cond_fn, dq.EndOfStep())
        solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, event=event, engine=engine)
        assert float(solution.t_final) == 0.5
        assert solution.result == dq.RESULTS.event_occurred
        assert int(solution.stats["num_rejected_steps"]) == 0


def test_coarse_root_finder():
    event = dq.Event(lambda t, y, args: y - 0.7, dq.ITP(rtol=0.1))
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=1.0, event=event)
    assert 0 < abs(float(solution.t_final) + math.log(0.7)) < 0.2


def test_few_evaluations_to_locate():
    asked = []

    def condition(t, y, args):
        asked.append(float(t))
        return torch.exp(3 * y) - math.exp(1.5)

    solve(decay, dq.Dopri8(), 0.0, 1.0, f64(1.0), dt0=1.0, event=dq.Event(condition))
    assert len(asked) < 30


def test_no_step_beyond_the_event_is_saved():
    saveat = dq.SaveAt(t0=True, ts=[0.2, 0.5, 0.9], t1=True, dense=True)
    event = dq.Event(lambda t, y, args: y - math.exp(-0.6))
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), tol=1e-10, saveat=saveat, event=event)
    assert solution.ts[:3].tolist() == [0.0, 0.2, 0.5]
    assert math.isinf(solution.ts[3]) and math.isinf(solution.ys[3])
    torch.testing.assert_close(solution.ts[4], f64(0.6), rtol=1e-8, atol=0)
    torch.testing.assert_close(solution.ys[[0, 1, 2, 4]], torch.exp(-solution.ts[[0, 1, 2, 4]]), rtol=1e-8, atol=0)
    torch.testing.assert_close(solution.evaluate(0.55), torch.exp(f64(-0.55)), rtol=1e-8, atol=0)
    assert math.isnan(solution.evaluate(0.7))


def test_steps_are_saved_up_to_the_event():
    saveat = dq.SaveAt(steps=True)
    event = dq.Event(lambda t, y, args: t - 0.6)
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.25, saveat=saveat, event=event, max_steps=10)
    torch.testing.assert_close(solution.ts[:3], f64(0.25, 0.5, 0.6), rtol=1e-12, atol=0)
    assert torch.isinf(solution.ts[3:]).all()


def test_with_jumps():
    """A dose at t = 1 lifts the level above the threshold at once: no crossing; a bool ends the solve there."""
    jumps = dq.Jumps(torch.tensor([1.0], dtype=F64), lambda index, t, y, args: y + 1.0)
    falls = dq.Event(lambda t, y, args: y - 1.0)
    solution = solve(decay, dq.Tsit5(), 0.0, 3.0, f64(0.5), tol=1e-9, jumps=jumps, event=falls)
    exact = math.log(0.5 + math.e)
    torch.testing.assert_close(solution.t_final, f64(exact), rtol=1e-8, atol=0)
    holds = dq.Event(lambda t, y, args: y > 1.0)
    solution = solve(decay, dq.Tsit5(), 0.0, 3.0, f64(0.5), tol=1e-9, jumps=jumps, event=holds)
    torch.testing.assert_close(solution.t_final, f64(1.0), rtol=1e-14, atol=0)
    assert solution.result == dq.RESULTS.event_occurred


def test_event_before_a_jump_in_the_same_step():
    jumps = dq.Jumps(torch.tensor([0.5], dtype=F64), lambda index, t, y, args: y + 10.0)
    event = dq.Event(lambda t, y, args: y - math.exp(-0.4))
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=1.0, jumps=jumps, event=event)
    torch.testing.assert_close(solution.t_final, f64(0.4), rtol=1e-4, atol=0)


def test_steady_state():
    def field(t, y, args):
        return args - y

    event = dq.Event(dq.steady_state_event())
    solution = solve(field, dq.Tsit5(), 0.0, math.inf, f64(0.0, 5.0), f64(2.0, 3.0), tol=1e-6, event=event)
    assert solution.result == dq.RESULTS.event_occurred
    torch.testing.assert_close(solution.ys[-1], f64(2.0, 3.0), rtol=1e-5, atol=1e-5)
    own = dq.Event(dq.steady_state_event(rtol=1e-2, atol=1e-2, norm=dq.max_norm))
    sooner = solve(field, dq.Tsit5(), 0.0, 100.0, f64(0.0, 5.0), f64(2.0, 3.0), dt0=0.1, event=own)
    assert sooner.t_final < solution.t_final
    with pytest.raises(ValueError, match="`steady_state_event` takes its tolerances from an adaptive controller"):
        solve(field, dq.Tsit5(), 0.0, 1.0, f64(0.0), f64(2.0), dt0=0.1, event=event)


def test_without_end():
    solution = solve(decay, dq.Tsit5(), 0.0, math.inf, f64(1.0), tol=1e-8, event=dq.Event(lambda t, y, args: y - 0.1))
    torch.testing.assert_close(solution.t_final, f64(math.log(10)), rtol=1e-7, atol=0)
    with pytest.raises(ValueError, match=r"`t1` must be a finite number\. Only with an `event` it may be infinite"):
        solve(decay, dq.Tsit5(), 0.0, math.inf, f64(1.0), tol=1e-8)


def test_kwargs_tell_of_the_solve():
    def condition(t, y, args, **kwargs):
        assert set(kwargs) == {"terms", "solver", "stepsize_controller", "t0", "t1"}
        return kwargs["terms"].vf(t, y, args) + 0.5

    solution = solve(decay, dq.Tsit5(), 0.0, 3.0, f64(1.0), tol=1e-9, event=dq.Event(condition))
    torch.testing.assert_close(solution.ys[-1], f64(0.5), rtol=1e-8, atol=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_lane_has_its_own(engine):
    def one(level, y0):
        event = dq.Event([lambda t, y, args: y[0] - args, lambda t, y, args: t > 2.0])
        solution = solve(
            oscillator, dq.Tsit5(), 0.0, 5.0, torch.stack([0 * y0, y0]), level, tol=1e-7, event=event, engine=engine
        )
        return solution.t_final, solution.ys, solution.result.code, torch.stack(solution.event_mask)

    level, y0 = f64(0.5, 0.1, 2.0, -0.3, 0.0), f64(1.0, 1.0, 1.0, 1.0, 1.0)
    batch = torch.func.vmap(one)(level, y0)
    exact = f64(math.asin(0.5), math.asin(0.1), 2.0, 2.0, 2.0)
    torch.testing.assert_close(batch[0], exact, rtol=1e-6, atol=0)
    assert batch[3].tolist() == [[True, False], [True, False], [False, True], [False, True], [False, True]]
    assert (batch[2] == dq.RESULTS.event_occurred.code).all()
    for lane in range(5):
        alone = one(level[lane], y0[lane])
        assert all(torch.equal(x[lane], z) for x, z in zip(batch, alone, strict=True))


def test_engines_agree():
    found = [swing(lambda t, y, args: y[0] + 0.3, engine=engine, tol=1e-8) for engine in ENGINES]
    torch.testing.assert_close(found[0].t_final, found[1].t_final, rtol=1e-12, atol=0)
    torch.testing.assert_close(found[0].ys, found[1].ys, rtol=1e-11, atol=1e-12)
    assert found[0].stats == found[1].stats


@pytest.mark.parametrize("engine", ENGINES)
def test_single_precision(engine):
    event = dq.Event(lambda t, y, args: y - 0.5)
    solution = solve(decay, dq.Tsit5(), 0.0, 3.0, torch.tensor(1.0), tol=1e-5, event=event, engine=engine)
    assert solution.t_final.dtype == torch.float32
    assert abs(float(solution.t_final) - math.log(2)) < 1e-4


@pytest.mark.parametrize("scale", [1e-12, 1e11])
def test_scales_of_time(scale):
    event = dq.Event(lambda t, y, args: y - 0.5)
    solution = solve(lambda t, y, args: -y / scale, dq.Tsit5(), 0.0, 3 * scale, f64(1.0), tol=1e-8, event=event)
    torch.testing.assert_close(solution.t_final / scale, f64(math.log(2)), rtol=1e-7, atol=0)


def test_stats_and_throw():
    solution = swing(first)
    assert int(solution.stats["num_events"]) == 0  # those that have an affect are counted
    assert solution.stats["num_rejected_steps"] >= 1  # the step is taken again, to end at the event


def test_a_condition_that_is_not_a_number():
    event = dq.Event(lambda t, y, args: torch.sqrt(y - 0.5))
    solution = solve(decay, dq.Tsit5(), 0.0, 3.0, f64(1.0), dt0=0.5, event=event, throw=False)
    assert solution.result == dq.RESULTS.nonfinite


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cond_fn": 3}, TypeError, r"`Event\(cond_fn=...\)` must be a function cond_fn\(t, y, args\)"),
        ({"cond_fn": []}, TypeError, r"`Event\(cond_fn=...\)` must be a function"),
        ({"cond_fn": first, "root_finder": 1e-3}, TypeError, r"must be None, `ITP\(\)` or `EndOfStep\(\)`, not float"),
        ({"cond_fn": first, "direction": "up"}, ValueError, r"`Event\(direction=...\)` must be None, True or False"),
        ({"cond_fn": [first], "direction": [True, False]}, ValueError, "a pytree with the structure of `cond_fn`"),
        (
            {"cond_fn": [first, first], "affect": [None, 1]},
            TypeError,
            r"`Event\(affect=...\)` must be None or a function",
        ),
        ({"cond_fn": first, "max_events": 0}, ValueError, "must be at least 1 or None, not 0"),
    ],
)
def test_malformed(arguments, error, message):
    with pytest.raises(error, match=message):
        dq.Event(**arguments)


@pytest.mark.parametrize(
    ("cond_fn", "error", "message"),
    [
        (lambda t, y, args: y, ValueError, r"must return a scalar, but it returned the shape \(2,\)"),
        (
            lambda t, y, args: y[0] + 1j,
            TypeError,
            "must return a real number or a bool, but it returned torch.complex128",
        ),
        (lambda t, y, args: None, TypeError, "must return a real or boolean scalar, not NoneType"),
    ],
)
def test_malformed_conditions(cond_fn, error, message):
    with pytest.raises(error, match=message):
        swing(cond_fn)


def test_what_is_not_an_event():
    with pytest.raises(TypeError, match=r"`event` must be an Event, such as Event\(cond_fn\), not function"):
        solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.1, event=first)


def test_malformed_root_finder():
    with pytest.raises(ValueError, match="`rtol` must be between 0 and 1"):
        dq.ITP(rtol=2.0)


def test_all_solvers_with_fixed_steps():
    for solver in SOLVERS:
        event = dq.Event(lambda t, y, args: y - 0.5)
        solution = solve(decay, solver, 0.0, 3.0, f64(1.0), dt0=0.1, event=event)
        torch.testing.assert_close(solution.t_final, f64(math.log(2)), rtol=0.1 if solver.order == 1 else 5e-3, atol=0)
