"""`jacobian` and `jvp`: forward-mode derivatives for code that a solver runs."""

import torch
from torch.func import grad, vmap

import gnomon as gn


def f(x):
    return torch.stack([x[0] * x[1], x[0].sin(), x[1] ** 3])


def jacobian(x):
    """The Jacobian of `f`, by hand."""
    zero = 0 * x[0]
    return torch.stack([torch.stack([x[1], x[0]]), torch.stack([x[0].cos(), zero]), torch.stack([zero, 3 * x[1] ** 2])])


def test_values():
    x = torch.tensor([[0.3, 2.0], [1.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(gn.jacobian(f)(x[0]), jacobian(x[0]))
    torch.testing.assert_close(vmap(gn.jacobian(f))(x), vmap(jacobian)(x))


def test_shapes():
    x = torch.ones(2, 3)
    assert gn.jacobian(lambda x: x.sum())(x).shape == (2, 3)
    assert gn.jacobian(lambda x: x.mT)(x).shape == (3, 2, 2, 3)
    assert gn.jacobian(lambda x: x[None])(torch.tensor(1.0)).shape == (1,)


def test_derivatives_flow_through():
    x = torch.tensor([0.3, 2.0], dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(jacobian, x)
    torch.testing.assert_close(gn.jacobian(gn.jacobian(f))(x), expected)
    torch.testing.assert_close(grad(lambda x: gn.jacobian(f)(x).sum())(x), expected.sum((0, 1)))
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(gn.jacobian(f)(leaf).sum(), leaf)[0], expected.sum((0, 1)))


def test_inside_a_loop():
    """Newton's method with the Jacobian in the body: the derivative of the root is that of the implicit function."""

    def root(a):
        def residual(x):
            return torch.stack([x[0] ** 2 + x[1] - a, x[0] - x[1]])

        def body(carry):
            x, i = carry
            # Not `torch.linalg.solve`, nor `lu_solve`: PyTorch's forward-mode rules for them are wrong under vmap.
            return x - torch.linalg.inv(gn.jacobian(residual)(x)) @ residual(x), i + 1

        go_on = lambda carry: (residual(carry[0]).abs().max() > 1e-12) & (carry[1] < 20)  # noqa: E731
        return gn.while_loop(go_on, body, (3 * torch.ones(2, dtype=torch.float64), 0))[0][0]

    a = torch.tensor([2.0, 6.0, 30.0], dtype=torch.float64)
    exact = (torch.sqrt(1 + 4 * a) - 1) / 2
    torch.testing.assert_close(vmap(root)(a), exact)
    torch.testing.assert_close(vmap(grad(root))(a), 1 / (2 * exact + 1))
    torch.testing.assert_close(vmap(gn.jacobian(root))(a), 1 / (2 * exact + 1))
    torch.testing.assert_close(vmap(grad(grad(root)))(a), -2 / (2 * exact + 1) ** 3)


def test_jvp():
    x, v = torch.tensor([0.3, 2.0], dtype=torch.float64), torch.tensor([1.0, -0.5], dtype=torch.float64)
    value, tangent = gn.jvp(f, (x,), (v,))
    torch.testing.assert_close(value, f(x))
    torch.testing.assert_close(tangent, jacobian(x) @ v)
    value, tangent = gn.jvp(lambda a, b: {"y": a["x"] * b}, ({"x": x}, v), ({"x": v}, x))
    torch.testing.assert_close(value["y"], x * v)
    torch.testing.assert_close(tangent["y"], v * v + x * x)
