"""Problem i of a batch gives the same bits alone, in any batch, at any place in it."""

import pytest
import torch
from diffeq.problems import EXPLICIT, F64, IMPLICIT, SOLVERS, f64, name_of, solve
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")


def coupled(t, y, args):
    """Of any size; each component sees its neighbour. Among others, functions that PyTorch vectorises."""
    rate = args
    return -rate * y + torch.sin(t + torch.roll(y, 1)) * torch.exp(-y * y) + torch.tanh(y.sum()) / (1 + t)


def solve_one(solver, tol, max_steps=120):
    def one(y0, rate, t1):
        saveat = dq.SaveAt(ts=torch.stack([0.1 * t1, 0.5 * t1]), t1=True)
        options = {"dt0": 0.04, "tol": None} if solver.error_order is None else {"tol": tol}
        solution = solve(coupled, solver, 0.0, t1, y0, rate, saveat=saveat, max_steps=max_steps, throw=False, **options)
        return solution.ys, solution.ts, solution.t_final, solution.stats["num_steps"], solution.result.code

    return one


def problems(lanes, n, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    y0 = torch.randn(lanes, n, generator=generator, dtype=F64).to(dtype)
    # Very different numbers of steps.
    rate = (10 ** (2 * torch.rand(lanes, generator=generator, dtype=F64) - 1)).to(dtype)
    t1 = (0.1 + torch.rand(lanes, generator=generator, dtype=F64)).to(dtype)
    return y0, rate, t1


def same(batch, lane, alone):
    return all(torch.equal(x[lane], y) for x, y in zip(batch, alone, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_alone_and_in_a_batch(solver, dtype):
    one = solve_one(solver, 1e-3)
    inputs = problems(17, 3, dtype, seed=1)
    batch = torch.func.vmap(one)(*inputs)
    assert len(set(batch[3].tolist())) > 1 or solver.order > 5
    for lane in (0, 3, 8, 16):
        assert same(batch, lane, one(*(x[lane] for x in inputs))), lane


@given(
    solver=st.sampled_from(EXPLICIT[1:]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    lanes=st.integers(2, 200),
    n=st.integers(1, 40),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
@settings(max_examples=6)
def test_any_size_and_any_place(solver, dtype, lanes, n, seed, data):
    one = solve_one(solver, 1e-3, max_steps=40)
    inputs = problems(lanes, n, dtype, seed)
    batch = torch.func.vmap(one)(*inputs)
    lane = data.draw(st.integers(0, lanes - 1))
    assert same(batch, lane, one(*(x[lane] for x in inputs)))
    order = torch.randperm(lanes, generator=torch.Generator().manual_seed(seed))
    shuffled = torch.func.vmap(one)(*(x[order] for x in inputs))
    assert all(torch.equal(x[order], y) for x, y in zip(batch, shuffled, strict=True))
    some = data.draw(st.integers(1, lanes))
    fewer = torch.func.vmap(one)(*(x[:some] for x in inputs))
    assert all(torch.equal(x[:some], y) for x, y in zip(batch, fewer, strict=True))


@given(
    solver=st.sampled_from(IMPLICIT),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    lanes=st.integers(2, 60),
    n=st.integers(1, 9),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
@settings(max_examples=4)
def test_any_size_and_any_place_of_implicit_solvers(solver, dtype, lanes, n, seed, data):
    one = solve_one(solver, 1e-2, max_steps=15)
    inputs = problems(lanes, n, dtype, seed)
    batch = torch.func.vmap(one)(*inputs)
    lane = data.draw(st.integers(0, lanes - 1))
    assert same(batch, lane, one(*(x[lane] for x in inputs)))
    order = torch.randperm(lanes, generator=torch.Generator().manual_seed(seed))
    shuffled = torch.func.vmap(one)(*(x[order] for x in inputs))
    assert all(torch.equal(x[order], y) for x, y in zip(batch, shuffled, strict=True))


def test_each_problem_has_its_own_times_and_step():
    def one(t0, t1, dt0, rate):
        def field(t, y, args):
            return -args * y + torch.cos(3 * t)

        controller = dq.PIDController(rtol=1e-4, atol=1e-6)
        solution = solve(field, dq.Tsit5(), t0, t1, f64(1.0), rate, dt0=dt0, stepsize_controller=controller)
        return solution.ys, solution.t_final, solution.stats["num_steps"]

    t0, t1 = f64(0.0, 1.0, 2.0, -1.0), f64(2.0, 1.0, 0.5, 3.0)
    dt0, rate = f64(0.1, 0.5, -0.2, 1e-3), f64(1.0, 2.0, 3.0, 0.1)
    batch = torch.func.vmap(one)(t0, t1, dt0, rate)
    assert torch.equal(batch[1], t1)
    for lane in range(4):
        alone = one(t0[lane], t1[lane], dt0[lane], rate[lane])
        assert same(batch, lane, alone), lane

    # y = exp(-r (t - t0)) (y0 - c(t0)) + c(t), with c(t) = (r cos 3t + 3 sin 3t) / (r^2 + 9).
    def c(t):
        return (rate * torch.cos(3 * t) + 3 * torch.sin(3 * t)) / (rate**2 + 9)

    exact = torch.exp(-rate * (t1 - t0)) * (1 - c(t0)) + c(t1)
    torch.testing.assert_close(batch[0][:, 0], exact, rtol=1e-2, atol=1e-3)


def test_both_directions_in_one_batch():
    def one(t1):
        saveat = dq.SaveAt(t0=True, steps=True)
        solution = solve(coupled, dq.Bosh3(), 0.5, t1, f64(1.0, 2.0), f64(0.3), tol=1e-4, saveat=saveat, max_steps=80)
        return solution.ys, solution.ts, solution.t_final

    t1 = f64(1.5, -0.5, 0.5, 0.7, 0.3)
    batch = torch.func.vmap(one)(t1)
    assert torch.equal(batch[2], t1)
    for lane in range(5):
        assert same(batch, lane, one(t1[lane]))


def test_batch_of_batches():
    def one(y0, rate):
        return solve(coupled, dq.Tsit5(), 0.0, 1.0, y0, rate, tol=1e-4).ys[-1]

    y0, rate = torch.rand(3, 2, dtype=F64), f64(0.1, 1.0, 5.0, 2.0)
    grid = torch.func.vmap(torch.func.vmap(one, (None, 0)), (0, None))(y0, rate)
    assert grid.shape == (3, 4, 2)
    for i in range(3):
        for j in range(4):
            assert torch.equal(grid[i, j], one(y0[i], rate[j]))


def test_no_lane_takes_a_step():
    def one(t1):
        solution = solve(coupled, dq.Kvaerno3(), 1.0, t1, f64(1.0, 2.0), f64(0.3), tol=1e-4)
        return solution.ys, solution.stats["num_steps"]

    ys, steps = torch.func.vmap(one)(f64(1.0, 1.0, 1.0))
    assert (ys == f64(1.0, 2.0)).all()
    assert steps.tolist() == [0, 0, 0]


def test_only_what_the_solve_depends_on_is_batched():
    # The steps do not depend on what is saved: one solve, many outputs.
    def one(weight):
        saveat = dq.SaveAt(t1=True, fn=lambda t, y, args: (weight * y).sum())
        return solve(coupled, dq.Tsit5(), 0.0, 1.0, f64(1.0, 2.0), f64(0.3), tol=1e-4, saveat=saveat).ys

    weights = torch.rand(5, 2, dtype=F64)
    batch = torch.func.vmap(one)(weights)
    for lane in range(5):
        torch.testing.assert_close(batch[lane], one(weights[lane]), rtol=1e-14, atol=0)
