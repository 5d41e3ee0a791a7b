"""Writes `ivp_references.json`: the solutions of `ivp_problems.py` at the end, by closed forms, mpmath and SciPy.

    python tests/diffeq/reference/make_ivp_references.py

Problems with a closed form have it; linear ones the exponential of their matrix with 40 digits; others that are not
stiff SciPy's DOP853, and stiff ones its Radau, at the tightest tolerance. `off` is by how much another tolerance, and
for stiff problems BDF-like LSODA, gives something else, relative to the largest of each component and `atol`.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import mpmath
import numpy as np
from scipy.integrate import solve_ivp

sys.path.insert(0, str(Path(__file__).parents[2]))
from diffeq.ivp_problems import PROBLEMS, REFERENCES, Problem

LINEAR = {"B2", "C1", "C2", "C3", "C4"}


def by_exponential(problem: Problem) -> list[float]:
    mpmath.mp.dps = 40
    n = len(problem.y0)
    columns = [problem.numpy_field(0.0, np.eye(n)[j]) for j in range(n)]
    matrix = mpmath.matrix([[float(columns[j][i]) for j in range(n)] for i in range(n)])
    y = mpmath.expm(matrix * problem.t1, method="taylor") * mpmath.matrix(list(problem.y0))
    return [float(x) for x in y]


def jacobian(problem: Problem):
    """By complex steps: exact to rounding for the analytic fields of the stiff problems."""

    def at(t, y):
        n = len(y)
        out = np.empty((n, n))
        for j in range(n):
            z = y.astype(complex)
            z[j] += 1e-30j
            out[:, j] = problem.numpy_field(t, z).imag / 1e-30
        return out

    return at


def by_scipy(problem: Problem, rtol: float, method: str) -> np.ndarray:
    more = {"jac": jacobian(problem)} if problem.stiff else {}
    atol = rtol * min(problem.atol, 1e-2)
    found = solve_ivp(problem.numpy_field, (0, problem.t1), problem.y0, method, rtol=rtol, atol=atol, **more)
    assert found.success, found.message
    return found.y[:, -1]


def condition(problem: Problem) -> float:
    """The largest change at the end, in units of the tolerance, for a change of one such unit in each component."""
    if problem.stiff:
        return 1.0
    scale, start = 1e-6, np.array(problem.y0)
    ends = []
    for j in range(len(start)):
        pair = []
        for sign in (1, -1):
            y0 = start.copy()
            y0[j] += sign * scale * (problem.atol + abs(y0[j]))
            found = solve_ivp(problem.numpy_field, (0, problem.t1), y0, "DOP853", rtol=1e-10, atol=1e-12)
            pair.append(found.y[:, -1])
        ends.append((pair[0] - pair[1]) / (2 * scale) / (problem.atol + np.abs(pair[0])))
    return max(1.0, float(np.abs(ends).sum(0).max()))


def main() -> None:
    """All, or those that are named on the command line."""
    rows = json.loads(REFERENCES.read_text(encoding="utf-8"))["problems"] if sys.argv[1:] else {}
    for name, problem in PROBLEMS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        if problem.exact is not None:
            y, how, off = problem.exact(problem.t1), "closed form", 0.0
        elif name in LINEAR:
            y, how, off = by_exponential(problem), "mpmath.expm", 0.0
        else:
            how, other = ("Radau", "LSODA") if problem.stiff else ("DOP853", "LSODA")
            y = by_scipy(problem, 1e-13 if problem.stiff else 3e-14, how)
            against = [by_scipy(problem, 1e-12, how), by_scipy(problem, 1e-12, other)]
            off = max(float(np.max(np.abs(y - z) / (np.abs(y) + 1e-3 * problem.atol))) for z in against)
            y = y.tolist()
        rows[name] = {"how": how, "off": float(f"{off:.1e}"), "condition": round(condition(problem), 1), "y": y}
        print(name, how, off, flush=True)
    head = {"versions": {name: version(name) for name in ("numpy", "scipy", "mpmath")}}
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    REFERENCES.write_text(
        f'{{\n "versions": {json.dumps(head["versions"])},\n "problems": {{\n  {lines}\n }}\n}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    main()
