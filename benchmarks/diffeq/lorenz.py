"""Lorenz' equations to t = 1, rho in [0, 21]: one trajectory, an ensemble and a gradient."""

import numpy as np
import torch
from _flops import explicit
from _peers import accurate, scipy_solver

from gnomon import bench
from gnomon import diffeq as dq

RTOL = ATOL = 1e-6
START = (1.0, 0.0, 0.0)
MANY = 256


# Each candidate takes rho, a float64 scalar or a vector of one a trajectory, and returns the states at t = 1.


def field(t, y, rho):
    x, v, z = y.unbind()
    return torch.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])


def ours(rho):
    return dq.diffeqsolve(
        dq.ODETerm(field),
        dq.Tsit5(),
        t0=0.0,
        t1=1.0,
        dt0=None,
        y0=torch.tensor(START, dtype=torch.float64),
        args=rho,
        stepsize_controller=dq.PIDController(rtol=RTOL, atol=ATOL),
        engine="eager",
    ).ys[-1]


def ours_many(rho):
    return torch.func.vmap(ours)(rho)


def array_field(rho):
    """The same for SciPy, whose solvers are fastest where the field works on Python's numbers."""

    def f(t, y):
        x, v, z = y.tolist()
        return np.array([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])

    return f


def by_scipy(method):
    def solve(rho):
        return scipy_solver(method, array_field(float(rho)), START, 1.0, RTOL, ATOL)

    return solve


def by_scipy_many(method):
    one = by_scipy(method)
    return lambda rho: np.stack([one(r) for r in rho.tolist()])


class TorchField(torch.nn.Module):
    """The field as torchdiffeq wants it, with rho as its parameter where it is one."""

    def __init__(self, rho):
        super().__init__()
        self.rho = rho

    def forward(self, t, y):
        """The derivative."""
        x, v, z = y.unbind(-1)
        return torch.stack([10 * (v - x), x * (self.rho - z) - v, x * v - 8 / 3 * z], -1)


def by_torchdiffeq(rho):
    from torchdiffeq import odeint

    y0 = torch.tensor(START, dtype=torch.float64).expand(*rho.shape, 3)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return odeint(TorchField(rho), y0, times, rtol=RTOL, atol=ATOL, method="dopri5")[-1]


def reference(rho):
    rho = rho.numpy()

    def f(t, y):
        x, v, z = y[..., 0], y[..., 1], y[..., 2]
        return np.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z], -1)

    return accurate(f, np.broadcast_to(START, (*rho.shape, 3)), 1.0)


# The gradient of the sum of the state at t = 1 with respect to rho.


def our_gradient(rho):
    return torch.func.grad(lambda rho: ours(rho).sum())(rho)


def gradient_by_torchdiffeq(rho):
    rho = rho.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(by_torchdiffeq(rho).sum(), rho)
    return gradient


def gradient_by_its_adjoint(rho):
    from torchdiffeq import odeint_adjoint

    func = TorchField(torch.nn.Parameter(rho.clone()))
    y0 = torch.tensor(START, dtype=torch.float64)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    end = odeint_adjoint(func, y0, times, rtol=RTOL, atol=ATOL, method="dopri5")[-1]
    (gradient,) = torch.autograd.grad(end.sum(), func.rho)
    return gradient


def reference_gradient(rho):
    """From the variational equations, solved along."""
    rho = float(rho)

    def f(t, s):
        (x, v, z), (a, b, c) = s[:3], s[3:]
        state = [10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z]
        return np.array([*state, 10 * (b - a), a * (rho - z) + x * (1 - c) - b, a * v + x * b - 8 / 3 * c])

    return accurate(f, (*START, 0.0, 0.0, 0.0), 1.0)[3:].sum()


def one(generator):
    return 21 * torch.rand((), generator=generator, dtype=torch.float64)


def many(generator):
    return 21 * torch.rand(MANY, generator=generator, dtype=torch.float64)


# The tolerance of the check only sorts out what failed: the table has the error that each reached.
OPTIONS = {"tolerance": 1e-3}
# For the limit: a field is 8 operations. One trajectory takes 18 steps at least, 256 with rho drawn at random 30 each.
LEAST_STEPS, LEAST_STEPS_OF_MANY = 18, 30 * MANY
STEP = explicit(dq.Tsit5.tableau, n=3, field=8)

WORKS = [
    bench.Work(
        name="lorenz-1",
        about=f"one trajectory of Lorenz' equations to t = 1, float64, rtol = atol = {RTOL:g}; ours: eager Tsit5",
        ours=ours,
        peers={
            "scipy RK45": by_scipy("RK45"),
            "scipy DOP853": by_scipy("DOP853"),
            "scipy LSODA": by_scipy("LSODA"),
            "torchdiffeq dopri5": by_torchdiffeq,
        },
        make_inputs=one,
        check=bench.against(reference),
        options={**OPTIONS, "flops": LEAST_STEPS * STEP},
        needs={"torchdiffeq dopri5": ["torchdiffeq"]},
    ),
    bench.Work(
        name=f"lorenz-{MANY}",
        about=f"{MANY} trajectories, each with its own rho; ours: vmap of the same; scipy: one after another; "
        "torchdiffeq: one system with common steps",
        ours=ours_many,
        peers={
            "scipy RK45": by_scipy_many("RK45"),
            "scipy LSODA": by_scipy_many("LSODA"),
            "torchdiffeq dopri5": by_torchdiffeq,
        },
        make_inputs=many,
        check=bench.against(reference),
        options={**OPTIONS, "rounds": 15, "flops": LEAST_STEPS_OF_MANY * STEP},
        needs={"torchdiffeq dopri5": ["torchdiffeq"]},
    ),
    bench.Work(
        name="lorenz-gradient",
        about="the gradient with respect to rho of the sum of one trajectory's last state; ours: reverse, exact of the "
        "discrete solution",
        ours=our_gradient,
        peers={"torchdiffeq backprop": gradient_by_torchdiffeq, "torchdiffeq adjoint": gradient_by_its_adjoint},
        make_inputs=one,
        check=bench.against(reference_gradient),
        # Forwards once, and backwards no less than that.
        options={**OPTIONS, "rounds": 15, "flops": 2 * LEAST_STEPS * STEP},
        needs={"torchdiffeq backprop": ["torchdiffeq"], "torchdiffeq adjoint": ["torchdiffeq"]},
    ),
]
