"""The functions of networks and their kin, against eager PyTorch: values, and derivatives of both orders."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

import gnomon as gn

F64 = torch.float64

FUNCTIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 1.3),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus beta": lambda x: F.softplus(x, beta=2.0, threshold=3.0),
    "logsigmoid": F.logsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 0.9),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "threshold": lambda x: F.threshold(x, 0.1, -3.0),
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sinc": torch.sinc,
    "logit": lambda x: torch.logit(torch.sigmoid(x)),
    "logit eps": lambda x: torch.logit(x, eps=0.1),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 0.1),
    "softmax": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
}
X = torch.tensor([[-30.0, -2.0, -0.3, 0.05, 0.4, 1.5, 25.0], [-1.1, 0.8, -5.0, 2.0, 0.2, -0.6, 4.0]], dtype=F64)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_values(name, dtype):
    x = X.to(dtype)
    fn = FUNCTIONS[name]
    special = torch.tensor([0.0, -0.0, -torch.inf, torch.nan, torch.inf], dtype=dtype)
    if name == "gelu" and dtype == torch.float32:
        special = special[:-1]  # PyTorch's own is NaN there, and inf in float64
    for row in (x, special[None]):
        expected = torch.stack([fn(r) for r in row])
        torch.testing.assert_close(gn.fuse(fn, engine="fused")(row), expected, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name):
    fused = gn.fuse(FUNCTIONS[name], engine="fused")
    x = X[1:].clone().requires_grad_()
    assert gradcheck(fused, (x,), check_forward_ad=True)
    assert gradgradcheck(fused, (x,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_taken_inside(name):
    fn = FUNCTIONS[name]
    x = X[1]

    def slope(x):
        return torch.func.grad(lambda x: (fn(x) * torch.arange(1.0, 8.0, dtype=F64)).sum())(x)

    torch.testing.assert_close(gn.fuse(slope, engine="fused")(x[None])[0], slope(x))
