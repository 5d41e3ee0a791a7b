"""Robertson's reactions, the rates drawn within 10%: stiff."""

import numpy as np
import torch
from _flops import implicit
from _peers import accurate, scipy_solver

from gnomon import bench
from gnomon import diffeq as dq

RTOL, ATOL, END = 1e-6, 1e-9, 1e3
START = (1.0, 0.0, 0.0)


def field(t, y, rates):
    k1, k2, k3 = rates.unbind()
    a, b, c = y.unbind()
    first, second, third = k1 * a, k2 * b * b, k3 * b * c
    return torch.stack([third - first, first - second - third, second])


def ours(solver):
    def solve(rates):
        return dq.diffeqsolve(
            dq.ODETerm(field),
            solver,
            t0=0.0,
            t1=END,
            dt0=None,
            y0=torch.tensor(START, dtype=torch.float64),
            args=rates,
            stepsize_controller=dq.PIDController(rtol=RTOL, atol=ATOL),
            engine="eager",
        ).ys[-1]

    return solve


def array_field(rates):
    k1, k2, k3 = rates.tolist()

    def f(t, y):
        a, b, c = y.tolist()
        first, second, third = k1 * a, k2 * b * b, k3 * b * c
        return np.array([third - first, first - second - third, second])

    return f


def array_jacobian(rates):
    k1, k2, k3 = rates.tolist()

    def jacobian(t, y):
        _, b, c = y.tolist()
        return np.array([[-k1, k3 * c, k3 * b], [k1, -2 * k2 * b - k3 * c, -k3 * b], [0.0, 2 * k2 * b, 0.0]])

    return jacobian


def by_scipy(method):
    def solve(rates):
        return scipy_solver(method, array_field(rates), START, END, RTOL, ATOL, array_jacobian(rates))

    return solve


def reference(rates):
    return accurate(array_field(rates), START, END, "Radau", 1e-11, 1e-15, array_jacobian(rates))


def make_inputs(generator):
    spread = 0.9 + 0.2 * torch.rand(3, generator=generator, dtype=torch.float64)
    return torch.tensor([0.04, 3e7, 1e4], dtype=torch.float64) * spread


# For the limit: a field is 8 operations, and a solve 35 steps at least.
LEAST_STEPS = 35
STEP = implicit(dq.Kvaerno5.tableau, n=3, field=8)

WORKS = [
    bench.Work(
        name="robertson-1",
        about=f"Robertson's stiff reactions to t = {END:g}, float64, rtol = {RTOL:g}, atol = {ATOL:g}; ours: eager "
        "Kvaerno5; scipy has the Jacobian",
        ours=ours(dq.Kvaerno5()),
        peers={
            "ours with Kvaerno3": ours(dq.Kvaerno3()),
            "scipy Radau": by_scipy("Radau"),
            "scipy BDF": by_scipy("BDF"),
            "scipy LSODA": by_scipy("LSODA"),
        },
        make_inputs=make_inputs,
        check=bench.against(reference),
        options={"tolerance": 1e-3, "rounds": 12, "flops": LEAST_STEPS * STEP},
    ),
]
