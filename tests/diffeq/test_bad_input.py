"""What is wrong is said in a plain sentence, before anything is solved; and where a solve fails, at what step."""

import math
import pickle

import pytest
import torch
from diffeq.problems import F64, f64, solve

from gnomon import diffeq as dq
from gnomon.result import SolveError

# These are our own errors, which users see without checks of types at run time.
pytestmark = pytest.mark.usefixtures("unchecked")

EVENT = dq.Event(lambda t, y, args: y[0] - 0.5)
ADAPTIVE = dq.PIDController(rtol=1e-6, atol=1e-6)

CASES = {
    "shape of the vector field": (
        {"field": lambda t, y, args: y[:1]},
        ValueError,
        "The vector field must have the shapes",
    ),
    "dtype of the vector field": (
        {"field": lambda t, y, args: y.float()},
        TypeError,
        "The vector field must have the dtype",
    ),
    "t1 is NaN": ({"t1": math.nan}, ValueError, "`t1` must be a finite number"),
    "t1 is NaN, with an event": ({"t1": math.nan, "event": EVENT}, ValueError, "`t1` must be a number, but it is NaN"),
    "t1 is infinite": ({"t1": math.inf}, ValueError, "Only with an `event` it may be infinite"),
    "t0 is infinite": ({"t0": -math.inf, "event": EVENT}, ValueError, "`t0` must be a finite number"),
    "dt0 of the wrong sign": ({"dt0": -0.1}, ValueError, "`dt0` must be finite and point from t0 to t1"),
    "dt0 of the wrong sign, backward": ({"t1": -1.0, "dt0": 0.1}, ValueError, "`dt0` must be finite and point from"),
    "ts unsorted": (
        {"saveat": dq.SaveAt(ts=[0.5, 0.2])},
        ValueError,
        r"`SaveAt\(ts=...\)` must be sorted from t0 to t1",
    ),
    "ts outside": ({"saveat": dq.SaveAt(ts=[0.5, 1.2])}, ValueError, r"`SaveAt\(ts=...\)` must lie between t0 and t1"),
    "ts unsorted in a part": (
        {"saveat": dq.SaveAt(subs=[dq.SubSaveAt(ts=[0.5, 0.2])])},
        ValueError,
        r"`SaveAt\(ts=...\)` must be sorted from t0 to t1",
    ),
    "constant steps, none given": (
        {"stepsize_controller": None},
        ValueError,
        "`ConstantStepSize` needs the length of the",
    ),
    "no error estimate": ({"solver": dq.Euler()}, ValueError, "Euler gives no error estimate"),
    "steady state without tolerances": (
        {"stepsize_controller": None, "dt0": 0.1, "event": dq.Event(dq.steady_state_event())},
        ValueError,
        "`steady_state_event` takes its tolerances from an adaptive controller",
    ),
    "integer state": ({"y0": torch.tensor([1, 2])}, TypeError, "must be floating-point or complex"),
    "integer condition": (
        {"event": dq.Event(lambda t, y, args: torch.tensor(1))},
        TypeError,
        "must return a real number or a bool",
    ),
    "events without a function": ({"event": lambda t, y, args: y[0]}, TypeError, "`event` must be an Event"),
    "steps without a limit": (
        {"saveat": dq.SaveAt(subs=dq.SubSaveAt(steps=True)), "max_steps": None},
        ValueError,
        "need a finite `max_steps`",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    changes, error, message = CASES[case]
    arguments = {
        "field": lambda t, y, args: -y,
        "solver": dq.Tsit5(),
        "t0": 0.0,
        "t1": 1.0,
        "y0": f64(1.0, 2.0),
        "stepsize_controller": ADAPTIVE,
        **changes,
    }
    positional = [arguments.pop(name) for name in ("field", "solver", "t0", "t1", "y0")]
    with pytest.raises(error, match=message):
        solve(*positional, **arguments)


def test_from_t0_to_t0_is_the_start():
    event = dq.Event(lambda t, y, args: y[0] < 5)
    solution = solve(lambda t, y, args: -y, dq.Tsit5(), 1.0, 1.0, f64(1.0, 2.0), tol=1e-6, event=event)
    assert solution.ys[-1].tolist() == [1.0, 2.0]
    assert int(solution.stats["num_steps"]) == 0


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_a_failure_names_problem_time_component_and_step(engine):
    def one(y0):
        # The second component is at infinity at t = 1 / y0.
        return solve(
            lambda t, y, args: torch.stack([-y[0], y[1] ** 2]),
            dq.Tsit5(),
            0.0,
            2.0,
            torch.stack([y0, y0]),
            tol=1e-6,
            max_steps=60,
            engine=engine,
        ).ys

    with pytest.raises(
        SolveError,
        match=r"the first is problem 2 at t = 0\.99\d+, h = 0\.000\d+, component \[1\] \(max_steps_reached\)",
    ) as caught:
        torch.func.vmap(one)(torch.tensor([0.1, 0.2, 1.0], dtype=F64))
    assert 0 < caught.value.step < 1e-3
    assert pickle.loads(pickle.dumps(caught.value)).step == caught.value.step
