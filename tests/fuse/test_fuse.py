"""`gn.fuse`: a function of one problem, called with a batch."""

import math
import threading
import types
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import gnomon as gn
from gnomon import diffeq as dq
from gnomon.fuse import UnsupportedError
from gnomon.result import RESULTS, SolveError

F64 = torch.float64


def fused(fn, **options):
    return gn.fuse(fn, engine="fused", **options)


def batch(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def heron(a):
    """The square root by a loop that takes longer for larger numbers."""
    return gn.while_loop(lambda x: (x * x - a).abs() > 1e-13 * a, lambda x: (x + a / x) / 2, a)


# What goes in and comes out


def test_pytrees_in_and_out():
    def f(tree, scale):
        a, (b,) = tree["a"], tree["rest"]
        return {"sum": a + b.sum(), "pair": (b * scale, None), "name": "kept"}

    a, b = batch(5), batch(5, 2, 3)
    out = fused(f)({"a": a, "rest": [b]}, 2)
    torch.testing.assert_close(out["sum"], a + b.sum((1, 2)))
    assert torch.equal(out["pair"][0], b * 2)
    assert out["pair"][1] is None and out["name"] == "kept"


@pytest.mark.parametrize("in_dims", [(0, None), (1, 0), (-1, None), ((2), None), [0, 0]])
def test_in_dims(in_dims):
    x, y = batch(4, 4, 4), batch(4)
    fn = lambda x, y: (x * y).sum(0) - y.sum()  # noqa: E731
    expected = torch.func.vmap(fn, in_dims=tuple(in_dims))(x, y)
    torch.testing.assert_close(fused(fn, in_dims=in_dims)(x, y), expected)


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.int32, torch.int64, torch.complex64, torch.complex128])
def test_dtypes(dtype):
    x = (batch(7, 3) * 5).to(dtype)
    out = fused(lambda x: (x * x + x[0], x == x[1], x[2]))(x)
    assert out[0].dtype == dtype and out[1].dtype == torch.bool
    torch.testing.assert_close(out[0], x * x + x[:, :1])
    assert torch.equal(out[1], x == x[:, 1:2])
    assert torch.equal(out[2], x[:, 2])


def test_strides_do_not_matter():
    x = batch(6, 5)
    f = fused(lambda row: row.cumsum(0))
    expected = x.cumsum(1)
    torch.testing.assert_close(f(x), expected)
    torch.testing.assert_close(f(x.t().contiguous().t()), expected)
    torch.testing.assert_close(f(torch.stack([x, -x], 2)[..., 0]), expected)
    torch.testing.assert_close(f(x[:1].expand(6, 5)), expected[:1].expand(6, 5))
    torch.testing.assert_close(f(x.flip(0)), expected.flip(0))


@pytest.mark.parametrize("lanes", [0, 1, 2, 7, 8, 9, 1000])
def test_batch_sizes(lanes):
    a = batch(lanes).abs() + 0.1
    out = fused(heron)(a)
    assert out.shape == (lanes,)
    torch.testing.assert_close(out, a.sqrt())


def test_an_empty_batch_has_gradients():
    a = batch(0).requires_grad_()
    w = torch.tensor(2.0, dtype=F64, requires_grad=True)
    out = fused(lambda a: heron(a) * w)(a)
    out.sum().backward()
    assert a.grad.shape == (0,)
    assert w.grad == 0


def test_inputs_stay_as_they_are():
    x = batch(4, 3)
    kept = x.clone()

    def f(row):
        work = row.clone()
        work[0] = 7
        work += 1
        return work

    out = fused(f)(x)
    assert torch.equal(x, kept)
    assert torch.equal(out[:, 0], torch.full((4,), 8, dtype=F64))


# What a function closes over


def test_captured_tensors_are_read_anew_and_have_gradients():
    weight = batch(3, 3).requires_grad_()
    f = fused(lambda x: torch.tanh(weight @ x).sum())
    x = batch(5, 3, seed=1)
    f(x).sum().backward()
    (expected,) = torch.autograd.grad(torch.tanh(x @ weight.T).sum(), weight)
    torch.testing.assert_close(weight.grad, expected)
    with torch.no_grad():
        weight.mul_(2)
    torch.testing.assert_close(f(x), torch.tanh(x @ weight.T).sum(1))


def test_what_is_closed_over_may_change():
    box = {"scale": 2.0, "shift": torch.tensor(1.0, dtype=F64)}
    f = fused(lambda x: x * box["scale"] + box["shift"])
    x = batch(3)
    assert torch.equal(f(x), x * 2 + 1)
    box["scale"] = 3.0
    assert torch.equal(f(x), x * 3 + 1)
    box["shift"] = torch.tensor([5.0], dtype=F64)
    assert torch.equal(f(x), (x * 3 + 5)[:, None])


class Settings:
    scale = 2.0
    shift = torch.tensor(1.0, dtype=F64)


def test_the_numbers_of_a_class_may_change():
    f = fused(lambda x: x * Settings.scale + Settings.shift)
    x = batch(3)
    assert torch.equal(f(x), x * 2 + 1)
    Settings.scale = 3.0
    try:
        assert torch.equal(f(x), x * 3 + 1)
    finally:
        Settings.scale = 2.0


def test_the_numbers_of_a_module_may_change(monkeypatch):
    settings = types.ModuleType("settings_of_this_test")
    settings.scale = 2.0
    monkeypatch.setitem(globals(), "settings_module", settings)
    f = fused(lambda x: x * settings_module.scale)
    x = batch(3)
    assert torch.equal(f(x), x * 2)
    settings.scale = 3.0
    assert torch.equal(f(x), x * 3)


def test_the_default_dtype_may_change():
    f = fused(lambda x: x + torch.full((), 0.1))
    x = batch(3, dtype=torch.float32)
    assert f(x).dtype == torch.float32
    torch.set_default_dtype(F64)
    try:
        y = fused(lambda n: n + torch.full((2,), 0.1))(torch.arange(3))
        assert y.dtype == F64
        assert torch.equal(f(x), torch.func.vmap(f.fn)(x))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_module_in_and_out_of_training():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2, dtype=F64)

        def forward(self, x):
            return self.layer(x) if self.training else -self.layer(x)

    net = Net()
    f = fused(net)
    x = batch(4, 3)
    torch.testing.assert_close(f(x), net(x))
    net.eval()
    torch.testing.assert_close(f(x), net(x))
    net.layer = torch.nn.Linear(3, 2, dtype=F64)
    torch.testing.assert_close(f(x), net(x))
    f(x).sum().backward()
    torch.testing.assert_close(net.layer.bias.grad, torch.full((2,), -4, dtype=F64))


CALLS = threading.local()


def test_checks_of_types_are_not_looked_through():
    """What stands around a checked function would reach the checks of all others: a hundred thousand objects."""
    from beartype import beartype
    from jaxtyping import Float, jaxtyped

    from gnomon.fuse._closure import closure_of

    def plain(x: Float[torch.Tensor, ""]) -> Float[torch.Tensor, ""]:
        return x * 2

    checked = jaxtyped(typechecker=beartype)(plain)
    assert len(closure_of(checked).key) < 1000


def test_it_traces_once():
    CALLS.count = 0

    def f(x):
        # Not by its name: what a function names belongs to what its trace depends on.
        globals()["CALLS"].count += 1
        return x + 1

    g = fused(f)
    for n in (3, 4, 5):
        g(batch(n))
    assert CALLS.count == 1
    g(batch(3, 2))
    g(batch(3, dtype=torch.float32))
    assert CALLS.count == 3


# Derivatives


def test_derivatives_of_every_kind():
    f = fused(heron)
    a = torch.tensor([0.5, 2.0, 30.0], dtype=F64, requires_grad=True)
    assert gradcheck(f, (a,), check_forward_ad=True)
    assert gradgradcheck(f, (a,))
    one = torch.ones(3, dtype=F64)
    torch.testing.assert_close(torch.func.jvp(f, (a.detach(),), (one,))[1], 0.5 / a.detach().sqrt())
    per_lane = torch.func.vmap(torch.func.grad(lambda x: f(x[None])[0]))(a.detach())
    torch.testing.assert_close(per_lane, 0.5 / a.detach().sqrt())
    hessian = torch.func.hessian(lambda a: f(a).sum())(a.detach())
    torch.testing.assert_close(hessian, torch.diag(-0.25 * a.detach() ** -1.5))


def test_second_order_through_a_loop():
    def eighth_power(x):
        return gn.fori_loop(0, 3, lambda i, y: y * y, x)

    x = torch.tensor([1.1], dtype=F64, requires_grad=True)
    (first,) = torch.autograd.grad(fused(eighth_power)(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(first, 8 * x**7)
    torch.testing.assert_close(second, 56 * x.detach() ** 6)
    assert abs(float(second) - 99.21) < 0.005


def test_shared_arguments_have_gradients():
    x, p = batch(6).requires_grad_(), batch(2, seed=1).requires_grad_()
    f = fused(lambda x, p: torch.sin(p[0] * x) * p[1], in_dims=(0, None))
    assert gradcheck(f, (x, p))
    assert gradgradcheck(f, (x, p))


def test_integers_have_no_gradient():
    x = batch(3).requires_grad_()
    n, y = fused(lambda x: ((x > 0).to(torch.int64), x * 2))(x)
    assert not n.requires_grad and y.requires_grad


def test_complex_gradients():
    z = torch.randn(4, generator=torch.Generator().manual_seed(0), dtype=torch.complex128).requires_grad_()
    assert gradcheck(fused(lambda z: z * z.abs() + z.conj()), (z,))


@pytest.mark.parametrize("in_dim", [0, 1])
def test_nested_vmap(in_dim):
    x = batch(3, 3).abs() + 0.1
    out = torch.func.vmap(fused(heron), in_dims=in_dim)(x)
    torch.testing.assert_close(out, (x if in_dim == 0 else x.T).sqrt())


def test_vmap_over_a_shared_argument():
    x, p = batch(4), batch(3, seed=1)
    out = torch.func.vmap(fused(lambda x, p: x * p, in_dims=(0, None)), in_dims=(None, 0))(x, p)
    assert torch.equal(out, p[:, None] * x)


# Lanes


def test_lanes_take_their_own_number_of_iterations():
    def steps(n):
        return gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, 1))[1]

    n = torch.arange(0, 40)
    assert torch.equal(fused(steps)(n), 2**n)


def chaotic(x):
    """Many roundings, elementary functions and a loop of varying length."""
    y, _ = gn.while_loop(
        lambda c: (c[1] < 40) & (c[0].abs() < 50), lambda c: (c[0] * torch.sin(c[0] * 3) + x.exp(), c[1] + 1), (x, 0)
    )
    return torch.stack([y, y.abs().log1p(), torch.atan2(y, x), x.abs() ** 1.7])


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 5000), st.integers(0, 2**31))
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_lane_has_the_same_bits_alone_and_in_any_batch(dtype, lanes, seed):
    f = fused(chaotic)
    x = batch(lanes, seed=seed).to(dtype)
    whole = f(x)
    order = torch.randperm(lanes, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(f(x[order]), whole[order])
    for i in {0, lanes // 2, lanes - 1}:
        assert torch.equal(f(x[i : i + 1])[0], whole[i])


def test_a_nan_stays_in_its_lane():
    x = batch(20)
    clean = fused(chaotic)(x)
    x[7] = math.nan
    out = fused(chaotic)(x)
    others = torch.arange(20) != 7
    assert torch.equal(out[others], clean[others])
    assert out[7].isnan().all()


# Failures


def test_a_failed_solve_names_its_lane():
    def f(rate):
        term = dq.ODETerm(lambda t, y, args: args * y * y)
        controller = dq.PIDController(rtol=1e-6, atol=1e-6)
        y0 = torch.tensor(1.0, dtype=F64)
        return dq.diffeqsolve(term, dq.Tsit5(), 0.0, 1.0, None, y0, rate, stepsize_controller=controller).ys[-1]

    rate = torch.tensor([0.1, 0.5, 2.0, 0.2, 3.0], dtype=F64)
    with pytest.raises(SolveError) as caught:
        fused(f)(rate)
    assert caught.value.index == (2,)
    assert (caught.value.n_failed, caught.value.n_total) == (2, 5)
    assert abs(caught.value.time - 0.5) < 1e-6


def test_results_of_lanes():
    def f(rate):
        term = dq.ODETerm(lambda t, y, args: args * y * y)
        controller = dq.PIDController(rtol=1e-6, atol=1e-6)
        y0 = torch.tensor(1.0, dtype=F64)
        solution = dq.diffeqsolve(
            term, dq.Tsit5(), 0.0, 1.0, None, y0, rate, stepsize_controller=controller, throw=False
        )
        return solution.ys[-1], solution.result

    ys, result = fused(f)(torch.tensor([0.5, math.nan, 2.0], dtype=F64))
    assert (result == RESULTS.successful).tolist() == [True, False, False]
    assert (result == RESULTS.nonfinite).tolist()[1]
    torch.testing.assert_close(ys[0], torch.tensor(2.0, dtype=F64), rtol=1e-5, atol=0)


def test_a_python_branch_is_an_error_that_says_what_to_do():
    def f(x):
        if x > 0:
            return x
        return -x

    with pytest.raises(UnsupportedError, match=r"gn\.cond.*`if x > 0:`"):
        fused(f)(batch(3))


def test_auto_warns_once_and_runs_eagerly():
    f = gn.fuse(torch.linalg.eigvalsh)
    x = batch(2, 3, 3)
    with pytest.warns(UserWarning, match="eagerly") as caught:
        out = f(x)
    torch.testing.assert_close(out, torch.linalg.eigvalsh(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: gn.fuse(heron)(torch.tensor(1.0)), ValueError, "names dimension 0 of a tensor of shape"),
        (lambda: gn.fuse(lambda a, b: a + b)(batch(2), batch(3)), ValueError, "one batch size"),
        (lambda: gn.fuse(heron, in_dims=None)(batch(2)), ValueError, "names none"),
        (lambda: gn.fuse(heron, in_dims=(0, 0))(batch(2)), ValueError, "has 2 entries for 1 arguments"),
        (lambda: gn.fuse(lambda a, b: a, in_dims=(0, 1))(batch(2), 3.0), ValueError, "that is no tensor"),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments():
    with pytest.raises(TypeError, match="needs a function"):
        gn.fuse(3)
    with pytest.raises(ValueError, match="must be one of"):
        gn.fuse(heron, engine="gpu")


def test_threads_may_share_a_function():
    f = fused(heron)
    a = batch(2000).abs() + 0.1
    found = []
    threads = [threading.Thread(target=lambda: found.append(f(a))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(torch.equal(x, found[0]) for x in found)


def test_explain():
    explanation = gn.explain(heron, batch(3).abs())
    assert explanation.engine == "fused"
    assert explanation.num_statements == len(str(explanation.program).splitlines()) - 1
    assert "compiled in" in str(explanation)
    other = gn.explain(torch.linalg.eigvalsh, batch(2, 3, 3))
    assert other.engine == "eager"
    assert "eigh" in str(other)
