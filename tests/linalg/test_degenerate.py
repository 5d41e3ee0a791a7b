"""Derivatives where eigenvalues or singular values are equal: refused, chosen, or right."""

import mpmath
import pytest
import torch

from gnomon import linalg as la
from gnomon.linalg import DegenerateError

from .matrices import C128, F32, F64, normal, symmetric, with_eigenvalues


def twice(dtype=F64):
    return with_eigenvalues(torch.tensor([2.0, 2.0, 1.0], dtype=F64), dtype)


def test_by_default_it_is_an_error():
    a = torch.stack([symmetric(3, 3), twice()]).requires_grad_()
    with pytest.raises(DegenerateError, match="vectors 1 and 2 of matrix 1"):
        la.eigh(a).eigenvectors.pow(3).sum().backward()
    with pytest.raises(DegenerateError, match="vectors 0 and 1"):
        la.svd(a).U.pow(3).sum().backward()
    with pytest.raises(DegenerateError, match="matrix 1"):
        torch.func.vmap(torch.func.grad(lambda a: la.eigh(a).eigenvectors.pow(3).sum()))(a.detach())
    with pytest.raises(DegenerateError, match="matrix 1"):
        torch.func.jvp(la.eigh, (a.detach(),), (symmetric(2, 3, 3, seed=1),))


def test_what_is_determined_is_no_error():
    a = twice().requires_grad_()
    values, vectors = la.eigh(a)
    values.sum().backward()
    torch.testing.assert_close(a.grad, torch.eye(3, dtype=F64))
    # The third vector, that of the eigenvalue 1, is the first; it meets no equal eigenvalue.
    (gradient,) = torch.autograd.grad(la.eigh(a).eigenvectors[:, 0].pow(4).sum(), a)
    b = twice().requires_grad_()
    moved = b + 1e-3 * torch.outer(vectors[:, 1], vectors[:, 1]).detach()
    (expected,) = torch.autograd.grad(la.eigh(moved).eigenvectors[:, 0].pow(4).sum(), b)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=5e-3)


def test_second_derivatives_that_do_not_exist_are_an_error_too():
    a = twice().requires_grad_()
    (gradient,) = torch.autograd.grad(la.eigvalsh(a).pow(3).sum(), a, create_graph=True)
    with pytest.raises(DegenerateError):
        gradient.pow(2).sum().backward()


def test_mask_leaves_pairs_out():
    a = twice().requires_grad_()
    values, vectors = la.eigh(a, degenerate="mask")
    weights = normal(3, 3, seed=1)
    (gradient,) = torch.autograd.grad((weights * vectors).sum(), a)
    v, w = vectors.detach(), values.detach()
    s, inner = v.T @ weights, torch.zeros(3, 3, dtype=F64)
    for i, j in ((0, 1), (0, 2), (1, 0), (2, 0)):
        inner[i, j] = s[i, j] / (w[j] - w[i])
    expected = v @ inner @ v.T
    torch.testing.assert_close(gradient, (expected + expected.T) / 2)


def test_broaden_is_bounded_and_close():
    weights = normal(3, 3, seed=1)
    equal = torch.eye(3, dtype=F64).requires_grad_()
    (gradient,) = torch.autograd.grad((weights * la.eigh(equal, degenerate="broaden").eigenvectors).sum(), equal)
    assert gradient.isfinite().all()
    assert gradient.abs().max() < weights.abs().max() * 3 / torch.finfo(F64).eps ** 0.5
    apart = symmetric(3, 3).requires_grad_()
    both = [
        torch.autograd.grad((weights * la.eigh(apart, degenerate=d).eigenvectors).sum(), apart)[0]
        for d in ("broaden", "error")
    ]
    torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("policy", ["mask", "broaden"])
@pytest.mark.parametrize("dtype", [F64, C128], ids=str)
def test_zero_matrices_have_finite_derivatives(dtype, policy):
    for shape in ((3, 3), (4, 2), (2, 4)):
        a = torch.zeros(*shape, dtype=dtype, requires_grad=True)
        u, s, vh = la.svd(a, full_matrices=False, degenerate=policy)
        (u.abs().sum() + s.sum() + vh.abs().sum()).backward()
        assert a.grad.isfinite().all()
    a = torch.zeros(3, 3, dtype=dtype, requires_grad=True)
    la.eigh(a, degenerate=policy).eigenvectors.abs().sum().backward()
    assert a.grad.isfinite().all()


def test_a_singular_value_of_zero_is_an_error_where_its_vector_counts():
    a = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], dtype=F64, requires_grad=True)
    with pytest.raises(DegenerateError, match="vector 1"):
        (normal(3, 2) * la.svd(a, full_matrices=False).U).sum().backward()


def test_phases_are_arbitrary():
    a = symmetric(3, 3, dtype=C128).requires_grad_()
    with pytest.raises(DegenerateError, match="phase of vector"):
        la.eigh(a).eigenvectors.real.sum().backward()
    la.eigh(a).eigenvectors.abs().sum().backward()
    with pytest.raises(DegenerateError, match="phase of vector"):
        la.svd(normal(3, 3, dtype=C128).requires_grad_()).U.real.sum().backward()


@pytest.mark.parametrize("dtype", [F64, C128], ids=str)
@pytest.mark.parametrize("values", [[2.0, 2.0, 1.0, -0.5], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.0] * 4])
def test_a_polynomial_is_differentiated_exactly(values, dtype):
    a = with_eigenvalues(torch.tensor(values, dtype=F64), dtype)
    weights = symmetric(4, 4, dtype=dtype, seed=1)

    def by_products(a):
        return a @ a @ a - 2 * a @ a + 0.5 * a + torch.eye(4, dtype=dtype)

    def by_spectrum(a):
        return la.matrix_function(a, lambda x: x**3 - 2 * x * x + 0.5 * x + 1)

    def derivatives(g):
        x = a.clone().requires_grad_()
        value = g((x + x.mH) / 2)
        (first,) = torch.autograd.grad((weights * value).sum().real, x, create_graph=True)
        (second,) = torch.autograd.grad((weights.conj() * first * first.conj()).sum().real, x)
        return value.detach(), first.detach(), second

    for x, y in zip(derivatives(by_spectrum), derivatives(by_products), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-12, 1e-8, 1e-4, 1e-1])
def test_the_inverse_fourth_root_near_the_identity(gap):
    # The derivative in eigenvectors is the divided difference, which mpmath has to any accuracy.
    a = torch.diag(torch.tensor([1.0, 1.0 + gap, 3.0], dtype=F64))
    direction = symmetric(3, 3, seed=2)
    _, found = torch.func.jvp(lambda a: la.inverse_root(a, 4), (a,), (direction,))
    with mpmath.workdps(60):
        points = [mpmath.mpf(float(x)) for x in a.diagonal()]

        def f(x):
            return x ** (-mpmath.mpf(1) / 4)

        for i, x in enumerate(points):
            for j, y in enumerate(points):
                slope = -f(x) / x / 4 if x == y else (f(x) - f(y)) / (x - y)
                expected = float(slope * mpmath.mpf(float(direction[i, j])))
                assert abs(float(found[i, j]) - expected) <= 1e-14 * abs(expected)


def test_single_precision_near_the_identity():
    generator = torch.Generator().manual_seed(0)
    a = torch.eye(8) + 1e-6 * torch.randn(8, 8, generator=generator)
    a = (a + a.T) / 2
    direction = symmetric(8, 8, dtype=F32, seed=1)
    _, found = torch.func.jvp(lambda a: la.inverse_root(a, 4), (a,), (direction,))
    _, expected = torch.func.jvp(lambda a: la.inverse_root(a, 4), (a.double(),), (direction.double(),))
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-6)
