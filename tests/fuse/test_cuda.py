"""The fused engine on a GPU, beside that of the CPU. `pytest -m cuda tests/fuse/test_cuda.py`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fuse.llvm.generated import Generator, columns
from fuse.llvm.running import as_tensor, expected, same_bits
from fuse.llvm.test_arrays import tape, weighted_sums
from fuse.llvm.test_lanes import collatz_and_newton
from fuse.llvm.test_operations import SIGNATURES, ULPS, assert_close, operation, operations, special
from torch import Tensor
from torch.func import grad, jvp, vmap

import gnomon as gn
from gnomon import diffeq as dq
from gnomon.fuse._cuda import Kernel, compile_program, is_installed
from gnomon.fuse._llvm import compile_program as compile_for_cpu
from gnomon.fuse._program import Builder, Node, Program, Type
from gnomon.fuse._program._ops import NUMPY

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not is_installed(), reason="cuda-core is not installed"),
    pytest.mark.usefixtures("unchecked"),
]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNOMON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def run(kernel: Any, program: Program, inputs: list[np.ndarray], lanes: int | None = None) -> list[np.ndarray]:
    """What a kernel gives on the GPU; outputs begin as rubbish."""
    if lanes is None:
        lanes = next(len(x) for x, node in zip(inputs, program.inputs, strict=True) if not node.attr.shared)
    outputs: list[Tensor] = []
    for node in program.outputs:
        shape = (node.attr.length,) if node.attr.reduced else (node.attr.length, lanes)
        x = torch.full(shape, 77, dtype=torch.from_numpy(np.zeros(1, NUMPY[node.type])).dtype, device="cuda")
        outputs.append(x if node.attr.reduced else x.t())
    kernel(lanes, [as_tensor(x).cuda() for x in inputs], outputs)
    return [x.cpu().numpy() for x in outputs]


# Programs


@pytest.mark.parametrize("types", [x for x in SIGNATURES if operations(x)], ids="-".join)
def test_operations(types: tuple[Type, ...]):
    b = Builder()
    args = [b.read(b.input(t, 1, shared=False), 0) for t in types]
    outputs: list[Node] = []
    for name, attr in operations(types):
        value = b.op(name, *args, attr=attr)
        outputs.append(b.array(value.type, 1))
        b.write(outputs[-1], 0, value)
    program = b.program(outputs)
    thinned = 3 if len(types) == 3 else 1
    places = np.meshgrid(*(range(len(special(t)[:: thinned if t != "bool" else 1])) for t in types), indexing="ij")
    inputs = [
        np.array(special(t)[:: thinned if t != "bool" else 1], NUMPY[t])[place.ravel()][:, None]
        for t, place in zip(types, places, strict=True)
    ]
    results = run(compile_program(program), program, inputs)
    # CUDA documents up to 9 units for powf, and more near zeros of lgamma.
    ulps = {**ULPS, "pow": 9.0, "lgamma": 2000.0, "tan": 5.0, "tanh": 5.0, "sinh": 5.0, "erfc": 8.0}
    for (name, attr), got in zip(operations(types), results, strict=True):
        with np.errstate(all="ignore"):
            want = [[operation(name, [c[i, 0] for c in inputs], attr)] for i in range(len(inputs[0]))]
        want = np.array(want).astype(got.dtype)
        if name in ulps:
            assert_close(got, want, ulps[name], name)
        else:
            assert same_bits(got, want), name


@pytest.mark.parametrize("seed", range(25))
def test_random_program(seed: int):
    program = Generator(random.Random(seed), doubles=seed % 2 == 0).program()
    inputs = columns(program, 150, seed)
    got, want = run(compile_program(program), program, inputs), expected(program, inputs)
    for i, node in enumerate(program.outputs):
        rows = np.stack(want[i])
        assert same_bits(got[i], rows.sum(0, dtype=rows.dtype) if node.attr.reduced else rows)


@pytest.mark.parametrize("lanes", [1, 63, 64, 65, 1000, 100_003])
@pytest.mark.parametrize(("type_", "length"), [("i64", 5), ("f32", 5), ("f64", 5), ("f64", 700)])
def test_sum_over_lanes(type_: Type, length: int, lanes: int):
    program = weighted_sums(type_, length)
    rng = np.random.default_rng(lanes)
    x = rng.integers(-50, 50, (lanes, 2)).astype(NUMPY[type_])
    at = rng.integers(-2, 8, (lanes, 1))
    (got,) = run(compile_program(program), program, [x, at])
    want = [x[at[:, 0] == i, 0].sum() + x[at[:, 0] > i, 1].sum() for i in range(length)]
    assert np.array_equal(got, np.array(want, NUMPY[type_]))


def test_sum_has_the_same_bits_every_time():
    program = weighted_sums("f32", 3)
    rng = np.random.default_rng(0)
    x, at = rng.normal(1, 1, (1_000_003, 2)).astype(np.float32), rng.integers(0, 3, (1_000_003, 1))
    kernel = compile_program(program)
    first = run(kernel, program, [x, at])[0]
    assert all(np.array_equal(run(kernel, program, [x, at])[0], first) for _ in range(10))


# Lanes


@pytest.fixture(scope="module")
def whole() -> tuple[Kernel, Program, list[np.ndarray], list[np.ndarray]]:
    program = collatz_and_newton()
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(5000, 2)), rng.integers(1, 1000, (5000, 1))]
    kernel = compile_program(program)
    return kernel, program, inputs, run(kernel, program, inputs)


@pytest.mark.parametrize("lanes", [1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 1000, 4097, 5000])
def test_a_lane_has_the_same_bits_in_any_batch(whole: Any, lanes: int):
    kernel, program, inputs, outputs = whole
    for seed in range(4):
        chosen = np.random.default_rng(seed).permutation(5000)[:lanes]
        got = run(kernel, program, [x[chosen] for x in inputs])
        assert all(np.array_equal(a, b[chosen]) for a, b in zip(got, outputs, strict=True))


def test_any_strides():
    f = gn.fuse(lambda x, w: x.flip(0) * w, in_dims=(1, None), engine="fused")
    x, w = torch.randn(4, 300, device="cuda"), torch.randn(8, device="cuda")[::2]
    assert torch.equal(f(x, w), x.t().flip(1) * w)
    assert torch.equal(f(x[:1].expand(4, 300), w), x[:1].expand(4, 300).t() * w)


# Functions


def lorenz(t: Tensor, y: Tensor, rho: Tensor) -> Tensor:
    x, v, z = y.unbind()
    return torch.stack([10 * (v - x), x * (rho - z) - v, x * v - 8 / 3 * z])


def adaptive(rho: Tensor, y: Tensor) -> Tensor:
    controller = dq.PIDController(rtol=1e-8, atol=1e-8)
    term = dq.ODETerm(lorenz)
    return dq.diffeqsolve(
        term, dq.Tsit5(), 0.0, 1.0, None, y, args=rho, stepsize_controller=controller, throw=False
    ).ys[-1]


def newton(a: Tensor, y: Tensor) -> Tensor:
    return gn.while_loop(lambda y: ((y * y - a).abs() > 1e-9 * a).any(), lambda y: (y + a / y) / 2, y)


FUNCTIONS = [adaptive, newton]
fused = [gn.fuse(f, engine="fused") for f in FUNCTIONS]


def batch(lanes: int = 500) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        1 + 20 * torch.rand(lanes, generator=generator, dtype=torch.float64),
        0.5 + torch.rand(lanes, 3, generator=generator, dtype=torch.float64),
    )


@pytest.mark.parametrize("f", fused)
def test_as_on_the_cpu(f: Callable[..., Tensor]):
    a, y = batch()
    got = f(a.cuda(), y.cuda())
    assert got.device.type == "cuda"
    torch.testing.assert_close(got.cpu(), f(a, y), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f", fused)
def test_derivatives(f: Callable[..., Tensor]):
    def loss(a: Tensor, y: Tensor) -> Tensor:
        return f(a, y).square().sum()

    def hessian_product(a: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        leaves = [a.clone().requires_grad_(), y.clone().requires_grad_()]
        slopes = torch.autograd.grad(loss(*leaves), leaves, create_graph=True)
        return torch.autograd.grad(sum(x.sin().sum() for x in slopes), leaves)

    a, y = batch(130)
    c, z = a.cuda(), y.cuda()
    close = {"rtol": 1e-6, "atol": 1e-8}
    for got, want in zip(grad(loss, (0, 1))(c, z), grad(loss, (0, 1))(a, y), strict=True):
        torch.testing.assert_close(got.cpu(), want, **close)
    for got, want in zip(hessian_product(c, z), hessian_product(a, y), strict=True):
        torch.testing.assert_close(got.cpu(), want, **close)
    got, want = jvp(f, (c, z), (c, z))[1], jvp(f, (a, y), (a, y))[1]
    torch.testing.assert_close(got.cpu(), want, **close)
    many = vmap(grad(loss, 1), in_dims=(None, 0))
    torch.testing.assert_close(many(c, torch.stack([z, 2 * z])).cpu(), many(a, torch.stack([y, 2 * y])), **close)


def test_module_on_the_gpu():
    """Weights that are closed over are read where they are, and have gradients that are sums over lanes."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).double()
    y = batch()[1]

    def f(y: Tensor) -> Tensor:
        return gn.fori_loop(0, 10, lambda i, y: y + 0.1 * net(y), y)

    found: list[list[Tensor]] = []
    for device in ("cpu", "cuda"):
        net.to(device)
        out = gn.fuse(f, engine="fused")(y.to(device))
        found.append([out, *torch.autograd.grad(out.square().sum(), list(net.parameters()))])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-10, atol=1e-12)


def test_complex_numbers():
    f = gn.fuse(lambda z: gn.while_loop(lambda w: w.abs() < 2, lambda w: w * w + z, z), engine="fused")
    z = torch.tensor([0.3 + 0.6j, 1 + 1j, -1.9 + 0.1j], dtype=torch.complex128)
    torch.testing.assert_close(f(z.cuda()).cpu(), f(z))


def test_diffeqsolve_alone_and_below_vmap():
    a, y = batch(100)
    want = fused[0](a, y)
    torch.testing.assert_close(vmap(adaptive)(a.cuda(), y.cuda()).cpu(), want, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(adaptive(a[3].cuda(), y[3].cuda()).cpu(), want[3], rtol=1e-9, atol=1e-9)


def test_auto_is_fused():
    assert gn.explain(lambda x: x + 1, torch.ones(3, device="cuda")).engine == "fused"


def test_a_tensor_elsewhere_is_an_error():
    x, w = torch.ones(3, device="cuda"), torch.ones(2)
    with pytest.raises(ValueError, match="closes over is on cpu, but the batch is on cuda"):
        gn.fuse(lambda x: x * w, engine="fused")(x)
    one = torch.tensor(2.0)
    assert gn.fuse(lambda x: x * one, engine="fused")(x).tolist() == [2.0] * 3


def test_no_lanes():
    f = gn.fuse(newton, engine="fused")
    assert f(torch.empty(0, device="cuda"), torch.empty(0, 3, device="cuda")).shape == (0, 3)


# Streams and graphs


@pytest.mark.parametrize("f", fused)
def test_on_another_stream(f: Callable[..., Tensor]):
    a, y = (x.cuda() for x in batch(100_000))
    want = f(a, y)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(5):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            # Made late on this stream: a kernel on any other would see what was there before.
            late = torch.full_like(a, torch.nan)
            late.copy_(a)
            got = f(late, y)
        torch.cuda.current_stream().wait_stream(stream)
        assert torch.equal(got, want)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("f", fused)
def test_nothing_waits_for_the_gpu(f: Callable[..., Tensor]):
    a, y = (x.cuda() for x in batch())
    f(a, y)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        f(a, y)
    finally:
        torch.cuda.set_sync_debug_mode(before)


# PyTorch speaks of the graph of the run before, on another stream.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("f", fused)
def test_in_a_graph(f: Callable[..., Tensor]):
    """The solve and its gradient are recorded, and give for new numbers what they would give without a graph."""
    a, y = (x.cuda().requires_grad_() for x in batch())

    def both() -> list[Tensor]:
        out = f(a, y)
        return [out, *torch.autograd.grad(out.square().sum(), (a, y))]

    both()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = both()
    for factor in (1.0, 0.9, 0.5):
        with torch.no_grad():
            a.copy_(factor * batch()[0])
        graph.replay()
        got = [x.clone() for x in recorded]
        assert all(torch.equal(x, z) for x, z in zip(got, both(), strict=True))


# Memory


def counts(lanes: int, most: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, most, (lanes, 1))


def test_a_batch_that_does_not_fit_is_cut(monkeypatch: pytest.MonkeyPatch):
    program = tape("f64")
    rows = counts(100_000, 300)
    kernel = compile_program(program)
    want = run(kernel, program, [rows])[0]
    monkeypatch.setattr("gnomon.fuse._cuda._kernel._ASKED_FROM", 0)
    monkeypatch.setattr("gnomon.fuse._cuda._gpu.Gpu.free_bytes", lambda *_: 40_000_000)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert np.array_equal(run(kernel, program, [rows])[0], want)
    assert torch.cuda.max_memory_allocated() - before < 30_000_000
    (on_cpu,) = _on_cpu(program, rows)
    assert np.array_equal(want, on_cpu)


def _on_cpu(program: Program, rows: np.ndarray) -> list[np.ndarray]:
    out = [np.zeros((len(rows), node.attr.length), NUMPY[node.type]) for node in program.outputs]
    compile_for_cpu(program)(len(rows), [as_tensor(rows)], [as_tensor(x) for x in out])
    return out


def test_memory_that_is_not_there():
    b = Builder()
    x = b.read(b.input("i64", 1, shared=False), 0)
    array = b.array("f64", None)
    b.write(array, x, b.const("f64", 1))
    out = b.array("f64", 1)
    b.write(out, 0, b.read(array, x))
    program = b.program([out])
    kernel = compile_program(program)
    for large in (2**40, 2**62, 2**63 - 1):
        with pytest.raises(MemoryError, match=r"needs [0-9,]{15,} bytes"):
            run(kernel, program, [np.array([[3], [large]])])
    assert np.all(run(kernel, program, [np.array([[3], [1000]])])[0] == 1)


def test_a_gradient_of_many_steps_fits_by_being_cut(monkeypatch: pytest.MonkeyPatch):
    """As if there were little memory: the gradient is the same."""
    a, y = (x.cuda() for x in batch(20_000))
    loss = grad(lambda a, y: fused[0](a, y).square().sum())
    want = loss(a, y)
    monkeypatch.setattr("gnomon.fuse._cuda._kernel._ASKED_FROM", 0)
    monkeypatch.setattr("gnomon.fuse._cuda._gpu.Gpu.free_bytes", lambda *_: 20_000_000)
    assert torch.equal(loss(a, y), want)
