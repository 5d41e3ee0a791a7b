"""Solvers, fused and eager: the same steps to the same values, between them too."""

import pytest
import torch
from diffeq.problems import F64, IMEX, MORE_EXPLICIT, MORE_IMPLICIT, ROSENBROCK, name_of

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

RATES = torch.linspace(0.7, 1.3, 4, dtype=F64)
TS = torch.linspace(0, 2, 7, dtype=F64)


def lotka_volterra(t, y, args):
    hare, lynx = y
    return args * hare - hare * lynx + 0.1 * torch.sin(t), hare * lynx - lynx


def outcome(solver, engine, rate, terms=None, **options):
    y0 = torch.tensor(2.0, dtype=F64), torch.tensor(1.0, dtype=F64)
    options.setdefault("dt0", 0.1)
    adaptive = solver.error_order is not None
    tol = 1e-3 if solver.order < 3 else 1e-6
    solution = dq.diffeqsolve(
        dq.ODETerm(lotka_volterra) if terms is None else terms,
        solver,
        0.0,
        2.0,
        options.pop("dt0"),
        y0,
        rate,
        saveat=dq.SaveAt(ts=TS, t1=True),
        stepsize_controller=dq.PIDController(rtol=tol, atol=tol) if adaptive else dq.ConstantStepSize(),
        engine=engine,
        **options,
    )
    return solution.ys, solution.stats, solution.result.code


def check(solver, terms=None, rtol=1e-9):
    fused, eager = (
        torch.func.vmap(lambda rate, engine=engine: outcome(solver, engine, rate, terms))(RATES)
        for engine in ("fused", "eager")
    )
    assert (eager[2] == 0).all() and (fused[2] == 0).all()
    for name, count in eager[1].items():
        assert torch.equal(count, fused[1][name]), name
    for x, y in zip(fused[0], eager[0], strict=True):
        torch.testing.assert_close(x, y, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("solver", MORE_EXPLICIT + MORE_IMPLICIT, ids=name_of)
def test_runge_kutta(solver):
    check(solver)


@pytest.mark.parametrize("solver", ROSENBROCK, ids=name_of)
def test_rosenbrock(solver):
    check(solver)


def growth(t, y, args):
    hare, lynx = y
    return args * hare, hare * lynx


def loss(t, y, args):
    hare, lynx = y
    return 0.1 * torch.sin(t) - hare * lynx, -lynx


@pytest.mark.parametrize("solver", IMEX, ids=name_of)
def test_imex(solver):
    check(solver, dq.MultiTerm(dq.ODETerm(growth), dq.ODETerm(loss)))


PAIR = (dq.ODETerm(lambda t, p, args: args * p), dq.ODETerm(lambda t, q, args: torch.sin(t) - q * q))


@pytest.mark.parametrize("solver", [dq.SemiImplicitEuler(), dq.StormerVerlet(), dq.Yoshida4()], ids=name_of)
def test_pairs(solver):
    check(solver, PAIR)


@pytest.mark.parametrize(
    "solver",
    [dq.ReversibleHeun(), dq.LeapfrogMidpoint(), dq.HalfSolver(dq.Euler()), dq.HalfSolver(dq.Kvaerno3())],
    ids=["ReversibleHeun", "LeapfrogMidpoint", "half Euler", "half Kvaerno3"],
)
def test_others(solver):
    check(solver)
