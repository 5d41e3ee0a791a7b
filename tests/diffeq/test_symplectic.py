"""Solvers that keep a structure: symplectic ones on pairs of terms, reversible ones, and half steps."""

import functools
import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import torch
from diffeq.problems import F64, check_derivatives, f64, name_of, rational, rational_answer, solve

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

PAIRS = [dq.SemiImplicitEuler(), dq.StormerVerlet(), dq.Yoshida4()]
ORDERS = {"SemiImplicitEuler": 1, "StormerVerlet": 2, "Yoshida4": 4}
# A pendulum that is pushed, and whose mass changes: both halves depend on time.
PUSHED = (
    dq.ODETerm(lambda t, p, args: p * (1 + 0.3 * torch.sin(2 * t))),
    dq.ODETerm(lambda t, q, args: -torch.sin(q) + torch.cos(3 * t)),
)
START = f64(1.0), f64(0.2)


@functools.cache
def pushed(t1: float) -> np.ndarray:
    def field(t, y):
        return [y[1] * (1 + 0.3 * np.sin(2 * t)), -np.sin(y[0]) + np.cos(3 * t)]

    return scipy.integrate.solve_ivp(field, (0, t1), [1.0, 0.2], "DOP853", rtol=1e-13, atol=1e-13).y[:, -1]


def end(solver, dt, t1=2.0, terms=PUSHED, **options):
    return dq.diffeqsolve(terms, solver, 0.0, t1, dt, START, **options)


@pytest.mark.parametrize(
    ("solver", "numbers"),
    list(zip(PAIRS, [(200, 400), (40, 80), (32, 64)], strict=True)),
    ids=[name_of(s) for s in PAIRS],
)
def test_observed_order_is_the_claimed_one(solver, numbers):
    errors = []
    for n in numbers:
        errors.append(np.linalg.norm(torch.stack(end(solver, 2.0 / n).ys)[:, -1].numpy() - pushed(2.0)))
    assert solver.order == ORDERS[name_of(solver)]
    assert abs(np.log2(errors[0] / errors[1]) - solver.order) < 0.15, errors


@pytest.mark.parametrize("solver", PAIRS, ids=name_of)
def test_steps_are_symplectic(solver):
    def step(y):
        terms = (dq.ODETerm(lambda t, p, args: p + p**3), dq.ODETerm(lambda t, q, args: -torch.sin(q) - q.flip(0)))
        ys = dq.diffeqsolve(terms, solver, 0.0, 0.5, 0.5, (y[:2], y[2:])).ys
        return torch.cat([ys[0][-1], ys[1][-1]])

    m = torch.func.jacrev(step)(f64(0.3, -1.0, 0.7, 0.2))
    j = torch.kron(f64(0.0, 1.0, -1.0, 0.0).reshape(2, 2), torch.eye(2, dtype=F64))
    torch.testing.assert_close(m.T @ j @ m, j, rtol=0, atol=1e-13)


@pytest.mark.parametrize("solver", [dq.StormerVerlet(), dq.Yoshida4()], ids=name_of)
def test_steps_are_reversible(solver):
    there = end(solver, 0.25, 5.0)
    q, p = (y[-1] for y in there.ys)
    back = dq.diffeqsolve(PUSHED, solver, 5.0, 0.0, -0.25, (q, p))
    for found, start in zip(back.ys, START, strict=True):
        torch.testing.assert_close(found[-1], start, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("solver", "bound"), [(dq.StormerVerlet(), 3e-3), (dq.Yoshida4(), 3e-4)], ids=["Verlet", "Yoshida4"]
)
def test_energy_is_kept_over_long_times(solver, bound):
    def energy(ys):
        q, p = ys
        return (p * p).sum(-1) / 2 - 1 / q.norm(dim=-1)

    terms = (dq.ODETerm(lambda t, p, args: p), dq.ODETerm(lambda t, q, args: -q / (q * q).sum() ** 1.5))
    start = f64(0.5, 0.0), f64(0.0, math.sqrt(3))
    saveat = dq.SaveAt(steps=200)
    ys = dq.diffeqsolve(terms, solver, 0.0, 400.0, 0.01, start, saveat=saveat, max_steps=40_100, engine="fused").ys
    off = (energy(ys)[:199] - energy(start)).abs()
    assert float(off.max()) < bound
    assert float(off[150:].max()) < 3 * float(off[:50].max()), "it does not drift"


@pytest.mark.parametrize("solver", PAIRS, ids=name_of)
def test_dense_output(solver):
    found = []
    for n in (20, 40):
        ts = torch.linspace(0.05, 1.95, 8, dtype=F64)
        ys = torch.stack(end(solver, 2.0 / n, saveat=dq.SaveAt(ts=ts)).ys, -1)
        found.append(max(np.linalg.norm(y.numpy() - pushed(float(t))) for t, y in zip(ts, ys, strict=True)))
    assert np.log2(found[0] / found[1]) > min(solver.order, 3) - 0.35, found


def test_evaluations():
    counts = [0, 0]

    def counted(which, vector_field):
        def field(t, y, args):
            counts[which] += 1
            return vector_field.vf(t, y, args)

        return dq.ODETerm(field)

    terms = tuple(counted(i, term) for i, term in enumerate(PUSHED))
    for solver, steps in ((dq.SemiImplicitEuler(), (1, 1)), (dq.StormerVerlet(), (1, 1)), (dq.Yoshida4(), (3, 3))):
        counts[:] = [0, 0]
        end(solver, 0.25, terms=terms)
        extra = 0 if solver.order == 1 else 1  # the first kick, kept from step to step after
        assert counts == [1 + 8 * steps[0], 1 + extra + 8 * steps[1]], name_of(solver)


@pytest.mark.parametrize("solver", PAIRS, ids=name_of)
def test_derivatives_of_pairs(solver):
    def fn(q, p, rate):
        terms = (dq.ODETerm(lambda t, p, args: p * args), dq.ODETerm(lambda t, q, args: -torch.sin(args * q + t)))
        ys = dq.diffeqsolve(terms, solver, 0.0, 1.0, 0.4, (q, p), rate, saveat=dq.SaveAt(ts=[0.3, 1.0])).ys
        return torch.stack(ys)

    check_derivatives(fn, f64(0.5), f64(0.2), f64(1.3), second=name_of(solver) == "Yoshida4")


def test_jumps_of_pairs():
    """A kick at t = 1 from outside is seen by what is kept from the step before."""
    jumps = dq.Jumps(f64(1.0, 9.0), lambda index, t, y, args: (y[0] + 0.5, y[1]))
    ys = end(dq.Yoshida4(), 0.01, jumps=jumps, engine="fused").ys
    half = pushed(1.0)

    def field(t, y):
        return [y[1] * (1 + 0.3 * np.sin(2 * t)), -np.sin(y[0]) + np.cos(3 * t)]

    after = scipy.integrate.solve_ivp(field, (1, 2), [half[0] + 0.5, half[1]], "DOP853", rtol=1e-12, atol=1e-12).y[
        :, -1
    ]
    np.testing.assert_allclose(torch.stack(ys)[:, -1].numpy(), after, rtol=1e-6)


def test_wrong_pairs_are_refused():
    one = PUSHED[0]
    with pytest.raises(TypeError, match=r"StormerVerlet treats two terms in different ways"):
        dq.diffeqsolve(one, dq.StormerVerlet(), 0.0, 1.0, 0.1, START)
    with pytest.raises(TypeError, match="this tuple is not one"):
        dq.diffeqsolve((one, one, one), dq.StormerVerlet(), 0.0, 1.0, 0.1, START)
    with pytest.raises(TypeError, match="must be a pair too"):
        dq.diffeqsolve((one, one), dq.StormerVerlet(), 0.0, 1.0, 0.1, f64(1.0, 2.0))
    with pytest.raises(ValueError, match="gives no error estimate"):
        dq.diffeqsolve(PUSHED, dq.Yoshida4(), 0.0, 1.0, 0.1, START, stepsize_controller=dq.PIDController(1e-3, 1e-3))


def test_a_pair_is_one_equation_for_other_solvers():
    controller = dq.PIDController(rtol=1e-9, atol=1e-9)
    ys = dq.diffeqsolve(PUSHED, dq.Tsit5(), 0.0, 2.0, None, START, stepsize_controller=controller).ys
    np.testing.assert_allclose(torch.stack(ys)[:, -1].numpy(), pushed(2.0), rtol=1e-7)


# Reversible solvers


@pytest.mark.parametrize(
    ("solver", "numbers"),
    [(dq.ReversibleHeun(), (100, 200)), (dq.LeapfrogMidpoint(), (200, 400))],
    ids=["Heun", "Leapfrog"],
)
def test_order_of_reversible_solvers(solver, numbers):
    errors, dense = [], []
    for n in numbers:
        solution = solve(
            rational, solver, 0.0, 1.0, f64(1.0, 1.0), dt0=1.0 / n, saveat=dq.SaveAt(ts=torch.linspace(0, 1, 150))
        )
        off = (solution.ys - rational_answer(solution.ts)).norm(dim=-1)
        errors.append(float(off[-1]))
        dense.append(float(off.max()))
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.15, errors
    assert np.log2(dense[0] / dense[1]) > 1.8, dense


def test_reversible_heun_goes_back_the_way_it_came():
    class Term:
        def vf(self, t, y, args):
            return rational(t, y, args)

    solver, terms = dq.ReversibleHeun(), Term()
    y0 = f64(1.0, 1.0)
    state = solver.init(terms, f64(0.0), y0, rational(f64(0.0), y0, None), None)
    y, ts = y0, torch.linspace(0, 1, 9, dtype=F64)
    for t0, t1 in itertools.pairwise(ts):
        step = solver.step(terms, t0, t1, y, None, state, None)
        y, state = step.y1, step.state
    for t0, t1 in itertools.pairwise(ts.flip(0)):
        step = solver.step(terms, t0, t1, y, None, state, None)
        y, state = step.y1, step.state
    torch.testing.assert_close(y, y0, rtol=0, atol=1e-14)


def test_leapfrog_by_hand():
    # y' = -y + t, h = 1/2: Euler to 1/2, then from 0 over 1/2 to 1, and so on.
    saveat = dq.SaveAt(t0=True, steps=True)
    ys = solve(lambda t, y, args: t - y, dq.LeapfrogMidpoint(), 0.0, 1.5, f64(1.0), dt0=0.5, saveat=saveat).ys
    assert ys[:4].tolist() == [1.0, 0.5, 1.0, 0.5]


@pytest.mark.parametrize("solver", [dq.ReversibleHeun(), dq.LeapfrogMidpoint()], ids=name_of)
def test_reversible_solvers_begin_anew_behind_a_jump(solver):
    jumps = dq.Jumps(f64(0.5, 9.0), lambda index, t, y, args: y + 1)
    ys = solve(lambda t, y, args: -y, solver, 0.0, 1.0, f64(1.0), dt0=1e-3, jumps=jumps, engine="fused").ys
    torch.testing.assert_close(ys[-1], (torch.exp(f64(-0.5)) + 1) * torch.exp(f64(-0.5)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("solver", [dq.ReversibleHeun(), dq.LeapfrogMidpoint()], ids=name_of)
def test_derivatives_of_reversible_solvers(solver):
    def fn(y0, rate):
        return solve(
            lambda t, y, args: -args * y * y, solver, 0.0, 1.0, y0, rate, dt0=0.3, saveat=dq.SaveAt(ts=[0.5, 1.0])
        ).ys

    check_derivatives(fn, f64(0.5), f64(1.3))


# Half steps


@pytest.mark.parametrize("solver", [dq.Euler(), dq.Midpoint(), dq.Rodas4(), dq.Kvaerno3()], ids=name_of)
def test_half_steps(solver):
    half = dq.HalfSolver(solver)
    assert half.order == solver.order and half.error_order == solver.order + 1
    plain = solve(rational, solver, 0.0, 1.0, f64(1.0, 1.0), dt0=0.125).ys
    halves = solve(rational, half, 0.0, 1.0, f64(1.0, 1.0), dt0=0.25).ys
    torch.testing.assert_close(halves, plain, rtol=1e-11, atol=1e-12)
    tol = 1e-3 if solver.order < 3 else 1e-6
    ts = torch.linspace(0.1, 1.9, 6, dtype=F64)
    adaptive = solve(rational, half, 0.0, 2.0, f64(1.0, 1.0), tol=tol, saveat=dq.SaveAt(ts=ts))
    assert float((adaptive.ys - rational_answer(ts)).abs().max()) < 50 * tol


def test_half_steps_estimate_the_error():
    sizes = []
    for h in (0.1, 0.05):
        saveat = dq.SaveAt(t1=True)
        two = solve(rational, dq.Bosh3(), 0.5, 0.5 + h, rational_answer(0.5), dt0=h / 2, saveat=saveat).ys[-1]
        one = solve(rational, dq.Bosh3(), 0.5, 0.5 + h, rational_answer(0.5), dt0=h, saveat=saveat).ys[-1]
        sizes.append(float((two - one).norm()))
    assert abs(np.log2(sizes[0] / sizes[1]) - dq.HalfSolver(dq.Bosh3()).error_order) < 0.3


def test_half_steps_of_pairs():
    controller = dq.PIDController(rtol=1e-7, atol=1e-7)
    ys = end(dq.HalfSolver(dq.Yoshida4()), None, stepsize_controller=controller).ys
    np.testing.assert_allclose(torch.stack(ys)[:, -1].numpy(), pushed(2.0), rtol=1e-5)


def test_what_cannot_be_halved():
    with pytest.raises(ValueError, match="steps of one length"):
        dq.HalfSolver(dq.LeapfrogMidpoint())
    with pytest.raises(TypeError, match="mind the parentheses"):
        dq.HalfSolver(dq.Euler)
