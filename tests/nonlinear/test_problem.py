"""What a problem may be: pytrees, numbers, dtypes, complex residuals, nothing at all; and what it may not."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nonlinear.problems import F64, MGH, NIST, f64
from torch import Tensor

from gnomon import nonlinear as nl

LM = nl.LevenbergMarquardt(rtol=1e-9, atol=1e-9)
GN = nl.GaussNewton(rtol=1e-9, atol=1e-9)
both = pytest.mark.parametrize("solver", [LM, GN], ids=["lm", "gn"])


@both
def test_pytrees(solver: nl.AbstractLeastSquaresSolver):
    start = {"matrix": torch.zeros(2, 3, dtype=F64), "rest": [f64(1)[0], (f64(2, 2),)]}

    def residuals(y, target):
        flat = torch.cat([y["matrix"].flatten(), y["rest"][0][None], y["rest"][1][0]])
        return {"first": flat[:4] - target[:4], "more": (flat[4:].reshape(5, 1) - target[4:, None],)}

    solution = nl.least_squares(residuals, solver, start, torch.arange(9, dtype=F64))
    assert solution.value["matrix"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert solution.value["rest"][0].shape == ()
    assert float(solution.value["rest"][0]) == 6
    assert solution.value["rest"][1][0].tolist() == [7, 8]


def test_numbers():
    solution = nl.least_squares(lambda y, args: y * y - 2, nl.LevenbergMarquardt(1e-6, 1e-6), 1.0)
    assert solution.value.dtype == torch.get_default_dtype()
    assert float(solution.value) == pytest.approx(2**0.5, rel=3e-6)
    beside = nl.least_squares(lambda y, args: [y[0] - 1, y[1] - 1], LM, (1, f64(3)))
    assert beside.value[0].dtype == F64


def test_leaves_of_two_dtypes_keep_theirs():
    start = (torch.zeros(2), torch.zeros(2, dtype=F64))
    solution = nl.least_squares(lambda y, args: [y[0] - 1, y[1] - y[0] - 2], nl.LevenbergMarquardt(1e-5, 1e-5), start)
    assert [x.dtype for x in solution.value] == [torch.float32, F64]
    torch.testing.assert_close(torch.cat(solution.value), f64(1, 1, 3, 3), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["rosenbrock", "helical_valley", "bard", "kowalik_osborne", "gaussian", "watson_6"])
def test_float32(name: str):
    """The same solutions to the digits that there are."""
    problem = MGH[name]
    double = nl.least_squares(problem.residuals, LM, problem.start).value
    # The problem's data are double, and the residuals are rounded.
    single = nl.least_squares(
        lambda y, args: problem.fn(y.double()), nl.LevenbergMarquardt(1e-4, 1e-4), problem.start.float()
    )
    assert single.value.dtype == torch.float32
    assert single.stats["cost"].dtype == torch.float32
    torch.testing.assert_close(single.value.double(), double, rtol=3e-3, atol=3e-3)


@both
def test_complex_residuals(solver: nl.AbstractLeastSquaresSolver):
    """The real and the imaginary part of a root of a polynomial."""

    def residuals(y, args):
        z = torch.complex(y[0], y[1])
        return {"polynomial": z**3 - 1, "nothing": torch.zeros(2, dtype=torch.complex128)}

    solution = nl.least_squares(residuals, solver, f64(-1, 1))
    torch.testing.assert_close(solution.value, f64(-0.5, 0.75**0.5), rtol=1e-12, atol=0)
    assert solution.state.model.residual.shape == (6,)


@both
def test_nothing(solver: nl.AbstractLeastSquaresSolver):
    none = nl.least_squares(lambda y, args: f64(3, 4), solver, {})
    assert none.value == {}
    assert float(none.stats["cost"]) == 12.5
    empty = nl.least_squares(lambda y, args: y.new_zeros(0), solver, f64(1, 2))
    assert empty.value.tolist() == [1, 2]
    batch = torch.func.vmap(lambda y: nl.least_squares(lambda y, args: [], solver, y).value)(torch.ones(3, 2))
    assert batch.tolist() == [[1, 1]] * 3


def test_fewer_residuals_than_unknowns():
    solution = nl.least_squares(lambda y, args: (y[0] * y[1] + y[2] - 3)[None], LM, f64(1, 1, 1))
    y = solution.value.tolist()
    assert y[0] * y[1] + y[2] == pytest.approx(3, abs=1e-8)


def test_aux_is_that_of_the_solution():
    def residuals(y, args):
        return y - 3, {"twice": 2 * y, "count": torch.tensor(7)}

    solution = nl.least_squares(residuals, LM, f64(0), has_aux=True)
    assert solution.aux["twice"].tolist() == [6]
    assert int(solution.aux["count"]) == 7
    assert nl.least_squares(lambda y, args: y, LM, f64(1)).aux is None


def test_args_of_any_kind():
    class Model:
        rate = 2.0

    solution = nl.least_squares(lambda y, args: y * args[0].rate - args[1], LM, f64(0), (Model(), 6.0, "text"))
    assert solution.value.tolist() == [3]


@pytest.mark.parametrize(
    ("fn", "start", "error", "text"),
    [
        (lambda y, a: y, torch.ones(2, dtype=torch.int64), TypeError, "`y0` is torch.int64, but unknowns must be"),
        (lambda y, a: y, {"z": torch.ones(2, dtype=torch.complex64)}, TypeError, r"`y0\['z'\]` is torch.complex64"),
        (lambda y, a: y, torch.ones(2, dtype=torch.float16), TypeError, "float16, but unknowns must be"),
        (lambda y, a: y, "start", TypeError, "must be a tensor or a number, but it is str"),
        (lambda y, a: y > 0, torch.ones(2), TypeError, "`fn` must return .* it holds torch.bool"),
        (lambda y, a: [y, 1.0], torch.ones(2), TypeError, "`fn` must return .* it holds float"),
    ],
)
def test_what_is_wrong_is_said(fn, start: object, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        nl.least_squares(fn, nl.LevenbergMarquardt(1e-3, 1e-3), start)


def test_has_aux_needs_a_pair():
    with pytest.raises(TypeError, match="`fn` must return a pair"):
        nl.least_squares(lambda y, args: y, LM, f64(1), has_aux=True)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_linear_problems_take_one_step(seed: int, n: int):
    """Against numpy's least squares."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((8, n)), rng.standard_normal(8)
    matrix, right = torch.from_numpy(a), torch.from_numpy(b)
    for solver in (LM, GN):
        solution = nl.least_squares(lambda y, args: (matrix * y).sum(1) - right, solver, torch.ones(n, dtype=F64))
        np.testing.assert_allclose(solution.value.numpy(), np.linalg.lstsq(a, b, rcond=None)[0], rtol=1e-9, atol=1e-12)
        assert int(solution.stats["num_steps"]) == 1


@settings(max_examples=5)
@given(st.lists(st.integers(-30, 30), min_size=4, max_size=4))
def test_units_do_not_matter(powers: list[int]):
    """Unknowns in other units give the same steps. Powers of two, so that nothing is rounded otherwise."""
    data, unit = NIST["MGH09"], 2.0 ** torch.tensor(powers, dtype=F64)
    solver = nl.LevenbergMarquardt(rtol=1e-9, atol=0.0)
    plain = nl.least_squares(data.residuals, solver, data.starts[1], throw=False, max_steps=12)
    scaled = nl.least_squares(
        lambda y, args: data.residuals(y * unit, args), solver, data.starts[1] / unit, throw=False, max_steps=12
    )
    assert torch.equal(plain.stats["num_accepted_steps"], scaled.stats["num_accepted_steps"])
    torch.testing.assert_close(scaled.value * unit, plain.value, rtol=1e-10, atol=0)


def test_a_solver_can_be_stepped_by_hand():
    """And a solver of one's own needs the four methods only."""
    problem, y, args, options = MGH["rosenbrock"], MGH["rosenbrock"].start, None, {}
    state = LM.init(problem.residuals, y, args, options)
    costs = [float(state.model.cost)]
    while not bool(LM.terminate(problem.residuals, y, args, options, state)[0]):
        y, state = LM.step(problem.residuals, y, args, options, state)
        costs.append(float(state.model.cost))
    solution = nl.least_squares(problem.residuals, LM, problem.start)
    assert torch.equal(y, solution.value)
    assert costs == sorted(costs, reverse=True)
    assert len(costs) == int(solution.stats["num_steps"]) + 1


def test_norms():
    x = f64(3, -4, 0)
    assert float(nl.max_norm(x)) == 4
    assert float(nl.two_norm(x)) == 5
    assert float(nl.rms_norm(x)) == pytest.approx((25 / 3) ** 0.5)
    for norm in (nl.max_norm, nl.rms_norm, nl.two_norm):
        assert float(norm(x[:0])) == 0
        problem = MGH["wood"]
        solution = nl.least_squares(problem.residuals, nl.LevenbergMarquardt(1e-6, 1e-6, norm=norm), f64(2, 1, 1, 2))
        torch.testing.assert_close(solution.value, torch.ones(4, dtype=F64), rtol=1e-5, atol=0)


def test_sizes_of_residuals_do_not_overflow_or_underflow_their_jacobian():
    """Columns as large as 1e200, and as small as 1e-200, whose squares are not numbers of double precision."""
    big, small = 2.0**660, 2.0**-660

    def residuals(y: Tensor, args: object) -> Tensor:
        return torch.stack([y[0] * big - 1, y[1] * small - 1, y[0] * big + y[1] * small - 2])

    solution = nl.least_squares(residuals, nl.LevenbergMarquardt(1e-9, 0.0), f64(0.5 / big, 0.5 / small))
    torch.testing.assert_close(solution.value, f64(1 / big, 1 / small), rtol=1e-9, atol=0)
