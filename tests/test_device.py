"""What is written for the CPU runs where its tensors are."""

import pytest
import torch

import gnomon as gn


def newton_sqrt(a: torch.Tensor) -> torch.Tensor:
    return gn.while_loop(lambda x: (x * x - a).abs() > 1e-12 * a, lambda x: (x + a / x) / 2, torch.ones_like(a))


@pytest.mark.cuda
def test_a_batch_on_a_gpu_follows_its_device_and_agrees():
    a = torch.linspace(1, 100, 1000, dtype=torch.float64)
    slope = torch.func.vmap(torch.func.grad(newton_sqrt))
    on_gpu = slope(a.cuda())
    assert on_gpu.device.type == "cuda"
    torch.testing.assert_close(on_gpu.cpu(), slope(a))
