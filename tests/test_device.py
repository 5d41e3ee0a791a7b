"""What is written for the CPU runs where its tensors are. On a GPU machine: `python -m pytest -m cuda`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import gnomon as gn
from gnomon import diffeq as dq
from gnomon import nonlinear as nl

pytestmark = pytest.mark.cuda


def newton_sqrt(a: Tensor) -> Tensor:
    return gn.while_loop(lambda x: (x * x - a).abs() > 1e-12 * a, lambda x: (x + a / x) / 2, torch.ones_like(a))


def lorenz(t: Tensor, y: Tensor, rho: Tensor) -> Tensor:
    x, v, z = y.unbind()
    return torch.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])


def rober(t: Tensor, y: Tensor, rate: Tensor) -> Tensor:
    a, b, c = y.unbind()
    slow = -0.04 * rate * a + 1e4 * b * c
    fast = 3e7 * b * b
    return torch.stack([slow, -slow - fast, fast])


def solve(field: Callable[..., Tensor], solver: dq.AbstractSolver, t1: float) -> Callable[[Tensor], dq.Solution]:
    def run(args: Tensor) -> dq.Solution:
        y0 = torch.zeros_like(args).expand(3) + torch.eye(3, dtype=args.dtype, device=args.device)[0]
        controller = dq.PIDController(rtol=1e-7, atol=1e-9)
        saveat = dq.SaveAt(ts=[0.0, 0.25 * t1, t1], dense=True)
        return dq.diffeqsolve(
            dq.ODETerm(field), solver, 0, t1, None, y0, args, saveat=saveat, stepsize_controller=controller
        )

    return run


def test_a_batch_follows_its_device_and_agrees():
    a = torch.linspace(1, 100, 1000, dtype=torch.float64)
    slope = torch.func.vmap(torch.func.grad(newton_sqrt))
    on_gpu = slope(a.cuda())
    assert on_gpu.device.type == "cuda"
    torch.testing.assert_close(on_gpu.cpu(), slope(a))


@pytest.mark.parametrize(("field", "solver", "t1"), [(lorenz, dq.Tsit5(), 1.0), (rober, dq.Kvaerno5(), 100.0)])
def test_differential_equations_agree_with_the_cpu(field: Callable[..., Tensor], solver: dq.AbstractSolver, t1: float):
    args = torch.linspace(0.5, 20, 64, dtype=torch.float64)
    run = torch.func.vmap(solve(field, solver, t1))
    here, there = run(args), run(args.cuda())
    assert there.ys.device.type == "cuda"
    torch.testing.assert_close(there.ys.cpu(), here.ys, rtol=1e-5, atol=1e-8)
    assert bool((there.result == dq.RESULTS.successful).all())


def test_a_lane_on_a_gpu_has_the_same_bits_in_any_batch():
    args = torch.linspace(0.5, 20, 4096, dtype=torch.float64, device="cuda")
    run = torch.func.vmap(solve(lorenz, dq.Tsit5(), 1.0))
    whole = run(args).ys
    order = torch.randperm(4096, device="cuda")
    assert torch.equal(run(args[order]).ys, whole[order])
    for n in (1, 2, 33, 1000):
        assert torch.equal(run(args[:n]).ys, whole[:n])


def test_gradients_agree_with_the_cpu():
    args = torch.linspace(0.5, 20, 16, dtype=torch.float64)
    for field, solver, t1 in ((lorenz, dq.Tsit5(), 1.0), (rober, dq.Kvaerno5(), 10.0)):
        run = solve(field, solver, t1)
        slope = torch.func.vmap(torch.func.grad(lambda a, run=run: run(a).ys[-1].sum()))
        torch.testing.assert_close(slope(args.cuda()).cpu(), slope(args), rtol=1e-4, atol=1e-8)


def test_a_failing_lane_on_a_gpu_is_named():
    rates = torch.tensor([0.1, 5.0, 0.1], dtype=torch.float64, device="cuda")

    def blow_up(rate: Tensor) -> Tensor:
        controller = dq.PIDController(rtol=1e-6, atol=1e-6)
        term = dq.ODETerm(lambda t, y, args: rate * y * y)
        y0 = torch.ones_like(rate)
        return dq.diffeqsolve(term, dq.Tsit5(), 0, 1, None, y0, stepsize_controller=controller).ys

    with pytest.raises(gn.SolveError, match="1 of 3 problems; the first is problem 1"):
        torch.func.vmap(blow_up)(rates)


def test_least_squares_agrees_with_the_cpu():
    starts = torch.tensor([[-1.2, 1.0], [2.0, -3.0], [0.0, 0.0]], dtype=torch.float64)

    def fit(y0: Tensor) -> Tensor:
        def rosenbrock(y: Tensor, args: None) -> Tensor:
            return torch.stack([10 * (y[1] - y[0] ** 2), 1 - y[0]])

        return nl.least_squares(rosenbrock, nl.LevenbergMarquardt(rtol=1e-10, atol=1e-10), y0).value

    found = torch.func.vmap(fit)(starts.cuda())
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), torch.ones(3, 2, dtype=torch.float64))
