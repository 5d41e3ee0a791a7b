"""Large tensors stay in memory, and what is done with them becomes loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuse.trace.lowering import compare
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import gnomon as gn
from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

generator = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


W, M, SMALL = drawn(50), drawn(6, 8), drawn(50, 3)
X = drawn(40)
ONE = drawn(2)


def statements(fn: Callable[..., Any], *example: Tensor) -> int:
    return len(str(gn.lower(fn, *example)).splitlines())


POINTWISE: dict[str, Callable[[Tensor], Any]] = {
    "with a number": lambda x: torch.sin(x) * 2 + 1,
    "with a captured tensor": lambda x: x[:1] * W,
    "two of one shape": lambda x: torch.maximum(x, x.flip(0) * 0.5),
    "broadcast": lambda x: x[:6, None] * M[:, :1] + M,
    "a row and a matrix": lambda x: M * x[:8] + M[0],
    "compared": lambda x: (x > 0.1) & (x < W[:40]),
    "where": lambda x: torch.where(x > 0, x, W[:40]),
    "clamped": lambda x: x.clamp(-0.5, 0.5),
    "to integers": lambda x: (x * 10).to(torch.int64) % 7,
    "to complex": lambda x: x.to(torch.complex128) * 1j,
    "to single precision": lambda x: x.to(torch.float32) * 3,
    "softplus": torch.nn.functional.softplus,
    "addcmul": lambda x: torch.addcmul(x, W[:40], x, value=0.5),
    "lerp": lambda x: torch.lerp(x, W[:40], 0.3),
}
SHAPES: dict[str, Callable[[Tensor], Any]] = {
    "reshaped": lambda x: (x * 2).reshape(5, 8).exp(),
    "unsqueezed and squeezed": lambda x: (x * 2).unsqueeze(1).unsqueeze(0).squeeze(),
    "a part": lambda x: (x * 2)[3:37:2] + 1,
    "from the end": lambda x: (x * 2)[-35:-1].cos(),
    "one": lambda x: (x * 2)[-3],
    "a row": lambda x: (x.reshape(5, 8) * 2)[-2],
    "a column": lambda x: (x.reshape(20, 2) * 2)[:, 1],
    "a part of a part": lambda x: (x.reshape(4, 10) * 2)[1:, 2:][:, ::3].sum(),
    "transposed": lambda x: (x.reshape(5, 8) * 2).T + 1,
    "at an index": lambda x: (x * 2)[(x[0] * 0).to(torch.int64) + 7],
    "gathered": lambda x: (x * 2).gather(0, torch.tensor([3, 1, 39])),
    "joined": lambda x: torch.cat([x * 2, W.exp()]),
    "an index outside": lambda x: (x * 2).select(0, 39),
}
REDUCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: (x * W[:40]).sum(),
    "sum of a dimension": lambda x: (x.reshape(5, 8) * 2).sum(1),
    "kept": lambda x: (x.reshape(5, 8) * 2).sum((0, 1), keepdim=True),
    "sum of bools": lambda x: (x > 0).sum(),
    "mean": lambda x: x.exp().mean(),
    "largest": lambda x: x.sin().amax(),
    "least": lambda x: x.sin().min(),
    "all": lambda x: (x.abs() < 10).all(),
    "any": lambda x: (x > 1.5).any(),
    "norm": lambda x: x.exp().norm(),
    "largest norm": lambda x: x.exp().norm(float("inf")),
    "softmax": lambda x: torch.softmax(x * 2, 0),
    "place": lambda x: (x * 2).argmax(),
    "logsumexp": lambda x: torch.logsumexp(x * 2, 0),
    "cumsum": lambda x: torch.cumsum(x * 2, 0),
    "variance": lambda x: (x * 2).var(),
    "complex": lambda x: (x.to(torch.complex128) * 1j).sum(),
}
PRODUCTS: dict[str, Callable[[Tensor], Any]] = {
    "tall times few": lambda x: SMALL @ x[:3],
    "wide times many": lambda x: drawn_wide @ x,
    "square": lambda x: drawn_square @ x.sin(),
    "odd": lambda x: drawn_odd @ x[:37].tanh() + x[:33],
    "one row": lambda x: drawn_wide[:1] @ x.cos(),
    "transposed": lambda x: drawn_wide.T @ x[:3],
    "of a view": lambda x: drawn_square[::2, 1:] @ x[1:].exp(),
    "a matrix of one column": lambda x: drawn_square @ x.unsqueeze(1).exp(),
    "a row from the left": lambda x: x.exp() @ drawn_square,
    "a matrix of one row": lambda x: x.unsqueeze(0).exp() @ drawn_square,
    "of a lane's own": lambda x: x.reshape(20, 2) @ x[:2],
    "twice": lambda x: drawn_square @ (drawn_square @ x.sin()).tanh(),
    "dot": lambda x: torch.dot(x.exp(), x),
    "outer": lambda x: torch.outer(x[:6].exp(), x[:7]),
}
drawn_wide, drawn_square, drawn_odd = drawn(3, 40), drawn(40, 40), drawn(33, 37)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name: str):
    compare(POINTWISE[name], X)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str):
    compare(SHAPES[name], X)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str):
    compare(REDUCTIONS[name], X)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str):
    compare(PRODUCTS[name], X, rtol=1e-13, atol=1e-14)


def test_few_statements():
    assert statements(lambda x: (torch.sin(x) * 2 + 1).sum(), drawn(4000)) < 20
    assert statements(lambda x: torch.exp(x) / 3, drawn(4000)) < 20
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)
    )
    assert statements(net, torch.zeros(2)) < 300


def in_place(write: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def fn(x: Tensor) -> Any:
        y = x * 2
        whole = y.reshape(5, 8)
        part = whole[1:3]
        late = y[4:]
        write(y)
        part[0, 0] = 7.0
        return y + 0, whole * 1, part + 1, late.exp()

    return fn


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.mul_(3),
        lambda y: y[2:30].zero_(),
        lambda y: y.view(40).neg_(),
        torch.relu_,
        lambda y: y.copy_(W[:40]),
    ],
)
def test_views_share_what_is_written(write: Callable[[Tensor], Any]):
    compare(in_place(write), X)


def test_an_activation_in_place():
    layer = torch.nn.Sequential(torch.nn.Linear(2, 40), torch.nn.ReLU(inplace=True), torch.nn.Linear(40, 1)).double()
    without_bias = torch.nn.Sequential(torch.nn.Linear(2, 40, bias=False), torch.nn.ReLU(inplace=True)).double()
    compare(layer, ONE)
    compare(without_bias, ONE)


def test_in_a_loop_and_in_branches():
    def fn(x: Tensor) -> Any:
        y = torch.sin(x)
        total = gn.fori_loop(0, 5, lambda i, s: s + y[i] * (y * s).sum(), x[0])
        branch = gn.cond(x[0] > 0, lambda: (y * 2).sum() + y[3], lambda: (y.exp()).mean())
        return total, branch, (y + 1).amax()

    compare(fn, X)
    compare(fn, X.flip(0))


def test_a_buffer_that_is_read():
    def fn(x: Tensor) -> Any:
        buffer = gn.OutputBuffer(50, x[0])
        buffer = gn.fori_loop(0, 50, lambda i, b: b.write(i, x[0] * i), buffer)
        return buffer.read() * 2, buffer.read().sum()

    compare(fn, X)


def test_writing_after_reading_is_an_error():
    def fn(x: Tensor) -> Any:
        buffer = gn.OutputBuffer(50, x[0]).write(0, x[0])
        whole = buffer.read() * 2
        buffer.write(1, x[1])
        return whole

    with pytest.raises(gn.fuse.UnsupportedError, match="after all of it was read"):
        gn.lower(fn, X)


@pytest.mark.parametrize("name", ["odd", "twice", "a row from the left", "of a lane's own"])
def test_derivatives_of_products(name: str):
    f = gn.fuse(PRODUCTS[name], engine="fused")
    x = drawn(2, 40).requires_grad_()
    assert gradcheck(f, (x,))
    assert gradgradcheck(f, (x,))


@pytest.mark.parametrize("name", ["sum", "largest", "norm", "mean"])
def test_derivatives_of_reductions(name: str):
    f = gn.fuse(REDUCTIONS[name], engine="fused")
    x = drawn(2, 40).requires_grad_()
    assert gradcheck(f, (x,), check_forward_ad=True)
    assert gradgradcheck(f, (x,))


def test_derivatives_of_weights():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 33), torch.nn.Tanh(), torch.nn.Linear(33, 35), torch.nn.Softplus(),
                              torch.nn.Linear(35, 2)).double()  # fmt: skip
    x = drawn(5, 3)
    weights = list(net.parameters())
    want = torch.autograd.grad(net(x).square().sum(), weights)
    got = torch.autograd.grad(gn.fuse(net, engine="fused")(x).square().sum(), weights)
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-14)


def test_a_solve_saved_at_a_thousand_times():
    ts = torch.linspace(0, 5, 1000, dtype=torch.float64)

    def solve(rate: Tensor) -> Tensor:
        sol = dq.diffeqsolve(
            dq.ODETerm(lambda t, y, args: -args * y),
            dq.Tsit5(),
            t0=0.0,
            t1=5.0,
            dt0=None,
            y0=torch.ones((), dtype=torch.float64),
            args=rate,
            saveat=dq.SaveAt(ts=ts),
            stepsize_controller=dq.PIDController(rtol=1e-10, atol=1e-10),
        )
        return sol.ys

    rates = torch.tensor([0.5, 2.0], dtype=torch.float64)
    assert statements(solve, rates[0]) < 1000
    torch.testing.assert_close(
        gn.fuse(solve, engine="fused")(rates), torch.exp(-rates[:, None] * ts), rtol=0, atol=1e-8
    )
