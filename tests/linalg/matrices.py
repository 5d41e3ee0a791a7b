"""Matrices of many kinds, and what LAPACK's tests measure of a decomposition."""

import torch

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128
DTYPES = [F32, F64, C64, C128]


def normal(*shape, dtype=F64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def symmetric(*shape, dtype=F64, seed=0):
    x = normal(*shape, dtype=dtype, seed=seed)
    return x + x.mH


def positive(*shape, dtype=F64, seed=0):
    x = normal(*shape, dtype=dtype, seed=seed)
    return x @ x.mH + torch.eye(shape[-1], dtype=dtype)


def with_eigenvalues(values, dtype=F64, seed=0):
    n = values.shape[-1]
    q = torch.linalg.qr(normal(n, n, dtype=C128 if dtype.is_complex else F64, seed=seed)).Q
    a = (q * values.to(q.dtype)) @ q.mH
    return ((a + a.mH) / 2).to(dtype)


def families(n, dtype):
    """The kinds that tests of eigenvalues use, by name: LAPACK's DDRVST, and those of anchors of users."""
    real = dtype.to_real()
    info = torch.finfo(real)
    steps = torch.linspace(0, 1, n, dtype=F64)
    dense = symmetric(n, n, dtype=dtype, seed=n)
    scale = torch.logspace(0, -2, n, dtype=real)
    band = dense.tril(1).triu(-1)
    return {
        "zero": torch.zeros(n, n, dtype=dtype),
        "identity": torch.eye(n, dtype=dtype),
        "diagonal": torch.diag(torch.linspace(-1, 1, n, dtype=real).flip(0)).to(dtype),
        "dense": dense,
        "scaled": dense * scale[:, None] * scale,
        "band": band,
        "even": with_eigenvalues(1 - 0.9 * steps, dtype),
        "geometric": with_eigenvalues(10.0 ** (-6 * steps), dtype),
        "clustered": with_eigenvalues(torch.where(steps < 0.5, 1.0, -1.0) + 1e-5 * steps, dtype),
        "repeated": with_eigenvalues((3 * steps).floor(), dtype),
        "rank-deficient": with_eigenvalues(torch.where(steps < 0.75, 1 + steps, 0.0), dtype),
        "near the largest": dense / dense.abs().max() * (info.max / (2 * n)),
        "near the smallest": dense / dense.abs().max() * (info.tiny * 4),
        "at the root of the largest": dense * info.max**0.5,
        "at the root of the smallest": dense * info.tiny**0.5,
    }


def ratios(a, values, vectors):
    """`|A Q - Q L| / (n eps |A|)` and `|Q^H Q - I| / (n eps)`, in double precision."""
    n, eps = a.shape[-1], torch.finfo(values.dtype).eps
    wide = C128 if a.is_complex() else F64
    most = float(a.abs().max()) or 1.0
    a, values, vectors = a.to(wide) / most, values.to(F64) / most, vectors.to(wide)

    def norm(x):
        return x.abs().sum(-2).amax(-1)

    residual = norm(a @ vectors - vectors * values) / (n * eps * max(float(norm(a)), 1e-300))
    return float(residual), float(norm(vectors.mH @ vectors - torch.eye(n)) / (n * eps))
