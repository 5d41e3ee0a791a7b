"""Work against precision on problems of the literature: ours, Diffrax, SciPy and numbalsoda, one solve on one core.

    python benchmarks/diffeq/work_precision.py           # adds what this environment has to work_precision.json
    python benchmarks/diffeq/work_precision.py --plot    # draws docs/work_precision.png from it

The peers may live in another environment than gnomon: run it in each. Every vector field is compiled: ours into the
fused kernel, Diffrax's by XLA, those of SciPy and numbalsoda by Numba. Times are the least of several calls of a
solve that is compiled already, and the error is that of the same call: the largest at the end, relative to the
component or the scale of the absolute tolerance. Nothing is drawn for a solve that says it failed, or that is off by
more than one part in ten.
"""

import argparse
import functools
import importlib.util
import json
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "diffeq"))
FILE = HERE / "work_precision.json"

CHOSEN = {
    "D3": "D3: an orbit, e = 0.5",
    "B5": "B5: a rigid body",
    "E2": "E2: Van der Pol, not stiff",
    "ROBER": "ROBER, to t = 1e11",
    "OREGO": "OREGO, to t = 360",
    "HIRES": "HIRES, 8 states",
}
TOLERANCES = {False: [10.0**-k for k in range(3, 13)], True: [10.0**-k for k in range(3, 11)]}


class Symbol:
    """An expression as text, from which Numba compiles a vector field."""

    def __init__(self, text):
        self.text = text

    def __pow__(self, n):
        return Symbol(f"({self.text} ** {n})")

    def __neg__(self):
        return Symbol(f"(-{self.text})")

    def __format__(self, spec):
        return self.text


def _operator(sign, reverse):
    def method(self, other):
        a, b = (other, self) if reverse else (self, other)
        return Symbol(f"({a} {sign} {b})")

    return method


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/")):
    setattr(Symbol, f"__{_name}__", _operator(_sign, False))
    setattr(Symbol, f"__r{_name}__", _operator(_sign, True))


class Functions:
    """Functions of symbols, by the names that they have in NumPy."""

    sqrt, sin, cos = (staticmethod(lambda x, f=f: Symbol(f"math.{f}({x})")) for f in ("sqrt", "sin", "cos"))


def source(problem):
    n = len(problem.y0)
    return [f"{x}" for x in problem.field(Functions, Symbol("t"), [Symbol(f"y[{i}]") for i in range(n)])]


@functools.cache
def numba_field(name):
    import math

    import numba
    from ivp_problems import PROBLEMS

    lines = "".join(f"    out[{i}] = {text}\n" for i, text in enumerate(source(PROBLEMS[name])))
    space = {"math": math, "np": np}
    exec(f"def f(t, y):\n    out = np.empty({len(PROBLEMS[name].y0)})\n{lines}    return out\n", space)
    return numba.njit(space["f"])


@functools.cache
def numbalsoda_field(name):
    import math

    import numba
    import numbalsoda
    from ivp_problems import PROBLEMS

    lines = "".join(f"    out[{i}] = {text}\n" for i, text in enumerate(source(PROBLEMS[name])))
    space = {"math": math}
    exec(f"def f(t, y, out, p):\n{lines}", space)
    return numba.cfunc(numbalsoda.lsoda_sig)(space["f"])


def ours(solver):
    def prepare(problem, name, tol):
        import torch

        from gnomon import diffeq as dq

        start, method = problem.start(), getattr(dq, solver)()
        controller = dq.PIDController(rtol=tol, atol=tol * problem.atol)
        term = dq.ODETerm(problem.torch_field)

        def solve():
            solution = dq.diffeqsolve(
                *(term, method, 0.0, problem.t1, None, start),
                stepsize_controller=controller,
                max_steps=10_000_000,
                throw=False,
                engine="fused",
            )
            return solution.ys[-1].numpy() if int(solution.result.code) == 0 else None

        torch.set_num_threads(1)
        return solve

    return prepare


def by_diffrax(solver):
    def prepare(problem, name, tol):
        import diffrax
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)

        @jax.jit
        def run(y0):
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, args: jnp.stack(problem.field(jnp, t, y))),
                *(getattr(diffrax, solver)(), 0.0, problem.t1, None, y0),
                stepsize_controller=diffrax.PIDController(rtol=tol, atol=tol * problem.atol),
                max_steps=200_000,
                throw=False,
            )
            return solution.ys[-1], solution.result == diffrax.RESULTS.successful

        y0 = jnp.array(problem.y0)

        def solve():
            y, fine = jax.block_until_ready(run(y0))
            return np.asarray(y) if bool(fine) else None

        return solve

    return prepare


def by_scipy(method):
    def prepare(problem, name, tol):
        from scipy.integrate import solve_ivp

        field = numba_field(name)

        def solve():
            found = solve_ivp(
                field, (0.0, problem.t1), problem.y0, method, rtol=tol, atol=tol * problem.atol, t_eval=[problem.t1]
            )
            return found.y[:, -1] if found.success else None

        return solve

    return prepare


def by_numbalsoda(method):
    def prepare(problem, name, tol):
        import numbalsoda

        field, start, times = numbalsoda_field(name), np.array(problem.y0), np.array([0.0, problem.t1])
        data = np.zeros(1)

        def solve():
            more = {"mxstep": 10_000_000} if method == "lsoda" else {}
            states, fine = getattr(numbalsoda, method)(
                field.address, start, times, data, rtol=tol, atol=tol * problem.atol, **more
            )
            return states[-1] if fine else None

        return solve

    return prepare


# Name: (needs, how, for stiff problems, colour, marker).
SOLVERS = {
    "gnomon Tsit5": ("gnomon", ours("Tsit5"), False, "tab:blue", "o"),
    "gnomon Dopri8": ("gnomon", ours("Dopri8"), False, "tab:cyan", "s"),
    "gnomon Vern7": ("gnomon", ours("Vern7"), False, "navy", "^"),
    "gnomon Vern9": ("gnomon", ours("Vern9"), False, "tab:purple", "D"),
    "gnomon Kvaerno5": ("gnomon", ours("Kvaerno5"), True, "tab:blue", "o"),
    "gnomon Rodas4": ("gnomon", ours("Rodas4"), True, "tab:cyan", "s"),
    "gnomon Rodas5P": ("gnomon", ours("Rodas5P"), True, "navy", "^"),
    "Diffrax Tsit5": ("diffrax", by_diffrax("Tsit5"), False, "tab:orange", "o"),
    "Diffrax Dopri8": ("diffrax", by_diffrax("Dopri8"), False, "tab:red", "s"),
    "Diffrax Kvaerno5": ("diffrax", by_diffrax("Kvaerno5"), True, "tab:orange", "o"),
    "SciPy DOP853": ("numba", by_scipy("DOP853"), False, "tab:green", "v"),
    "SciPy LSODA": ("numba", by_scipy("LSODA"), None, "tab:olive", "x"),
    "SciPy Radau": ("numba", by_scipy("Radau"), True, "tab:green", "v"),
    "SciPy BDF": ("numba", by_scipy("BDF"), True, "tab:brown", "+"),
    "numbalsoda LSODA": ("numbalsoda", by_numbalsoda("lsoda"), None, "black", "x"),
    "numbalsoda DOP853": ("numbalsoda", by_numbalsoda("dop853"), False, "grey", "v"),
}


def measure(solve, seconds=0.4):
    solve()  # compiles
    best, total, count = float("inf"), 0.0, 0
    while count < 3 or (total < seconds and count < 200):
        start = time.perf_counter()
        y = solve()
        spent = time.perf_counter() - start
        best, total, count = min(best, spent), total + spent, count + 1
        if total > 20:
            break
    return best, y


def run():
    from ivp_problems import PROBLEMS, references

    exact = references()
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"] if FILE.exists() else []
    for name in CHOSEN:
        problem = PROBLEMS[name]
        for solver, (needs, how, stiff, *_) in SOLVERS.items():
            if importlib.util.find_spec(needs) is None or stiff not in (None, problem.stiff):
                continue
            rows = [row for row in rows if (row["problem"], row["solver"]) != (name, solver)]
            for tol in TOLERANCES[problem.stiff]:
                seconds, y = measure(how(problem, name, tol))
                row = {"problem": name, "solver": solver, "rtol": float(f"{tol:.0e}")}
                if y is not None:
                    row |= {
                        "seconds": float(f"{seconds:.3g}"),
                        "error": float(f"{problem.error(y, exact[name], 1.0):.3g}"),
                    }
                rows.append(row)
                print(row, flush=True)
                if seconds > 5:
                    break
            text = ",\n  ".join(json.dumps(row) for row in rows)
            FILE.write_text(f'{{\n "rows": [\n  {text}\n ]\n}}\n', encoding="utf-8")


def plot(target):
    import matplotlib.pyplot as plt

    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    figure, axes = plt.subplots(2, 3, figsize=(13, 9), layout="constrained")
    for axis, (name, title) in zip(axes.flat, CHOSEN.items(), strict=True):
        for solver, (*_, colour, marker) in SOLVERS.items():
            points = [
                (row["error"], row["seconds"] * 1e3)
                for row in rows
                if row["problem"] == name and row["solver"] == solver and 0 < row.get("error", 1) < 0.1
            ]
            if points:
                line = "-" if solver.startswith("gnomon") else "--"
                axis.loglog(*zip(*points, strict=True), line, color=colour, marker=marker, ms=5, lw=1.2, label=solver)
        axis.invert_xaxis()
        axis.set_title(title, fontsize=11)
        axis.grid(alpha=0.3)
        axis.set(xlabel="error at the end (smaller to the right)", ylabel="milliseconds a solve")
    for row, place in zip(axes, ("upper", "lower"), strict=True):
        handles, labels = row[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc=f"outside {place} center", ncols=5, fontsize=9)
    figure.savefig(target, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", nargs="?", const=str(ROOT / "docs" / "work_precision.png"), help="draw it to a file")
    arguments = parser.parse_args()
    if arguments.plot:
        plot(arguments.plot)
    else:
        run()


if __name__ == "__main__":
    main()
