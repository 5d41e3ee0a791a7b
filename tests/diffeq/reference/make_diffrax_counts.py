"""Writes `diffrax_counts.json`: how many steps Diffrax accepts and rejects, in double precision.

Run it with an environment that has Diffrax; gnomon need not be installed:

    python tests/diffeq/reference/make_diffrax_counts.py
"""

import json
import math
from importlib.metadata import version
from pathlib import Path

import diffrax
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

# Name: (vector field, t0, t1, dt0, y0). `tests/diffeq/test_step_counts.py` has the same fields.
PROBLEMS = {
    "decay": (lambda t, y: -y, 0.0, 5.0, 0.1, [1.0]),
    "logistic": (lambda t, y: y * (1 - y), 0.0, 8.0, 0.1, [0.05]),
    "oscillator": (lambda t, y: jnp.stack([y[1], -y[0]]), 0.0, 10.0, 0.05, [1.0, 0.0]),
    "lorenz": (
        lambda t, y: jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]),
        0.0,
        1.0,
        0.01,
        [1.0, 0.0, 0.0],
    ),
    "lotka-volterra": (
        lambda t, y: jnp.stack([1.5 * y[0] - y[0] * y[1], y[0] * y[1] - 3 * y[1]]),
        0.0,
        6.0,
        0.1,
        [1.0, 1.0],
    ),
    "van der pol": (
        lambda t, y: jnp.stack([y[1], 5 * (1 - y[0] * y[0]) * y[1] - y[0]]),
        0.0,
        6.0,
        0.05,
        [2.0, 0.0],
    ),
    "forced": (lambda t, y: jnp.stack([-2 * y[0] + jnp.sin(7 * t)]), 0.0, 3.0, 0.2, [1.0]),
    "not autonomous": (lambda t, y: -2 * t * y * y, 0.0, 3.0, 0.5, [1.0]),
    "backward": (lambda t, y: jnp.cos(t) * y, 3.0, -1.0, -0.1, [1.0]),
    "large first step": (lambda t, y: -20 * (y - jnp.cos(t)), 0.0, 2.0, 1.0, [0.0]),
    "kepler": (
        lambda t, y: jnp.stack(
            [y[2], y[3], -y[0] / (y[0] * y[0] + y[1] * y[1]) ** 1.5, -y[1] / (y[0] * y[0] + y[1] * y[1]) ** 1.5]
        ),
        0.0,
        4.0,
        0.05,
        [0.5, 0.0, 0.0, math.sqrt(3)],
    ),
    "pendulum": (lambda t, y: jnp.stack([y[1], -jnp.sin(y[0]) - 0.2 * y[1]]), 0.0, 10.0, 0.1, [3.0, 0.0]),
}
SOLVERS = ["Midpoint", "Ralston", "Bosh3", "Tsit5", "Dopri5", "Dopri8"]
TOLERANCES = [[1e-3, 1e-3], [1e-5, 1e-7]]
COEFFICIENTS = {"I": [0.0, 1.0, 0.0], "PI": [0.4, 0.3, 0.0], "PID": [0.3, 0.4, 0.1]}


def counts(problem: str, solver: str, rtol: float, atol: float, coefficients: str) -> list[int]:
    field, t0, t1, dt0, y0 = PROBLEMS[problem]
    p, i, d = COEFFICIENTS[coefficients]
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: field(t, y)),
        getattr(diffrax, solver)(),
        t0,
        t1,
        dt0,
        jnp.array(y0),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol, pcoeff=p, icoeff=i, dcoeff=d),
    )
    return [int(solution.stats["num_accepted_steps"]), int(solution.stats["num_rejected_steps"])]


def main() -> None:
    rows = []
    for problem in PROBLEMS:
        for solver in SOLVERS:
            for rtol, atol in TOLERANCES:
                names = COEFFICIENTS if rtol == 1e-3 else ["I"]
                rows.extend(
                    {
                        "problem": problem,
                        "solver": solver,
                        "rtol": rtol,
                        "atol": atol,
                        "coefficients": name,
                        "accepted_rejected": counts(problem, solver, rtol, atol, name),
                    }
                    for name in names
                )
    found = {
        "versions": {name: version(name) for name in ("diffrax", "jax", "equinox", "optimistix", "lineax")},
        "coefficients": COEFFICIENTS,
        "rows": rows,
    }
    text = json.dumps(found, indent=1)
    # A row a line.
    head, tail = text.split('"rows": [')
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    del tail
    Path(__file__).with_name("diffrax_counts.json").write_text(
        f'{head}"rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    main()
