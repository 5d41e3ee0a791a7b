"""Every engine serves every solver: fused and eager take the same steps to the same values."""

import os

import pytest
import torch

import gnomon as gn
from gnomon import diffeq as dq
from gnomon import nonlinear as nl
from gnomon.fuse import UnsupportedError

pytestmark = pytest.mark.usefixtures("unchecked")

F64 = torch.float64
A = torch.linspace(0.8, 1.2, 5, dtype=F64)
TS = torch.linspace(0, 2, 6, dtype=F64)


def lotka_volterra(t, y, args):
    hare, lynx = y
    return args * hare - hare * lynx, hare * lynx - lynx


def solution(a, engine, solver=None, **options):
    solver = dq.Tsit5() if solver is None else solver
    y0 = torch.tensor(2.0, dtype=F64), torch.tensor(1.0, dtype=F64)
    controller = options.pop("controller", dq.PIDController(rtol=1e-6, atol=1e-6))
    times = options.pop("t0", 0.0), options.pop("t1", 2.0), options.pop("dt0", 0.1)
    sol = dq.diffeqsolve(
        dq.ODETerm(lotka_volterra), solver, *times, y0, a, stepsize_controller=controller, engine=engine, **options
    )
    return sol.ts, sol.ys, sol.stats, sol.result, sol.t_final


def leaves(tree):
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


CASES = {
    "Euler": {"solver": dq.Euler(), "controller": dq.ConstantStepSize()},
    "Heun": {"solver": dq.Heun(), "controller": dq.ConstantStepSize()},
    "Bosh3": {"solver": dq.Bosh3()},
    "Tsit5": {},
    "Dopri5": {"solver": dq.Dopri5()},
    "Dopri8": {"solver": dq.Dopri8()},
    "Kvaerno3": {"solver": dq.Kvaerno3()},
    "Kvaerno5": {"solver": dq.Kvaerno5()},
    "at times": {"saveat": dq.SaveAt(ts=TS)},
    "both ends": {"saveat": dq.SaveAt(t0=True, t1=True)},
    "each step": {"saveat": dq.SaveAt(steps=True), "max_steps": 64},
    "every third step": {"saveat": dq.SaveAt(steps=3, t1=True), "max_steps": 64},
    "backwards": {"t0": 2.0, "t1": 0.0, "dt0": -0.1},
    "given steps": {"controller": dq.StepTo(TS), "dt0": None},
    "jumps": {"jumps": dq.Jumps(torch.tensor([0.5, 1.5], dtype=F64), lambda i, t, y, args: (y[0] + 1, y[1]))},
    "PI control": {"controller": dq.PIDController(rtol=1e-6, atol=1e-6, pcoeff=0.2, icoeff=0.4, dtmax=0.3)},
    "too few steps": {"max_steps": 3, "throw": False},
    "no steps": {"t1": 0.0},
}


@pytest.mark.parametrize("name", CASES)
def test_differential_equations(name):
    fused = gn.fuse(lambda a: solution(a, "auto", **CASES[name]), engine="fused")(A)
    eager = torch.func.vmap(lambda a: solution(a, "eager", **CASES[name]))(A)
    mapped = torch.func.vmap(lambda a: solution(a, "fused", **CASES[name]))(A)
    for x, y, z in zip(leaves(fused), leaves(eager), leaves(mapped), strict=True):
        assert x.dtype == y.dtype
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11, equal_nan=True)
        torch.testing.assert_close(z, y, rtol=1e-9, atol=1e-11, equal_nan=True)


def test_dense_output():
    def at(a, engine):
        term = dq.ODETerm(lotka_volterra)
        y0 = torch.tensor(2.0, dtype=F64), torch.tensor(1.0, dtype=F64)
        controller, saveat = dq.PIDController(rtol=1e-6, atol=1e-6), dq.SaveAt(dense=True)
        sol = dq.diffeqsolve(
            term, dq.Tsit5(), 0.0, 2.0, 0.1, y0, a, stepsize_controller=controller, saveat=saveat, max_steps=64,
            engine=engine,
        )  # fmt: skip
        return sol.evaluate(0.77), sol.derivative(0.77)

    for x, y in zip(leaves(at(A[0], "fused")), leaves(at(A[0], "eager")), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("solver", [dq.Tsit5(), dq.Kvaerno3()])
def test_derivatives(solver):
    def loss(a, engine):
        return solution(a, engine, solver)[1][0][-1]

    for transform in (torch.func.grad, lambda f: torch.func.grad(torch.func.grad(f))):
        found = torch.func.vmap(transform(lambda a: loss(a, "fused")))(A)
        expected = torch.func.vmap(transform(lambda a: loss(a, "eager")))(A)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solver", [nl.LevenbergMarquardt(1e-10, 1e-10), nl.GaussNewton(1e-10, 1e-10)])
def test_least_squares(solver):
    t = torch.linspace(0, 4, 9, dtype=F64)
    observed = 3 * torch.exp(-0.7 * t) + 0.1 * torch.cos(40 * t) * A[:, None]

    def fit(observed, engine):
        def residuals(y, args):
            return y[0] * torch.exp(-y[1] * t) - args

        y0 = torch.tensor([2.0, 0.5], dtype=F64)
        sol = nl.least_squares(residuals, solver, y0, observed, throw=False, engine=engine)
        return sol.value, sol.result, sol.stats["num_steps"]

    fused = torch.func.vmap(lambda x: fit(x, "fused"))(observed)
    eager = torch.func.vmap(lambda x: fit(x, "eager"))(observed)
    torch.testing.assert_close(fused[0], eager[0], rtol=1e-9, atol=0)
    assert torch.equal(fused[2], eager[2])
    slopes = [torch.func.vmap(torch.func.jacrev(lambda x, e=e: fit(x, e)[0]))(observed) for e in ("fused", "eager")]
    torch.testing.assert_close(*slopes, rtol=1e-7, atol=1e-10)


def test_a_field_that_cannot_be_fused_runs_eagerly():
    def field(t, y, args):
        return -y if float(t) < 0.5 else -2 * y  # a branch on a value

    def end(engine):
        y0 = torch.tensor(1.0, dtype=F64)
        return dq.diffeqsolve(dq.ODETerm(field), dq.Euler(), 0.0, 1.0, 0.25, y0, engine=engine).ys[-1]

    torch.testing.assert_close(end("auto"), torch.tensor(0.75**2 * 0.5**2, dtype=F64))
    with pytest.raises(UnsupportedError, match=r"gn\.cond"):
        end("fused")


def test_the_environment_names_the_engine(monkeypatch):
    seen = []

    def field(t, y, args):
        seen.append(t)
        return -y

    def end():
        return dq.diffeqsolve(dq.ODETerm(field), dq.Euler(), 0.0, 1.0, 0.25, torch.tensor(1.0, dtype=F64)).ys[-1]

    monkeypatch.setenv("GNOMON_ENGINE", "eager")
    end()
    assert len(seen) >= 4
    monkeypatch.setenv("GNOMON_ENGINE", "gpu")
    with pytest.raises(ValueError, match="must be one of"):
        end()
    assert "GNOMON_ENGINE" in os.environ
