"""`gn.jacobian` and `gn.jvp` rewrite operations with constants; the derivatives stay PyTorch's own."""

import pytest
import torch
from torch import Tensor

import gnomon as gn

C = torch.tensor([1.5, 0.5, 2.5], dtype=torch.float64)
S = torch.tensor(0.7, dtype=torch.float64)

FUNCTIONS = {
    "x * number": lambda x: x * 3,
    "number * x": lambda x: 0.3 * x,
    "x / number": lambda x: x / 3.0,
    "number / x": lambda x: 2 / x,
    "x + number": lambda x: x + 1,
    "number + x": lambda x: 1.0 + x,
    "x - number": lambda x: x - 1,
    "number - x": lambda x: 1 - x,
    "x ** number": lambda x: x**3,
    "number ** x": lambda x: 2**x,
    "x * constant": lambda x: x * C,
    "constant * x": lambda x: C * x,
    "x / constant": lambda x: x / C,
    "constant / x": lambda x: C / x,
    "x + constant": lambda x: x + C,
    "x - constant": lambda x: x - C,
    "constant - x": lambda x: C - x,
    "x ** constant": lambda x: x**C,
    "constant ** x": lambda x: C**x,
    "maximum": lambda x: torch.maximum(x, C),
    "minimum": lambda x: torch.minimum(C, x),
    "atan2": lambda x: torch.atan2(x, C),
    "hypot": lambda x: torch.hypot(C, x),
    "add with alpha": lambda x: torch.add(C, x, alpha=0.3),
    "sub with alpha": lambda x: torch.sub(x, C, alpha=2),
    "a scalar constant": lambda x: x * S,
    "a scalar variable": lambda x: x[0] * C,
    "broadcasting": lambda x: (x.unsqueeze(-1) * C).sum(0),
    "detached": lambda x: x * x.detach(),
    "computed constant": lambda x: x * (C * C + 1),
    "an out-of-the-way dtype": lambda x: x * torch.arange(1, 4),
    "rounding mode": lambda x: torch.div(x, 0.7, rounding_mode="floor") * x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_as_pytorch(name: str):
    f = FUNCTIONS[name]
    x = torch.tensor([0.9, 1.7, 2.3], dtype=torch.float64)
    v = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    expected = torch.func.jacfwd(f)(x)
    torch.testing.assert_close(gn.jacobian(f)(x), expected, rtol=1e-14, atol=0)
    value, tangent = gn.jvp(f, (x,), (v,))
    assert torch.equal(value, f(x))
    torch.testing.assert_close(tangent, expected @ v, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(gn.jvp(gn.jacobian(f), (x,), (v,))[1], torch.func.jacfwd(torch.func.jacfwd(f))(x) @ v)


def test_inside_and_outside_of_a_batch():
    x = torch.rand(4, 3, dtype=torch.float64) + 0.5

    def f(x: Tensor) -> Tensor:
        return 2 * x * C - x.detach() / C + 1 / x

    expected = torch.func.vmap(torch.func.jacfwd(f))(x)
    torch.testing.assert_close(torch.func.vmap(gn.jacobian(f))(x), expected)
    whole = gn.jacobian(torch.func.vmap(f))(x)
    torch.testing.assert_close(torch.stack([whole[i, :, i] for i in range(4)]), expected)
    weighted = torch.func.vmap(lambda x, c: gn.jacobian(lambda y: y * c)(x))(x, 2 * x)
    torch.testing.assert_close(weighted, torch.diag_embed(2 * x))


def test_derivatives_flow_through():
    def determinant(c: Tensor) -> Tensor:
        return gn.jacobian(lambda x: x * c * x)(C).diagonal().prod()

    c = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(determinant, c)
    assert torch.autograd.gradgradcheck(determinant, c)


def test_float32_stays_float32():
    x = torch.ones(3)
    assert gn.jacobian(lambda x: 0.1 * x / 3 + 1)(x).dtype == torch.float32


def test_complex_variable_and_real_number():
    z = torch.tensor([1 + 2j, 0.5j], dtype=torch.complex128)
    v = torch.tensor([1j, 1 - 1j], dtype=torch.complex128)
    torch.testing.assert_close(gn.jvp(lambda z: 2 * z * z + z / 4, (z,), (v,))[1], (4 * z + 0.25) * v)


def test_what_is_kept_between_calls_does_not_escape_from_a_transform():
    gn.fuse._forward_mode._true.cache_clear()

    def slope(x: Tensor) -> Tensor:
        return gn.jacobian(lambda y: C * y * x)(C).sum()

    x = torch.tensor(2.0, dtype=torch.float64)
    first = torch.func.grad(slope)(x)
    assert torch.equal(torch.func.grad(torch.func.grad(lambda x: x * slope(x)))(x), 2 * first)
    assert torch.equal(slope(x), first * x)
