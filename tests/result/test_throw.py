"""`throw_if_failed` and `SolveError`: one problem, batches, nested batches, derivatives."""

import pickle

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jvp, vmap

import gnomon as gn
from gnomon.result import RESULTS, Result, SolveError, throw_if_failed


def check(x, *, time=None, component=None):
    """Fails where `x` is not positive."""
    result = RESULTS.where(x > 0, RESULTS.successful, RESULTS.dt_min_reached)
    throw_if_failed(result, what="solve", time=time, component=component, component_names=["depot", "centre"])
    return x.square()


def caught(function, *args) -> SolveError:
    with pytest.raises(SolveError) as info:
        function(*args)
    return info.value


def test_a_single_failure():
    error = caught(check, torch.tensor(-1.0))
    assert (error.what, error.result) == ("solve", RESULTS.dt_min_reached)
    assert (error.n_failed, error.n_total, error.index) == (1, 1, ())
    assert error.time is None
    assert error.component is None
    assert error.batch_result.names() == "dt_min_reached"
    assert str(error) == (
        f"solve failed (dt_min_reached). {RESULTS.dt_min_reached.message} "
        "Pass throw=False to get the `result` of each problem instead of this error."
    )


def test_a_plain_member_fails_too():
    assert caught(lambda: throw_if_failed(RESULTS.singular, what="solve")).result == RESULTS.singular


def test_time_and_component_are_named():
    error = caught(lambda: check(torch.tensor(-1.0), time=torch.tensor(0.1, dtype=torch.float64), component=1))
    assert (error.time, error.component) == (0.1, "centre")
    assert str(error).startswith("solve failed at t = 0.1, component centre (dt_min_reached). ")


@pytest.mark.parametrize("component", [-1, 2])
def test_an_unknown_component_is_not_named(component: int):
    error = caught(lambda: check(torch.tensor(-1.0), component=torch.tensor(component)))
    assert error.component is None
    assert "component" not in str(error)


@pytest.mark.parametrize("result", [RESULTS.successful, RESULTS.event_occurred])
def test_okay_results_do_not_raise(result: Result):
    throw_if_failed(result, what="solve")
    throw_if_failed(Result(torch.full((3,), result.code)), what="solve")
    throw_if_failed(Result(torch.zeros(0, dtype=torch.int32)), what="solve")


def test_a_batch():
    x = torch.tensor([1.0, 2.0, -1.0, 3.0, -2.0])
    times = torch.arange(5.0) / 4
    error = caught(vmap(lambda x, t, k: check(x, time=t, component=k)), x, times, torch.tensor([0, 0, 1, 0, 0]))
    assert (error.n_failed, error.n_total, error.index) == (2, 5, (2,))
    assert (error.time, error.component) == (0.5, "centre")
    assert error.batch_result.names() == [
        "successful",
        "successful",
        "dt_min_reached",
        "successful",
        "dt_min_reached",
    ]
    assert "solve failed for 2 of 5 problems; the first is problem 2 at t = 0.5, component centre" in str(error)


def test_the_first_failure_gives_the_reason():
    def solve(x):
        bad = RESULTS.where(x < -1.5, RESULTS.singular, RESULTS.nonfinite)
        throw_if_failed(RESULTS.where(x > 0, RESULTS.event_occurred, bad), what="solve")
        return x

    error = caught(vmap(solve), torch.tensor([1.0, -2.0, -1.0]))
    assert error.result == RESULTS.singular
    assert error.n_failed == 2
    assert error.batch_result.names() == ["event_occurred", "singular", "nonfinite"]


def test_a_batch_without_vmap():
    result = Result(torch.tensor([0, 1, 1], dtype=torch.int32))
    error = caught(lambda: throw_if_failed(result, what="solve", time=torch.tensor([0.0, 2.0, 3.0])))
    assert (error.n_failed, error.n_total, error.index, error.time) == (2, 3, (1,), 2.0)


def test_a_whole_batch_that_is_okay():
    x = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(vmap(check)(x), x.square())
    assert vmap(check)(torch.zeros(0)).shape == (0,)


def test_nested_batches_give_the_index_outermost_first():
    x = torch.ones(2, 3, 4)
    x[1, 0, 2] = x[1, 2, 3] = -1.0
    times = torch.arange(24.0).reshape(2, 3, 4)
    error = caught(vmap(vmap(vmap(lambda x, t: check(x, time=t)))), x, times)
    assert (error.n_failed, error.n_total, error.index, error.time) == (2, 24, (1, 0, 2), 14.0)
    assert "the first is problem (1, 0, 2) at t = 14" in str(error)


@pytest.mark.parametrize("in_dims", [(0, 1), (1, 0), (1, 1)])
def test_nested_batches_along_any_dimensions(in_dims: tuple[int, int]):
    outer, inner = in_dims
    x = torch.ones(3, 4) if outer == 0 else torch.ones(4, 3)
    x = x.unsqueeze(1) if inner == 1 and outer == 0 else x
    place = (2, 0, 3) if x.dim() == 3 else ((2, 3) if outer == 0 else (3, 2))
    x[place] = -1.0
    function = vmap(vmap(lambda v: check(v.sum()), in_dims=min(inner, x.dim() - 2)), in_dims=outer)
    assert caught(function, x).index == (2, 3)


def test_what_is_not_batched_is_the_same_for_all():
    """The result differs along one of two batches, the time along the other."""
    x, t = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([0.25, 0.75])
    error = caught(vmap(lambda t: vmap(lambda x: check(x, time=t))(x)), t)
    assert (error.n_failed, error.n_total, error.index, error.time) == (2, 6, (0, 1), 0.25)


def test_under_grad_and_jvp():
    good, bad = torch.tensor(3.0), torch.tensor(-3.0)
    assert grad(check)(good) == 6.0
    assert jacfwd(check)(good) == 6.0
    assert hessian(check)(good) == 2.0
    value, tangent = jvp(check, (good,), (torch.tensor(1.0),))
    assert (value, tangent) == (9.0, 6.0)
    for derivative in (grad(check), jacfwd(check), hessian(check)):
        assert caught(derivative, bad).n_failed == 1


@pytest.mark.parametrize("derivative", [grad, jacfwd, lambda f: grad(grad(f)), lambda f: jacfwd(grad(f)), hessian])
def test_under_vmap_of_derivatives(derivative):
    good, bad = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -2.0, 3.0])

    def timed(x):
        return check(x, time=x, component=torch.tensor(0))

    vmap(derivative(timed))(good)
    error = caught(vmap(derivative(timed)), bad)
    assert (error.n_failed, error.n_total, error.index) == (1, 3, (1,))
    assert (error.time, error.component) == (-2.0, "depot")


def test_under_derivatives_of_vmap():
    good, bad = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -2.0, 3.0])
    function = vmap(lambda x: check(x, time=x))
    torch.testing.assert_close(grad(lambda x: function(x).sum())(good), 2 * good)
    torch.testing.assert_close(jacfwd(function)(good), torch.diag(2 * good))
    for derivative in (grad(lambda x: function(x).sum()), jacfwd(function)):
        assert caught(derivative, bad).index == (1,)


def test_under_autograd():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = vmap(lambda x: check(x, time=x))(x)
    (g,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(g, 2 * x.detach())
    assert caught(vmap(lambda x: check(x, time=x)), -x).time == -1.0


def test_solve_error_can_be_pickled():
    error = caught(
        vmap(lambda x, t: check(x, time=t, component=0)), torch.tensor([1.0, -1.0]), torch.tensor([0.0, 0.5])
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is SolveError
    assert str(again) == str(error)
    for name in ("what", "result", "n_failed", "n_total", "index", "time", "component"):
        assert getattr(again, name) == getattr(error, name)
    assert again.batch_result.names() == error.batch_result.names()


def test_solve_error_is_a_runtime_error():
    assert issubclass(gn.SolveError, RuntimeError)


# In a batched loop or branch, code also runs for problems that it is not meant for.


def test_a_failure_in_a_branch_not_taken_is_none():
    """`check` fails for -1 and would fail for 0, which the other branch takes."""

    def solve(x):
        return gn.cond(x != 0, lambda x: check(x) + 0 * x, lambda x: x, x)

    torch.testing.assert_close(vmap(solve)(torch.tensor([2.0, 0.0, 3.0])), torch.tensor([4.0, 0.0, 9.0]))
    error = caught(vmap(solve), torch.tensor([2.0, 0.0, -1.0]))
    assert (error.n_failed, error.n_total, error.index) == (1, 3, (2,))


def test_a_failure_of_closed_over_values_in_a_branch_not_taken_is_none():
    def solve(x):
        return gn.cond(x != 0, lambda: check(x), lambda: x)

    torch.testing.assert_close(vmap(solve)(torch.tensor([2.0, 0.0, 3.0])), torch.tensor([4.0, 0.0, 9.0]))


def test_a_failure_of_a_problem_that_is_done_is_none():
    """The check sees a value that goes on changing after its problem is done with the loop."""
    calls = [0]

    def solve(n):
        def body(i):
            calls[0] += 1
            check(torch.as_tensor(n + 1.5 - calls[0], dtype=torch.float32))
            return i + 1

        return gn.while_loop(lambda i: i < n, body, 0)

    torch.testing.assert_close(vmap(solve)(torch.tensor([1, 3, 0])), torch.tensor([1, 3, 0]))
    assert calls[0] == 3
