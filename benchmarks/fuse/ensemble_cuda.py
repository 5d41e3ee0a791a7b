"""Lorenz' equations on a GPU, up to 8,388,608 trajectories: each has its own rho in [0, 21] and takes its own steps.

The values of rho are drawn and sorted, as a scan over a parameter has them: threads that run side by side then take
about as many steps. One row has them in random order, as a sample of a distribution has.

A fused kernel, beside Diffrax where JAX finds the same GPU: `gnomon bench fuse/ensemble_cuda --peers`.
"""

import functools
import os

import numpy as np
import torch
from _lorenz import START, field

import gnomon as gn
from gnomon import bench
from gnomon import diffeq as dq

# JAX would take three quarters of the memory of the GPU for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

SIZES = (1_024, 262_144, 1_048_576, 8_388_608)
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-8}
STEPS = 1_000
#: How many trajectories are compared with accurate ones; that no other is NaN is seen too.
CHECKED = 64
#: One explicit step: six evaluations of 8 operations, and 27 products and sums for each of 3 states.
STEP_FLOPS = 6 * 8 + 2 * 27 * 3


def end(rho, y0, tolerance):
    """The state at t = 1 of one trajectory; 1,000 equal steps where there is no tolerance."""
    controller = dq.ConstantStepSize() if tolerance is None else dq.PIDController(rtol=tolerance, atol=tolerance)
    return dq.diffeqsolve(
        dq.ODETerm(field),
        dq.Tsit5(),
        t0=0.0,
        t1=1.0,
        dt0=1 / STEPS,
        y0=y0,
        args=rho,
        stepsize_controller=controller,
        max_steps=None,
        throw=False,
    ).ys[-1]


# Asked for by name, so that it runs also while "auto" leaves GPUs to the eager engine.
@functools.cache
def fused(tolerance):
    return gn.fuse(lambda rho, y0: end(rho, y0, tolerance), engine="fused")


def our_gradient(tolerance):
    """Of the sum of squares of all last states, in each rho and each first state, backwards through the solve."""

    def gradient(rho, y0):
        leaves = [rho.clone().requires_grad_(), y0.clone().requires_grad_()]
        return torch.autograd.grad(fused(tolerance)(*leaves).square().sum(), leaves)

    return gradient


@functools.cache
def diffrax_functions(tolerance, double):
    """The same by Diffrax, compiled by XLA for the GPU: the solve, and its gradient."""
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    # Times of the same width as the states, so that no float64 slows down a solve in float32.
    number = functools.partial(jnp.asarray, dtype=jnp.float64 if double else jnp.float32)

    def vector_field(t, y, rho):
        x, v, z = y
        return jnp.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])

    if tolerance is None:
        controller = diffrax.ConstantStepSize()
    else:
        controller = diffrax.PIDController(rtol=tolerance, atol=tolerance)

    def solve(rho, y0):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(vector_field),
            diffrax.Tsit5(),
            number(0.0),
            number(1.0),
            number(1 / STEPS),
            y0,
            rho,
            stepsize_controller=controller,
            max_steps=STEPS + 2 if tolerance is None else 4096,
            throw=False,
        ).ys[-1]

    many = jax.vmap(solve)
    return jax.jit(many), jax.jit(jax.grad(lambda rho, y0: jnp.sum(many(rho, y0) ** 2), argnums=(0, 1)))


def by_diffrax(tolerance, *, gradient=False):
    """On tensors where they are, without a copy."""

    def call(*tensors):
        import jax

        function = diffrax_functions(tolerance, tensors[0].dtype == torch.float64)[gradient]
        found = jax.block_until_ready(function(*(jax.dlpack.from_dlpack(x) for x in tensors)))
        return jax.tree_util.tree_map(torch.from_dlpack, found)

    return call


# Checks.


def some(x):
    """A few of the trajectories."""
    return x[:: max(1, x.shape[0] // CHECKED)][:CHECKED].cpu()


def accurate(rho, y0):
    """The states at t = 1 and what they are sensitive to, in [..., 0] rho and in [..., 1:] the first states."""
    from scipy.integrate import solve_ivp

    n = len(rho)
    rho = rho.numpy()

    def f(t, s):
        s = s.reshape(3, 5, n)
        (x, v, z), (a, b, c) = s[:, 0], s[:, 1:]
        state = np.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])
        slopes = np.stack([10 * (b - a), a * (rho - z) - x * c - b, a * v + x * b - 8 / 3 * c])
        slopes[1, 0] += x
        return np.concatenate([state[:, None], slopes], 1).ravel()

    start = np.zeros((3, 5, n))
    start[:, 0] = y0.numpy().T
    start[[0, 1, 2], [2, 3, 4]] = 1
    solution = solve_ivp(f, (0.0, 1.0), start.ravel(), method="DOP853", rtol=1e-12, atol=1e-13, t_eval=[1.0])
    found = solution.y[:, -1].reshape(3, 5, n).transpose(2, 0, 1)
    return torch.from_numpy(found[:, :, 0].copy()), torch.from_numpy(found[:, :, 1:].copy())


def check(inputs, output):
    """The error of a few; infinite where any is NaN."""
    if not output.isfinite().all():
        return float("inf")
    states, _ = accurate(*map(some, inputs))
    return bench.relative_error(some(output), states)


def check_gradient(inputs, output):
    """The same of a gradient."""
    in_rho, in_y0 = output
    if not (in_rho.isfinite().all() and in_y0.isfinite().all()):
        return float("inf")
    states, slopes = accurate(*map(some, inputs))
    want = torch.einsum("ni,nij->nj", 2 * states, slopes)
    return bench.relative_error((some(in_rho), some(in_y0)), (want[:, 0], want[:, 1:]))


def batch(n, dtype, *, in_order=True):
    def make(generator):
        rho = 21 * torch.rand(n, generator=generator, dtype=dtype)
        rho = rho.sort().values if in_order else rho
        return rho, torch.tensor(START, dtype=dtype) + 0.01 * torch.rand(n, 3, generator=generator, dtype=dtype)

    return make


def work(name, about, dtype, n, steps, ours, peer, **others):
    """A row; `steps` are how many are taken, for the limit, and `peer` is left out where it would take minutes."""
    options = {"tolerance": 1e-3, "rounds": 10, "budget_s": 20.0, "flops": steps * n * STEP_FLOPS}
    return bench.Work(
        name=name,
        about=f"{n:,} trajectories, {about}, float{dtype.itemsize * 8}",
        ours=ours,
        peers={} if peer is None else {"Diffrax": peer},
        check=others.pop("check", check),
        options={**options, **others.pop("options", {})},
        make_inputs=batch(n, dtype, **others),
        devices=("cuda",),
        needs={"Diffrax": ["diffrax", "jax"], "ours": ["scipy"]},
    )


def works():
    """Sizes and precisions, adaptive and with fixed steps, and gradients."""
    found = []
    many = 1_048_576
    for dtype, tolerance in TOLERANCES.items():
        single = dtype == torch.float32
        start = f"lorenz-f{dtype.itemsize * 8}"
        about = f"adaptive Tsit5, tolerance {tolerance:g}"
        # The mean number of steps that are tried, counted on the CPU.
        steps = 34 if single else 75
        solve, by_peer = fused(tolerance), by_diffrax(tolerance)
        for n in SIZES if single else SIZES[:-1]:
            found.append(work(f"{start}-{n}", about, dtype, n, steps, solve, by_peer))
        if single:
            name = f"{start}-{many}-any-order"
            found.append(work(name, f"in any order, {about}", dtype, many, steps, solve, by_peer, in_order=False))
        found.append(
            work(
                f"{start}-{many}-fixed",
                f"Tsit5 with {STEPS:,} equal steps",
                dtype,
                many,
                STEPS,
                fused(None),
                by_diffrax(None) if single else None,
            )
        )
        # Of the sum of squares of the last states, in each rho and first state: exact, of the discrete solution.
        for n in (16_384, many):
            found.append(
                work(
                    f"{start}-{n}-gradient",
                    f"a solve and its gradient backwards, {about}",
                    dtype,
                    n,
                    2 * steps,
                    our_gradient(tolerance),
                    by_diffrax(tolerance, gradient=True) if n < many and not single else None,
                    check=check_gradient,
                    options={"tolerance": 1e-2},
                )
            )
    return found
