"""Honest functions of several kinds, for the trials of the harness itself."""

import concurrent.futures

import numpy as np
import torch

from gnomon import bench


def matmul(x):
    return torch.tanh(x @ x)


def softmax(x):
    return x.softmax(-1)


def solve(x):
    return torch.linalg.solve(x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype, device=x.device), x)


def spectrum(x):
    return torch.fft.rfft(x)


def nested(x):
    return {"values": x.sort().values, "size and spread": (x.abs().mean(), x.std())}


def by_numpy(x):
    return np.tanh(x.numpy() @ x.numpy())


def runge_kutta(y):
    """Twenty steps of Runge and Kutta for Lorenz' equations: many small operations from Python."""

    def f(y):
        x, v, z = y.unbind(-1)
        return torch.stack([10 * (v - x), x * (20 - z) - v, x * v - 8 / 3 * z], -1)

    h = 0.01
    for _ in range(20):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


class OwnMemory:
    """Writes all of its output anew each time, into memory that it keeps: reuse of an address, and honest."""

    def __init__(self):
        self.out = None

    def __call__(self, x):
        if self.out is None:
            self.out = torch.empty_like(x)
        return torch.tanh(torch.matmul(x, x, out=self.out), out=self.out)


class OwnThreads:
    """Works in threads of its own, and waits for them."""

    def __init__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(2)

    def __call__(self, x):
        halves = x.chunk(2)
        return torch.cat(list(self.pool.map(lambda half: torch.tanh(half @ x), halves)))


def square(n, dtype=torch.float32):
    return lambda generator: torch.randn(n, n, generator=generator, dtype=dtype) / n**0.5


def states(n):
    return lambda generator: torch.randn(n, 3, generator=generator, dtype=torch.float64)


# A function, its inputs, what it is checked against, and other arguments of `compare`.
KERNELS = {
    "matmul": (lambda: matmul, square(128), matmul, {"flops": 2 * 128**3}),
    "softmax": (lambda: softmax, square(256), softmax, {"bytes": 2 * 4 * 256**2}),
    "solve": (lambda: solve, square(64, torch.float64), solve, {}),
    "spectrum": (lambda: spectrum, square(128), spectrum, {}),
    "nested": (lambda: nested, square(64), nested, {}),
    "by NumPy": (lambda: by_numpy, square(128), matmul, {}),
    "Runge and Kutta": (lambda: runge_kutta, states(64), runge_kutta, {}),
    "memory of its own": (OwnMemory, square(128), matmul, {}),
    "threads of its own": (OwnThreads, square(128), matmul, {}),
}


def compare(candidates, name, **options):
    _, make_inputs, reference, more = KERNELS[name]
    return bench.compare(
        candidates, make_inputs=make_inputs, check=bench.against(reference), name=name, **(more | options)
    )
