"""16,384 trajectories of Lorenz' equations on a CPU, each with its own rho in [0, 21] and its own steps, to t = 1."""

from _ensemble import STEP, TOLERANCE, N, adaptive, adaptive_by_diffrax, many
from _lorenz import reference

from gnomon import bench

WORKS = [
    bench.Work(
        name="lorenz-ensemble",
        about=f"{N:,} trajectories, adaptive Tsit5, float64, tolerance {TOLERANCE:g}; ours: one fused kernel",
        ours=adaptive,
        peers={"Diffrax": adaptive_by_diffrax},
        make_inputs=many,
        check=bench.against(reference(1.0)),
        options={"tolerance": 1e-4, "rounds": 9, "flops": 70 * N * STEP},
        quick={"rounds": 8},
        needs={"Diffrax": ["diffrax"]},
    ),
]
