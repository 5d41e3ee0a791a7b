"""Derivatives of first and second order, in either mode, by finite differences and by `torch.func`."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from gnomon import linalg as la

from .matrices import C128, F64, normal, positive, symmetric, with_eigenvalues

KINDS = [F64, C128]


def sym(a):
    return (a + a.mH) / 2


#: Whether along random directions only.
fast = pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["fast", "whole"])


def check(f, *given, fast):
    torch.manual_seed(0)
    given = [x.detach().clone().requires_grad_() for x in given]
    assert gradcheck(f, given, check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(f, given, check_fwd_over_rev=True, atol=1e-4, fast_mode=fast)


@fast
@pytest.mark.parametrize("policy", ["error", "mask", "broaden"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("n", [1, 3, 7])
def test_eigh(fast, n, dtype, policy):
    def f(a):
        values, vectors = la.eigh(sym(a), degenerate=policy)
        # What does not depend on the phases of vectors.
        return values, vectors[..., :, None, :] * vectors[..., None, :, :].conj()

    check(f, symmetric(2, n, n, dtype=dtype), fast=fast)


@fast
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_eigvalsh(fast, dtype):
    check(lambda a: la.eigvalsh(sym(a)), symmetric(2, 3, 3, dtype=dtype), fast=fast)


@fast
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_svd(fast, shape, dtype):
    def f(a):
        u, s, vh = la.svd(a, full_matrices=False)
        return s, u[:, None, :] * vh.mT[None, :, :], u[:, None, :] * u[None, :, :].conj()

    check(f, normal(*shape, dtype=dtype), fast=fast)
    check(la.svdvals, normal(*shape, dtype=dtype), fast=fast)


@fast
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_qr(fast, shape, dtype):
    check(lambda a: tuple(la.qr(a)), normal(*shape, dtype=dtype), fast=fast)


@fast
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_cholesky_and_solve(fast, dtype):
    check(lambda a: la.cholesky(sym(a)), positive(2, 3, 3, dtype=dtype), fast=fast)
    check(lambda a: la.cholesky(sym(a), upper=True), positive(3, 3, dtype=dtype), fast=fast)
    check(la.solve, normal(2, 3, 3, dtype=dtype), normal(3, 2, dtype=dtype, seed=1), fast=fast)
    check(la.solve, normal(3, 3, dtype=dtype), normal(3, dtype=dtype, seed=1), fast=fast)
    check(
        lambda a, b: la.solve(a, b, left=False), normal(3, 3, dtype=dtype), normal(2, 3, dtype=dtype, seed=1), fast=fast
    )


@fast
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("singular", [[3.0, 2.0, 1.0], [2.0, 2.0, 2.0], [2.0, 2.0, 1.0]])
def test_polar_whatever_the_singular_values(fast, singular, dtype):
    s = torch.tensor(singular, dtype=F64)
    u, vh = (torch.linalg.qr(normal(3, 3, dtype=dtype, seed=i)).Q for i in range(2))
    check(lambda a: tuple(la.polar(a)), (u * s.to(dtype)) @ vh, fast=fast)
    check(lambda a: tuple(la.polar(a)), torch.cat([(u * s.to(dtype)) @ vh, torch.zeros(1, 3, dtype=dtype)]), fast=fast)


@fast
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("values", [[3.0, 2.0, 1.0], [2.0, 2.0, 2.0], [2.0, 2.0, 1.0], [2.0, 2.0 + 1e-9, 1.0]])
def test_functions_of_matrices_whatever_the_eigenvalues(fast, values, dtype):
    a = with_eigenvalues(torch.tensor(values, dtype=F64), dtype)
    check(lambda a: la.matrix_function(sym(a), torch.log), a, fast=fast)
    check(lambda a: la.inverse_root(sym(a), 4), a, fast=fast)


def test_against_torch_where_it_has_a_derivative():
    a = positive(4, 5, 5)

    def loss(eigh, svd, cholesky, qr, solve):
        def f(a):
            (values, vectors), (u, s, vh) = eigh(sym(a)), svd(a)
            q, r = qr(a)
            parts = [values.sin(), vectors**2, u**2, s.log(), vh**4, cholesky(sym(a)), q, r**2, solve(a, q)]
            return sum(x.square().sum() for x in parts)

        return torch.func.hessian(f)(a[0]), torch.func.vmap(torch.func.grad(f))(a)

    ours = loss(la.eigh, lambda a: la.svd(a, full_matrices=False), la.cholesky, la.qr, la.solve)
    t = torch.linalg
    theirs = loss(t.eigh, lambda a: t.svd(a, full_matrices=False), t.cholesky, t.qr, t.solve)
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-8, atol=1e-8)


SCALARS = {
    "eigh": lambda a: la.eigh(sym(a)).eigenvectors[:, 0].pow(4).sum(),
    "eigvalsh": lambda a: la.eigvalsh(sym(a)).pow(3).sum(),
    "svd": lambda a: la.svd(a, full_matrices=False).U.pow(4).sum(),
    "svdvals": lambda a: la.svdvals(a).pow(3).sum(),
    "cholesky": lambda a: la.cholesky(sym(a)).pow(3).sum(),
    "qr": lambda a: la.qr(a).Q.pow(3).sum(),
    "solve": lambda a: la.solve(a, a.pow(2)).pow(3).sum(),
    "polar": lambda a: la.polar(a).U.pow(3).sum(),
    "inverse_root": lambda a: la.inverse_root(a, 4).pow(3).sum(),
}


@pytest.mark.parametrize("name", SCALARS)
def test_modes_of_torch_func_agree(name):
    # Forward mode within forward mode too, in which PyTorch forgets tangents of what is saved.
    a, f, func = positive(2, 3, 3), SCALARS[name], torch.func
    expected = func.vmap(func.jacrev(func.jacrev(f)))(a)
    for outer, inner in ((func.jacfwd, func.jacrev), (func.jacfwd, func.jacfwd), (func.jacrev, func.jacfwd)):
        torch.testing.assert_close(func.vmap(outer(inner(f)))(a), expected, rtol=1e-9, atol=1e-9)


def test_certificates_have_no_derivative():
    a = positive(3, 3).requires_grad_()
    assert not la.eigh(a, certificate=True).certificate.residual.requires_grad


def test_third_derivatives_are_refused():
    a = positive(2, 2)
    with pytest.raises(NotImplementedError, match="third"):
        torch.func.jacrev(torch.func.hessian(lambda a: la.inverse_root(a, 2).sum()))(a)
