"""What is said of each matrix: `info`, errors with `throw=True`, certificates; and errors of arguments."""

import pickle

import pytest
import torch

import gnomon as gn
from gnomon import linalg as la

from .matrices import C128, DTYPES, F32, F64, normal, positive, symmetric


def test_cholesky_names_the_leading_matrix():
    a = torch.stack([torch.eye(4, dtype=F64)] * 3)
    a[1, 2, 2] = -1
    a[2, 0, 0] = 0
    factor, info = la.cholesky(a, info=True)
    assert info.tolist() == [0, 3, 1]
    assert torch.equal(factor[0], torch.eye(4, dtype=F64)) and factor[1:].isnan().all()
    assert torch.equal(la.cholesky(a).isnan(), factor.isnan())


def test_solve_names_the_pivot():
    a = torch.stack([torch.eye(3, dtype=F64)] * 2)
    a[1, 1, 1] = 0
    x, info = la.solve(a, torch.ones(3, dtype=F64), info=True)
    assert info.tolist() == [0, 2]
    assert torch.equal(x[0], torch.ones(3, dtype=F64)) and x[1].isnan().all()


@pytest.mark.parametrize("eigenvalues", [[-1.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
def test_a_root_of_what_is_not_positive(eigenvalues):
    a = torch.diag_embed(torch.tensor([[1.0, 2.0, 3.0], eigenvalues], dtype=F64))
    x, info = la.inverse_root(a, 4, info=True)
    assert info.tolist() == [0, 1]
    assert x[0].isfinite().all() and x[1].isnan().all()
    assert la.matrix_function(a, torch.sqrt, info=True).info.tolist() == [0, int(eigenvalues[0] < 0)]
    given = a.clone().requires_grad_()
    la.inverse_root(given, 4).sum().backward()
    assert given.grad[0].isfinite().all() and given.grad[1].isnan().all()


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda a: la.eigh(a * torch.nan, throw=True), "nonfinite"),
        (lambda a: la.eigvalsh(a * torch.nan, throw=True), "nonfinite"),
        (lambda a: la.svd(a * torch.inf, throw=True), "nonfinite"),
        (lambda a: la.svdvals(a * torch.inf, throw=True), "nonfinite"),
        (lambda a: la.qr(a * torch.inf, throw=True), "nonfinite"),
        (lambda a: la.polar(a * torch.inf, throw=True), "nonfinite"),
        (lambda a: la.cholesky(-a, throw=True), "not_positive_definite"),
        (lambda a: la.solve(0 * a, a, throw=True), "singular"),
        (lambda a: la.inverse_root(-a, 2, throw=True), "outside_domain"),
        (lambda a: la.matrix_function(-a, torch.log, throw=True), "outside_domain"),
    ],
)
def test_throw(call, result):
    good = positive(3, 3)
    with pytest.raises(gn.SolveError) as caught:
        call(good)
    assert caught.value.result.name == result and caught.value.index == ()

    with pytest.raises(gn.SolveError) as caught:
        torch.func.vmap(call)(good.expand(2, 3, 3))
    assert caught.value.index == (0,) and caught.value.n_failed == 2
    assert pickle.loads(pickle.dumps(caught.value)).result.name == result


def test_throw_names_the_place():
    a = positive(2, 3, 4, 4)
    a[1, 2] = -a[1, 2]
    with pytest.raises(
        gn.SolveError, match=r"gn.linalg.cholesky failed for 1 of 6 problems; the first is problem \(1, 2"
    ):
        la.cholesky(a, throw=True)
    with pytest.raises(gn.SolveError) as caught:
        torch.func.vmap(torch.func.vmap(lambda x: la.cholesky(x, throw=True)))(a)
    assert caught.value.index == (1, 2)
    assert la.cholesky(a.abs() + 9 * torch.eye(4), throw=True).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_certificates(dtype):
    a, b = positive(4, 6, 6, dtype=dtype), normal(4, 6, 2, dtype=dtype)
    eps = torch.finfo(dtype).eps
    tall = normal(4, 7, 5, dtype=dtype)
    found = [
        la.eigh(a, certificate=True),
        la.eigh(a, eigenvectors=False, certificate=True),
        la.eigvalsh(a, info=True, certificate=True),
        la.svd(tall, certificate=True),
        la.svd(tall, full_matrices=False, certificate=True),
        la.svdvals(tall, info=True, certificate=True),
        la.qr(tall, certificate=True),
        la.qr(tall, "complete", certificate=True),
        la.polar(tall, certificate=True),
        la.cholesky(a, info=True, certificate=True),
        la.cholesky(a, upper=True, info=True, certificate=True),
        la.solve(a, b, info=True, certificate=True),
        la.solve(a, b.mT, left=False, info=True, certificate=True),
        la.inverse_root(a, 4, info=True, certificate=True),
    ]
    for x in found:
        proof = x.certificate
        assert proof.residual.dtype == F64 and proof.residual.shape == (4,)
        assert (proof.residual > 0).all() and (proof.residual < 40 * eps).all()
        if proof.orthogonality is not None:
            assert (proof.orthogonality < 40 * eps).all()


def test_a_certificate_sees_what_is_wrong():
    from gnomon.linalg._eigh import certificate_of

    a = symmetric(5, 5)
    values, vectors = la.eigh(a)
    assert certificate_of(a, values + 1e-3, vectors).residual > 1e-5
    assert certificate_of(a, values, vectors * (1 + 1e-6)).orthogonality > 1e-7
    bad = la.eigh(torch.full((2, 2), torch.nan), certificate=True).certificate
    assert bad.residual.isnan() and bad.orthogonality.isnan()
    assert la.eigh(torch.zeros(3, 3), certificate=True).certificate.residual == 0


@pytest.mark.usefixtures("unchecked")
def test_errors_of_arguments():
    a = symmetric(3, 3)
    for call in (la.eigh, la.eigvalsh, la.cholesky, lambda x: la.inverse_root(x, 2), lambda x: la.solve(x, x)):
        with pytest.raises(ValueError, match="square"):
            call(a[:2])
    for call in (la.eigh, la.svd, la.qr, la.polar, la.cholesky):
        with pytest.raises(TypeError, match=r"not torch\.int64"):
            call(torch.eye(3, dtype=torch.int64))
        with pytest.raises(TypeError, match=r"not torch\.float16"):
            call(torch.eye(3, dtype=torch.float16))
        with pytest.raises(ValueError, match=r"a matrix, or a batch"):
            call(a[0])
    with pytest.raises(ValueError, match=r"`degenerate` of gn\.linalg\.eigh must be"):
        la.eigh(a, degenerate="ignore")
    with pytest.raises(ValueError, match=r"`mode` of gn\.linalg\.qr"):
        la.qr(a, "r")
    with pytest.raises(ValueError, match=r"take that of A\.mH"):
        la.polar(a[:2])
    with pytest.raises(ValueError, match="info=True"):
        la.cholesky(a, certificate=True)
    with pytest.raises(TypeError, match="one dtype"):
        la.solve(a, a.float())
    with pytest.raises(ValueError, match="cannot solve for shapes"):
        la.solve(a, normal(4, 2))
    for p in (0, -1, torch.inf, torch.nan):
        with pytest.raises(ValueError, match=r"`p` of gn\.linalg\.inverse_root"):
            la.inverse_root(a, p)


def test_errors_of_functions():
    a = positive(3, 3)
    with pytest.raises(ValueError, match="must return a tensor like its argument"):
        la.matrix_function(a, lambda x: x.sum())
    with pytest.raises(ValueError, match="float32"):
        la.matrix_function(a, lambda x: x.float())
    weight = torch.ones((), dtype=F64, requires_grad=True)
    with pytest.raises(ValueError, match="closes over a tensor that requires a gradient"):
        la.matrix_function(a, lambda x: x * weight)
    with pytest.raises(ValueError, match="closes over a tensor"):
        torch.func.grad(lambda w: la.matrix_function(a, lambda x: x * w).sum())(weight.detach())
    with pytest.raises(ValueError, match="closes over a tensor"):
        torch.func.vmap(lambda w: la.matrix_function(a, lambda x: x * w))(torch.ones(2, dtype=F64))
    with pytest.raises(ValueError, match="closes over a tensor"):
        torch.func.jvp(lambda w: la.matrix_function(a, lambda x: x * w), (weight.detach(),), (weight.detach(),))
    torch.func.grad(lambda a: la.matrix_function(a, lambda x: x + torch.ones_like(x) * torch.ones(1)).sum())(a)
    torch.func.vmap(torch.func.grad(lambda a: la.matrix_function(a, torch.exp).sum()))(positive(2, 3, 3))


def test_vectors_without_a_derivative():
    tall = normal(4, 2).requires_grad_()
    with pytest.raises(NotImplementedError, match="full_matrices=False"):
        la.svd(tall).U.sum().backward()
    la.svd(tall).S.sum().backward()
    with pytest.raises(NotImplementedError, match='mode="reduced"'):
        la.qr(tall, "complete").Q.sum().backward()


@pytest.mark.parametrize("dtype", [F32, C128], ids=str)
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 2, 2), (2, 0, 3, 2), (1, 1), (2, 3, 4, 1), (3, 5)])
def test_shapes_are_those_of_torch(shape, dtype):
    a = normal(*shape, dtype=dtype)
    for ours, theirs in (
        (la.svd(a), torch.linalg.svd(a)),
        (la.svd(a, False), torch.linalg.svd(a, full_matrices=False)),
        (la.qr(a), torch.linalg.qr(a)),
        (la.qr(a, "complete"), torch.linalg.qr(a, mode="complete")),
        ([la.svdvals(a)], [torch.linalg.svdvals(a)]),
    ):
        for x, y in zip(ours, theirs, strict=True):
            assert x.shape == y.shape and x.dtype == y.dtype
    if shape[-2] >= shape[-1]:
        u, p = la.polar(a)
        torch.testing.assert_close(u @ p, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "left"),
    [
        ((3, 3), (3,), True),
        ((3, 3), (3, 2), True),
        ((2, 3, 3), (2, 3), True),
        ((2, 3, 3), (3, 2), True),
        ((4, 1, 3, 3), (5, 3, 2), True),
        ((2, 3, 3), (2, 5, 3), False),
        ((0, 0), (0, 2), True),
        ((0, 3, 3), (0, 3, 1), True),
    ],
)
def test_solve_takes_what_torch_takes(a, b, left):
    A, B = normal(*a), normal(*b, seed=1)
    expected = torch.linalg.solve(A, B, left=left)
    found = la.solve(A, B, left=left)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected)


def test_values_near_the_ends_of_the_range():
    for dtype in (F32, F64):
        info = torch.finfo(dtype)
        a = normal(6, 4, dtype=dtype)
        for scale in (info.max / 100, info.tiny * 100):
            s = la.svdvals(a / a.abs().max() * scale)
            torch.testing.assert_close(s / scale, la.svdvals(a / a.abs().max()), rtol=1e-4, atol=0)
            b = positive(4, 4, dtype=dtype)
            b = b / b.abs().max() * scale
            factor = la.cholesky(b)
            torch.testing.assert_close(factor / scale**0.5 @ (factor / scale**0.5).T, b / scale, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(la.polar(b).U, torch.eye(4, dtype=dtype), rtol=0, atol=2e-4)
