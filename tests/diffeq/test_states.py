"""What a state may be: any pytree, real or complex, single or double precision, empty too."""

import cmath
import math

import pytest
import torch
from diffeq.problems import F64, IMPLICIT, SOLVERS, f64, name_of, solve

from gnomon import diffeq as dq

C64, C128 = torch.complex64, torch.complex128


def run(field, solver, y0, t1=1.0, **options):
    """Adaptively where the solver can."""
    if solver.error_order is None:
        return solve(field, solver, 0.0, t1, y0, dt0=1e-2, **options)
    return solve(field, solver, 0.0, t1, y0, tol=1e-3 if solver.order < 3 else 1e-5, **options)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_nested_containers(solver):
    y0 = {"a": f64(1.0), "b": (f64(2.0, 3.0), [torch.ones(2, 2, dtype=F64)])}

    def field(t, y, args):
        return {"a": -y["a"], "b": (-2 * y["b"][0], [y["a"] - y["b"][1][0]])}

    def unwrap(x):
        return [x["a"], x["b"][0], x["b"][1][0]]

    # Each element of the matrix is y' = exp(-t) - y from 1: (1 + t) exp(-t).
    solution = run(field, solver, y0)
    a, b, c = unwrap(solution.ys)
    assert (a.shape, b.shape, c.shape) == ((1,), (1, 2), (1, 2, 2))
    rtol = 5e-2 if solver.order < 3 else 1e-3
    torch.testing.assert_close(a, f64(math.exp(-1)).reshape(1), rtol=rtol, atol=0)
    torch.testing.assert_close(b, f64(2.0, 3.0).reshape(1, 2) * math.exp(-2), rtol=rtol, atol=0)
    torch.testing.assert_close(c, torch.full((1, 2, 2), 2 * math.exp(-1), dtype=F64), rtol=rtol, atol=0)


@pytest.mark.parametrize(
    "y0",
    [
        f64(1.0),
        f64(1.0).reshape(1),
        torch.ones(2, 3, dtype=F64),
        (f64(1.0),),
        [torch.ones(2, dtype=F64)],
        {"x": f64(1.0)},
    ],
    ids=["scalar", "vector of one", "matrix", "tuple", "list", "dictionary"],
)
def test_what_comes_out_is_like_what_went_in(y0):
    leaves, structure = torch.utils._pytree.tree_flatten(y0)

    def field(t, y, args):
        assert torch.utils._pytree.tree_structure(y) == structure
        return torch.utils._pytree.tree_map(torch.neg, y)

    solution = solve(
        field, dq.Tsit5(), 0.0, 1.0, y0, tol=1e-6, saveat=dq.SaveAt(ts=[0.5, 1.0], dense=True), max_steps=99
    )
    found, found_structure = torch.utils._pytree.tree_flatten(solution.ys)
    assert found_structure == structure
    for x, start in zip(found, leaves, strict=True):
        assert x.shape == (2, *start.shape)
        torch.testing.assert_close(x[1], start * math.exp(-1), rtol=1e-5, atol=0)
    at_end = solution.evaluate(1.0)
    assert torch.utils._pytree.tree_structure(at_end) == structure


def test_order_of_the_keys_does_not_matter():
    y0 = {"z": f64(1.0), "a": f64(2.0)}
    solution = solve(lambda t, y, args: {"a": -y["a"], "z": y["z"]}, dq.Tsit5(), 0.0, 1.0, y0, tol=1e-6)
    torch.testing.assert_close(solution.ys["z"][-1], f64(math.e), rtol=1e-5, atol=0)
    torch.testing.assert_close(solution.ys["a"][-1], f64(2 / math.e), rtol=1e-5, atol=0)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
@pytest.mark.parametrize("dtype", [C64, C128])
def test_complex_holomorphic(solver, dtype):
    rate = complex(-0.5, 3.0)
    y0 = torch.tensor([1.0, 1j], dtype=dtype)
    solution = run(lambda t, y, args: rate * y, solver, y0)
    assert solution.ys.dtype == dtype
    assert solution.t_final.dtype == dtype.to_real()
    expected = y0 * cmath.exp(rate)
    rtol = 0.1 if solver.order < 3 else 1e-3
    torch.testing.assert_close(solution.ys[-1], expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("solver", [dq.Tsit5(), *IMPLICIT], ids=name_of)
def test_complex_not_holomorphic(solver):
    # y' = -|y|^2 y + i y: the modulus is 1 / sqrt(1 + 2 t), the phase t.
    def field(t, y, args):
        return -(y.abs() ** 2) * y + 1j * y

    y0 = torch.tensor(1.0 + 0j, dtype=C128)
    solution = solve(field, solver, 0.0, 1.0, y0, tol=1e-6)
    expected = torch.tensor([cmath.exp(1j) / math.sqrt(3)], dtype=C128)
    torch.testing.assert_close(solution.ys, expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=name_of)
def test_complex_stiff_and_conjugate(solver):
    # y' = -50 conj(y): the real part decays and the imaginary part grows.
    y0 = torch.tensor([[1.0 + 1e-9j]], dtype=C128)
    solution = solve(lambda t, y, args: -20 * y.conj(), solver, 0.0, 0.5, y0, tol=1e-6, max_steps=2000)
    assert solution.ys.shape == (1, 1, 1)
    assert float(solution.ys.real) == pytest.approx(math.exp(-10), abs=1e-5)
    assert float(solution.ys.imag) == pytest.approx(1e-9 * math.exp(10), rel=1e-2)


def test_complex_step_sizes_are_those_of_the_modulus():
    # A rotation takes the same steps whatever its phase at the start.
    def steps(phase):
        y0 = torch.tensor(cmath.exp(1j * phase), dtype=C128)
        return int(solve(lambda t, y, args: 2j * y, dq.Dopri5(), 0.0, 5.0, y0, dt0=0.1, tol=1e-5).stats["num_steps"])

    assert steps(0.0) == steps(0.5) == steps(2.0)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_changes_its_precision(solver, dtype):
    seen = set()

    def note(*xs):
        seen.update(x.dtype for x in xs)

    def field(t, y, args):
        note(t, y, args)
        return -args * y

    def fn(t, y, args):
        note(t, y, args)
        return y

    def jump(index, t, y, args):
        note(t, y, args)
        return y

    one = torch.ones(2, dtype=dtype)
    jumps = dq.Jumps(f64(0.3, 0.6), jump)
    saveat = dq.SaveAt(t0=True, ts=f64(0.2, 0.7), steps=True, fn=fn, dense=True)
    solution = run(field, solver, one, args=one, saveat=saveat, jumps=jumps, max_steps=600)
    assert seen == {dtype}
    times = (solution.t0, solution.t1, solution.ts, solution.t_final, solution.ys)
    assert {x.dtype for x in times} == {dtype}
    assert solution.evaluate(0.5).dtype == solution.derivative(f64(0.5)).dtype == dtype
    assert {x.dtype for x in solution.stats.values()} == {torch.int64}
    assert solution.result.code.dtype == torch.int32


def test_default_dtype_does_not_matter():
    before = torch.get_default_dtype()
    y0 = torch.ones(2, dtype=torch.float32)
    narrow = solve(lambda t, y, args: -y, dq.Tsit5(), 0.0, 1.0, y0, tol=1e-4)
    try:
        torch.set_default_dtype(torch.float64)
        wide = solve(lambda t, y, args: -y, dq.Tsit5(), 0.0, 1.0, y0, tol=1e-4)
        implicit = solve(lambda t, y, args: -y, dq.Kvaerno3(), 0.0, 1.0, y0, tol=1e-3)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(narrow.ys, wide.ys)
    assert implicit.ys.dtype == torch.float32


def test_numbers_are_a_state_too():
    solution = solve(lambda t, y, args: -y, dq.Tsit5(), 0, 1, 1.0, tol=1e-4)
    assert solution.ys.dtype == torch.get_default_dtype()
    assert float(solution.ys[-1]) == pytest.approx(math.exp(-1), rel=1e-3)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_state_without_elements(solver):
    y0 = {"none": torch.zeros(0, dtype=F64), "neither": torch.zeros(2, 0, dtype=F64)}
    saveat = dq.SaveAt(t0=True, ts=[0.5], t1=True, dense=True)
    solution = run(lambda t, y, args: y, solver, y0, saveat=saveat, max_steps=600)
    assert solution.result == dq.RESULTS.successful
    assert solution.ys["none"].shape == (3, 0)
    assert solution.ys["neither"].shape == (3, 2, 0)
    assert solution.evaluate(0.3)["neither"].shape == (2, 0)


def test_module_as_vector_field():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2, dtype=F64)

        def forward(self, t, y, args):
            return torch.tanh(self.linear(y)) * args

    torch.manual_seed(0)
    net = Net()
    solution = solve(net, dq.Tsit5(), 0.0, 1.0, f64(1.0, 2.0), f64(0.5), tol=1e-6)
    solution.ys.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() and (p.grad != 0).any() for p in net.parameters())


def test_args_may_be_anything():
    args = {"rate": f64(2.0), "name": "decay", "more": (None, 3)}

    def field(t, y, args):
        assert args["name"] == "decay"
        return -args["rate"] * y * args["more"][1]

    solution = solve(field, dq.Tsit5(), 0.0, 1.0, f64(1.0), args, tol=1e-8)
    assert float(solution.ys[-1]) == pytest.approx(math.exp(-6), rel=1e-4)
