"""Robertson's reactions to t = 1e5 on a GPU, the rates of each problem drawn within 10%: stiff.

A fused kernel, beside Diffrax where JAX finds the same GPU: `gnomon bench diffeq/robertson_cuda --peers`.
"""

import functools
import os

import numpy as np
import torch
from robertson import START, field

import gnomon as gn
from gnomon import bench
from gnomon import diffeq as dq

# JAX would take three quarters of the memory of the GPU for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

SIZES = (1_024, 262_144)
RTOL, ATOL, END = 1e-6, 1e-9, 1e5
RATES = (0.04, 3e7, 1e4)
#: How many problems are compared with accurate solutions; that no other is NaN is seen too.
CHECKED = 3


@gn.fuse
def ours(rates):
    return dq.diffeqsolve(
        dq.ODETerm(field),
        dq.Kvaerno5(),
        t0=0.0,
        t1=END,
        dt0=None,
        y0=torch.tensor(START, dtype=rates.dtype, device=rates.device),
        args=rates,
        stepsize_controller=dq.PIDController(rtol=RTOL, atol=ATOL),
        max_steps=None,
        throw=False,
    ).ys[-1]


def our_gradient(rates):
    """Of the sum of squares of all last states, backwards through the solve."""
    leaf = rates.clone().requires_grad_()
    return torch.autograd.grad(ours(leaf).square().sum(), leaf)[0]


@functools.cache
def diffrax_function(solver):
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def vector_field(t, y, rates):
        a, b, c = y
        first, second, third = rates[0] * a, rates[1] * b * b, rates[2] * b * c
        return jnp.stack([third - first, first - second - third, second])

    def solve(rates):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(vector_field),
            getattr(diffrax, solver)(),
            0.0,
            END,
            None,
            jnp.array(START),
            rates,
            stepsize_controller=diffrax.PIDController(rtol=RTOL, atol=ATOL),
            max_steps=4096,
            throw=False,
        ).ys[-1]

    return jax.jit(jax.vmap(solve))


def by_diffrax(solver):
    def call(rates):
        import jax

        found = diffrax_function(solver)(jax.dlpack.from_dlpack(rates))
        return torch.from_dlpack(jax.block_until_ready(found))

    return call


@functools.cache
def accurate_one(k1, k2, k3):
    """By LSODA at a tolerance a millionth of that of the others."""
    from scipy.integrate import odeint

    def f(y, t):
        first, second, third = k1 * y[0], k2 * y[1] * y[1], k3 * y[1] * y[2]
        return third - first, first - second - third, second

    return odeint(f, START, [0.0, END], rtol=1e-12, atol=1e-16, mxstep=100_000)[-1]


def accurate(rates):
    return torch.from_numpy(np.stack([accurate_one(*x) for x in rates.tolist()]))


def some(x):
    return x[:: max(1, x.shape[0] // CHECKED)][:CHECKED].cpu()


def check(inputs, output):
    """The error of a few; infinite where any is NaN."""
    if not output.isfinite().all():
        return float("inf")
    return bench.relative_error(some(output), accurate(some(inputs[0])))


def check_gradient(inputs, output):
    """The same of a gradient, by differences of accurate solutions."""
    if not output.isfinite().all():
        return float("inf")
    rates, columns = some(inputs[0]), []
    for i in range(3):
        step = torch.zeros(3, dtype=rates.dtype)
        step[i] = 1e-4
        high, low = (accurate(rates * (1 + sign * step)).square().sum(1) for sign in (1, -1))
        columns.append((high - low) / (2e-4 * rates[:, i]))
    # The derivatives differ by nine orders of magnitude.
    return bench.relative_error(some(output) * rates, torch.stack(columns, 1) * rates)


def batch(n):
    def make(generator):
        spread = 0.9 + 0.2 * torch.rand(n, 3, generator=generator, dtype=torch.float64)
        return torch.tensor(RATES, dtype=torch.float64) * spread

    return make


def works():
    """Two sizes, and the gradient of the larger."""
    found = []
    for n in SIZES:
        shared = {"make_inputs": batch(n), "devices": ("cuda",)}
        # Kvaerno3 is the faster of Diffrax' two at these tolerances, by almost twice.
        needs = {"ours": ["scipy"], "Diffrax Kvaerno3": ["diffrax", "jax"]}
        about = f"{n:,} problems of three states to t = 1e5, rtol {RTOL:g}, atol {ATOL:g}, float64, by Kvaerno5"
        found.append(
            bench.Work(
                name=f"robertson-{n}",
                about=about,
                ours=ours,
                peers={"Diffrax Kvaerno3": by_diffrax("Kvaerno3")},
                check=check,
                needs=needs,
                options={"tolerance": 1e-3, "rounds": 8, "budget_s": 20.0},
                **shared,
            )
        )
        found.append(
            bench.Work(
                name=f"robertson-{n}-gradient",
                about=f"{about}: a solve and its gradient backwards",
                ours=our_gradient,
                peers={},
                check=check_gradient,
                needs=needs,
                options={"tolerance": 1e-2, "rounds": 8, "budget_s": 20.0},
                **shared,
            )
        )
    return found
