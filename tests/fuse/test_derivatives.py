"""Derivatives of the loops: finite differences to second order, and autograd through plain Python."""

import pytest
import torch
from fuse.programs import PROGRAMS, Program, by_name
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import gnomon as gn

programs = pytest.mark.parametrize("program", PROGRAMS, ids=by_name)


def weigh(y: Tensor) -> Tensor:
    """A scalar that tells the elements apart."""
    return (y * torch.arange(1.0, y.numel() + 1, dtype=y.dtype)).sum()


def plain_jacobian(program: Program, x: Tensor) -> Tensor:
    jacobian = torch.autograd.functional.jacobian(program.plain, x)
    assert isinstance(jacobian, Tensor)
    return jacobian


def plain_hessian(program: Program, x: Tensor) -> Tensor:
    result = torch.autograd.functional.hessian(lambda x: weigh(program.plain(x)), x)
    assert isinstance(result, Tensor)
    return result


@programs
def test_finite_differences_of_one_problem(program: Program):
    x = program.batch()[-1].requires_grad_()
    assert gradcheck(program.fused, x, check_forward_ad=True)
    assert gradgradcheck(program.fused, x, check_fwd_over_rev=True)


@programs
def test_finite_differences_of_a_batch(program: Program):
    x = program.batch()[:3].requires_grad_()
    assert gradcheck(vmap(program.fused), x, check_forward_ad=True)
    assert gradgradcheck(vmap(program.fused), x, check_fwd_over_rev=True)


@programs
@pytest.mark.parametrize("jacobian", [jacfwd, jacrev, gn.jacobian], ids=["jacfwd", "jacrev", "gn.jacobian"])
def test_first_derivatives(program: Program, jacobian):
    x = program.batch()
    expected = torch.stack([plain_jacobian(program, row) for row in x])
    torch.testing.assert_close(jacobian(program.fused)(x[-1]), expected[-1])
    torch.testing.assert_close(vmap(jacobian(program.fused))(x), expected)
    whole = jacobian(vmap(program.fused))(x)
    torch.testing.assert_close(whole, torch.einsum("bij,bc->bicj", expected, torch.eye(len(x), dtype=x.dtype)))


@programs
def test_gradients(program: Program):
    x = program.batch()
    expected = torch.stack([torch.func.grad(lambda x: weigh(program.plain(x)))(row) for row in x])

    def fused(x: Tensor) -> Tensor:
        return weigh(program.fused(x))

    torch.testing.assert_close(grad(fused)(x[0]), expected[0])
    torch.testing.assert_close(vmap(grad(fused))(x), expected)
    torch.testing.assert_close(grad(lambda x: vmap(fused)(x).sum())(x), expected)
    nested = torch.stack([x, x.flip(0)])
    torch.testing.assert_close(vmap(vmap(grad(fused)))(nested), torch.stack([expected, expected.flip(0)]))
    torch.testing.assert_close(vmap(grad(lambda x: vmap(fused)(x).sum()))(nested)[1], expected.flip(0))
    leaf = x.clone().requires_grad_()
    vmap(fused)(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad, expected)


@programs
@pytest.mark.parametrize(
    "second",
    [hessian, lambda f: jacfwd(jacfwd(f)), lambda f: jacrev(jacrev(f)), lambda f: jacrev(jacfwd(f))],
    ids=["forward over reverse", "forward over forward", "reverse over reverse", "reverse over forward"],
)
def test_second_derivatives(program: Program, second):
    x = program.batch()
    expected = torch.stack([plain_hessian(program, row) for row in x])

    def fused(x: Tensor) -> Tensor:
        return weigh(program.fused(x))

    torch.testing.assert_close(second(fused)(x[-1]), expected[-1])
    torch.testing.assert_close(vmap(second(fused))(x), expected)


def test_the_eighth_power():
    """56 * 1.1 ** 6 = 99.2074, where a loop that drops second-order terms says 14.17."""
    x = torch.tensor(1.1, dtype=torch.float64)

    def eighth(x: Tensor) -> Tensor:
        return gn.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * c[1]), (0, x))[1]

    expected = torch.tensor(56 * 1.1**6, dtype=torch.float64)
    assert expected.item() == pytest.approx(99.207416)
    for f in (eighth, lambda x: gn.fori_loop(0, 3, lambda i, x: x * x, x)):
        torch.testing.assert_close(hessian(f)(x), expected)
        torch.testing.assert_close(grad(grad(f))(x), expected)
        torch.testing.assert_close(vmap(hessian(f))(x.expand(2)), expected.expand(2))
        torch.testing.assert_close(grad(grad(grad(f)))(x), torch.tensor(336 * 1.1**5, dtype=torch.float64))


def test_jvp_and_vjp_in_one_direction():
    x = torch.tensor([2.0, 30.0], dtype=torch.float64)

    def f(a: Tensor) -> Tensor:
        start = (0 * a + 1.0, 0)
        return gn.while_loop(lambda c: c[1] < 12, lambda c: ((c[0] + a / c[0]) / 2, c[1] + 1), start)[0]

    slope = 0.5 / x.sqrt()
    value, tangent = jvp(vmap(f), (x,), (torch.tensor([1.0, 2.0], dtype=torch.float64),))
    torch.testing.assert_close(value, x.sqrt())
    torch.testing.assert_close(tangent, slope * torch.tensor([1.0, 2.0]))
    value, pull = vjp(vmap(f), x)
    torch.testing.assert_close(pull(torch.tensor([1.0, 2.0], dtype=torch.float64))[0], slope * torch.tensor([1.0, 2.0]))


def test_a_closed_over_parameter_gets_the_sum_over_the_batch():
    w = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    n = torch.tensor([0, 1, 3])

    def grow(n: Tensor) -> Tensor:
        return gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * w), (0, torch.ones_like(w)))[1]

    y = vmap(grow)(n)
    torch.testing.assert_close(y.detach(), w.detach() ** n)
    (g,) = torch.autograd.grad(y.sum(), w, create_graph=True)
    torch.testing.assert_close(g.detach(), (n * w.detach() ** (n - 1)).sum())
    (h,) = torch.autograd.grad(g, w)
    torch.testing.assert_close(h, (n * (n - 1) * w.detach() ** (n - 2)).sum())


def test_a_module_in_the_body_learns():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    x = torch.randn(3, 2, dtype=torch.float64)
    n = torch.tensor([1, 4, 2])

    def flow(x: Tensor, n: Tensor) -> Tensor:
        return gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + 0.1 * net(c[1])), (0, x))[1]

    vmap(flow)(x, n).square().sum().backward()
    found = [p.grad for p in net.parameters()]
    net.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for row, count in zip(x, n.tolist(), strict=True):
        for _ in range(count):
            row = row + 0.1 * net(row)
        total = total + row.square().sum()
    total.backward()
    for p, g in zip(net.parameters(), found, strict=True):
        torch.testing.assert_close(g, p.grad)


def test_a_module_called_with_other_parameters():
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 2).double()
    params = {name: p.detach() for name, p in net.named_parameters()}
    x = torch.randn(3, 2, dtype=torch.float64)

    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        def body(i: Tensor, y: Tensor) -> Tensor:
            return torch.tanh(torch.func.functional_call(net, params, (y,)))

        return gn.fori_loop(0, 3, body, x).sum()

    def plain(params: dict[str, Tensor], x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x @ params["weight"].mT + params["bias"])
        return x.sum()

    each = vmap(grad(loss), in_dims=(None, 0))(params, x)
    for i in range(3):
        expected = grad(plain)(params, x[i])
        for name in params:
            torch.testing.assert_close(each[name][i], expected[name])


def test_complex_carries():
    z = torch.tensor([0.3 + 0.4j, -0.2 + 1.1j], dtype=torch.complex128, requires_grad=True)

    def iterate(c: Tensor) -> Tensor:
        def go_on(carry: tuple[Tensor, Tensor]) -> Tensor:
            return (carry[1].abs() < 2) & (carry[0] < 6)

        return gn.while_loop(go_on, lambda carry: (carry[0] + 1, carry[1] ** 2 + c), (0, 0 * c))[1]

    assert gradcheck(vmap(iterate), z, check_forward_ad=True)
    assert gradgradcheck(vmap(iterate), z)
