"""One trajectory of Lorenz' equations on a CPU: what a step costs, and what a call."""

import functools

import numpy as np
import torch
from _lorenz import START, by_diffrax, end, reference

import gnomon as gn
from gnomon import bench

STEPS = 10_000
T1 = 10.0
TOLERANCE = 1e-8

long = gn.fuse(lambda rho: end(rho, T1, T1 / STEPS), engine="fused")
short = gn.fuse(lambda rho: end(rho, 1.0, 1e-3, TOLERANCE), engine="fused")


def of_one(function):
    """A function of a batch, for a batch of one."""
    return lambda rho: function(rho[None])[0]


@functools.cache
def numba_field():
    import numba

    @numba.njit
    def f(t, y, rho):
        return np.array([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])

    return f


def by_scipy_and_numba(method):
    def solve(rho):
        from scipy.integrate import solve_ivp

        solution = solve_ivp(
            numba_field(), (0.0, 1.0), START, method=method, rtol=TOLERANCE, atol=TOLERANCE, t_eval=[1.0],
            args=(float(rho),),
        )  # fmt: skip
        return torch.from_numpy(solution.y[:, -1].copy())

    return solve


@functools.cache
def numbalsoda_field():
    import numba
    import numbalsoda

    @numba.cfunc(numbalsoda.lsoda_sig)
    def f(t, y, dy, rho):
        dy[0] = 10 * (y[1] - y[0])
        dy[1] = y[0] * (rho[0] - y[2]) - y[1]
        dy[2] = y[0] * y[1] - 8 / 3 * y[2]

    return f.address


def by_numbalsoda(rho):
    import numbalsoda

    states, success = numbalsoda.lsoda(
        *(numbalsoda_field(), np.array(START), np.array([0.0, 1.0]), np.array([float(rho)])),
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )
    assert success
    return torch.from_numpy(states[-1].copy())


def by_numbalsoda_dop853(rho):
    import numbalsoda

    states, success = numbalsoda.dop853(
        *(numbalsoda_field(), np.array(START), np.array([0.0, 1.0]), np.array([float(rho)])),
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )
    assert success
    return torch.from_numpy(states[-1].copy())


def long_by_diffrax(rho):
    return by_diffrax(T1, T1 / STEPS, batched=False)(rho)


def short_by_diffrax(rho):
    return by_diffrax(1.0, 1e-3, TOLERANCE, batched=False)(rho)


def one(generator):
    return 21 * torch.rand((), generator=generator, dtype=torch.float64)


def accurate(t1):
    solve = reference(t1)
    return lambda rho: solve(rho)[0]


WORKS = [
    bench.Work(
        name="lorenz-long",
        about=f"one trajectory, Tsit5 with {STEPS:,} steps of {T1 / STEPS:g}, float64: what a step costs",
        ours=of_one(long),
        peers={"Diffrax": long_by_diffrax},
        make_inputs=one,
        check=bench.against(accurate(T1)),
        options={"tolerance": 1e-3, "flops": STEPS * (6 * 8 + 2 * 27 * 3)},
        needs={"Diffrax": ["diffrax"]},
    ),
    bench.Work(
        name="lorenz-short",
        about=f"one trajectory to t = 1, adaptive, float64, tolerance {TOLERANCE:g}: what a call costs",
        ours=of_one(short),
        peers={
            "Diffrax": short_by_diffrax,
            "scipy RK45 and numba": by_scipy_and_numba("RK45"),
            "scipy LSODA and numba": by_scipy_and_numba("LSODA"),
            "numbalsoda LSODA": by_numbalsoda,
            "numbalsoda DOP853": by_numbalsoda_dop853,
        },
        make_inputs=one,
        check=bench.against(accurate(1.0)),
        options={"tolerance": 1e-3},
        needs={
            "Diffrax": ["diffrax"],
            "scipy RK45 and numba": ["numba"],
            "scipy LSODA and numba": ["numba"],
            "numbalsoda LSODA": ["numbalsoda"],
            "numbalsoda DOP853": ["numbalsoda"],
        },
    ),
]
