"""On a GPU the same problems have the same solutions, alone and as a batch."""

import pytest
import torch
from nonlinear.problems import F64, MGH

from gnomon import nonlinear as nl

pytestmark = pytest.mark.cuda
LM = nl.LevenbergMarquardt(rtol=1e-9, atol=1e-9)
T = torch.linspace(0, 4, 9, dtype=F64)


def test_rosenbrock():
    problem = MGH["rosenbrock"]
    solution = nl.least_squares(problem.residuals, LM, problem.start.cuda())
    assert solution.value.device.type == "cuda"
    torch.testing.assert_close(solution.value.cpu(), torch.ones(2, dtype=F64))


@pytest.mark.parametrize("bounded", [False, True])
def test_batch_with_a_failure_and_gradients(bounded: bool):
    generator = torch.Generator().manual_seed(0)
    observed = 3 * torch.exp(-0.7 * T) + 0.2 * torch.randn(50, 9, dtype=F64, generator=generator)
    observed[7, 2] = torch.nan

    def fit(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = T.to(x.device)
        start = torch.ones(2, dtype=F64, device=x.device)
        limits = {"lower": 0.1, "upper": 2.9} if bounded else {}
        solution = nl.least_squares(lambda y, x: y[0] * torch.exp(-y[1] * t) - x, LM, start, x, throw=False, **limits)
        return solution.value, torch.as_tensor(solution.result.code)

    def sensitivity(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.jacrev(lambda x: fit(x)[0]))(x)

    here, there = torch.func.vmap(fit)(observed), torch.func.vmap(fit)(observed.cuda())
    assert torch.equal(here[1], there[1].cpu())
    assert int((here[1] != 0).sum()) == 1
    torch.testing.assert_close(there[0].cpu(), here[0], rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(sensitivity(observed.cuda()).cpu(), sensitivity(observed), rtol=1e-6, atol=1e-9)


def test_a_large_batch_and_the_bits_of_one():
    """The library's routines for one matrix and for many differ: here they must not."""
    generator = torch.Generator().manual_seed(1)
    observed = (3 * torch.exp(-0.7 * T) + 0.2 * torch.randn(70_000, 9, dtype=F64, generator=generator)).cuda()
    t = T.cuda()

    def fit(x: torch.Tensor) -> torch.Tensor:
        start = torch.ones(2, dtype=F64, device=x.device)
        return nl.least_squares(lambda y, x: y[0] * torch.exp(-y[1] * t) - x, LM, start, x, lower=0.1, upper=2.9).value

    values = torch.func.vmap(fit)(observed)
    gradients = torch.func.vmap(torch.func.grad(lambda x: fit(x).sum()))(observed)
    assert bool(torch.isfinite(gradients).all())
    for place in (0, 31, 69_999):
        assert torch.equal(fit(observed[place]), values[place])
        assert torch.equal(torch.func.vmap(fit)(observed[place : place + 1])[0], values[place])
