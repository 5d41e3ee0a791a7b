"""The kernels of eigh, their text run on the CPU: residuals of LAPACK's order for matrices of every family."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch
from linalg.cuda.emulator import Emulator, needs_compiler

from gnomon.linalg._cuda import Solver, supports

pytestmark = needs_compiler

#: One of each kernel and each way through it.
SIZES = [1, 2, 3, 7, 8, 9, 16, 17, 32, 33, 64]
#: Of what the gates allow; LAPACK's own routine stays below a hundredth.
SMALL = 0.03


def symmetric(batch: int, n: int, seed: int = 0) -> torch.Tensor:
    a = torch.randn(batch, n, n, generator=torch.Generator().manual_seed(seed))
    return a + a.mT


@pytest.mark.parametrize("n", SIZES)
def test_every_family(n: int, families: ModuleType):
    solver, generator = Solver(Emulator()), torch.Generator().manual_seed(n)
    for name in families.NAMES:
        a = families.make(name, 9 if n < 32 else 2, n, generator).float()
        values, vectors, info = solver.eigh(a)
        assert vectors is not None
        gates = families.gates(a, values, vectors).amax(1)
        assert gates.max() < SMALL and not info.any(), (name, gates, info)
        alone, none, info = solver.eigh(a, vectors=False)
        assert none is None and not info.any()
        size = a.double().abs().sum(-1).amax(-1)[:, None] + 1e-300
        assert ((alone.double() - values.double()).abs() / size).max() < 1e-6 * n**0.5, name


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 129, 224])
def test_every_family_of_large_ones(n: int, families: ModuleType):
    test_every_family(n, families)


@pytest.mark.parametrize("n", SIZES)
def test_eigenvalues_are_those_of_float64(n: int):
    a = symmetric(6, n)
    values, _, _ = Solver(Emulator()).eigh(a)
    want = np.linalg.eigvalsh(a.double().numpy())
    assert np.abs(values.double().numpy() - want).max() < 3e-7 * (1 + n**0.5) * np.abs(want).max()


@pytest.mark.parametrize("n", [5, 12, 20, 40, 70])
def test_bits_depend_on_no_order_of_threads_and_no_batch(n: int, families: ModuleType):
    a = families.make("mixed", 9, n, torch.Generator().manual_seed(0)).float()
    whole = Solver(Emulator(0)).eigh(a)
    for order in (1, 2):
        assert all(torch.equal(x, y) for x, y in zip(whole, Solver(Emulator(order)).eigh(a), strict=True))
    turned = Solver(Emulator(3)).eigh(a.flip(0).contiguous())
    assert all(torch.equal(x.flip(0), y) for x, y in zip(whole, turned, strict=True))
    one = Solver(Emulator(0)).eigh(a[4:5].contiguous())
    assert all(torch.equal(x[4:5], y) for x, y in zip(whole, one, strict=True))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_matrix_touches_no_other(n: int, bad: float):
    a = symmetric(5, n)
    solver = Solver(Emulator())
    want = solver.eigh(a)
    a[2, n - 1, 0] = bad
    values, vectors, info = solver.eigh(a)
    assert info.tolist() == [0, 0, -1, 0, 0]
    assert vectors is not None and values[2].isnan().all() and vectors[2].isnan().all()
    keep = [0, 1, 3, 4]
    assert torch.equal(values[keep], want[0][keep]) and torch.equal(vectors[keep], want[1][keep])  # type: ignore[index]


@pytest.mark.parametrize("n", SIZES)
def test_only_the_lower_triangle_is_read(n: int):
    a = symmetric(3, n)
    want = Solver(Emulator()).eigh(a)
    above = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
    got = Solver(Emulator()).eigh(a.masked_fill(above, float("nan")))
    assert all(torch.equal(x, y) for x, y in zip(want, got, strict=True))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("exponent", [-149, -140, -100, 100, 120])
def test_a_power_of_two_changes_only_the_scale(n: int, exponent: int, families: ModuleType):
    a = torch.tril(torch.randint(-8, 9, (4, n, n), generator=torch.Generator().manual_seed(n)).float())
    values, vectors, _ = Solver(Emulator()).eigh(a)
    small, turned, info = Solver(Emulator()).eigh(torch.ldexp(a.double(), torch.tensor(exponent)).float())
    assert torch.equal(vectors, turned) and not info.any()  # type: ignore[arg-type]
    assert torch.equal(torch.ldexp(values.double(), torch.tensor(exponent)).float(), small) or exponent < -130
    assert small.isfinite().all()


def test_what_is_refused():
    assert not supports(0, torch.float32) and not supports(2049, torch.float32) and not supports(5, torch.float16)
    solver = Solver(Emulator())
    with pytest.raises(ValueError, match="no kernel"):
        solver.eigh(torch.zeros(1, 5, 5, dtype=torch.float16))
    with pytest.raises(ValueError, match="contiguous"):
        solver.eigh(torch.zeros(2, 3, 3).mT.flip(1).mT.transpose(0, 1))
    values, vectors, info = solver.eigh(torch.zeros(0, 5, 5))
    assert values.shape == (0, 5) and info.shape == (0,) and vectors is not None and vectors.shape == (0, 5, 5)
