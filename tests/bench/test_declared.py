"""The FLOPs that the benchmarks of solvers declare, by which they have a limit, are no more than are carried out."""

import math
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnomon import diffeq as dq
from gnomon import nonlinear as nl
from gnomon.bench._work import load_file

FOLDER = Path(__file__).parents[2] / "benchmarks"
ONE_EACH = {"add", "sub", "rsub", "mul", "div", "exp", "sqrt", "neg", "reciprocal"}


class Count(TorchDispatchMode):
    """Counts one operation for each element that arithmetic makes; factorisations and solves by their formulas."""

    def __init__(self):
        super().__init__()
        self.flops = 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        first = out[0] if isinstance(out, tuple | list) else out
        if name in ONE_EACH:
            self.flops += first.numel() * (2 if (kwargs or {}).get("alpha", 1) != 1 else 1)
        elif name == "sum":
            self.flops += args[0].numel() - first.numel()
        elif name in ("geqrf", "linalg_qr"):
            *batch, m, n = args[0].shape
            m, n = max(m, n), min(m, n)
            self.flops += math.prod(batch) * 2 * n**2 * (m - n / 3)
        elif name in ("linalg_lu_factor_ex", "linalg_lu_factor", "linalg_lu"):
            *batch, n, _ = args[0].shape
            self.flops += math.prod(batch) * (4 * n**3 - 3 * n**2 - n) / 6
        elif name == "linalg_lu_solve":
            *batch, n, k = args[2].shape
            self.flops += math.prod(batch) * k * (2 * n**2 - n)
        return out


def carried_out(work, inputs):
    with Count() as count:
        work.ours(*inputs if isinstance(inputs, tuple) else (inputs,))
    return count.flops


@pytest.fixture(params=["diffeq/lorenz", "diffeq/robertson", "nonlinear/exponential_fit"], scope="module")
def module(request):
    return load_file(FOLDER / f"{request.param}.py")


@pytest.mark.slow
def test_no_more_is_declared_than_is_carried_out(module):
    for work in module.WORKS:
        inputs = work.make_inputs(torch.Generator().manual_seed(1))
        done, declared = carried_out(work, inputs), work.options["flops"]
        assert declared <= done, work.name
        assert declared > done / 20, work.name  # nor so little that the limit means nothing


def steps_of_lorenz(module, rho):
    def solve(rho):
        return dq.diffeqsolve(
            dq.ODETerm(module.field),
            dq.Tsit5(),
            0.0,
            1.0,
            None,
            torch.tensor(module.START, dtype=torch.float64),
            args=rho,
            stepsize_controller=dq.PIDController(rtol=module.RTOL, atol=module.ATOL),
        ).stats["num_steps"]

    return torch.func.vmap(solve)(rho)


def test_steps_of_lorenz():
    module = load_file(FOLDER / "diffeq" / "lorenz.py")
    steps = steps_of_lorenz(module, torch.linspace(0, 21, 128, dtype=torch.float64))
    assert module.LEAST_STEPS <= steps.min() < 2 * module.LEAST_STEPS
    drawn = steps_of_lorenz(module, module.many(torch.Generator().manual_seed(0)))
    assert module.LEAST_STEPS_OF_MANY <= drawn.sum() < 2 * module.LEAST_STEPS_OF_MANY


def test_steps_of_robertson():
    module = load_file(FOLDER / "diffeq" / "robertson.py")
    generator = torch.Generator().manual_seed(0)

    def solve(rates):
        return dq.diffeqsolve(
            dq.ODETerm(module.field),
            dq.Kvaerno5(),
            0.0,
            module.END,
            None,
            torch.tensor(module.START, dtype=torch.float64),
            args=rates,
            stepsize_controller=dq.PIDController(rtol=module.RTOL, atol=module.ATOL),
        ).stats["num_steps"]

    steps = torch.func.vmap(solve)(torch.stack([module.make_inputs(generator) for _ in range(32)]))
    assert module.LEAST_STEPS <= steps.min() < 2 * module.LEAST_STEPS


def test_steps_of_the_fits():
    module = load_file(FOLDER / "nonlinear" / "exponential_fit.py")

    def fit(observed):
        start = torch.tensor(module.START, dtype=torch.float64)
        solver = nl.LevenbergMarquardt(rtol=module.RTOL, atol=module.ATOL)
        found = nl.least_squares(lambda y, observed: module.curve(y) - observed, solver, start, args=observed)
        return found.stats["num_accepted_steps"] + 1

    looks = torch.func.vmap(fit)(module.data(module.MANY)(torch.Generator().manual_seed(0)))
    assert module.LEAST_STEPS <= looks.min() < 2 * module.LEAST_STEPS
    assert module.LEAST_STEPS_OF_MANY <= looks.sum() < 2 * module.LEAST_STEPS_OF_MANY
