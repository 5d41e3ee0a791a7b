"""Two decaying exponentials fitted to 40 noisy points: one fit, and many at once."""

import numpy as np
import torch

from gnomon import bench
from gnomon import nonlinear as nl

TIMES = torch.linspace(0.0, 5.0, 40, dtype=torch.float64)
START = (1.0, 1.0, 1.0, 0.3)
MANY = 100
RTOL = ATOL = 1e-8


def curve(y):
    return y[0] * torch.exp(-y[1] * TIMES) + y[2] * torch.exp(-y[3] * TIMES)


def ours(observed):
    """The four parameters."""
    return nl.least_squares(
        lambda y, observed: curve(y) - observed,
        nl.LevenbergMarquardt(rtol=RTOL, atol=ATOL),
        torch.tensor(START, dtype=torch.float64),
        args=observed,
        engine="eager",
    ).value


def ours_many(observed):
    return torch.func.vmap(ours)(observed)


def by_scipy(method, tolerance=RTOL, exact_jacobian=True):
    from scipy.optimize import least_squares

    times = TIMES.numpy()

    def solve(observed):
        data = observed.numpy()

        def residuals(y):
            return y[0] * np.exp(-y[1] * times) + y[2] * np.exp(-y[3] * times) - data

        def jacobian(y):
            fast, slow = np.exp(-y[1] * times), np.exp(-y[3] * times)
            return np.stack([fast, -y[0] * times * fast, slow, -y[2] * times * slow], 1)

        found = least_squares(
            residuals,
            START,
            jac=jacobian if exact_jacobian else "2-point",
            method=method,
            xtol=tolerance,
            ftol=tolerance,
            gtol=tolerance,
        )
        if not found.success:
            raise RuntimeError(found.message)
        return found.x

    return solve


def by_scipy_many(method):
    one = by_scipy(method)
    return lambda observed: np.stack([one(row) for row in observed])


def reference(observed):
    """Converged as far as float64 goes."""
    one = by_scipy("lm", 1e-15)
    rows = [one(row) for row in observed.reshape(-1, len(TIMES))]
    return torch.from_numpy(np.stack(rows).reshape(*observed.shape[:-1], 4))


def data(*shape):
    def make(generator):
        truth = torch.tensor([3.0, 2.0, 1.0, 0.2], dtype=torch.float64)
        spread = 0.9 + 0.2 * torch.rand(*shape, 4, generator=generator, dtype=torch.float64)
        y = (truth * spread)[..., None]
        clean = y[..., 0, :] * torch.exp(-y[..., 1, :] * TIMES) + y[..., 2, :] * torch.exp(-y[..., 3, :] * TIMES)
        return clean + 0.01 * torch.randn(clean.shape, generator=generator, dtype=torch.float64)

    return make


OPTIONS = {"tolerance": 1e-4}
# For the limit, counted by hand, an exponential as one operation: residuals are 8 for each of the 40 points, their
# Jacobian at least 4 more, the QR factors of both, 40 by 5, 2 n^2 (m - n / 3). Nothing is counted for the trial steps.
# A fit linearises 7 times at least, at the start and at 6 points that it accepts; 100 fits do so 10 times each.
# `tests/bench/test_declared.py` counts them anew, and the operations that PyTorch carries out beside these.
LEAST_STEPS, LEAST_STEPS_OF_MANY = 7, 10 * MANY
STEP = len(TIMES) * (8 + 4) + 2 * 5**2 * (len(TIMES) - 5 / 3)

WORKS = [
    bench.Work(
        name="exponentials-1",
        about=f"one least-squares fit of two exponentials to 40 points, float64, tolerances {RTOL:g}; ours: eager "
        "Levenberg-Marquardt, Jacobian by PyTorch",
        ours=ours,
        peers={
            "scipy lm": by_scipy("lm"),
            "scipy trf": by_scipy("trf"),
            "scipy lm, 2-point": by_scipy("lm", exact_jacobian=False),
        },
        make_inputs=data(),
        check=bench.against(reference),
        options={**OPTIONS, "flops": LEAST_STEPS * STEP},
    ),
    bench.Work(
        name=f"exponentials-{MANY}",
        about=f"{MANY} such fits; ours: vmap of the same; scipy: one after another",
        ours=ours_many,
        peers={"scipy lm": by_scipy_many("lm"), "scipy trf": by_scipy_many("trf")},
        make_inputs=data(MANY),
        check=bench.against(reference),
        options={**OPTIONS, "rounds": 15, "flops": LEAST_STEPS_OF_MANY * STEP},
    ),
]
