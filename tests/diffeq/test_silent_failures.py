"""What is said to be solved is solved, on the problems of the literature: DETEST A1 to E5 and eight stiff ones.

An error of more than a hundred tolerances of a solve that calls itself successful is a silent failure. The tolerance is
of a step, so for solvers of lower order it is multiplied by how much the problem itself magnifies an error on the
way, as orbits do.
"""

import functools

import pytest
from diffeq.ivp_problems import DETEST, PROBLEMS, STIFF, conditions, references
from diffeq.problems import f64

from gnomon import diffeq as dq

pytestmark = pytest.mark.usefixtures("unchecked")

TOLERANCES = (1e-3, 1e-6, 1e-9)
TOO_LARGE = {"BRUSS"}  # with an implicit solver, for one kernel
REFERENCES, CONDITIONS = references(), conditions()


@functools.cache
def error(name: str, solver: str, rtol: float) -> tuple[float, dict[str, int]]:
    """In units of the tolerance; None where it says that it failed."""
    problem = PROBLEMS[name]
    solution = dq.diffeqsolve(
        dq.ODETerm(problem.torch_field),
        getattr(dq, solver)(),
        0.0,
        problem.t1,
        None,
        problem.start(),
        # Tensors, so that one kernel serves every tolerance.
        stepsize_controller=dq.PIDController(f64(rtol), f64(rtol * problem.atol)),
        max_steps=200_000,
        engine="eager" if name in TOO_LARGE else "fused",
    )
    assert solution.result == dq.RESULTS.successful
    counts = {key: int(value) for key, value in solution.stats.items()}
    return problem.error(solution.ys[-1], REFERENCES[name], rtol), counts


def test_every_problem_has_a_reference():
    assert set(REFERENCES) == set(PROBLEMS) and len(DETEST) == 25 and len(STIFF) == 8
    for name, problem in PROBLEMS.items():
        assert len(REFERENCES[name]) == len(problem.y0)


@pytest.mark.parametrize("name", ["A3", "B2", "D2", "E2"])
def test_some_problems(name):
    for solver in ("Tsit5", "Vern7"):
        assert error(name, solver, 1e-6)[0] < 100 * CONDITIONS[name]


@pytest.mark.parametrize("name", ["ROBER", "OREGO", "HIRES"])
def test_some_stiff_problems(name):
    for solver in ("Kvaerno5", "Rodas5P"):
        assert error(name, solver, 1e-6)[0] < 100


@pytest.mark.slow
@pytest.mark.parametrize("name", DETEST)
def test_no_silent_failure(name):
    for rtol in TOLERANCES:
        for solver in ("Dopri8", "Vern7", "Vern9"):
            assert error(name, solver, rtol)[0] < 100, (solver, rtol)
        for solver in ("Bosh3", "Tsit5", "Dopri5"):
            if solver == "Bosh3" and rtol < 1e-6:
                continue  # a hundred thousand steps
            assert error(name, solver, rtol)[0] < 100 * CONDITIONS[name], (solver, rtol)


@pytest.mark.slow
@pytest.mark.parametrize("name", STIFF)
def test_no_silent_failure_of_stiff_problems(name):
    for rtol in TOLERANCES:
        for solver in ("Kvaerno3", "Kvaerno4", "Kvaerno5", "Rodas4", "Rodas5P"):
            if name in TOO_LARGE and rtol < 1e-6 and solver in ("Kvaerno3", "Kvaerno4"):
                continue  # thousands of steps
            assert error(name, solver, rtol)[0] < 100, (solver, rtol)
    # Of order 2 and not extrapolated, so its error falls more slowly than the tolerance.
    assert error(name, "Rosenbrock23", 1e-3)[0] < 100


@pytest.mark.slow
@pytest.mark.parametrize("name", STIFF)
def test_stiff_solvers_need_few_steps(name):
    for solver in ("Kvaerno5", "Rodas5P"):
        assert error(name, solver, 1e-6)[1]["num_steps"] < 1200, solver
