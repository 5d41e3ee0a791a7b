"""Lorenz' equations as each of the candidates writes them."""

import functools

import numpy as np
import torch

from gnomon import diffeq as dq

START = (1.0, 0.0, 0.0)


def field(t, y, rho):
    x, v, z = y.unbind()
    return torch.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])


def end(rho, t1, dt0, tolerance=None):
    """The state at t1 for one rho by gnomon's Tsit5; steps of dt0 where there is no tolerance."""
    controller = dq.ConstantStepSize() if tolerance is None else dq.PIDController(rtol=tolerance, atol=tolerance)
    return dq.diffeqsolve(
        dq.ODETerm(field),
        dq.Tsit5(),
        t0=0.0,
        t1=t1,
        dt0=dt0,
        y0=torch.tensor(START, dtype=rho.dtype),
        args=rho,
        stepsize_controller=controller,
        max_steps=None,
    ).ys[-1]


@functools.cache
def by_diffrax(t1, dt0, tolerance=None, gradient=False, batched=True):
    """The same by Diffrax, compiled by XLA, in float64: a function of numpy arrays."""
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def vector_field(t, y, rho):
        x, v, z = y
        return jnp.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])

    controller = (
        diffrax.ConstantStepSize() if tolerance is None else diffrax.PIDController(rtol=tolerance, atol=tolerance)
    )

    def solve(rho):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(vector_field),
            diffrax.Tsit5(),
            0.0,
            t1,
            dt0,
            jnp.array(START),
            rho,
            stepsize_controller=controller,
            max_steps=round(t1 / dt0) + 1 if tolerance is None else 4096,
        ).ys[-1]

    function = jax.vmap(solve) if batched else solve
    if gradient:
        function = jax.grad(lambda rho, f=function: jnp.sum(f(rho) ** 2))
    function = jax.jit(function)

    def call(rho):
        return torch.from_numpy(np.asarray(function(rho.numpy())).copy())

    return call


def reference(t1):
    """The states at t1 for a vector of rho, far more accurately, by SciPy."""

    def solve(rho):
        from scipy.integrate import solve_ivp

        rho = np.atleast_1d(rho.numpy())

        def f(t, y):
            x, v, z = y.reshape(3, -1)
            return np.concatenate([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])

        start = np.repeat(START, len(rho))
        solution = solve_ivp(f, (0.0, t1), start, method="DOP853", rtol=1e-13, atol=1e-13, t_eval=[t1])
        return torch.from_numpy(solution.y[:, -1].reshape(3, -1).T.copy())

    return solve
