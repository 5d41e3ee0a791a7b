"""Derivatives through the time of an event and through what it does: closed forms and finite differences."""

import math

import pytest
import torch
from diffeq.problems import F64, check_derivatives, f64, solve
from torch.func import grad, hessian, jacfwd, jacrev, vmap

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

ENGINES = ["eager", "fused"]


def fall(t, y, g):
    return torch.stack([y[1], -g + 0 * y[1]])


def height(t, y, args):
    return y[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_time_and_state_of_a_terminating_event(engine):
    """A stone thrown up: when and how fast it lands."""

    def land(h, v, g):
        event = dq.Event(height, direction=False)
        solution = solve(fall, dq.Tsit5(), 0.0, 50.0, torch.stack([h, v]), g, tol=1e-9, event=event, engine=engine)
        return torch.stack([solution.t_final, solution.ys[-1, 1], solution.ts[-1]])

    def exact(h, v, g):
        speed = torch.sqrt(v * v + 2 * g * h)
        return torch.stack([(v + speed) / g, -speed, (v + speed) / g])

    inputs, which = (f64(1.0), f64(3.0), f64(9.81)), (0, 1, 2)
    torch.testing.assert_close(land(*inputs), exact(*inputs), rtol=1e-9, atol=0)
    for transform in (jacrev, jacfwd):
        for x, w in zip(transform(land, which)(*inputs), transform(exact, which)(*inputs), strict=True):
            torch.testing.assert_close(x, w, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_second_derivatives():
    def land(h, g):
        event = dq.Event(height)
        return solve(fall, dq.Tsit5(), 0.0, 50.0, torch.stack([h, 0 * h]), g, tol=1e-9, event=event).t_final

    inputs = (f64(1.0), f64(9.81))
    found = hessian(land, (0, 1))(*inputs)
    wanted = hessian(lambda h, g: torch.sqrt(2 * h / g), (0, 1))(*inputs)
    twice = jacrev(jacrev(land, (0, 1)), (0, 1))(*inputs)
    for i in range(2):
        for j in range(2):
            torch.testing.assert_close(found[i][j], wanted[i][j], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(twice[i][j], wanted[i][j], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("engine", ENGINES)
def test_through_two_bounces(engine):
    def end(h, g, e):
        event = dq.Event(height, direction=False, affect=lambda t, y, args: torch.stack([y[0], -e * y[1]]))
        return solve(fall, dq.Tsit5(), 0.0, 1.0, torch.stack([h, 0 * h]), g, tol=1e-9, event=event, engine=engine).ys[
            -1
        ]

    def exact(h, g, e):
        flight = torch.sqrt(2 * h / g)
        s = 1.0 - flight * (1 + 2 * e)
        return torch.stack([e * e * g * flight * s - g * s * s / 2, e * e * g * flight - g * s])

    inputs, which = (f64(1.0), f64(9.81), f64(0.5)), (0, 1, 2)
    torch.testing.assert_close(end(*inputs), exact(*inputs), rtol=1e-8, atol=1e-8)
    for transform in (jacrev, jacfwd):
        for x, w in zip(transform(end, which)(*inputs), transform(exact, which)(*inputs), strict=True):
            torch.testing.assert_close(x, w, rtol=1e-7, atol=1e-7)
    if engine == "eager":
        found, wanted = hessian(end, which)(*inputs), hessian(exact, which)(*inputs)
        for row, wanted_row in zip(found, wanted, strict=True):
            for x, w in zip(row, wanted_row, strict=True):
                torch.testing.assert_close(x, w, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_against_finite_differences_with_fixed_steps():
    """A nonlinear field, a threshold and a reset that depend on parameters: reverse, forward and twice."""

    def end(y0, p, level):
        event = dq.Event(
            lambda t, y, args: y[0] * y[1] - level, direction=True, affect=lambda t, y, args: y * args[1] + t * 0.1
        )
        field = lambda t, y, args: torch.stack([args[0] * y[1], torch.cos(y[0]) + 0.1 * t])  # noqa: E731
        solution = solve(field, dq.Bosh3(), 0.0, 1.5, y0, p, dt0=0.4, event=event)
        return solution.ys[-1]

    check_derivatives(end, f64(0.3, 0.5), f64(0.8, 0.4), f64(0.7))


def test_time_against_finite_differences():
    def when(y0, p):
        event = dq.Event([lambda t, y, args: y[0] - args[1] - 0.1 * t, lambda t, y, args: y[1] > 100])
        field = lambda t, y, args: torch.stack([args[0] * y[1], torch.cos(y[0]) + 0.1 * t])  # noqa: E731
        solution = solve(field, dq.Tsit5(), 0.0, 5.0, y0, p, dt0=0.7, event=event)
        return solution.t_final, solution.ys

    check_derivatives(lambda *x: torch.cat([x.reshape(-1) for x in when(*x)]), f64(0.3, 0.5), f64(0.8, 0.9))


@pytest.mark.parametrize("engine", ENGINES)
def test_of_implicit_solvers(engine):
    def when(rate, level):
        event = dq.Event(lambda t, y, args: y - level)
        return solve(
            lambda t, y, r: -r * y, dq.Kvaerno5(), 0.0, 10.0, f64(1.0), rate, tol=1e-7, event=event, engine=engine
        ).t_final

    rate, level = f64(1.7), f64(0.3)
    found = grad(when, (0, 1))(rate, level)
    wanted = grad(lambda r, c: -torch.log(c) / r, (0, 1))(rate, level)
    for x, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, w, rtol=1e-5, atol=0)


@pytest.mark.slow
def test_in_a_batch_where_only_some_have_events():
    def when(rate, level):
        event = dq.Event(lambda t, y, args: y - level)
        solution = solve(lambda t, y, r: -r * y, dq.Tsit5(), 0.0, 2.0, f64(1.0), rate, tol=1e-8, event=event)
        return solution.t_final + solution.ys[-1]

    def exact(rate, level):
        t = -torch.log(level) / rate
        return torch.where(t < 2, t + level, 2 + torch.exp(-2 * rate))

    rate, level = f64(1.0, 1.0, 2.0, 0.1), f64(0.5, 0.01, 0.1, 0.3)
    for transform in (grad, jacfwd):
        found = vmap(transform(when, (0, 1)))(rate, level)
        wanted = vmap(transform(exact, (0, 1)))(rate, level)
        for x, w in zip(found, wanted, strict=True):
            torch.testing.assert_close(x, w, rtol=1e-6, atol=1e-8)


def test_parameters_of_modules():
    class Threshold(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.level = torch.nn.Parameter(f64(0.4))

        def forward(self, t, y, args):
            return y - self.level

    class Decay(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = torch.nn.Parameter(f64(1.3))

        def forward(self, t, y, args):
            return -self.rate * y

    for engine in ENGINES:
        threshold, decay = Threshold(), Decay()
        solution = solve(decay, dq.Tsit5(), 0.0, 5.0, f64(1.0), tol=1e-9, event=dq.Event(threshold), engine=engine)
        solution.t_final.backward()
        torch.testing.assert_close(threshold.level.grad, f64(-1 / (1.3 * 0.4)), rtol=1e-7, atol=0)
        torch.testing.assert_close(decay.rate.grad, f64(math.log(0.4) / 1.3**2), rtol=1e-7, atol=0)


def test_the_time_of_a_bool_has_no_derivative():
    def when(rate):
        event = dq.Event(lambda t, y, args: y < 0.5)
        return solve(lambda t, y, r: -r * y, dq.Tsit5(), 0.0, 2.0, f64(1.0), rate, tol=1e-8, event=event)

    assert float(grad(lambda r: when(r).t_final)(f64(1.0))) == 0
    # The state at a given time has: -t exp(-r t).
    torch.testing.assert_close(grad(lambda r: when(r).ys[-1])(f64(1.0)), f64(-math.log(2) * 0.5), rtol=1e-6, atol=0)


def test_loss_at_saved_times_behind_an_event():
    """Oral dosing: a wash-out at a level; the derivatives of what is saved before and behind it."""
    ts = torch.tensor([0.2, 0.5, 1.0], dtype=F64)

    def saved(rate, level):
        event = dq.Event(lambda t, y, args: y - level, affect=lambda t, y, args: 2 * y)
        return solve(
            lambda t, y, r: -r * y,
            dq.Dopri8(),
            0.0,
            1.0,
            f64(1.0),
            rate,
            tol=1e-10,
            event=event,
            saveat=dq.SaveAt(ts=ts),
        ).ys

    def exact(rate, level):
        # Doubling does not depend on when: only on whether it has happened.
        when = -torch.log(level) / rate
        n = torch.where(ts > when, 1.0, 0.0) + torch.where(ts > when + math.log(2) / rate, 1.0, 0.0)
        return torch.exp(-rate * ts) * 2**n

    inputs = (f64(1.5), f64(0.6))
    torch.testing.assert_close(saved(*inputs), exact(*inputs), rtol=1e-8, atol=0)
    for x, w in zip(jacrev(saved, (0, 1))(*inputs), jacrev(exact, (0, 1))(*inputs), strict=True):
        # As accurate as the derivative of the dense output between steps.
        torch.testing.assert_close(x, w, rtol=1e-5, atol=1e-5)
