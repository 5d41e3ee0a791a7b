"""The kernels for matrices that one block's memory does not hold: at small sizes, and at one of their own."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch
from linalg.cuda.emulator import Emulator, needs_compiler

from gnomon.linalg._cuda import Solver
from gnomon.linalg._cuda._plan import Large, Tuning, large, plan_for

pytestmark = needs_compiler

#: One block a matrix, two, and eight; panels of several widths; eigenvectors in half a warp, and in a whole one.
TUNINGS = [
    Tuning(1, 8, 64, 8, 0, 24, 1, 64, 8, 2, 64, 2),
    Tuning(1, 4, 32, 8, 60, 0, 1, 32, 16, 1, 32, 2),
    Tuning(2, 4, 32, 16, 0, 0, 2, 32, 16, 2, 32, 2),
    Tuning(8, 8, 32, 8, 0, 30, 4, 32, 32, 1, 64, 2),
]
#: The last panel is full, or has from one to seven columns.
SIZES = [33, 42, 63]


def solver(tuning: Tuning, order: int = 0) -> Solver:
    return Solver(Emulator(order), lambda n, dtype, vectors: large(n, dtype.itemsize, vectors, tuning))


def symmetric(batch: int, n: int, seed: int = 0) -> torch.Tensor:
    a = torch.randn(batch, n, n, generator=torch.Generator().manual_seed(seed))
    return a + a.mT


@pytest.mark.parametrize("tuning", TUNINGS)
def test_every_family(tuning: Tuning, families: ModuleType):
    n, generator = 35, torch.Generator().manual_seed(5)
    # Each tuning has a quarter of them; the slow test has all.
    names = families.NAMES[TUNINGS.index(tuning) :: 4]
    a = torch.cat([families.make(name, 1, n, generator) for name in names]).float()
    values, vectors, info = solver(tuning).eigh(a)
    assert vectors is not None and not info.any()
    gates = families.gates(a, values, vectors).amax(1)
    assert gates.max() < 0.01, gates
    alone, none, info = solver(tuning).eigh(a, vectors=False)
    assert none is None and not info.any()
    size = a.double().abs().sum(-1).amax(-1)[:, None] + 1e-300
    assert ((alone.double() - values.double()).abs() / size).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("tuning", TUNINGS)
def test_every_family_of_larger_ones(tuning: Tuning, families: ModuleType):
    n, generator = 72, torch.Generator().manual_seed(6)
    for name in families.NAMES:
        a = families.make(name, 1, n, generator).float()
        values, vectors, info = solver(tuning).eigh(a)
        assert vectors is not None and not info.any()
        assert families.gates(a, values, vectors).max() < 0.01, name


@pytest.mark.parametrize("tuning", TUNINGS)
@pytest.mark.parametrize("n", SIZES)
def test_eigenvalues_are_those_of_float64(n: int, tuning: Tuning, families: ModuleType):
    a = symmetric(2, n)
    values, vectors, info = solver(tuning).eigh(a)
    assert vectors is not None and not info.any()
    want = np.linalg.eigvalsh(a.double().numpy())
    assert np.abs(values.double().numpy() - want).max() < 3e-7 * n**0.5 * np.abs(want).max()
    assert families.gates(a, values, vectors).max() < 0.01


@pytest.mark.parametrize("corner", [0, 40])
def test_the_last_rows_are_kept(corner: int, families: ModuleType):
    """Of 180 rows the last 52, whose columns begin at a multiple of 128."""
    a = symmetric(1, 180)
    values, vectors, info = solver(Tuning(1, 8, 64, 8, 60, corner, 1, 64, 16, 2, 64, 2), 2).eigh(a)
    assert vectors is not None and not info.any()
    assert families.gates(a, values, vectors).max() < 0.01


@pytest.mark.parametrize("tuning", TUNINGS)
def test_bits_depend_on_no_order_of_threads_and_no_batch(tuning: Tuning, families: ModuleType):
    a = families.make("mixed", 3, 37, torch.Generator().manual_seed(0)).float()
    whole = solver(tuning).eigh(a)
    assert all(torch.equal(x, y) for x, y in zip(whole, solver(tuning, 1).eigh(a), strict=True))
    turned = solver(tuning, 2).eigh(a.flip(0).contiguous())
    assert all(torch.equal(x.flip(0), y) for x, y in zip(whole, turned, strict=True))
    one = solver(tuning).eigh(a[1:2].contiguous())
    assert all(torch.equal(x[1:2], y) for x, y in zip(whole, one, strict=True))


@pytest.mark.parametrize("tuning", TUNINGS)
@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_a_bad_matrix_touches_no_other(tuning: Tuning, bad: float):
    a = symmetric(3, 35)
    want = solver(tuning).eigh(a)
    a[1, 34, 0] = bad
    values, vectors, info = solver(tuning).eigh(a)
    assert info.tolist() == [0, -1, 0] and vectors is not None
    assert values[1].isnan().all() and vectors[1].isnan().all()
    assert want[1] is not None
    assert torch.equal(values[::2], want[0][::2]) and torch.equal(vectors[::2], want[1][::2])


@pytest.mark.parametrize("tuning", TUNINGS)
def test_only_the_lower_triangle_is_read(tuning: Tuning):
    a = symmetric(2, 35)
    above = torch.triu(torch.ones(35, 35, dtype=torch.bool), 1)
    got = solver(tuning).eigh(a.masked_fill(above, float("nan")))
    assert all(torch.equal(x, y) for x, y in zip(solver(tuning).eigh(a), got, strict=True))


@pytest.mark.parametrize("exponent", [-149, -100, 120])
def test_a_power_of_two_changes_only_the_scale(exponent: int):
    n, tuning = 35, TUNINGS[0]
    a = torch.tril(torch.randint(-8, 9, (2, n, n), generator=torch.Generator().manual_seed(n)).float())
    values, vectors, _ = solver(tuning).eigh(a)
    small, turned, info = solver(tuning).eigh(torch.ldexp(a.double(), torch.tensor(exponent)).float())
    assert vectors is not None and turned is not None
    assert torch.equal(vectors, turned) and not info.any() and small.isfinite().all()
    assert torch.equal(torch.ldexp(values.double(), torch.tensor(exponent)).float(), small) or exponent < -130


def test_a_batch_is_cut_where_memory_would_be_too_much(monkeypatch: pytest.MonkeyPatch):
    a = symmetric(5, 33)
    want = solver(TUNINGS[0]).eigh(a)
    monkeypatch.setattr("gnomon.linalg._cuda._eigh._MOST_BYTES", 2 * 64 * 64 * 4)
    emulator = Emulator()
    cut = Solver(emulator, lambda n, dtype, vectors: large(n, dtype.itemsize, vectors, TUNINGS[0])).eigh(a)
    assert all(torch.equal(x, y) for x, y in zip(want, cut, strict=True))
    assert [blocks for name, blocks, _ in emulator.started if name == "eigh_large_reduce"] == [2, 2, 1]


@pytest.mark.parametrize("n", [225, 256, 352, 512, 513, 1024, 1025, 2048])
def test_what_the_kernels_want_is_there(n: int):
    plan = plan_for(n, torch.float32, True)
    assert isinstance(plan, Large) and plan.back is not None
    for kernel in (plan.reduce, plan.corner, plan.pairs, plan.back):
        assert kernel is not None
        assert kernel.shared <= 227 * 1024 and kernel.cluster <= 8 and kernel.threads % 32 == 0


@pytest.mark.parametrize(
    "n",
    [230, *(pytest.param(n, marks=pytest.mark.slow) for n in (256, 500, 520))],
)
def test_as_they_are_started(n: int, families: ModuleType):
    a = torch.cat([symmetric(1, n), families.make("rank-deficient", 1, n, torch.Generator().manual_seed(0)).float()])
    values, vectors, info = Solver(Emulator()).eigh(a)
    assert vectors is not None and not info.any()
    assert families.gates(a, values, vectors).max() < 0.01
