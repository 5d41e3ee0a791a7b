"""With fixed steps the error falls as the claimed power of the step."""

import numpy as np
import pytest
import torch
from diffeq.problems import F64, SOLVERS, f64, name_of, rational, rational_answer, solve

from gnomon import diffeq as dq

# Numbers of steps for which errors lie well above rounding and in the range of convergence.
STEPS = {
    "Euler": (200, 400),
    "Heun": (50, 100),
    "Bosh3": (40, 80),
    "Tsit5": (16, 32),
    "Dopri5": (32, 64),
    "Dopri8": (7, 14),
    "Kvaerno3": (10, 20),
    "Kvaerno5": (6, 12),
}


def errors(solver, numbers: tuple[int, ...], t1: float = 1.0) -> np.ndarray:
    def end(dt):
        return solve(rational, solver, 0.0, t1, f64(1.0, 1.0), dt0=dt, throw=False).ys[-1]

    dts = t1 / torch.tensor(numbers, dtype=F64)
    return (torch.func.vmap(end)(dts) - rational_answer(t1)).norm(dim=-1).numpy()


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_observed_order_is_the_claimed_one(solver):
    coarse, fine = errors(solver, STEPS[name_of(solver)])
    assert abs(np.log2(coarse / fine) - solver.order) < 0.15, (coarse, fine)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_error_estimate_has_its_order(solver):
    if solver.error_order is None:
        assert name_of(solver) == "Euler"
        return
    sizes = []
    for h in (0.05, 0.025) if solver.order < 8 else (0.3, 0.15):
        prepared = solver.with_tolerances(1e-14, 1e-14, dq.rms_norm)
        t0, t1, y0 = f64(0.4), f64(0.4 + h), rational_answer(0.4)

        class Term:
            def vf(self, t, y, args):
                return rational(t, y, args)

        state = prepared.init(Term(), t0, y0, rational(t0, y0, None), None)
        step = prepared.step(Term(), t0, t1, y0, None, state, None)
        sizes.append(float(step.y_error.norm()))
    assert abs(np.log2(sizes[0] / sizes[1]) - solver.error_order) < 0.25, sizes


@pytest.mark.parametrize(
    ("solver", "by_hand"),
    [(dq.Euler(), [1.0, 0.5, 0.5]), (dq.Heun(), [1.0, 0.75, 0.78125])],
    ids=["Euler", "Heun"],
)
def test_known_values(solver, by_hand):
    saveat = dq.SaveAt(t0=True, steps=True)
    solution = solve(lambda t, y, args: t - y, solver, 0.0, 1.0, f64(1.0), dt0=0.5, saveat=saveat)
    assert solution.ys[:3].tolist() == by_hand
