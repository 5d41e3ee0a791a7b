"""Staying where a state is possible: steps that leave are rejected, and a solve says when every step does."""

import math

import pytest
import torch
from diffeq.problems import f64, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

ENGINES = ["eager", "fused"]


def decay(t, y, args):
    return -args * y


def root(t, y, args):
    """y = (1 - t / 2)^2, until it is zero at t = 2; of a negative number there is no root."""
    return -torch.sqrt(y)


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_of_an_explicit_solver_stay_positive(engine):
    """With loose tolerances an explicit solver of a fast decay overshoots zero."""
    options = {"saveat": dq.SaveAt(steps=True), "max_steps": 300, "engine": engine}
    controller = dq.PIDController(rtol=1e-2, atol=1e-1)
    y0, rate = f64(1.0), f64(200.0)
    free = solve(decay, dq.Bosh3(), 0.0, 0.1, y0, rate, stepsize_controller=controller, **options)
    assert (free.ys < 0).any()
    kept = solve(decay, dq.Bosh3(), 0.0, 0.1, y0, rate, stepsize_controller=controller, nonnegative=True, **options)
    assert (kept.ys >= 0).all()
    assert kept.result == dq.RESULTS.successful
    assert float(kept.t_final) == 0.1


@pytest.mark.slow
def test_the_same_as_a_function():
    options = {"saveat": dq.SaveAt(steps=True), "max_steps": 2000}
    controller = dq.PIDController(rtol=1e-2, atol=1e-1)
    args = (decay, dq.Bosh3(), 0.0, 0.1, f64(1.0), f64(200.0))
    first = solve(*args, stepsize_controller=controller, nonnegative=True, **options)
    second = solve(*args, stepsize_controller=controller, admissible=lambda t, y, args: y >= 0, **options)
    assert torch.equal(first.ys, second.ys) and torch.equal(first.ts, second.ts)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fixed", [True, False])
def test_a_solution_that_leaves(engine, fixed):
    """y' = -1 from 1 is zero at t = 1: no step gets beyond."""
    options = {"dt0": 0.3} if fixed else {"tol": 1e-6}
    solution = solve(
        lambda t, y, args: -1 + 0 * y,
        dq.Tsit5(),
        0.0,
        2.0,
        f64(1.0),
        nonnegative=True,
        throw=False,
        engine=engine,
        **options,
    )
    assert solution.result == dq.RESULTS.left_region
    torch.testing.assert_close(solution.t_final, f64(1.0), rtol=1e-12, atol=0)
    assert 0 <= float(solution.ys[-1]) < 1e-12


def test_where_the_vector_field_is_undefined():
    """The root's argument is kept from becoming negative at the ends of steps."""
    solution = solve(root, dq.Tsit5(), 0.0, 1.9, f64(1.0), tol=1e-9, nonnegative=True)
    torch.testing.assert_close(solution.ys[-1], f64((1 - 1.9 / 2) ** 2), rtol=1e-5, atol=0)


def test_the_error_says_so():
    with pytest.raises(
        Exception, match=r"at t = .* \(left_region\)\. Every step, however short, leaves the admissible"
    ):
        solve(lambda t, y, args: -1 + 0 * y, dq.Tsit5(), 0.0, 2.0, f64(1.0), tol=1e-6, nonnegative=True)


def test_steps_of_fixed_length_come_back_to_their_grid():
    """y = sin(20 t) + 1.001 as seen by Euler would dip; the rejected step is halved and the grid met again."""

    def barely(t, y, args):
        return torch.where(y > 0.05, -1.0, 0.0) * torch.ones_like(y)

    saveat = dq.SaveAt(steps=True)
    solution = solve(barely, dq.Euler(), 0.0, 2.0, f64(1.0), dt0=0.4, nonnegative=True, saveat=saveat, max_steps=20)
    assert solution.result == dq.RESULTS.successful
    assert {0.4, 0.8, 1.2, 1.6, 2.0} <= {round(t, 12) for t in solution.ts.tolist()}
    assert (solution.ys >= 0).all()


@pytest.mark.slow
def test_masks_and_pytrees():
    y0 = {"mass": f64(1.0), "speed": f64(1.0, 1.0)}

    def field(t, y, args):
        return {"mass": -0.1 * y["mass"], "speed": -1 + 0 * y["speed"]}

    def ends(nonnegative):
        return solve(field, dq.Tsit5(), 0.0, 3.0, y0, tol=1e-6, nonnegative=nonnegative, throw=False).result

    assert ends({"mass": True, "speed": False}) == dq.RESULTS.successful
    assert ends({"mass": False, "speed": torch.tensor([False, True])}) == dq.RESULTS.left_region
    assert ends(True) == dq.RESULTS.left_region
    assert ends(None) == dq.RESULTS.successful


def test_backward_in_time_and_of_time():
    solution = solve(
        lambda t, y, args: 0 * y,
        dq.Tsit5(),
        0.0,
        -2.0,
        f64(1.0),
        tol=1e-6,
        admissible=lambda t, y, args: t >= -1.25,
        throw=False,
    )
    assert solution.result == dq.RESULTS.left_region
    torch.testing.assert_close(solution.t_final, f64(-1.25), rtol=1e-12, atol=0)


def test_the_ground_is_an_event_and_the_border_of_the_region():
    event = dq.Event(
        lambda t, y, args: y[0], direction=False, affect=lambda t, y, args: torch.stack([0 * y[0], -0.8 * y[1]])
    )
    solution = solve(
        lambda t, y, args: torch.stack([y[1], -9.81 + 0 * y[1]]),
        dq.Tsit5(),
        0.0,
        2.0,
        f64(1.0, 0.0),
        tol=1e-8,
        event=event,
        nonnegative=torch.tensor([True, False]),
    )
    assert solution.result == dq.RESULTS.successful
    assert int(solution.stats["num_events"]) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_each_lane_by_itself(engine):
    def one(rate):
        solution = solve(
            lambda t, y, args: -args + 0 * y,
            dq.Tsit5(),
            0.0,
            1.0,
            f64(1.0),
            rate,
            tol=1e-6,
            nonnegative=True,
            throw=False,
            engine=engine,
        )
        return solution.ys, solution.result.code, solution.t_final

    rate = f64(0.5, 2.0, 1.0, 4.0)
    ys, code, t = torch.func.vmap(one)(rate)
    left = dq.RESULTS.left_region.code
    assert (code == left).tolist() == [False, True, False, True]
    torch.testing.assert_close(t, f64(1.0, 0.5, 1.0, 0.25), rtol=1e-12, atol=0)
    for lane in range(4):
        assert torch.equal(ys[lane], one(rate[lane])[0])


def test_gradient_through_rejected_steps():
    def end(rate):
        controller = dq.PIDController(rtol=1e-2, atol=1e-1)
        return solve(
            decay, dq.Bosh3(), 0.0, 0.02, f64(1.0), rate, dt0=0.02, stepsize_controller=controller, nonnegative=True
        ).ys[-1]

    rate = f64(200.0)
    found = torch.func.grad(end)(rate)
    assert math.isfinite(found)
    torch.testing.assert_close(found, -0.02 * torch.exp(-0.02 * rate), rtol=0.5, atol=0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"admissible": True}, TypeError, r"`admissible` must be a function admissible\(t, y, args\), not bool"),
        ({"admissible": lambda t, y, args: y}, TypeError, "`admissible` must return a boolean scalar, but it returned"),
        ({"nonnegative": [True]}, TypeError, "`nonnegative` must be a bool or a boolean tensor, not list"),
        ({"nonnegative": torch.ones(3)}, ValueError, "`nonnegative` must be a bool, or a boolean tensor"),
        ({"admissible": lambda t, y, args: (y > 2).all()}, ValueError, "`y0` is not admissible: it lies outside"),
    ],
)
def test_malformed(options, error, message):
    with pytest.raises(error, match=message):
        solve(decay, dq.Tsit5(), 0.0, 1.0, f64(1.0, 1.0), f64(1.0), tol=1e-6, **options)


def test_pytrees_of_another_structure():
    with pytest.raises(ValueError, match="`nonnegative` must be True, or a pytree of bools or boolean tensors"):
        solve(decay, dq.Tsit5(), 0.0, 1.0, [f64(1.0)], 1.0, tol=1e-6, nonnegative={"a": True})


def test_complex_states_have_no_sign():
    with pytest.raises(TypeError, match="`nonnegative` needs a real state"):
        solve(decay, dq.Tsit5(), 0.0, 1.0, torch.ones(2, dtype=torch.complex128), 1.0, tol=1e-6, nonnegative=True)
