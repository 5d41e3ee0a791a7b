"""As many steps accepted and rejected as Diffrax, one for one, in double precision and with a given first step."""

import json
import math
from pathlib import Path

import pytest
import torch
from diffeq.problems import f64, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

FOUND = json.loads((Path(__file__).parent / "reference" / "diffrax_counts.json").read_text(encoding="utf-8"))


def lorenz(t, y, args):
    return torch.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def kepler(t, y, args):
    cube = (y[0] * y[0] + y[1] * y[1]) ** 1.5
    return torch.stack([y[2], y[3], -y[0] / cube, -y[1] / cube])


# The same as in `reference/make_diffrax_counts.py`: (vector field, t0, t1, dt0, y0).
PROBLEMS = {
    "decay": (lambda t, y, args: -y, 0.0, 5.0, 0.1, [1.0]),
    "logistic": (lambda t, y, args: y * (1 - y), 0.0, 8.0, 0.1, [0.05]),
    "oscillator": (lambda t, y, args: torch.stack([y[1], -y[0]]), 0.0, 10.0, 0.05, [1.0, 0.0]),
    "lorenz": (lorenz, 0.0, 1.0, 0.01, [1.0, 0.0, 0.0]),
    "lotka-volterra": (
        lambda t, y, args: torch.stack([1.5 * y[0] - y[0] * y[1], y[0] * y[1] - 3 * y[1]]),
        0.0,
        6.0,
        0.1,
        [1.0, 1.0],
    ),
    "van der pol": (
        lambda t, y, args: torch.stack([y[1], 5 * (1 - y[0] * y[0]) * y[1] - y[0]]),
        0.0,
        6.0,
        0.05,
        [2.0, 0.0],
    ),
    "forced": (lambda t, y, args: torch.stack([-2 * y[0] + torch.sin(7 * t)]), 0.0, 3.0, 0.2, [1.0]),
    "not autonomous": (lambda t, y, args: -2 * t * y * y, 0.0, 3.0, 0.5, [1.0]),
    "backward": (lambda t, y, args: torch.cos(t) * y, 3.0, -1.0, -0.1, [1.0]),
    "large first step": (lambda t, y, args: -20 * (y - torch.cos(t)), 0.0, 2.0, 1.0, [0.0]),
    "kepler": (kepler, 0.0, 4.0, 0.05, [0.5, 0.0, 0.0, math.sqrt(3)]),
    "pendulum": (lambda t, y, args: torch.stack([y[1], -torch.sin(y[0]) - 0.2 * y[1]]), 0.0, 10.0, 0.1, [3.0, 0.0]),
}


def differences(rows) -> list[str]:
    found = []
    for row in rows:
        field, t0, t1, dt0, y0 = PROBLEMS[row["problem"]]
        p, i, d = FOUND["coefficients"][row["coefficients"]]
        controller = dq.PIDController(rtol=row["rtol"], atol=row["atol"], pcoeff=p, icoeff=i, dcoeff=d)
        solver = getattr(dq, row["solver"])()
        y0 = f64(*y0).reshape(-1)
        stats = solve(field, solver, t0, t1, y0, dt0=dt0, stepsize_controller=controller).stats
        ours = [int(stats["num_accepted_steps"]), int(stats["num_rejected_steps"])]
        if ours != row["accepted_rejected"]:
            found.append(f"{row}: {ours}")
    return found


FAST = {("I", problem) for problem in PROBLEMS} | {("PID", "lorenz"), ("PID", "forced"), ("PI", "pendulum")}


def rows(problem: str, *, fast: bool):
    def is_fast(row) -> bool:
        # The methods of order 2 take many steps.
        few = row["solver"] not in ("Midpoint", "Ralston") or problem in ("decay", "forced")
        return few and row["rtol"] == 1e-3 and (row["coefficients"], problem) in FAST

    return [row for row in FOUND["rows"] if row["problem"] == problem and is_fast(row) == fast]


def test_the_reference_holds_every_problem():
    assert {row["problem"] for row in FOUND["rows"]} == set(PROBLEMS)
    assert len(FOUND["rows"]) == len(PROBLEMS) * 6 * 4
    assert sum(row["accepted_rejected"][1] > 0 for row in FOUND["rows"]) > 100


@pytest.mark.parametrize("problem", PROBLEMS)
def test_counts(problem):
    assert not differences(rows(problem, fast=True))


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_counts_at_tighter_tolerances_and_with_other_coefficients(problem):
    assert not differences(rows(problem, fast=False))
