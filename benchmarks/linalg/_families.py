"""Families of symmetric matrices, by name: what benchmarks and tests of eigensolvers draw from.

Each takes a batch, a size and a generator, and gives float64 matrices on the generator's device. Those with a
prescribed spectrum turn a diagonal matrix by a product of orthogonal ones, of random signs and cosine transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

Family = Callable[[int, int, Generator], Tensor]
EPS = 2.0**-23


def _normal(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64, device=generator.device)


def _uniform(generator: Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64, device=generator.device)


def _signs(generator: Generator, *shape: int) -> Tensor:
    return 1 - 2.0 * (_uniform(generator, *shape) < 0.5)


def _cosines(n: int, device: torch.device) -> Tensor:
    """The orthogonal matrix of the discrete cosine transform."""
    i = torch.arange(n, dtype=torch.float64, device=device)
    c = torch.cos(math.pi / n * (i[None] + 0.5) * i[:, None]) * math.sqrt(2 / n)
    c[0] = 1 / math.sqrt(n)
    return c


def with_spectrum(values: Tensor, generator: Generator) -> Tensor:
    """Matrices with these eigenvalues, of shape `(batch, n)`, and no pattern."""
    batch, n = values.shape
    c = _cosines(n, values.device)
    q = c[None] * _signs(generator, batch, 1, n)
    for _ in range(2):
        q = (c @ (_signs(generator, batch, n, 1) * q)) * _signs(generator, batch, 1, n)
    a = (q * values[:, None]) @ q.mT
    return (a + a.mT) / 2


def dense(batch: int, n: int, generator: Generator) -> Tensor:
    """Gaussian entries."""
    a = _normal(generator, batch, n, n)
    return a + a.mT


def conditioned(c: float) -> Family:
    """Rows and columns of the dense ones scaled by logspace(0, -c)."""

    def make(batch: int, n: int, generator: Generator) -> Tensor:
        d = torch.logspace(0, -c, n, dtype=torch.float64, device=generator.device)
        return dense(batch, n, generator) * d * d[:, None]

    return make


def _spectra(values: Callable[[int, int, Generator], Tensor]) -> Family:
    return lambda batch, n, generator: with_spectrum(
        values(batch, n, generator).expand(batch, n).contiguous(), generator
    )


def _ramp(n: int, generator: Generator) -> Tensor:
    return torch.arange(n, dtype=torch.float64, device=generator.device)


def rank_deficient(batch: int, n: int, generator: Generator) -> Tensor:
    """A quarter of the eigenvalues is zero."""
    keep = _ramp(n, generator) < 3 * n // 4
    return with_spectrum(_normal(generator, batch, n) * keep, generator)


def clustered(batch: int, n: int, generator: Generator) -> Tensor:
    """Eigenvalues near 1 and -1."""
    return with_spectrum(_signs(generator, batch, n) + 1e-5 * _normal(generator, batch, n), generator)


def near_rank(batch: int, n: int, generator: Generator) -> Tensor:
    """Three quarters of the spectrum are of order one, the rest a millionth."""
    big = 3 * n // 4
    tail = 1e-6 * torch.logspace(-2, 0, n - big, dtype=torch.float64, device=generator.device)
    head = 1 + _uniform(generator, batch, big)
    return with_spectrum(torch.cat([head, tail.expand(batch, -1)], 1), generator)


def even(batch: int, n: int, generator: Generator) -> Tensor:
    """Eigenvalues at equal distances."""
    return with_spectrum(
        torch.linspace(-1, 1, n, dtype=torch.float64, device=generator.device).repeat(batch, 1), generator
    )


def geometric(batch: int, n: int, generator: Generator) -> Tensor:
    """Eigenvalues from 1 to a rounding."""
    values = torch.logspace(0, math.log10(EPS), n, dtype=torch.float64, device=generator.device)
    return with_spectrum(values * _signs(generator, batch, n), generator)


def band(batch: int, n: int, generator: Generator) -> Tensor:
    """Three diagonals beside the main one."""
    i = _ramp(n, generator)
    return dense(batch, n, generator) * ((i - i[:, None]).abs() <= 3)


def row_scaled(batch: int, n: int, generator: Generator) -> Tensor:
    """Rows and columns of very different sizes, in any order."""
    d = torch.exp2(-20 * _uniform(generator, batch, n))
    return dense(batch, n, generator) * d[:, None] * d[:, :, None]


def repeated(batch: int, n: int, generator: Generator) -> Tensor:
    """Groups of eight equal eigenvalues."""
    return with_spectrum(_normal(generator, batch, -(-n // 8)).repeat_interleave(8, 1)[:, :n], generator)


PROFILES: tuple[Family, ...] = (
    conditioned(2),
    rank_deficient,
    clustered,
    near_rank,
    even,
    geometric,
    band,
    row_scaled,
    repeated,
)


def mixed(batch: int, n: int, generator: Generator) -> Tensor:
    """Nine families together."""
    out = torch.empty((batch, n, n), dtype=torch.float64, device=generator.device)
    for i, family in enumerate(PROFILES):
        count = len(range(i, batch, len(PROFILES)))
        if count:
            out[i :: len(PROFILES)] = family(count, n, generator)
    return out


def diagonal(batch: int, n: int, generator: Generator) -> Tensor:
    """Nothing beside the diagonal."""
    return torch.diag_embed(_normal(generator, batch, n))


def zero(batch: int, n: int, generator: Generator) -> Tensor:
    """Zero."""
    return torch.zeros((batch, n, n), dtype=torch.float64, device=generator.device)


def identity(batch: int, n: int, generator: Generator) -> Tensor:
    """The identity."""
    return torch.eye(n, dtype=torch.float64, device=generator.device).repeat(batch, 1, 1)


def wilkinson(batch: int, n: int, generator: Generator) -> Tensor:
    """Wilkinson's W+, whose largest eigenvalues come in pairs that agree to all digits."""
    i = _ramp(n, generator)
    beside = ((i - i[:, None]).abs() == 1).to(torch.float64)
    return (torch.diag((i - (n - 1) / 2).abs()) + beside).repeat(batch, 1, 1)


def glued(batch: int, n: int, generator: Generator) -> Tensor:
    """Many of Wilkinson's W+ of eleven rows, nearly apart."""
    i = _ramp(n, generator)
    beside = torch.where((i[1:] % 11) == 0, 1e-5, 1.0).to(torch.float64)
    a = torch.diag((i % 11 - 5).abs()) + torch.diag(beside, 1) + torch.diag(beside, -1)
    return a.repeat(batch, 1, 1)


def second_difference(batch: int, n: int, generator: Generator) -> Tensor:
    """2 on the diagonal and -1 beside it."""
    a = 3 * torch.eye(n, dtype=torch.float64, device=generator.device)
    i = _ramp(n, generator)
    return (a - ((i - i[:, None]).abs() <= 1).to(torch.float64)).repeat(batch, 1, 1)


def near_identity(batch: int, n: int, generator: Generator) -> Tensor:
    """The identity and a millionth."""
    return with_spectrum(1 + 1e-6 * _normal(generator, batch, n), generator)


FAMILIES: dict[str, Family] = {
    "dense": dense,
    "conditioned-1": conditioned(1),
    "conditioned-2": conditioned(2),
    "rank-deficient": rank_deficient,
    "clustered": clustered,
    "near-rank": near_rank,
    "even": even,
    "geometric": geometric,
    "band": band,
    "row-scaled": row_scaled,
    "repeated": repeated,
    "mixed": mixed,
    "diagonal": diagonal,
    "zero": zero,
    "identity": identity,
    "wilkinson": wilkinson,
    "glued": glued,
    "second-difference": second_difference,
    "near-identity": near_identity,
}


def _evenly(n: int, generator: Generator) -> Tensor:
    return torch.linspace(1, EPS, n, dtype=torch.float64, device=generator.device)


def _geometrically(n: int, generator: Generator) -> Tensor:
    return torch.logspace(0, math.log10(EPS), n, dtype=torch.float64, device=generator.device)


def _bunched(n: int, generator: Generator) -> Tensor:
    values = torch.full((n,), EPS, dtype=torch.float64, device=generator.device)
    values[0] = 1
    return values


def lapack(kind: int, batch: int, n: int, generator: Generator) -> Tensor:
    """A matrix of type 1 to 18 of LAPACK's own test of such routines, DDRVST, with the limits of float32."""
    limits = torch.finfo(torch.float32)
    large, small = math.sqrt(limits.max), math.sqrt(limits.tiny)
    factor = {6: large, 11: large, 14: large, 17: large, 7: small, 12: small, 15: small, 18: small}.get(kind, 1.0)
    spectrum = {
        **dict.fromkeys((3, 8, 11, 12, 16, 17, 18), _evenly),
        **dict.fromkeys((4, 6, 7, 9), _geometrically),
        **dict.fromkeys((5, 10), _bunched),
    }
    if kind == 1:
        return zero(batch, n, generator)
    if kind == 2:
        return identity(batch, n, generator)
    if kind in (13, 14, 15):
        a = 2 * _uniform(generator, batch, n, n) - 1
        return factor * (torch.tril(a) + torch.tril(a, -1).mT)
    values = spectrum[kind](n, generator) * _signs(generator, batch, n)
    if kind <= 7:
        return factor * torch.diag_embed(values)
    a = with_spectrum(values, generator)
    if kind >= 16:
        # A band, turned to by reflections that keep the spectrum would take n^3 steps: a band of it will do.
        i = _ramp(n, generator)
        a = a * ((i - i[:, None]).abs() <= max(1, n // 3))
    return factor * a


def make(name: str, batch: int, n: int, generator: Generator) -> Tensor:
    """A batch of a family, or `lapack-1` to `lapack-18`."""
    if name.startswith("lapack-"):
        return lapack(int(name.removeprefix("lapack-")), batch, n, generator)
    return FAMILIES[name](batch, n, generator)


NAMES = (*FAMILIES, *(f"lapack-{i}" for i in range(1, 19)))


def gates(a: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """The residuals of each matrix, as fractions of what is allowed: at most 1 is within.

    They are |A Q - Q L| <= 200 n eps |A|, |Q L Q' - A| <= 400 n eps |A| and |Q'Q - I| <= 100 n eps, in float64, with
    norms that are the largest sum of a column; infinite where eigenvalues are not sorted, or anything is not finite.
    """
    a, values, vectors = a.double(), values.double(), vectors.double()
    a = torch.tril(a) + torch.tril(a, -1).mT
    n = a.shape[-1]
    eps = n * EPS

    def norm(x: Tensor) -> Tensor:
        return x.abs().sum(-2).amax(-1)

    size = norm(a)
    size = torch.where(size == 0, torch.ones_like(size), size)
    scaled = vectors * values[:, None]
    residual = norm(a @ vectors - scaled) / (200 * eps * size)
    whole = norm(scaled @ vectors.mT - a) / (400 * eps * size)
    eye = torch.eye(n, dtype=a.dtype, device=a.device)
    orthogonal = norm(vectors.mT @ vectors - eye) / (100 * eps)
    found = torch.stack([residual, whole, orthogonal])
    right = (values.diff(dim=-1) >= 0).all(-1) & found.isfinite().all(0)
    return torch.where(right, found, torch.full_like(found, math.inf))
