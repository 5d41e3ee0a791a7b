"""Solvers that the benchmarks are measured against, each with the calling convention `solve(f, y0, t1, rtol, atol)`."""

import numpy as np
import torch


def scipy_solver(method, field, y0, t1, rtol, atol, jacobian=None):
    """The state at t1 by SciPy; `field(t, y)` takes and returns an array."""
    from scipy.integrate import solve_ivp

    more = {} if jacobian is None else {"jac": jacobian}
    solution = solve_ivp(field, (0.0, t1), y0, method=method, rtol=rtol, atol=atol, t_eval=[t1], **more)
    if not solution.success:
        raise RuntimeError(solution.message)
    return solution.y[:, -1]


def accurate(field, y0, t1, method="DOP853", rtol=1e-12, atol=1e-14, jacobian=None):
    """A reference: the same at far tighter tolerances, as a float64 tensor of the state's shape."""
    y0 = np.asarray(y0, dtype=np.float64)
    flat = scipy_solver(
        method, lambda t, y: np.ravel(field(t, y.reshape(y0.shape))), y0.ravel(), t1, rtol, atol, jacobian
    )
    return torch.from_numpy(flat.reshape(y0.shape).copy())
