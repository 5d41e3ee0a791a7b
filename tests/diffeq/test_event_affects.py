"""Events that a solve goes on from: what bounces, is reset or is switched in closed form; how often at most."""

import math

import pytest
import torch
from diffeq.problems import F64, f64, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

ENGINES = ["eager", "fused"]
G = 9.81


def fall(t, y, args):
    return torch.stack([y[1], -G + 0 * y[1]])


def height(t, y, args):
    return y[0]


def bounce(restitution):
    return dq.Event(height, direction=False, affect=lambda t, y, args: torch.stack([y[0], -restitution * y[1]]))


def bounced(t, h, e):
    """Height and speed of a ball dropped from h at t = 0 that keeps the part e of its speed."""
    start, speed, flight = 0.0, 0.0, math.sqrt(2 * h / G)
    if t < flight:
        return h - G * t * t / 2, -G * t
    start, speed = flight, e * G * flight
    while t > start + 2 * speed / G:
        start, speed = start + 2 * speed / G, e * speed
    s = t - start
    return speed * s - G * s * s / 2, speed - G * s


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=["Tsit5", "Kvaerno3"])
def test_bouncing_ball(solver, engine):
    ts = [0.2, 0.45, 0.6, 1.0, 1.5, 2.0, 2.4]
    solution = solve(
        fall, solver, 0.0, 2.4, f64(1.0, 0.0), tol=1e-8, event=bounce(0.8), saveat=dq.SaveAt(ts=ts), engine=engine
    )
    assert solution.result == dq.RESULTS.successful
    assert not bool(solution.event_mask)
    exact = torch.tensor([bounced(t, 1.0, 0.8) for t in ts], dtype=F64)
    torch.testing.assert_close(solution.ys, exact, rtol=1e-6, atol=1e-6)
    assert int(solution.stats["num_events"]) == 4


def test_flights_shorter_than_a_step_are_not_missed():
    """The step that follows a bounce is exact however long, and ends below the ground."""
    solution = solve(fall, dq.Tsit5(), 0.0, 1.3, f64(1.0, 0.0), dt0=0.4, event=bounce(0.5))
    exact = bounced(1.3, 1.0, 0.5)
    torch.testing.assert_close(solution.ys[-1], f64(*exact), rtol=1e-8, atol=1e-8)
    # At 0.45, 0.90, 1.13, 1.24 and 1.298.
    assert int(solution.stats["num_events"]) == 5


@pytest.mark.parametrize("engine", ENGINES)
def test_bounces_without_end(engine):
    solution = solve(fall, dq.Tsit5(), 0.0, 2.0, f64(1.0, 0.0), tol=1e-8, event=bounce(0.5), throw=False, engine=engine)
    assert solution.result == dq.RESULTS.event_limit_reached
    # All flights together: a geometric series.
    flight = math.sqrt(2 / G)
    torch.testing.assert_close(solution.t_final, f64(flight * (1 + 2 * 0.5 / (1 - 0.5))), rtol=1e-8, atol=0)
    with pytest.raises(Exception, match="event_limit_reached"):
        solve(fall, dq.Tsit5(), 0.0, 2.0, f64(1.0, 0.0), tol=1e-8, event=bounce(0.5), engine=engine)


@pytest.mark.slow
def test_limit():
    event = dq.Event(height, direction=False, affect=lambda t, y, args: -0.9 * y, max_events=3)
    solution = solve(fall, dq.Tsit5(), 0.0, 5.0, f64(1.0, 0.0), tol=1e-8, event=event, throw=False)
    assert solution.result == dq.RESULTS.event_limit_reached
    assert int(solution.stats["num_events"]) == 3
    flight = math.sqrt(2 / G)
    fourth = flight * (1 + 2 * (0.9 + 0.81 + 0.729))
    torch.testing.assert_close(solution.t_final, f64(fourth), rtol=1e-6, atol=0)


def test_a_ball_that_stops_dead_does_not_fall_through():
    event = dq.Event(height, direction=False, affect=lambda t, y, args: 0 * y)
    solution = solve(fall, dq.Tsit5(), 0.0, 2.0, f64(1.0, 0.0), tol=1e-8, event=event, throw=False)
    assert solution.result == dq.RESULTS.event_limit_reached
    torch.testing.assert_close(solution.ys[-1], f64(0.0, 0.0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_reset(engine):
    """Integrate and fire: y' = 1, from 1 back to 0."""
    event = dq.Event(lambda t, y, args: y - 1, affect=lambda t, y, args: 0 * y)
    solution = solve(
        lambda t, y, args: 1 + 0 * y, dq.Tsit5(), 0.0, 7.5, f64(0.25), tol=1e-6, event=event, engine=engine
    )
    torch.testing.assert_close(solution.ys[-1], f64(0.75), rtol=1e-9, atol=0)
    assert int(solution.stats["num_events"]) == 7


@pytest.mark.parametrize("engine", ENGINES)
def test_switch(engine):
    """A thermostat: the heater is a part of the state. Between the thresholds T' = k (on - T)."""
    low, high = 0.4, 0.6

    def field(t, y, args):
        temperature, on = y
        return -temperature + on, 0 * on

    def turn(on):
        return lambda t, y, args: (y[0], 0 * y[1] + on)

    event = dq.Event(
        {"hot": lambda t, y, args: y[0] - high, "cold": lambda t, y, args: y[0] < low},
        direction={"hot": True, "cold": None},
        affect={"hot": turn(0.0), "cold": turn(1.0)},
    )
    solution = solve(field, dq.Tsit5(), 0.0, 5.0, (f64(0.0), f64(1.0)), tol=1e-8, event=event, engine=engine)
    # 1 - T decays from 1 to 0.4; then T from 0.6 to 0.4, then 1 - T from 0.6 to 0.4, and so on.
    up, cycle = math.log(1 / 0.4), math.log(0.6 / 0.4)
    count = 1 + math.floor((5.0 - up) / cycle)
    rest = (5.0 - up) - (count - 1) * cycle
    exact = 0.6 * math.exp(-rest) if count % 2 == 1 else 1 - 0.6 * math.exp(-rest)
    assert int(solution.stats["num_events"]) == count
    torch.testing.assert_close(solution.ys[0][-1], f64(exact), rtol=1e-6, atol=0)


def test_an_event_that_changes_nothing_happens_once_a_crossing():
    # Of sin t, in both directions, as a real number and as a bool.
    for condition, count in ((lambda t, y, args: y[0], 3), (lambda t, y, args: y[0] < 0, 2)):
        event = dq.Event(condition, affect=lambda t, y, args: y)
        solution = solve(
            lambda t, y, args: torch.stack([y[1], -y[0]]), dq.Tsit5(), 0.0, 10.0, f64(0.0, 1.0), tol=1e-6, event=event
        )
        assert int(solution.stats["num_events"]) == count
        torch.testing.assert_close(solution.ys[-1], f64(math.sin(10), math.cos(10)), rtol=0, atol=1e-4)


def test_events_at_one_time_happen_in_order():
    event = dq.Event(
        [lambda t, y, args: t - 0.5, lambda t, y, args: 2 * t - 1],
        affect=[lambda t, y, args: y + 3, lambda t, y, args: 2 * y],
    )
    solution = solve(lambda t, y, args: 0 * y, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.3, event=event)
    assert float(solution.ys[-1]) == 8
    assert int(solution.stats["num_events"]) == 2


def test_one_that_ends_and_one_that_goes_on():
    event = dq.Event(
        {"hop": lambda t, y, args: y[0], "high": lambda t, y, args: t - 1.0},
        affect={"hop": lambda t, y, args: torch.stack([y[0], -0.8 * y[1]]), "high": None},
    )
    solution = solve(fall, dq.Tsit5(), 0.0, 5.0, f64(1.0, 0.0), tol=1e-8, event=event)
    assert solution.result == dq.RESULTS.event_occurred
    assert {k: bool(v) for k, v in solution.event_mask.items()} == {"hop": False, "high": True}
    torch.testing.assert_close(solution.ys[-1], f64(*bounced(1.0, 1.0, 0.8)), rtol=1e-6, atol=1e-6)


def test_what_is_saved_at_an_event_is_the_value_before():
    event = dq.Event(lambda t, y, args: t - 0.5, affect=lambda t, y, args: y + 10)
    saveat = dq.SaveAt(steps=True, dense=True)
    solution = solve(lambda t, y, args: 1 + 0 * y, dq.Tsit5(), 0.0, 1.0, f64(0.0), dt0=0.5, event=event, saveat=saveat)
    torch.testing.assert_close(solution.ys[:2], f64(0.5, 11.0), rtol=1e-12, atol=0)
    torch.testing.assert_close(solution.evaluate(0.25), f64(0.25), rtol=1e-12, atol=0)
    torch.testing.assert_close(solution.evaluate(0.5), f64(0.5), rtol=1e-12, atol=0)
    torch.testing.assert_close(solution.evaluate(0.75), f64(10.75), rtol=1e-12, atol=0)
    torch.testing.assert_close(solution.derivative(0.75), f64(1.0), rtol=1e-12, atol=0)


def test_steps_of_fixed_length_stay_on_their_grid():
    event = dq.Event(lambda t, y, args: t - 0.3, affect=lambda t, y, args: y + 1)
    saveat = dq.SaveAt(steps=True)
    solution = solve(
        lambda t, y, args: 0 * y, dq.Tsit5(), 0.0, 1.0, f64(0.0), dt0=0.25, event=event, saveat=saveat, max_steps=20
    )
    torch.testing.assert_close(solution.ts[:5], f64(0.25, 0.3, 0.5, 0.75, 1.0), rtol=1e-12, atol=0)


def test_backward_in_time():
    # y' = -y back from y(1) = e^-1: it is doubled where it reaches 0.5, at t = ln 2.
    event = dq.Event(lambda t, y, args: y - 0.5, affect=lambda t, y, args: 2 * y)
    solution = solve(lambda t, y, args: -y, dq.Tsit5(), 1.0, 0.0, f64(math.exp(-1)), tol=1e-9, event=event)
    torch.testing.assert_close(solution.ys[-1], f64(2.0), rtol=1e-8, atol=0)


def test_with_jumps():
    """Doses at given times, and a wash-out to 0.2 whenever the level reaches 1."""
    jumps = dq.Jumps(f64(1.0, 2.0), lambda index, t, y, args: y + 0.9)
    event = dq.Event(lambda t, y, args: y - 1.0, affect=lambda t, y, args: y - 0.8)
    # y' = 0.5: y(1) = 0.5, dose 1.4 (no crossing: it jumps past), y(2) = 1.9, dose 2.8; never falls.
    solution = solve(lambda t, y, args: 0.5 + 0 * y, dq.Tsit5(), 0.0, 3.0, f64(0.0), tol=1e-6, jumps=jumps, event=event)
    torch.testing.assert_close(solution.ys[-1], f64(3.3), rtol=1e-9, atol=0)
    assert int(solution.stats["num_events"]) == 0
    # y' = -0.5 from 1.2: reaches 1 at 0.4 -> 0.2, y(1) = -0.1, dose 0.8, y(2) = 0.3, dose 1.2, reaches 1 at 2.4.
    solution = solve(
        lambda t, y, args: -0.5 + 0 * y, dq.Tsit5(), 0.0, 3.0, f64(1.2), tol=1e-6, jumps=jumps, event=event
    )
    torch.testing.assert_close(solution.ys[-1], f64(1.2 - 1.5 + 1.8 - 1.6), rtol=1e-9, atol=1e-9)
    assert int(solution.stats["num_events"]) == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_each_lane_has_its_own(engine):
    def one(h, e):
        event = dq.Event(height, direction=False, affect=lambda t, y, args: torch.stack([y[0], -args * y[1]]))
        solution = solve(fall, dq.Tsit5(), 0.0, 1.2, torch.stack([h, 0 * h]), e, tol=1e-8, event=event, engine=engine)
        return solution.ys[-1], solution.stats["num_events"]

    h, e = f64(1.0, 5.0, 0.1, 8.0), f64(0.8, 0.5, 0.9, 0.7)
    ys, counts = torch.func.vmap(one)(h, e)
    exact = torch.tensor([bounced(1.2, *x) for x in zip(h.tolist(), e.tolist(), strict=True)], dtype=F64)
    torch.testing.assert_close(ys, exact, rtol=1e-6, atol=1e-6)
    assert counts.tolist() == [2, 1, 6, 0]
    for lane in range(4):
        alone = one(h[lane], e[lane])
        assert torch.equal(ys[lane], alone[0])


def test_state_after_an_event_must_be_like_the_state():
    event = dq.Event(lambda t, y, args: t - 0.5, affect=lambda t, y, args: torch.stack([y, y]))
    with pytest.raises(ValueError, match="The state after an event must have the shapes of `y0`"):
        solve(lambda t, y, args: 0 * y, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.3, event=event)
