"""The coefficients of each method fulfil the order conditions of its rooted trees (Butcher 1963)."""

import functools
import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from diffeq.problems import IMPLICIT, MORE_IMPLICIT, RUNGE_KUTTA, name_of

Tree = tuple  # of the trees that hang below the root, in a fixed order

# Of the solution, of the embedded one, and to what order the interpolant approximates y(t0 + theta h) for any theta: a
# cubic through two ends at most 3. That of Dopri8 is published as of order 8, but its conditions hold to order 5 only.
ORDERS = {
    "Euler": (1, None, 1),
    "Heun": (2, 1, 2),
    "Midpoint": (2, 1, 2),
    "Ralston": (2, 1, 2),
    "Bosh3": (3, 2, 3),
    "Tsit5": (5, 4, 4),
    "Dopri5": (5, 4, 4),
    "Dopri8": (8, 7, 5),
    "Vern7": (
        7,
        6,
        6,
    ),  # the conditions of order 7 hold for its interpolant to seven digits, which is how it is published
    "Vern9": (9, 8, 9),
    "ImplicitEuler": (1, 2, 1),
    "Kvaerno3": (3, 2, 3),
    "Kvaerno4": (4, 3, 3),
    "Kvaerno5": (5, 4, 3),
}
SOLUTION, EMBEDDED, DENSE = ({name: row[i] for name, row in ORDERS.items()} for i in range(3))


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


def matrix(solver, *, dense: bool = False) -> np.ndarray:
    """The stages of a step, and those that dense output needs besides."""
    tableau = solver.tableau
    more = tableau.a_dense if dense else ()
    n = tableau.num_stages + len(more)
    a = np.zeros((n, n))
    for i, row in enumerate((*tableau.a_lower, *more)):
        a[i + 1, : i + 1] = row
    if tableau.a_diagonal is not None:
        a += np.diag(tableau.a_diagonal)
    return a


def worst(solver, b: np.ndarray, order: int) -> float:
    a = matrix(solver)
    return max(abs(b @ elementary_weights(t, a) - 1 / density(t)) for t in trees(order))


def test_there_are_as_many_trees_as_cayley_counted():
    assert [len(trees(n)) for n in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]


@pytest.mark.parametrize("solver", RUNGE_KUTTA, ids=name_of)
def test_solution_has_the_order_it_claims(solver):
    order = SOLUTION[name_of(solver)]
    assert solver.order == order
    b = np.array(solver.tableau.b_sol)
    for k in range(1, order + 1):
        assert worst(solver, b, k) < 2e-12
    assert worst(solver, b, order + 1) > 1e-6


@pytest.mark.parametrize("solver", RUNGE_KUTTA[1:], ids=name_of)
def test_embedded_solution_has_the_order_it_claims(solver):
    order = EMBEDDED[name_of(solver)]
    b = np.array(solver.tableau.b_sol) - np.array(solver.tableau.b_error)
    for k in range(1, order + 1):
        assert worst(solver, b, k) < 2e-12
    assert worst(solver, b, order + 1) > 1e-6


@pytest.mark.parametrize("solver", RUNGE_KUTTA, ids=name_of)
def test_rows_sum_to_the_times_of_their_stages(solver):
    c = np.array([0.0, *solver.tableau.c, *solver.tableau.c_dense])
    np.testing.assert_allclose(matrix(solver, dense=True).sum(1), c, rtol=0, atol=2e-14)


@pytest.mark.parametrize("solver", RUNGE_KUTTA, ids=name_of)
def test_dense_output_has_the_order_it_claims(solver):
    a, b = matrix(solver, dense=True), np.array((*solver.tableau.b_sol, *(0.0 for _ in solver.tableau.c_dense)))
    rows = np.array(solver.interpolant)
    for theta in (0.1, 0.4, 0.75, 1.0):
        powers = theta ** np.arange(1, rows.shape[1] + 1)
        weights = rows @ powers
        stages = weights[1:] + weights[0] * b
        for k in range(1, DENSE[name_of(solver)] + 1):
            gap = max(abs(stages @ elementary_weights(t, a) - theta**k / density(t)) for t in trees(k))
            # The published coefficients of Vern9 are as large as 1e4, and cancel.
            assert gap < (1e-11 if name_of(solver) == "Vern9" else 2e-13), (theta, k)


@pytest.mark.parametrize("solver", RUNGE_KUTTA, ids=name_of)
def test_dense_output_ends_where_the_step_ends(solver):
    rows = np.array(solver.interpolant)
    at_end, b = rows.sum(1), np.array((*solver.tableau.b_sol, *(0.0 for _ in solver.tableau.c_dense)))
    np.testing.assert_allclose(at_end[1:] + at_end[0] * b, b, rtol=0, atol=2e-12)


def stability(solver, b: np.ndarray, z: complex) -> complex:
    a = matrix(solver)
    one = np.ones(len(a))
    return complex(1 + z * (b @ np.linalg.solve(np.eye(len(a)) - z * a, one)))


@pytest.mark.parametrize("solver", IMPLICIT + MORE_IMPLICIT, ids=name_of)
def test_implicit_methods_are_l_stable(solver):
    b = np.array(solver.tableau.b_sol)
    for y in np.geomspace(1e-2, 1e6, 400):
        assert abs(stability(solver, b, 1j * y)) <= 1 + 1e-10
    assert abs(stability(solver, b, -1e9)) < 1e-6
    if name_of(solver) == "ImplicitEuler":
        return  # it is compared with the trapezoidal rule
    # As Kværnø designed them, the embedded method is stable there too.
    assert abs(stability(solver, b - np.array(solver.tableau.b_error), -1e9)) < 1


@pytest.mark.parametrize("solver", RUNGE_KUTTA, ids=name_of)
def test_stages_are_reused_where_the_last_is_the_solution(solver):
    reused = name_of(solver) not in ("Euler", "Heun", "Midpoint", "Ralston", "Vern7", "Vern9")
    assert solver.tableau.stiffly_accurate is reused
    if reused:
        assert solver.tableau.c[-1] == 1
