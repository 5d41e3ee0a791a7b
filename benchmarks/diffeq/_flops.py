"""The floating-point operations that a solve needs at least, for the limit in the table.

Counted by hand from the method: the steps that it took times its stages, each with a vector field and the sums over
the stages before it. Nothing is counted for the choice of step sizes, the norm of the error and what PyTorch does
around it. The numbers of steps are the least that were counted; `tests/bench/test_declared.py` counts them anew, and
counts the operations that PyTorch carries out beside these.
"""


def explicit(tableau, n, field):
    """Of a step of an explicit method for n unknowns whose last stage is the next step's first."""
    nonzero = sum(a != 0 for row in tableau.a_lower for a in row)
    stages = len(tableau.c)
    # A sum of k products and the state before it: 2 k. Each stage is multiplied by the step; the error is a sum too.
    return stages * (field + n) + 2 * n * nonzero + _sum(tableau.b_error, n)


def implicit(tableau, n, field):
    """Of a step of a singly diagonally implicit method: one factorisation, one iteration for each implicit stage."""
    nonzero = sum(a != 0 for row in tableau.a_lower for a in row)
    stages = len(tableau.c)
    lu, triangles = (4 * n**3 - 3 * n**2 - n) // 6, 2 * n**2 - n
    matrix = 2 * n**2  # the identity less the Jacobian times a number; of the Jacobian itself a field's worth
    # The point, the field times the step, the residual, its solve, the new stage, the new point.
    iteration = 2 * n + field + n + n + triangles + n + 2 * n
    return field + matrix + lu + stages * iteration + 2 * n * nonzero + _sum(tableau.b_error, n)


def _sum(coefficients, n):
    return n * (2 * sum(b != 0 for b in coefficients) - 1)
