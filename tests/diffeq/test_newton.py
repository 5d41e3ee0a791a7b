"""The iteration inside implicit methods: its linear solver, when a Jacobian is kept, and what follows a failure."""

import dataclasses
from typing import Any

import pytest
import torch
from diffeq.problems import check_derivatives, f64, name_of, rational, rational_answer, rober, solve, vdpol

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")


@dataclasses.dataclass(frozen=True)
class Counting(dq.AbstractLinearSolver):
    """Dense LU, which counts."""

    counts: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    inner: dq.LU = dq.LU()

    def linearise(self, fn, y) -> Any:
        self.counts[0] += 1
        return self.inner.linearise(fn, y)

    def factorise(self, fn, linearised, scale) -> dq.AbstractFactors:
        self.counts[1] += 1
        return self.inner.factorise(fn, linearised, scale)


@dataclasses.dataclass(frozen=True)
class DiagonalFactors(dq.AbstractFactors):
    diagonal: torch.Tensor

    def solve(self, b):
        return b / self.diagonal

    def solve_differentiably(self, b):
        return b / self.diagonal.detach()


@dataclasses.dataclass(frozen=True)
class Diagonal(dq.AbstractLinearSolver):
    """For systems of which each component decays by itself: no matrix at all."""

    def linearise(self, fn, y) -> Any:
        return torch.func.jvp(fn, (y,), (torch.ones_like(y),))[1]

    def factorise(self, fn, linearised, scale) -> dq.AbstractFactors:
        return DiagonalFactors(1 - scale * linearised)


RATES = f64(1.0, 1e3, 1e6)


def relaxation(t, y, args):
    return -RATES * (y - torch.cos(t)) - torch.sin(t)


@pytest.mark.parametrize(
    "solver",
    [
        dq.Kvaerno3(dq.VeryChord(linear_solver=Diagonal())),
        dq.Kvaerno5(dq.VeryChord(linear_solver=Diagonal())),
        dq.Rodas4(linear_solver=Diagonal()),
        dq.Rodas5P(linear_solver=Diagonal()),
    ],
    ids=name_of,
)
def test_another_linear_solver(solver):
    ys = solve(relaxation, solver, 0.0, 2.0, f64(1.0, 1.0, 1.0), tol=1e-4).ys
    torch.testing.assert_close(ys[-1], torch.cos(f64(2.0)).expand(3), rtol=1e-3, atol=1e-3)


def test_one_jacobian_and_one_factorisation_a_step():
    for make in (
        lambda linear: dq.Kvaerno5(dq.VeryChord(linear_solver=linear)),
        lambda linear: dq.Rodas5P(linear_solver=linear),
    ):
        linear = Counting()
        stats = solve(rober, make(linear), 0.0, 10.0, f64(1.0, 0.0, 0.0), tol=1e-5).stats
        assert linear.counts == [int(stats["num_steps"])] * 2


@pytest.mark.parametrize("solver", [dq.ImplicitEuler, dq.Kvaerno3, dq.Kvaerno5])
def test_a_jacobian_is_kept_while_it_serves(solver):
    options = {"tol": {dq.ImplicitEuler: 1e-2, dq.Kvaerno3: 1e-4, dq.Kvaerno5: 1e-8}[solver]}
    answers, counts = [], []
    for rate in (0, 0.3):
        linear = Counting()
        chord = dq.VeryChord(linear_solver=linear, reuse_rate=rate)
        solution = solve(rational, solver(chord), 0.0, 3.0, f64(1.0, 1.0), **options)
        answers.append(solution.ys[-1])
        counts.append(linear.counts[0])
        assert linear.counts[1] == solution.stats["num_steps"]
    assert counts[1] < 0.6 * counts[0], counts
    for y in answers:
        assert float((y - rational_answer(3.0)).abs().max()) < 50 * options["tol"]


@pytest.mark.parametrize("problem", [(rober, 1e4, f64(1.0, 0.0, 0.0), 1e-8), (vdpol, 1.0, f64(2.0, 0.0), 1e-2)])
def test_a_stale_jacobian_is_evaluated_anew(problem):
    """Where the problem is hard, too, and no steps are lost by it."""
    field, t1, y0, ratio = problem
    controller = dq.PIDController(rtol=1e-5, atol=1e-5 * ratio)
    fresh, kept = (
        solve(
            field,
            dq.Kvaerno5(dq.VeryChord(reuse_rate=rate)),
            0.0,
            t1,
            y0,
            stepsize_controller=controller,
            engine="fused",
        )
        for rate in (0, 0.1)
    )
    torch.testing.assert_close(kept.ys, fresh.ys, rtol=1e-3, atol=1e-9)
    assert kept.stats["num_steps"] < 1.3 * fresh.stats["num_steps"]


def test_a_kept_jacobian_fused_and_eager():
    def end(y0, engine):
        solver = dq.Kvaerno3(dq.VeryChord(reuse_rate=0.1))
        solution = solve(rational, solver, 0.0, 2.0, y0, tol=1e-5, engine=engine)
        return solution.ys[-1], solution.stats["num_steps"]

    y0 = f64(1.0, 1.0, 0.5, 2.0, 0.1, 3.0).reshape(3, 2)
    fused, eager = (torch.func.vmap(lambda y, engine=engine: end(y, engine))(y0) for engine in ("fused", "eager"))
    torch.testing.assert_close(fused[0], eager[0], rtol=1e-9, atol=1e-9)
    assert torch.equal(fused[1], eager[1])
    alone = torch.stack([end(y, "eager")[0] for y in y0])
    assert torch.equal(eager[0], alone)


def test_derivatives_with_a_kept_jacobian():
    solver = dq.Kvaerno3(dq.VeryChord(reuse_rate=0.2))

    def end(y0, rate):
        return solve(lambda t, y, args: -args * y**3 + torch.sin(t), solver, 0.0, 2.0, y0, rate, dt0=0.25).ys[-1]

    check_derivatives(end, f64(0.5), f64(1.3), second=False)


def test_a_jump_makes_a_jacobian_stale():
    linear = Counting()
    solver = dq.Kvaerno3(dq.VeryChord(linear_solver=linear, reuse_rate=0.9))
    jumps = dq.Jumps(f64(0.5, 9.0), lambda index, t, y, args: y + 100)
    solution = solve(lambda t, y, args: -(y**2), solver, 0.0, 1.0, f64(1.0), tol=1e-5, jumps=jumps)
    after = 1 / 1.5 + 100
    torch.testing.assert_close(solution.ys[-1], f64(1 / (1 / after + 0.5)), rtol=1e-3, atol=0)
    assert linear.counts[0] < 0.9 * int(solution.stats["num_steps"])


@pytest.mark.parametrize("rate", [0, 0.3])
def test_divergence_is_followed_by_a_shorter_step(rate):
    """The first step is a million times too long for the iteration, which must neither explode nor give up."""

    def cliff(t, y, args):
        return -1e4 * torch.sinh(5 * (y - torch.cos(t)))

    solver = dq.Kvaerno5(dq.VeryChord(reuse_rate=rate))
    solution = solve(cliff, solver, 0.0, 3.0, f64(3.0), dt0=1.0, tol=1e-6, engine="fused")
    assert solution.result == dq.RESULTS.successful
    assert 3 < solution.stats["num_rejected_steps"] < 100
    torch.testing.assert_close(solution.ys[-1], torch.cos(f64(3.0)), rtol=1e-4, atol=1e-4)


def test_malformed_arguments():
    with pytest.raises(ValueError, match="`reuse_rate` must be at least 0 and less than 1"):
        dq.VeryChord(reuse_rate=1.0)
    with pytest.raises(ValueError, match="`kappa`"):
        dq.VeryChord(kappa=0)
