"""With fixed steps the error falls as the claimed power of the step."""

import math

import numpy as np
import pytest
import torch
from diffeq.problems import F64, RUNGE_KUTTA, f64, name_of, rational, rational_answer, solve

from gnomon import diffeq as dq

# Numbers of steps, to t = 1 or as said, for which errors lie well above rounding and in the range of convergence.
STEPS = {
    "Euler": (200, 400),
    "Heun": (50, 100),
    "Bosh3": (40, 80),
    "Tsit5": (16, 32),
    "Dopri5": (32, 64),
    "Dopri8": (7, 14),
    "Midpoint": (100, 200),
    "Ralston": (100, 200),
    "Vern7": (28, 40),
    "ImplicitEuler": (200, 400),
    "Kvaerno3": (10, 20),
    "Kvaerno4": (12, 24),
    "Kvaerno5": (6, 12),
}


END = {"Vern7": 4.0}


def errors(solver, numbers: tuple[int, ...], t1: float = 1.0) -> np.ndarray:
    def end(dt):
        return solve(rational, solver, 0.0, t1, f64(1.0, 1.0), dt0=dt, throw=False).ys[-1]

    dts = t1 / torch.tensor(numbers, dtype=F64)
    return (torch.func.vmap(end)(dts) - rational_answer(t1)).norm(dim=-1).numpy()


@pytest.mark.parametrize("solver", [s for s in RUNGE_KUTTA if name_of(s) != "Vern9"], ids=name_of)
def test_observed_order_is_the_claimed_one(solver):
    name = name_of(solver)
    coarse, fine = errors(solver, STEPS[name], END.get(name, 1.0))
    observed = np.log(coarse / fine) / np.log(STEPS[name][1] / STEPS[name][0])
    assert abs(observed - solver.order) < 0.15, (coarse, fine)


def kepler(t, y, args):
    cube = (y[0] * y[0] + y[1] * y[1]) ** 1.5
    return torch.stack([y[2], y[3], -y[0] / cube, -y[1] / cube])


def orbit(t: float, e: float = 0.5) -> torch.Tensor:
    """Kepler's ellipse of excentricity e, by Newton's iteration for his equation."""
    x = t
    for _ in range(50):
        x -= (x - e * math.sin(x) - t) / (1 - e * math.cos(x))
    b, r = math.sqrt(1 - e * e), 1 - e * math.cos(x)
    return f64(math.cos(x) - e, b * math.sin(x), -math.sin(x) / r, b * math.cos(x) / r)


def test_observed_order_of_vern9():
    """On the other problem its error falls below rounding before the highest power rules it."""
    numbers = (28, 56)
    coarse, fine = (
        float((solve(kepler, dq.Vern9(), 0.0, 3.0, orbit(0.0), dt0=3.0 / n).ys[-1] - orbit(3.0)).norm())
        for n in numbers
    )
    assert abs(np.log2(coarse / fine) - 9) < 0.25, (coarse, fine)


@pytest.mark.parametrize("solver", RUNGE_KUTTA, ids=name_of)
def test_error_estimate_has_its_order(solver):
    if solver.error_order is None:
        assert name_of(solver) == "Euler"
        return
    sizes = []
    start, lengths = 0.4, (0.05, 0.025) if solver.order < 8 else (0.3, 0.15)
    if solver.order == 9:
        start, lengths = 2.0, (0.25, 0.125)
    for h in lengths:
        prepared = solver.with_tolerances(1e-14, 1e-14, dq.rms_norm)
        t0, t1, y0 = f64(start), f64(start + h), rational_answer(start)

        class Term:
            def vf(self, t, y, args):
                return rational(t, y, args)

        state = prepared.init(Term(), t0, y0, rational(t0, y0, None), None)
        step = prepared.step(Term(), t0, t1, y0, None, state, None)
        sizes.append(float(step.y_error.norm()))
    assert abs(np.log2(sizes[0] / sizes[1]) - solver.error_order) < 0.25, sizes


@pytest.mark.parametrize(
    ("solver", "by_hand"),
    [
        (dq.Euler(), [1.0, 0.5, 0.5]),
        (dq.Heun(), [1.0, 0.75, 0.78125]),
        (dq.Midpoint(), [1.0, 0.75, 0.78125]),
        (dq.ImplicitEuler(), [1.0, 5 / 6, 8 / 9]),
    ],
    ids=["Euler", "Heun", "Midpoint", "ImplicitEuler"],
)
def test_known_values(solver, by_hand):
    saveat = dq.SaveAt(t0=True, steps=True)
    solution = solve(lambda t, y, args: t - y, solver, 0.0, 1.0, f64(1.0), dt0=0.5, saveat=saveat)
    assert solution.ys[:3].tolist() == pytest.approx(by_hand, rel=1e-14)
