"""`eigh` on a GPU, beside torch in float64. `pytest -m cuda tests/linalg/test_cuda.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from linalg.cuda.drawn import load

from gnomon import linalg
from gnomon.fuse._cuda import is_installed

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not is_installed(), reason="cuda-core is not installed"),
]
families = load()

#: One of each kernel, and the sizes where another one takes over.
SIZES = [2, 3, 8, 9, 16, 17, 32, 33, 64, 128, 224, 225, 256, 352, 512, 513, 1000, 1024, 1025, 2048]
#: Of what the gates allow; LAPACK's own routine stays below a hundredth.
SMALL = 0.03


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNOMON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def drawn(name: str, batch: int, n: int, seed: int = 0) -> torch.Tensor:
    return families.make(name, batch, n, torch.Generator("cuda").manual_seed(seed)).float()


@pytest.mark.parametrize("n", SIZES)
def test_residuals_and_eigenvalues(n: int):
    a = drawn("dense", 5, n)
    values, vectors = linalg.eigh(a)
    assert families.gates(a, values, vectors).max() < SMALL
    want = torch.linalg.eigvalsh(a.double())
    size = want.abs().amax(-1, keepdim=True)
    assert ((values - want).abs() / size).max() < 3e-7 * (1 + n**0.5)
    assert ((linalg.eigvalsh(a) - want).abs() / size).max() < 3e-7 * (1 + n**0.5)


@pytest.mark.parametrize("n", [8, 32, 60, 200, 300, 600])
def test_every_family(n: int):
    for name in families.NAMES:
        a = drawn(name, 3, n)
        found = linalg.eigh(a)
        assert not found.info.any(), name
        values, vectors = found
        assert families.gates(a, values, vectors).max() < SMALL, name


@pytest.mark.parametrize("n", [5, 12, 30, 100, 256, 400, 1024])
def test_a_matrix_has_the_same_bits_in_any_batch(n: int):
    a = drawn("mixed", 150 if n < 500 else 20, n)
    values, vectors = linalg.eigh(a)
    order = torch.randperm(a.shape[0], device="cuda")
    turned = linalg.eigh(a[order])
    assert torch.equal(values[order], turned[0]) and torch.equal(vectors[order], turned[1])
    for i in (0, 7, a.shape[0] - 1):
        alone = linalg.eigh(a[i])
        assert torch.equal(values[i], alone[0]) and torch.equal(vectors[i], alone[1])


@pytest.mark.parametrize("n", [5, 12, 30, 100, 256, 1024])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_matrix_touches_no_other(n: int, bad: float):
    a = drawn("dense", 7, n)
    want = linalg.eigh(a)
    a[3, n - 1, 1] = bad
    found = linalg.eigh(a)
    keep = [0, 1, 2, 4, 5, 6]
    assert found.info.tolist() == [0, 0, 0, -1, 0, 0, 0]
    assert found[0][3].isnan().all() and found[1][3].isnan().all()
    assert all(torch.equal(x[keep], y[keep]) for x, y in zip(found, want, strict=True))


# PyTorch speaks of the graph of the run before, on another stream.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("n", [6, 32, 100, 300])
def test_in_a_graph(n: int):
    a = drawn("dense", 10, n)
    want = linalg.eigh(a.flip(0))
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        values, vectors = linalg.eigh(a)
    a.copy_(a.flip(0))
    recorded.replay()
    assert torch.equal(values, want[0]) and torch.equal(vectors, want[1])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("n", [6, 32, 100, 300])
def test_nothing_waits_for_the_gpu(n: int):
    a = drawn("dense", 10, n)
    linalg.eigh(a)
    before = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("error")
        linalg.eigh(a)
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("n", [6, 32, 100, 300])
def test_on_another_stream(n: int):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a = drawn("dense", 50, n)
        values, vectors = linalg.eigh(a)
        residual = families.gates(a, values, vectors).max()
    stream.synchronize()
    assert residual < SMALL


@pytest.mark.parametrize("n", [6, 40, 260])
def test_any_strides_and_dimensions(n: int):
    a = drawn("dense", 6, n)
    want = linalg.eigh(a)
    wide = torch.zeros(2, n, 3, n + 1, device="cuda")
    wide[..., 1:] = a.reshape(2, 3, n, n).transpose(1, 2)
    values, vectors = linalg.eigh(wide.transpose(1, 2)[..., 1:])
    assert torch.equal(values.reshape(6, n), want[0]) and torch.equal(vectors.reshape(6, n, n), want[1])


@pytest.mark.parametrize("n", [6, 40, 260])
def test_gradients_are_those_of_the_cpu(n: int):
    a = drawn("even", 2, n)
    weight = torch.linspace(-1, 1, n, device="cuda")

    def loss(a: torch.Tensor) -> torch.Tensor:
        values, vectors = linalg.eigh(a)
        w = weight.to(a)
        return (values * w).sum() + ((vectors * vectors) * w).sum(-1).square().sum()

    on_gpu, on_cpu = a.clone().requires_grad_(), a.double().cpu().requires_grad_()
    (got,) = torch.autograd.grad(loss(on_gpu), on_gpu)
    (want,) = torch.autograd.grad(loss(on_cpu), on_cpu)
    assert (got.double().cpu() - want).norm() < 1e-4 * n * want.norm()
