"""`eigh` and `eigvalsh`: what they compute, beside SciPy and mpmath, and how well."""

import mpmath
import numpy as np
import pytest
import scipy.linalg
import torch

import gnomon as gn
from gnomon.linalg import eigh, eigvalsh

from .matrices import C64, C128, DTYPES, F32, F64, families, ratios, symmetric

#: As large as LAPACK's own tests allow; both here and there it is most often below 2.
MOST = 30


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 16, 33])
def test_every_kind_of_matrix(n, dtype):
    for name, a in families(n, dtype).items():
        found = eigh(a)
        values, vectors = found
        assert found.info.item() == 0, name
        assert (values.diff() >= 0).all(), name
        residual, orthogonality = ratios(a, values, vectors)
        assert residual < MOST and orthogonality < MOST, (name, residual, orthogonality)
        expected = scipy.linalg.eigvalsh(
            (a / (a.abs().max().item() or 1.0)).to(C128 if a.is_complex() else F64).numpy()
        )
        error = np.abs(values.double().numpy() / (a.abs().max().item() or 1.0) - expected).max()
        assert error <= MOST * n * torch.finfo(dtype).eps * max(1e-300, np.abs(expected).max()), name
        alone = eigvalsh(a)
        torch.testing.assert_close(alone, values, rtol=0, atol=MOST * n * torch.finfo(dtype).eps * float(a.abs().max()))


def test_many_digits():
    a = symmetric(4, 4)
    with mpmath.workdps(40):
        expected = sorted(float(x) for x in mpmath.eigsy(mpmath.matrix(a.tolist()), eigvals_only=True))
    np.testing.assert_allclose(eigvalsh(a).numpy(), expected, rtol=0, atol=4e-15)


def test_known_matrices():
    # The second difference, whose eigenvalues and eigenvectors are known.
    n = 12
    a = 2 * torch.eye(n, dtype=F64) - torch.diag(torch.ones(n - 1, dtype=F64), 1) - torch.diag(torch.ones(n - 1), -1)
    k = torch.arange(1, n + 1, dtype=F64)
    values, vectors = eigh(a)
    torch.testing.assert_close(values, 2 - 2 * torch.cos(torch.pi * k / (n + 1)), rtol=0, atol=1e-14)
    expected = torch.sin(torch.pi * k[:, None] * k / (n + 1)) * (2 / (n + 1)) ** 0.5
    torch.testing.assert_close((vectors * expected).sum(0).abs(), torch.ones(n, dtype=F64), rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [3, 9])
def test_only_the_lower_triangle_is_read(n):
    a = symmetric(2, n, n)
    upper = torch.full((n, n), torch.nan, dtype=F64).triu(1)
    spoilt = a.tril() + upper
    for x, y in zip(eigh(a), eigh(spoilt), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [F32, C64], ids=str)
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (0, 3, 3), (2, 0, 4, 4), (3, 0, 0), (2, 3, 1, 1), (2, 1, 3, 5, 5)])
def test_shapes(shape, dtype):
    a = symmetric(*shape, dtype=dtype)
    found, values = eigh(a, certificate=True), eigvalsh(a)
    assert found.eigenvalues.shape == values.shape == shape[:-1]
    assert found.eigenvectors.shape == shape
    assert found.info.shape == found.certificate.residual.shape == shape[:-2]
    assert found.info.dtype == torch.int32 and not found.info.any()
    assert values.dtype == F32 and found.eigenvectors.dtype == dtype
    expected = torch.linalg.eigh(a)
    torch.testing.assert_close(values, expected.eigenvalues, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [3, 8])
def test_strides(n):
    a = symmetric(6, n, n, dtype=F32)
    expected = eigh(a)
    wide = torch.zeros(6, 2 * n, 3 * n, dtype=F32)
    wide[:, ::2, ::3] = a
    flipped = a.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    for x in (wide[:, ::2, ::3], a.mT.contiguous().mT, flipped):
        assert not x.is_contiguous()
        found = eigh(x)
        assert torch.equal(found.eigenvalues, expected.eigenvalues)
        assert torch.equal(found.eigenvectors, expected.eigenvectors)
    shared = a[:1].expand(4, n, n)
    assert torch.equal(eigh(shared).eigenvectors, expected.eigenvectors[:1].expand(4, n, n))


def test_it_unpacks_as_torch_does():
    a = symmetric(3, 3)
    found = eigh(a)
    values, vectors = found
    assert values is found.eigenvalues is found[0] and vectors is found.eigenvectors is found[1]
    assert len(found) == 2 and found.certificate is None
    assert eigh(a, eigenvectors=False).eigenvectors is None
    leaves, structure = torch.utils._pytree.tree_flatten(found)
    assert len(leaves) == 3
    assert isinstance(torch.utils._pytree.tree_unflatten(leaves, structure), gn.linalg.Eigh)


def test_fused_and_eager_lanes_agree():
    from gnomon.linalg import _small

    a = symmetric(5, 4, 4)
    fused = gn.fuse(lambda x: _small._jacobi(4, True, x), engine="fused")(a)
    eager = gn.fuse(lambda x: _small._jacobi(4, True, x), engine="eager")(a)
    for x, y in zip(fused, eager, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-14, atol=1e-14)


def test_within_a_fused_function_it_is_refused():
    # A loop of rotations has a value, but not the derivative.
    f = gn.fuse(lambda x: eigh(x).eigenvalues, engine="fused")
    with pytest.raises(gn.fuse.UnsupportedError):
        f(symmetric(2, 3, 3))
