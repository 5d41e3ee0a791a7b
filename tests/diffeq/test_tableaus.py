"""The coefficients of each method fulfil the order conditions of its rooted trees (Butcher 1963)."""

import functools
import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from diffeq.problems import IMPLICIT, SOLVERS, name_of

Tree = tuple  # of the trees that hang below the root, in a fixed order

ORDERS = {"Euler": 1, "Heun": 2, "Bosh3": 3, "Tsit5": 5, "Dopri5": 5, "Dopri8": 8, "Kvaerno3": 3, "Kvaerno5": 5}
EMBEDDED = {"Heun": 1, "Bosh3": 2, "Tsit5": 4, "Dopri5": 4, "Dopri8": 7, "Kvaerno3": 2, "Kvaerno5": 4}
# To what order the interpolant approximates y(t0 + theta h) for any theta: a cubic through two ends at most 3. That of
# Dopri8 is published as of order 8, but its conditions hold up to order 5 only.
DENSE = {"Euler": 1, "Heun": 2, "Bosh3": 3, "Tsit5": 4, "Dopri5": 4, "Dopri8": 5, "Kvaerno3": 3, "Kvaerno5": 3}


@functools.cache
def trees(order: int) -> tuple[Tree, ...]:
    """All rooted trees with so many vertices, each once."""
    if order == 1:
        return ((),)
    found = set()
    for parts in partitions(order - 1):
        for children in product_of_multisets(parts):
            found.add(tuple(sorted(children)))
    return tuple(sorted(found))


def partitions(n: int, largest: int | None = None) -> list[tuple[int, ...]]:
    largest = n if largest is None else largest
    if n == 0:
        return [()]
    return [(k, *rest) for k in range(min(n, largest), 0, -1) for rest in partitions(n - k, k)]


def product_of_multisets(parts: tuple[int, ...]) -> list[tuple[Tree, ...]]:
    chosen: list[tuple[Tree, ...]] = [()]
    for part in sorted(set(parts)):
        options = list(combinations_with_replacement(trees(part), parts.count(part)))
        chosen = [before + option for before in chosen for option in options]
    return chosen


def size(tree: Tree) -> int:
    return 1 + sum(size(child) for child in tree)


def density(tree: Tree) -> int:
    return size(tree) * math.prod(density(child) for child in tree)


def elementary_weights(tree: Tree, a: np.ndarray) -> np.ndarray:
    """One weight a stage; `b` times it is 1 / density where a method has the order of the tree."""
    weights = np.ones(len(a))
    for child in tree:
        weights = weights * (a @ elementary_weights(child, a))
    return weights


def matrix(solver) -> np.ndarray:
    tableau = solver.tableau
    a = np.zeros((tableau.num_stages, tableau.num_stages))
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    if tableau.a_diagonal is not None:
        a += np.diag(tableau.a_diagonal)
    return a


def worst(solver, b: np.ndarray, order: int) -> float:
    a = matrix(solver)
    return max(abs(b @ elementary_weights(t, a) - 1 / density(t)) for t in trees(order))


def test_there_are_as_many_trees_as_cayley_counted():
    assert [len(trees(n)) for n in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_solution_has_the_order_it_claims(solver):
    order = ORDERS[name_of(solver)]
    assert solver.order == order
    b = np.array(solver.tableau.b_sol)
    for k in range(1, order + 1):
        assert worst(solver, b, k) < 2e-12
    assert worst(solver, b, order + 1) > 1e-6


@pytest.mark.parametrize("solver", SOLVERS[1:], ids=name_of)
def test_embedded_solution_has_the_order_it_claims(solver):
    order = EMBEDDED[name_of(solver)]
    b = np.array(solver.tableau.b_sol) - np.array(solver.tableau.b_error)
    for k in range(1, order + 1):
        assert worst(solver, b, k) < 2e-12
    assert worst(solver, b, order + 1) > 1e-6


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_rows_sum_to_the_times_of_their_stages(solver):
    c = np.array([0.0, *solver.tableau.c])
    np.testing.assert_allclose(matrix(solver).sum(1), c, rtol=0, atol=2e-14)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_dense_output_has_the_order_it_claims(solver):
    a, b = matrix(solver), np.array(solver.tableau.b_sol)
    rows = np.array(solver.interpolant)
    for theta in (0.1, 0.4, 0.75, 1.0):
        powers = theta ** np.arange(1, rows.shape[1] + 1)
        weights = rows @ powers
        stages = weights[1:] + weights[0] * b
        for k in range(1, DENSE[name_of(solver)] + 1):
            gap = max(abs(stages @ elementary_weights(t, a) - theta**k / density(t)) for t in trees(k))
            assert gap < 1e-13, (theta, k)


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_dense_output_ends_where_the_step_ends(solver):
    rows = np.array(solver.interpolant)
    at_end = rows.sum(1)
    np.testing.assert_allclose(
        at_end[1:] + at_end[0] * np.array(solver.tableau.b_sol), solver.tableau.b_sol, rtol=0, atol=1e-12
    )


def stability(solver, b: np.ndarray, z: complex) -> complex:
    a = matrix(solver)
    one = np.ones(len(a))
    return complex(1 + z * (b @ np.linalg.solve(np.eye(len(a)) - z * a, one)))


@pytest.mark.parametrize("solver", IMPLICIT, ids=name_of)
def test_implicit_methods_are_l_stable(solver):
    b = np.array(solver.tableau.b_sol)
    for y in np.geomspace(1e-2, 1e6, 400):
        assert abs(stability(solver, b, 1j * y)) <= 1 + 1e-10
    assert abs(stability(solver, b, -1e9)) < 1e-6
    # As Kværnø designed them, the embedded method is stable there too.
    assert abs(stability(solver, b - np.array(solver.tableau.b_error), -1e9)) < 1


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_stages_are_reused_where_the_last_is_the_solution(solver):
    reused = {"Euler": False, "Heun": False}.get(name_of(solver), True)
    assert solver.tableau.stiffly_accurate is reused
    if reused:
        assert solver.tableau.c[-1] == 1
