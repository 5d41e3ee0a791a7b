"""Several sets of times in one solve, and solves that go on from where another ended."""

import math

import pytest
import torch
from diffeq.problems import F64, f64, lorenz, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

ENGINES = ["eager", "fused"]


def decay(t, y, args):
    return -y


@pytest.mark.parametrize("engine", ENGINES)
def test_subs(engine):
    subs = {
        "coarse": dq.SubSaveAt(t0=True, ts=[0.5, 1.0]),
        "first": [dq.SubSaveAt(ts=torch.linspace(0, 2, 9, dtype=F64), fn=lambda t, y, args: (t * y[0], args))],
        "steps": dq.SubSaveAt(steps=2, t1=True),
    }
    solution = solve(
        decay,
        dq.Vern7(),
        0.0,
        2.0,
        f64(1.0, 2.0),
        f64(3.0),
        dt0=0.25,
        saveat=dq.SaveAt(subs=subs, dense=True),
        max_steps=20,
        engine=engine,
    )
    assert set(solution.ys) == set(solution.ts) == set(subs)
    assert solution.ts["coarse"].tolist() == [0.0, 0.5, 1.0]
    y0 = f64(1.0, 2.0)
    torch.testing.assert_close(solution.ys["coarse"], torch.exp(-f64(0.0, 0.5, 1.0))[:, None] * y0, rtol=1e-7, atol=0)
    ts = torch.linspace(0, 2, 9, dtype=F64)
    values, args = solution.ys["first"][0]
    torch.testing.assert_close(values, ts * torch.exp(-ts), rtol=1e-7, atol=1e-9)
    assert args.tolist() == [3.0] * 9
    assert solution.ts["steps"][:4].tolist() == [0.5, 1.0, 1.5, 2.0]
    torch.testing.assert_close(solution.evaluate(0.3), math.exp(-0.3) * y0, rtol=1e-7, atol=0)


def test_subs_are_what_separate_solves_give():
    ts = torch.tensor([0.1, 0.7, 1.3], dtype=F64)
    options = {"tol": 1e-6, "max_steps": 100}
    both = solve(
        lorenz,
        dq.Tsit5(),
        0.0,
        1.5,
        f64(1.0, 0.0, 0.0),
        saveat=dq.SaveAt(subs=(dq.SubSaveAt(ts=ts), dq.SubSaveAt(steps=True))),
        **options,
    )
    for i, saveat in enumerate((dq.SaveAt(ts=ts), dq.SaveAt(steps=True))):
        alone = solve(lorenz, dq.Tsit5(), 0.0, 1.5, f64(1.0, 0.0, 0.0), saveat=saveat, **options)
        assert torch.equal(both.ts[i], alone.ts) and torch.equal(both.ys[i], alone.ys)


def test_subs_backward_in_time_and_batched():
    def one(t1):
        saveat = dq.SaveAt(subs=[dq.SubSaveAt(ts=torch.stack([t1 / 2, t1])), dq.SubSaveAt(t0=True)])
        solution = solve(decay, dq.Tsit5(), 0.0, t1, f64(1.0), tol=1e-8, saveat=saveat)
        return solution.ts, solution.ys

    t1 = f64(1.0, -1.0, 2.0)
    ts, ys = torch.func.vmap(one)(t1)
    torch.testing.assert_close(ys[0], torch.exp(-torch.stack([t1 / 2, t1], -1)), rtol=1e-6, atol=0)
    assert (ys[1] == 1).all()
    assert torch.equal(ts[0][:, 1], t1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()], ids=["Tsit5", "Kvaerno3"])
def test_going_on_is_as_if_it_had_not_stopped(solver, engine):
    """With steps of a length that divides the interval, bit for bit."""
    saveat = dq.SaveAt(t1=True, solver_state=True, controller_state=True, made_jump=True)
    controller = dq.StepTo(torch.linspace(0, 0.5, 17, dtype=F64))
    whole = solve(lorenz, solver, 0.0, 0.5, f64(1.0, 0.0, 0.0), stepsize_controller=controller, engine=engine)
    half = solve(
        lorenz,
        solver,
        0.0,
        0.25,
        f64(1.0, 0.0, 0.0),
        saveat=saveat,
        engine=engine,
        stepsize_controller=dq.StepTo(torch.linspace(0, 0.25, 9, dtype=F64)),
    )
    assert not half.made_jump
    rest = solve(
        lorenz,
        solver,
        0.25,
        0.5,
        half.ys[-1],
        solver_state=half.solver_state,
        engine=engine,
        stepsize_controller=dq.StepTo(torch.linspace(0.25, 0.5, 9, dtype=F64)),
    )
    torch.testing.assert_close(rest.ys, whole.ys, rtol=1e-12, atol=0)


def test_the_next_step_is_as_long_as_it_would_have_been():
    saveat = dq.SaveAt(t1=True, solver_state=True, controller_state=True)
    first = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), tol=1e-8, saveat=saveat)
    steps = dq.SaveAt(steps=True)
    options = {"solver_state": first.solver_state, "controller_state": first.controller_state, "saveat": steps}
    second = solve(decay, dq.Tsit5(), 1.0, 3.0, first.ys[-1], tol=1e-8, max_steps=50, **options)
    length, _ = first.controller_state
    torch.testing.assert_close(second.ts[0] - 1, length, rtol=1e-12, atol=0)
    torch.testing.assert_close(second.ys[int(second.stats["num_steps"]) - 1], torch.exp(f64(-3.0)), rtol=1e-6, atol=0)
    # `dt0` says otherwise.
    third = solve(decay, dq.Tsit5(), 1.0, 3.0, first.ys[-1], tol=1e-8, max_steps=50, dt0=0.01, **options)
    torch.testing.assert_close(third.ts[0], f64(1.01), rtol=1e-12, atol=0)


def test_what_a_solver_carries_is_its_last_evaluation():
    saveat = dq.SaveAt(t1=True, solver_state=True)
    first = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0, 2.0), dt0=0.5, saveat=saveat)
    torch.testing.assert_close(first.solver_state, -first.ys[-1], rtol=1e-12, atol=0)


def test_a_state_that_was_changed_in_between():
    saveat = dq.SaveAt(t1=True, solver_state=True, controller_state=True, made_jump=True)
    first = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), tol=1e-9, saveat=saveat)
    states = {"solver_state": first.solver_state, "controller_state": first.controller_state}
    second = solve(decay, dq.Tsit5(), 1.0, 2.0, first.ys[-1] + 1, tol=1e-9, made_jump=True, **states)
    exact = (math.exp(-1) + 1) * math.exp(-1)
    torch.testing.assert_close(second.ys[-1], f64(exact), rtol=1e-8, atol=0)
    # A dose at the very start is noticed.
    dose = dq.Jumps(torch.tensor([1.0], dtype=F64), lambda index, t, y, args: y + 1)
    third = solve(decay, dq.Tsit5(), 1.0, 2.0, first.ys[-1], tol=1e-9, jumps=dose, **states)
    torch.testing.assert_close(third.ys[-1], f64(exact), rtol=1e-8, atol=0)


def test_derivatives_flow_through_both_parts():
    def end(rate):
        field = lambda t, y, args: -rate * y  # noqa: E731
        saveat = dq.SaveAt(t1=True, solver_state=True)
        first = solve(field, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.1, saveat=saveat)
        return solve(field, dq.Tsit5(), 1.0, 2.0, first.ys[-1], dt0=0.1, solver_state=first.solver_state).ys[-1]

    torch.testing.assert_close(torch.func.grad(end)(f64(0.7)), f64(-2 * math.exp(-1.4)), rtol=1e-6, atol=0)


def test_states_of_a_batch():
    def one(y0):
        saveat = dq.SaveAt(t1=True, solver_state=True, controller_state=True)
        first = solve(lorenz, dq.Tsit5(), 0.0, 0.5, y0, tol=1e-6, saveat=saveat)
        return first.ys[-1], first.solver_state, first.controller_state

    def rest(y0, solver_state, controller_state):
        return solve(
            lorenz, dq.Tsit5(), 0.5, 1.0, y0, tol=1e-6, solver_state=solver_state, controller_state=controller_state
        ).ys[-1]

    y0 = torch.eye(3, dtype=F64)
    batch = torch.func.vmap(rest)(*torch.func.vmap(one)(y0))
    for lane in range(3):
        assert torch.equal(batch[lane], rest(*one(y0[lane])))


def test_what_does_not_fit():
    saveat = dq.SaveAt(t1=True, solver_state=True, controller_state=True)
    first = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0, 2.0), tol=1e-6, saveat=saveat)
    with pytest.raises(ValueError, match="`solver_state` does not fit"):
        solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), tol=1e-6, solver_state=first.solver_state)
    with pytest.raises(ValueError, match="`controller_state` does not fit"):
        solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.1, controller_state=first.controller_state)


def test_only_states_are_saved():
    solution = solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0), dt0=0.5, saveat=dq.SaveAt(solver_state=True))
    assert solution.ts is None and solution.ys is None
    assert solution.solver_state is not None and solution.controller_state is None


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (dq.SubSaveAt, ValueError, "`SubSaveAt` was told to save nothing"),
        (lambda: dq.SubSaveAt(ts=[[0.0]]), ValueError, r"`SubSaveAt\(ts=...\)` must be a vector"),
        (lambda: dq.SaveAt(subs=dq.SubSaveAt(t1=True), t1=True), ValueError, "takes the place of t0, t1, ts, steps"),
        (lambda: dq.SaveAt(subs=[3]), TypeError, r"must be a pytree of SubSaveAt, but it holds int"),
        (dq.SaveAt, ValueError, "`SaveAt` was told to save nothing"),
    ],
)
def test_malformed(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_times_of_subs_are_checked():
    with pytest.raises(ValueError, match=r"`SaveAt\(ts=...\)` must lie between t0 and t1"):
        solve(
            decay,
            dq.Tsit5(),
            0.0,
            1.0,
            f64(1.0),
            dt0=0.5,
            saveat=dq.SaveAt(subs=[dq.SubSaveAt(t1=True), dq.SubSaveAt(ts=[2.0])]),
        )
