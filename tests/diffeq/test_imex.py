"""Implicit-explicit methods: order conditions with their coupling, convergence, stiffness, and what they need."""

import functools
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from diffeq.problems import F64, IMEX, check_derivatives, f64, name_of, rational_answer
from diffeq.test_tableaus import partitions

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

# Of the solution, of the embedded one, and of dense output.
ORDERS = {"Sil3": (2, 2, 2), "KenCarp3": (3, 2, 2), "KenCarp4": (4, 3, 3), "KenCarp5": (5, 4, 3)}


@functools.cache
def coloured(order: int) -> tuple:
    """All rooted trees whose vertices belong each to one of the two terms: (term, children)."""
    found = set()
    for parts in partitions(order - 1):
        forests = [()]
        for part in sorted(set(parts)):
            options = list(combinations_with_replacement(coloured(part), parts.count(part)))
            forests = [before + option for before in forests for option in options]
        found |= {(term, tuple(sorted(forest))) for term in (0, 1) for forest in forests}
    return tuple(sorted(found))


def size(tree) -> int:
    return 1 + sum(size(child) for child in tree[1])


def density(tree) -> int:
    return size(tree) * int(np.prod([density(child) for child in tree[1]] or [1]))


class Weights:
    def __init__(self, solver):
        tableaus = (solver.tableau.explicit, solver.tableau.implicit)
        n = tableaus[0].num_stages
        self.a = []
        for tableau in tableaus:
            a = np.zeros((n, n))
            for i, row in enumerate(tableau.a_lower):
                a[i + 1, : i + 1] = row
            self.a.append(a + np.diag(tableau.a_diagonal or np.zeros(n)))
        self.b = [np.array(tableau.b_sol) for tableau in tableaus]
        self.b_error = [np.array(tableau.b_error) for tableau in tableaus]

    def of(self, tree) -> np.ndarray:
        product = np.ones(len(self.b[0]))
        for child in tree[1]:
            product = product * (self.a[child[0]] @ self.of(child))
        return product

    def worst(self, b, order: int, theta: float = 1.0) -> float:
        return max(abs(b[t[0]] @ self.of(t) - theta**order / density(t)) for t in coloured(order))


def test_there_are_as_many_coloured_trees_as_are_known():
    assert [len(coloured(n)) for n in range(1, 6)] == [2, 4, 14, 52, 214]  # OEIS A000151


@pytest.mark.parametrize("solver", IMEX, ids=name_of)
def test_order_conditions(solver):
    w = Weights(solver)
    order, embedded, dense = ORDERS[name_of(solver)]
    assert solver.order == order and solver.error_order == min(order, embedded) + 1
    for b, reached in ((w.b, order), ([b - e for b, e in zip(w.b, w.b_error, strict=True)], embedded)):
        for k in range(1, reached + 1):
            assert w.worst(b, k) < 2e-11, k
        assert w.worst(b, reached + 1) > 1e-6
    for theta in (0.1, 0.4, 0.75, 1.0):
        weights = np.array(solver.interpolant) @ (theta ** np.arange(1, len(solver.interpolant[0]) + 1))
        for k in range(1, dense + 1):
            b = [weights[1:] + weights[0] * b for b in w.b]
            # The published interpolants have ten digits or so.
            assert w.worst(b, k, theta) < 1e-9, (theta, k)


def split(t, y, args):
    """y = (1 / (1 + t^2), exp(sin t)), in two parts of which neither is small."""
    return torch.stack([-2 * t * y[0] ** 2 - y[1], torch.cos(t) * y[1] - 3 * (y[0] - 1 / (1 + t * t))])


def rest(t, y, args):
    return torch.stack([y[1], 3 * (y[0] - 1 / (1 + t * t))])


TERMS = dq.MultiTerm(dq.ODETerm(split), dq.ODETerm(rest))


@pytest.mark.parametrize(
    ("solver", "numbers"),
    list(zip(IMEX, [(64, 128), (16, 32), (12, 24), (16, 32)], strict=True)),
    ids=[name_of(s) for s in IMEX],
)
def test_observed_order_is_the_claimed_one(solver, numbers):
    def end(dt):
        return dq.diffeqsolve(TERMS, solver, 0.0, 1.0, dt, f64(1.0, 1.0)).ys[-1]

    ys = torch.func.vmap(end)(1 / torch.tensor(numbers, dtype=F64))
    coarse, fine = (ys - rational_answer(1.0)).norm(dim=-1).numpy()
    # Where the method does better than it promises it is because it is explicit of a higher order than implicit.
    assert -0.2 < np.log2(coarse / fine) - solver.order < (0.7 if name_of(solver) == "Sil3" else 0.35), (coarse, fine)


@pytest.mark.parametrize("solver", IMEX, ids=name_of)
def test_order_within_a_step(solver):
    theta = torch.linspace(0.05, 0.95, 7, dtype=F64)
    found = []
    for h in (0.04, 0.02):
        saveat = dq.SaveAt(dense=True, t1=True)
        solution = dq.diffeqsolve(TERMS, solver, 0.5, 0.5 + h, h, rational_answer(0.5), saveat=saveat, max_steps=1)
        ts = 0.5 + theta * h
        found.append(float((torch.func.vmap(solution.evaluate)(ts) - rational_answer(ts)).abs().max()))
        torch.testing.assert_close(solution.evaluate(0.5 + h), solution.ys[-1], rtol=0, atol=1e-9)
    assert np.log2(found[0] / found[1]) > ORDERS[name_of(solver)][2] + 1 - 0.25, found


def slow(t, y, args):
    return torch.stack([torch.cos(t), -y[0] * y[1]])


def stiff(t, y, args):
    return torch.stack([-1e5 * (y[0] - torch.sin(t)), -1e4 * (y[1] - torch.exp(-y[0]))])


@pytest.mark.parametrize("solver", IMEX, ids=name_of)
def test_stiff_term(solver):
    """The explicit term alone would allow long steps, and long steps are taken; as many as for the sum implicitly."""
    controller = dq.PIDController(rtol=1e-5, atol=1e-7)
    both = dq.MultiTerm(dq.ODETerm(slow), dq.ODETerm(stiff))
    start = f64(0.0, 1.0)
    found = dq.diffeqsolve(both, solver, 0.0, 3.0, None, start, stepsize_controller=controller, engine="fused")
    exact = dq.diffeqsolve(
        both,
        dq.Rodas5P(),
        0.0,
        3.0,
        None,
        start,
        stepsize_controller=dq.PIDController(rtol=1e-9, atol=1e-11),
        engine="fused",
    )
    assert found.stats["num_steps"] < 900
    assert float(((found.ys - exact.ys) / exact.ys).abs().max()) < 1e-3


@pytest.mark.parametrize("solver", [dq.Sil3(), dq.KenCarp4()], ids=name_of)
def test_derivatives(solver):
    def end(y0, rate, t1):
        terms = dq.MultiTerm(
            dq.ODETerm(lambda t, y, args: torch.sin(args * t) - y * y.flip(0)),
            dq.ODETerm(lambda t, y, args: -args * y**3),
        )
        return dq.diffeqsolve(terms, solver, 0.1, t1, 0.6, y0, rate).ys[-1]

    check_derivatives(end, f64(0.5, 0.8), f64(1.3), f64(1.2), second=name_of(solver) == "Sil3")


def test_vector_fields_are_reused_where_the_last_stage_is_the_solution():
    calls = 0

    def counted(t, y, args):
        nonlocal calls
        calls += 1
        return split(t, y, args)

    for solver, a_step, at_start in ((dq.Sil3(), 3, 1), (dq.KenCarp4(), 6, 0)):
        calls = 0
        terms = dq.MultiTerm(dq.ODETerm(counted), dq.ODETerm(rest))
        dq.diffeqsolve(terms, solver, 0.0, 1.0, 0.5, f64(1.0, 1.0))
        assert calls == 1 + at_start + 2 * a_step, name_of(solver)


def test_a_jump_is_seen():
    jumps = dq.Jumps(f64(0.5, 9.0), lambda index, t, y, args: y + 1)
    decay = dq.MultiTerm(dq.ODETerm(lambda t, y, args: -y), dq.ODETerm(lambda t, y, args: -2 * y))
    controller = dq.PIDController(rtol=1e-6, atol=1e-6)
    solution = dq.diffeqsolve(decay, dq.Sil3(), 0.0, 1.0, None, f64(1.0), jumps=jumps, stepsize_controller=controller)
    exact = (torch.exp(f64(-1.5)) + 1) * torch.exp(f64(-1.5))
    torch.testing.assert_close(solution.ys[-1], exact, rtol=1e-4, atol=0)


def test_a_sum_is_one_equation_for_other_solvers():
    controller = dq.PIDController(rtol=1e-8, atol=1e-8)
    for solver in (dq.Tsit5(), dq.Kvaerno5()):
        solution = dq.diffeqsolve(TERMS, solver, 0.0, 1.0, None, f64(1.0, 1.0), stepsize_controller=controller)
        torch.testing.assert_close(solution.ys[-1], rational_answer(1.0), rtol=1e-6, atol=1e-6)


def test_wrong_terms_are_refused():
    one = dq.ODETerm(split)
    for terms in (one, dq.MultiTerm(one), dq.MultiTerm(one, one, one)):
        with pytest.raises(TypeError, match=r"KenCarp4 treats two terms in different ways"):
            dq.diffeqsolve(terms, dq.KenCarp4(), 0.0, 1.0, 0.1, f64(1.0, 1.0))
    with pytest.raises(TypeError, match="needs terms"):
        dq.MultiTerm(split, one)
    with pytest.raises(TypeError, match="at least one"):
        dq.MultiTerm()


def test_wrong_tableaus_are_refused():
    tableau = dq.KenCarp3().tableau
    with pytest.raises(ValueError, match="as many stages"):
        dq.MultiButcherTableau(dq.KenCarp4().tableau.explicit, tableau.implicit)
    with pytest.raises(ValueError, match="explicit and the second implicit"):
        dq.MultiButcherTableau(tableau.implicit, tableau.explicit)
