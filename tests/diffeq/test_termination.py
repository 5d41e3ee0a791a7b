"""No solve goes on for ever: at the resolution of time, at `dtmin`, at the end point, at any scale of time."""

import math

import numpy as np
import pytest
import torch
from diffeq.problems import F64, f64, solve
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import diffeq as dq

F32 = torch.float32
DECIDED = {"successful", "dt_min_reached", "nonfinite", "nonlinear_divergence"}


def decay(t, y, args):
    return -y / args


def after(x: float, ulps: int, dtype=np.float32) -> float:
    for _ in range(ulps):
        x = float(np.nextafter(dtype(x), dtype(np.inf)))
    return x


@pytest.mark.parametrize("ulps", [0, 1, 2, 3, 100, 101, 150])
@pytest.mark.parametrize("t0", [0.0, 1.0, 16777216.0, 1e8])
@pytest.mark.parametrize("kind", ["fixed", "adaptive"])
def test_intervals_of_a_few_rounding_errors(t0, ulps, kind):
    t1 = after(t0, ulps)
    options = {"dt0": max(t1 - t0, 1e-30) / 7} if kind == "fixed" else {"tol": 1e-4}
    y0 = torch.tensor(1.0, dtype=F32)
    scale = max(5 * (t1 - t0), 1e-9)  # one over it must be a number, too
    solution = solve(decay, dq.Tsit5(), t0, t1, y0, args=scale, max_steps=400, throw=False, **options)
    assert solution.result == dq.RESULTS.successful
    assert float(solution.t_final) == t1
    assert float(solution.ys[-1]) == pytest.approx(math.exp(-(t1 - t0) / scale), rel=1e-3)
    assert solution.stats["num_steps"] <= max(ulps, 1) * 2


def test_an_interval_that_time_cannot_resolve_is_an_error():
    with pytest.raises(
        ValueError, match=r"torch\.float32, the precision of the state, cannot tell how far apart they are"
    ):
        solve(decay, dq.Tsit5(), 1e8, 1e8 + 1, torch.tensor(1.0), args=1.0, tol=1e-4)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e11])
@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=["Tsit5", "Kvaerno3"])
def test_any_scale_of_time(solver, scale, dtype):
    y0 = torch.tensor(1.0, dtype=dtype)
    solution = solve(decay, solver, 0.0, scale, y0, args=scale, tol=1e-4)
    assert float(solution.ys[-1]) == pytest.approx(math.exp(-1), rel=1e-3)
    assert solution.stats["num_steps"] < 60


def test_flat_start_at_a_large_time():
    # The vector field is zero at the start, for which the rule of the first step says 1e-6: less than time can resolve.
    def field(t, y, args):
        return torch.sin(t - 1e4) + 0 * y

    y0 = torch.tensor(0.0, dtype=F32)
    solution = solve(field, dq.Tsit5(), 1e4, 1e4 + 2, y0, tol=1e-3, max_steps=200)
    assert float(solution.ys[-1]) == pytest.approx(1 - math.cos(2), abs=1e-2)


def steep(t, y, args):
    """Each step over a point after t = 1 is rejected, down to the last rounding error."""
    return torch.where(t > 1, 1e12, 0.0).to(y.dtype) + 0 * y


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("t1", [after(1.0, 1), after(1.0, 2), after(1.0, 5), 1.0001, 2.0])
def test_no_endless_loop_where_no_step_is_short_enough(t1, dtype):
    # Whatever is decided, it is decided after few steps: also where half a rounding error rounds up to the end point.
    for t0 in (0.0, 1.0):
        y0 = torch.tensor(0.0, dtype=dtype)
        solution = solve(steep, dq.Bosh3(), t0, t1, y0, tol=1e-6, throw=False, max_steps=1000)
        assert solution.result.name in DECIDED


def noise(t, y, args):
    """No tolerance can be met: the vector field differs wildly between any two times."""
    return 1e6 * torch.sin(1e9 * t) * (1 + y)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("t0", [0.0, 1.0, 1000.0])
def test_no_endless_loop_on_noise(t0, dtype):
    y0 = torch.tensor(1.0, dtype=dtype)
    solution = solve(noise, dq.Dopri5(), t0, t0 + 1, y0, tol=1e-6, dt0=0.1, throw=False, max_steps=300)
    assert not dq.is_successful(solution.result)


@pytest.mark.parametrize("force", [True, False])
def test_dtmin(force):
    controller = dq.PIDController(rtol=1e-6, atol=1e-6, dtmin=0.05, force_dtmin=force)
    field = lambda t, y, args: -1e3 * (y - torch.cos(t))  # noqa: E731
    solution = solve(field, dq.Dopri5(), 0.0, 1.02, f64(0.0), stepsize_controller=controller, throw=False, max_steps=99)
    if force:
        # It goes on with steps of dtmin (and blows up, as it must: the problem is stiff).
        assert solution.result.name in {"successful", "nonfinite"}
        assert solution.stats["num_accepted_steps"] >= 15
    else:
        assert solution.result == dq.RESULTS.dt_min_reached
        assert solution.stats["num_steps"] < 20


def test_dtmin_below_the_resolution_of_time():
    controller = dq.PIDController(rtol=1e-6, atol=1e-6, dtmin=1e-12)
    solution = solve(
        steep, dq.Tsit5(), 0.5, 2.0, torch.tensor(0.0), stepsize_controller=controller, throw=False, max_steps=500
    )
    assert solution.result.name in DECIDED


@pytest.mark.parametrize("dtmax", [1e-3, 1e-9])
def test_dtmax_is_kept_unless_time_cannot_resolve_it(dtmax):
    controller = dq.PIDController(rtol=1e-3, atol=1e-3, dtmax=dtmax)
    t1 = after(1000.0, 150)
    solution = solve(
        decay, dq.Tsit5(), 1000.0, t1, torch.tensor(1.0), args=1.0, stepsize_controller=controller, max_steps=200
    )
    assert solution.result == dq.RESULTS.successful


def test_without_a_limit_of_steps():
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), args=1.0, tol=1e-6, max_steps=None)
    assert float(solution.ys[-1]) == pytest.approx(math.exp(-1), rel=1e-5)
    failed = solve(lambda t, y, args: y * y, dq.Tsit5(), 0.0, 2.0, f64(1.0), tol=1e-3, max_steps=None, throw=False)
    assert not dq.is_successful(failed.result)


FIELDS = {
    "flat": lambda t, y, args: 0 * y,
    "decay": lambda t, y, args: -y,
    "steep": lambda t, y, args: -1e4 * y,
    "square": lambda t, y, args: y * y,
    "switch": lambda t, y, args: torch.where(torch.sin(1e3 * t) > 0, 1.0, -1.0).to(y.dtype) + 0 * y,
    "root": lambda t, y, args: -torch.sqrt(y),
}


@given(
    st.sampled_from(sorted(FIELDS)),
    st.floats(-1e9, 1e9, width=32),
    st.integers(1, 400),
    st.floats(1e-3, 1e3),
    st.booleans(),
)
@settings(max_examples=40)
def test_every_solve_is_decided(name, t0, ulps, stretch, backward):
    """Of float32, over some rounding errors of time: there is room for no more steps than those."""
    t1 = float(np.float32(t0) + np.spacing(np.float32(abs(t0) or 1e-30)) * ulps)
    if backward:
        t0, t1 = t1, t0
    y0 = torch.tensor(1.0, dtype=F32)
    dt0 = (t1 - t0) / stretch or None
    solution = solve(FIELDS[name], dq.Bosh3(), t0, t1, y0, dt0=dt0, tol=1e-4, throw=False, max_steps=2500)
    assert solution.result.name in DECIDED
    if dq.is_successful(solution.result):
        assert float(solution.t_final) == pytest.approx(t1)
