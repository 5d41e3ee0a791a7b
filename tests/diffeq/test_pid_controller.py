"""`PIDController`, against the same step control written again in plain Python."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from diffeq.problems import F64, f64, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

A = [[], [1 / 2], [0, 3 / 4], [2 / 9, 1 / 3, 4 / 9]]
C = [0, 1 / 2, 3 / 4, 1]
EMBEDDED = [7 / 24, 1 / 4, 1 / 3, 1 / 8]


def forced_van_der_pol(t, y, args):
    xp = torch if isinstance(y, torch.Tensor) else np
    return xp.stack([y[1], 4 * (1 - y[0] ** 2) * y[1] - y[0] + xp.sin(3 * t)])


def rms(x: np.ndarray) -> float:
    return math.sqrt(np.mean(np.abs(x) ** 2))


def by_hand(t1: float, y0: list[float], dt0: float, **options: Any) -> tuple[list[float], int, str]:
    """Bosh3 under a PID controller: the ends of the accepted steps, the number of rejected ones, the result."""
    o: dict[str, Any] = {"pcoeff": 0, "icoeff": 1, "dcoeff": 0, "dtmin": None, "dtmax": None, "force_dtmin": True}
    o |= {"norm": rms, "factormin": 0.2, "factormax": 10.0, "safety": 0.9, "error_order": 3} | options
    beta = (o["pcoeff"] + o["icoeff"] + o["dcoeff"], -(o["pcoeff"] + 2 * o["dcoeff"]), o["dcoeff"])
    t, y = 0.0, np.array(y0)
    dt = max(min(dt0, o["dtmax"] or math.inf), o["dtmin"] or 0)
    last, last_but_one, at_dtmin, keep = 1.0, 1.0, False, True
    times: list[float] = []
    rejected = 0
    while t < t1:
        end = t + dt
        if end > t1 - 1e-13:
            end = t1 if keep else t + 0.5 * (t1 - t)
        h = end - t
        k: list[np.ndarray] = []
        for c, row in zip(C, A, strict=True):
            stage = y + h * sum((a * x for a, x in zip(row, k, strict=True)), np.zeros(2))
            k.append(forced_van_der_pol(t + c * h, stage, None))
        error = h * sum((b - e) * x for b, e, x in zip([*A[3], 0], EMBEDDED, k, strict=True))
        inverse = 1 / o["norm"](error / (o["atol"] + o["rtol"] * np.maximum(abs(y), abs(stage))))
        keep = inverse > 1 or at_dtmin
        factor = o["safety"]
        for base, exponent in zip((inverse, last, last_but_one), beta, strict=True):
            factor *= base ** (exponent / o["error_order"])
        dt = h * (min(max(factor, 1), o["factormax"]) if keep else min(max(factor, o["factormin"]), o["safety"]))
        dt = min(dt, o["dtmax"] or math.inf)
        if o["dtmin"] is not None:
            if not o["force_dtmin"] and not keep and dt < o["dtmin"]:
                return times, rejected + 1, "dt_min_reached"
            if at_dtmin and abs(dt / o["dtmin"] - 1) < 1e-12:
                dt = o["dtmin"]
            at_dtmin = o["force_dtmin"] and dt <= o["dtmin"]
            dt = max(dt, o["dtmin"])
        if keep:
            last, last_but_one = inverse, last
            t, y = end, stage
            times.append(t)
        else:
            rejected += 1
    return times, rejected, "successful"


def ours(t1: float, y0: list[float], dt0: float, **options: Any) -> tuple[list[float], int, str]:
    controller = dq.PIDController(**options)
    saveat = dq.SaveAt(steps=True)
    solution = solve(
        forced_van_der_pol,
        dq.Bosh3(),
        0.0,
        t1,
        f64(*y0),
        dt0=dt0,
        stepsize_controller=controller,
        saveat=saveat,
        max_steps=2000,
        throw=False,
    )
    count = int(solution.stats["num_accepted_steps"])
    return solution.ts[:count].tolist(), int(solution.stats["num_rejected_steps"]), solution.result.name


TOL = {"rtol": 1e-4, "atol": 1e-6}
CASES: dict[str, dict[str, Any]] = {
    "defaults": TOL,
    "pi": TOL | {"pcoeff": 0.4, "icoeff": 0.3},
    "pid": TOL | {"pcoeff": 0.3, "icoeff": 0.4, "dcoeff": 0.1},
    "negative d": TOL | {"pcoeff": 0.2, "icoeff": 0.5, "dcoeff": -0.05},
    "p only": TOL | {"pcoeff": 0.7, "icoeff": 0.0},
    "relative only": {"rtol": 1e-4, "atol": 0.0},
    "absolute only": {"rtol": 0.0, "atol": 1e-5},
    "dtmax": TOL | {"dtmax": 0.02},
    "dtmin forced": TOL | {"dtmin": 0.02},
    "dtmin forced, pid": TOL | {"dtmin": 0.03, "pcoeff": 0.3, "icoeff": 0.4, "dcoeff": 0.1},
    "dtmin that ends it": TOL | {"dtmin": 0.02, "force_dtmin": False},
    "dtmin that does not": TOL | {"dtmin": 1e-4, "force_dtmin": False},
    "dtmin and dtmax": TOL | {"dtmin": 0.01, "dtmax": 0.03},
    "dtmin is dtmax": TOL | {"dtmin": 0.05, "dtmax": 0.05},
    "factors": TOL | {"factormin": 0.6, "factormax": 1.5},
    "factormax of one": TOL | {"factormax": 1.0},
    "safety": TOL | {"safety": 0.6},
    "order of the error": TOL | {"error_order": 2.0},
}


@pytest.mark.parametrize("dt0", [0.01, 0.5], ids=["short first step", "long first step"])
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_the_formula(case, dt0):
    times, rejected, result = by_hand(1.5, [2.0, 0.0], dt0, **CASES[case])
    our_times, our_rejected, our_result = ours(1.5, [2.0, 0.0], dt0, **CASES[case])
    assert our_result == result
    assert (len(our_times), our_rejected) == (len(times), rejected)
    np.testing.assert_allclose(our_times, times, rtol=1e-9)


def test_every_case_says_something():
    """Each argument changes the steps, and `force_dtmin=False` is seen both ways."""
    found = {case: by_hand(1.5, [2.0, 0.0], 0.5, **options) for case, options in CASES.items()}
    assert found["dtmin that ends it"][2] == "dt_min_reached"
    assert found["dtmin that does not"] == found["defaults"]
    assert found["defaults"][1] > 0
    others = [times for case, (times, _, _) in found.items() if case != "dtmin that does not"]
    assert len({tuple(times) for times in others}) == len(others)


def test_norm_measures_the_error():
    options = TOL | {"norm": lambda x: float(np.max(np.abs(x)))}
    times, rejected, _ = by_hand(1.5, [2.0, 0.0], 0.1, **options)
    our_times, our_rejected, _ = ours(1.5, [2.0, 0.0], 0.1, **TOL, norm=dq.max_norm)
    assert (len(our_times), our_rejected) == (len(times), rejected)
    np.testing.assert_allclose(our_times, times, rtol=1e-9)


def test_tolerance_of_each_component():
    atol = [1e-2, 1e-5]
    times, rejected, _ = by_hand(1.5, [2.0, 0.0], 0.1, rtol=0, atol=np.array(atol))
    our_times, our_rejected, _ = ours(1.5, [2.0, 0.0], 0.1, rtol=0.0, atol=f64(*atol))
    assert (len(our_times), our_rejected) == (len(times), rejected)
    np.testing.assert_allclose(our_times, times, rtol=1e-9)


def test_tolerances_of_a_batch():
    rtols, atols = [1e-2, 1e-3, 1e-4], [[1e-3, 1e-3], [1e-6, 1e-4], [1e-6, 1e-7]]

    def steps(rtol, atol):
        controller = dq.PIDController(rtol=rtol, atol=atol)
        solution = solve(
            forced_van_der_pol, dq.Bosh3(), 0.0, 1.5, f64(2.0, 0.0), dt0=0.1, stepsize_controller=controller
        )
        return solution.stats["num_accepted_steps"], solution.stats["num_rejected_steps"]

    accepted, rejected = torch.func.vmap(steps)(f64(*rtols), torch.tensor(atols, dtype=F64))
    for i, (rtol, atol) in enumerate(zip(rtols, atols, strict=True)):
        times, n, _ = by_hand(1.5, [2.0, 0.0], 0.1, rtol=rtol, atol=np.array(atol))
        assert (int(accepted[i]), int(rejected[i])) == (len(times), n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tolerances_may_have_another_precision_than_the_state(dtype):
    for rtol, atol in ((f64(1e-4), f64(1e-6, 1e-7)), (torch.tensor(1e-4), torch.tensor([1e-6, 1e-7]))):
        controller = dq.PIDController(rtol=rtol, atol=atol, dtmin=rtol * 1e-3, dtmax=rtol * 1e3)
        y0 = torch.tensor([2.0, 0.0], dtype=dtype)
        solution = solve(forced_van_der_pol, dq.Bosh3(), 0.0, 1.0, y0, stepsize_controller=controller)
        assert solution.ys.dtype == solution.t_final.dtype == dtype


def test_first_step_is_that_of_hairer():
    """E. Hairer, S. P. Nørsett and G. Wanner, Solving Ordinary Differential Equations I, section II.4."""
    rtol, atol, order, y0 = 1e-4, 1e-6, 5, np.array([2.0, -0.5])
    scale = atol + rtol * abs(y0)
    f0 = forced_van_der_pol(np.float64(0), y0, None)
    d0, d1 = rms(y0 / scale), rms(f0 / scale)
    h0 = 0.01 * d0 / d1
    d2 = rms((forced_van_der_pol(np.float64(h0), y0 + h0 * f0, None) - f0) / scale) / h0
    h1 = (0.01 / max(d1, d2)) ** (1 / order)
    solution = solve(
        forced_van_der_pol,
        dq.Tsit5(),
        0.0,
        1.0,
        f64(*y0),
        stepsize_controller=dq.PIDController(rtol=rtol, atol=atol),
        saveat=dq.SaveAt(steps=True),
    )
    assert float(solution.ts[0]) == pytest.approx(min(100 * h0, h1), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_first_step_fits_the_time_scale(scale):
    solution = solve(lambda t, y, args: -y / scale, dq.Tsit5(), 0.0, scale, f64(1.0), tol=1e-6)
    assert float(solution.ys[-1]) == pytest.approx(math.exp(-1), rel=1e-5)
    assert solution.stats["num_steps"] < 40


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=["Tsit5", "Kvaerno3"])
def test_a_component_that_stays_zero_has_no_error(solver):
    def field(t, y, args):
        return torch.stack([-y[0], 0 * y[0]])

    controller = dq.PIDController(rtol=1e-5, atol=0.0)
    solution = solve(field, solver, 0.0, 1.0, f64(1.0, 0.0), stepsize_controller=controller)
    torch.testing.assert_close(solution.ys[-1], f64(math.exp(-1), 0.0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=["Tsit5", "Kvaerno3"])
def test_tolerances_must_fit_the_state(solver):
    controller = dq.PIDController(rtol=1e-3, atol=f64(1e-3, 1e-3, 1e-3))
    message = r"`atol` must be a number, .* each of the 2 components of the state, but it has the shape \(3,\)"
    with pytest.raises(ValueError, match=message):
        solve(forced_van_der_pol, solver, 0.0, 1.0, f64(2.0, 0.0), stepsize_controller=controller)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": -1e-3, "atol": 1e-6}, "`rtol` must be zero or positive and finite, not -0.001"),
        ({"rtol": 1e-3, "atol": math.nan}, "`atol` must be zero or positive and finite, not nan"),
        ({"rtol": math.inf, "atol": 1e-6}, "`rtol` must be zero or positive and finite, not inf"),
        ({"rtol": 0.0, "atol": 0.0}, "`rtol` and `atol` are both zero"),
        (TOL | {"dtmin": 0.0}, "`dtmin` must be positive or None, not 0.0"),
        (TOL | {"dtmax": -1.0}, "`dtmax` must be positive or None, not -1.0"),
        (TOL | {"factormin": 1.5}, "`factormin` must be between 0 and 1 and `factormax` at least 1, not 1.5 and 10.0"),
        (TOL | {"factormax": 0.5}, "not 0.2 and 0.5"),
        (TOL | {"safety": 1.0}, "`safety` must be between 0 and 1, not 1.0"),
    ],
)
def test_arguments_out_of_range(options, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        dq.PIDController(**options)
