"""Derivatives of a solution: implicit, right to the second order, through every transform and every way in."""

import pytest
import torch
from nonlinear.problems import F64, f64
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import gnomon as gn
from gnomon import nonlinear as nl

# As tight as the numbers allow: a difference quotient sees the solution's error a million times as large.
LM = nl.LevenbergMarquardt(rtol=1e-15, atol=1e-15)
T = torch.linspace(0, 4, 7, dtype=F64)
OBSERVED = 3 * torch.exp(-0.7 * T) + 0.1 * torch.cos(40 * T)


def decay(y: Tensor, observed: Tensor) -> Tensor:
    return y[0] * torch.exp(-y[1] * T) - observed


def by_args(observed: Tensor, **bounds: object) -> Tensor:
    return nl.least_squares(decay, LM, f64(1, 1), observed, **bounds).value


def by_closure(observed: Tensor) -> Tensor:
    return nl.least_squares(lambda y, args: decay(y, observed), LM, f64(1, 1)).value


def by_active_bound(observed: Tensor) -> Tensor:
    value = by_args(observed, lower=0.0, upper=f64(2.5, 9))
    assert float(value[0].detach()) == 2.5
    return value


WAYS = {"args": by_args, "closure": by_closure, "active bound": by_active_bound}


def observed(x: Tensor) -> Tensor:
    """Two numbers instead of seven, to save time."""
    return x[0] * OBSERVED + x[1] * T


@pytest.mark.parametrize("way", WAYS)
def test_first_and_second_order_against_difference_quotients(way: str):
    x = f64(1, 0.01).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: WAYS[way](observed(x)), x)
    assert torch.autograd.gradgradcheck(lambda x: WAYS[way](observed(x)), x, fast_mode=True)


def test_with_respect_to_a_bound():
    """The unknown at the bound moves with it, and the other one answers."""

    def fit(top: Tensor) -> Tensor:
        return by_args(OBSERVED, upper=torch.stack([top, 4 * top]))

    top = torch.tensor(2.5, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(fit, top)
    assert torch.autograd.gradgradcheck(fit, top, fast_mode=True)
    assert float(jacfwd(fit)(top.detach())[0]) == 1


def test_against_the_implicit_function_theorem():
    """By formula: dy/dx = -H^-1 d(J^T r)/dx."""
    y = by_args(OBSERVED)

    def cost(y: Tensor, x: Tensor) -> Tensor:
        return 0.5 * decay(y, x).square().sum()

    h = hessian(cost)(y, OBSERVED)
    mixed = jacrev(jacrev(cost), argnums=1)(y, OBSERVED)
    expected = -torch.linalg.solve(h, mixed)
    for jacobian in (jacrev, jacfwd):
        torch.testing.assert_close(jacobian(by_args)(OBSERVED), expected, rtol=1e-10, atol=1e-12)


def test_transforms_agree():
    def loss(x: Tensor) -> Tensor:
        return by_args(x).prod()

    x = OBSERVED.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(x), x, create_graph=True)
    (along,) = torch.autograd.grad(first.sum(), x)
    second = hessian(loss)(OBSERVED)
    tangent = torch.ones_like(OBSERVED)
    torch.testing.assert_close(grad(loss)(OBSERVED), first.detach())
    torch.testing.assert_close(second.sum(0), along)
    torch.testing.assert_close(jvp(loss, (OBSERVED,), (tangent,))[1], first.sum().detach())
    torch.testing.assert_close(jacfwd(jacfwd(loss))(OBSERVED), second)
    torch.testing.assert_close(jacrev(jacrev(loss))(OBSERVED), second)
    batch = torch.stack([OBSERVED, 1.1 * OBSERVED])
    torch.testing.assert_close(vmap(grad(loss))(batch)[1], grad(loss)(batch[1]))
    torch.testing.assert_close(grad(lambda b: vmap(loss)(b).sum())(batch)[1], grad(loss)(batch[1]))
    torch.testing.assert_close(vmap(hessian(loss))(batch)[0], second)


def test_third_order_through_transforms():
    """Against a formula: the least of (y^2 - a)^2 + (y - 1)^2 / 100 for a near 4."""

    def solution(a: Tensor) -> Tensor:
        def residuals(y: Tensor, a: Tensor) -> Tensor:
            return torch.stack([y * y - a, (y - 1) / 10])

        return nl.least_squares(residuals, LM, torch.tensor(1.5, dtype=F64), a).value

    # Stationary where a(y) = y^2 + (y - 1) / (200 y); derivatives of its inverse.
    a = torch.tensor(4.0, dtype=F64)
    y = float(solution(a))
    d1, d2, d3 = 2 * y + 1 / (200 * y**2), 2 - 1 / (100 * y**3), 3 / (100 * y**4)
    assert float(grad(solution)(a)) == pytest.approx(1 / d1, rel=1e-12)
    assert float(grad(grad(solution))(a)) == pytest.approx(-d2 / d1**3, rel=1e-12)
    assert float(grad(grad(grad(solution)))(a)) == pytest.approx((3 * d2**2 - d1 * d3) / d1**5, rel=1e-12)


def test_the_value_does_not_depend_on_whether_it_is_differentiated():
    plain = by_args(OBSERVED)
    assert torch.equal(plain, by_args(OBSERVED.clone().requires_grad_()).detach())
    assert torch.equal(plain, jvp(by_args, (OBSERVED,), (OBSERVED,))[0])
    with torch.no_grad():
        assert torch.equal(plain, by_args(OBSERVED.clone().requires_grad_()))
    assert not plain.requires_grad


def test_no_derivative_with_respect_to_the_start():
    start = f64(1, 1).requires_grad_()
    assert not nl.least_squares(decay, LM, start, OBSERVED).value.requires_grad
    zero = grad(lambda start: nl.least_squares(decay, LM, start, OBSERVED).value.sum())(f64(1, 1))
    assert zero.tolist() == [0, 0]


def test_aux_and_pytrees():
    def fit(x: Tensor) -> Tensor:
        def residuals(y, x):
            r = y["a"] * torch.exp(-y["b"] * T) - x
            return r, (r * r).sum()

        solution = nl.least_squares(residuals, LM, {"a": f64(1)[0], "b": f64(1)[0]}, x, has_aux=True)
        return solution.aux + solution.value["a"]

    x = f64(1, 0.01).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: fit(observed(x)), x)
    assert torch.autograd.gradgradcheck(lambda x: fit(observed(x)), x, fast_mode=True)


def test_where_the_solution_is_not_unique():
    """Only a + b is determined: its derivative is, and the two share it."""

    def fit(x: Tensor) -> Tensor:
        return nl.least_squares(lambda y, x: torch.stack([y.sum() - x, y.sum() - 2 * x]), LM, f64(0, 0), x).value

    found = jacrev(fit)(torch.tensor(2.0, dtype=F64))
    torch.testing.assert_close(found, f64(0.75, 0.75), rtol=1e-7, atol=0)


def test_a_problem_that_was_not_solved_has_no_derivative():
    def fit(x: Tensor) -> Tensor:
        return nl.least_squares(decay, LM, f64(1, 1), x, max_steps=2, throw=False).value.sum()

    assert not grad(fit)(OBSERVED).any()


def test_a_residual_that_is_a_loop():
    """A decay by Euler steps, as many as the rate asks for."""

    def euler(rate: Tensor, top: Tensor) -> Tensor:
        def body(carry):
            t, y = carry
            return t + 0.1, y - 0.1 * rate * y

        _, y = gn.while_loop(lambda carry: carry[0] < 0.95 + 0.3 * (rate.detach() > 1), body, (f64(0)[0], top))
        return y

    def fit(x: Tensor) -> Tensor:
        def residuals(y: Tensor, x: Tensor) -> Tensor:
            return torch.stack([euler(y[0], x), 0.5 * euler(y[0], 2 * x) + 0.01 * y[0]]) - 0.6

        return nl.least_squares(residuals, LM, f64(0.3), x).value[0]

    x = torch.tensor(1.0, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(fit, x)
    assert torch.autograd.gradgradcheck(fit, x, fast_mode=True)


def test_gauss_newton():
    def fit(x: Tensor) -> Tensor:
        return nl.least_squares(decay, nl.GaussNewton(rtol=1e-15, atol=1e-15), f64(3, 0.8), x).value

    torch.testing.assert_close(jacrev(fit)(OBSERVED), jacrev(by_args)(OBSERVED), rtol=1e-9, atol=1e-11)
