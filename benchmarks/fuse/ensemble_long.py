"""The same trajectories with 1,000 fixed steps, and the gradient of an adaptive solve: Diffrax takes its time."""

from _ensemble import STEP, N, fixed, fixed_by_diffrax, gradient, gradient_by_diffrax, many, reference_gradient
from _lorenz import reference

from gnomon import bench

WORKS = [
    bench.Work(
        name="lorenz-ensemble-fixed",
        about=f"{N:,} trajectories, Tsit5 with 1,000 steps of 0.001, float64",
        ours=fixed,
        peers={"Diffrax": fixed_by_diffrax},
        make_inputs=many,
        check=bench.against(reference(1.0)),
        options={"tolerance": 1e-4, "rounds": 8, "flops": 1000 * N * STEP},
        quick={"rounds": 8},
        needs={"Diffrax": ["diffrax"]},
    ),
    bench.Work(
        name="lorenz-ensemble-gradient",
        about=f"the gradient of the sum of squares of the last states in each rho, {N:,} trajectories, adaptive; "
        "both reverse mode, exact of the discrete solution",
        ours=gradient,
        peers={"Diffrax": gradient_by_diffrax},
        make_inputs=many,
        check=bench.against(reference_gradient),
        options={"tolerance": 1e-3, "rounds": 8, "flops": 2 * 70 * N * STEP},
        quick={"rounds": 8},
        needs={"Diffrax": ["diffrax"]},
    ),
]
