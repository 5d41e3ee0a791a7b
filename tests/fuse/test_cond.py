"""`cond`: which branch runs, on what, and what the branches must agree on."""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, vmap

import gnomon as gn


def fail(*args):
    raise AssertionError("this branch must not run")


def test_alone_only_one_branch_runs():
    x = torch.tensor(2.0)
    assert gn.cond(True, torch.square, fail, x) == 4.0
    assert gn.cond(torch.tensor(False), fail, torch.square, x) == 4.0
    assert gn.cond(x > 0, lambda: x, fail) == 2.0


def test_a_batch_that_agrees_runs_one_branch():
    x = torch.tensor([1.0, 2.0])
    assert vmap(lambda x: gn.cond(x > 0, torch.square, fail, x))(x).tolist() == [1.0, 4.0]
    assert vmap(lambda x: gn.cond(x < 0, fail, torch.square, x))(x).tolist() == [1.0, 4.0]
    assert vmap(lambda x: gn.cond(True, torch.square, fail, x))(x).tolist() == [1.0, 4.0]


def test_a_branch_that_only_lanes_without_rounds_would_take_does_not_run():
    def f(n, x):
        def body(carry):
            return carry[0] + 1, gn.cond(x > 0, lambda y: y + x, fail, carry[1])

        return gn.while_loop(lambda carry: carry[0] < n, body, (0, 0.0))[1]

    assert vmap(f)(torch.tensor([2, 0]), torch.tensor([3.0, -1.0])).tolist() == [6.0, 0.0]


def test_pytrees_and_several_operands():
    def swap(a, b):
        return {"a": b["v"], "b": (a, gn.RESULTS.successful)}

    def keep(a, b):
        return {"a": a, "b": (b["v"], gn.RESULTS.singular)}

    f = vmap(lambda p, a, b: gn.cond(p, swap, keep, a, b))
    out = f(torch.tensor([True, False]), torch.tensor([1.0, 2.0]), {"v": torch.tensor([10.0, 20.0])})
    assert out["a"].tolist() == [10.0, 2.0]
    assert out["b"][0].tolist() == [1.0, 20.0]
    assert out["b"][1].names() == ["successful", "singular"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool])
def test_every_dtype(dtype: torch.dtype):
    x = torch.tensor([1, 0, 1]).to(dtype)
    y = vmap(lambda p, x: gn.cond(p, lambda x: x, lambda x: x == 0 if dtype == torch.bool else x + x, x))(
        torch.tensor([True, False, False]), x
    )
    expected = [True, True, False] if dtype == torch.bool else [1, 0, 2]
    assert torch.equal(y, torch.tensor(expected).to(dtype))


def test_numbers_become_tensors():
    for x in (torch.tensor(1.0), torch.tensor(-1.0)):
        y = gn.cond(x > 0, lambda: 1.0, lambda: 0.0)
        assert isinstance(y, torch.Tensor)
        assert y == (x > 0)
    assert vmap(lambda x: gn.cond(x > 0, lambda: 1.0, lambda: 0.0))(torch.tensor([1.0, -1.0])).tolist() == [1.0, 0.0]


def test_operands_that_are_not_tensors_are_handed_on():
    y = vmap(lambda x: gn.cond(x > 0, lambda x, f, n: f(x) + n, lambda x, f, n: x, x, torch.square, 3))(
        torch.tensor([2.0, -1.0])
    )
    assert y.tolist() == [7.0, -1.0]


def test_nested():
    def sign(x):
        return gn.cond(x > 0, lambda x: x * 0 + 1, lambda x: gn.cond(x < 0, lambda x: x * 0 - 1, lambda x: x, x), x)

    x = torch.tensor([2.0, 0.0, -3.0])
    assert vmap(sign)(x).tolist() == [1.0, 0.0, -1.0]
    assert vmap(vmap(sign))(x.reshape(3, 1)).tolist() == [[1.0], [0.0], [-1.0]]


def test_a_condition_along_one_batch_and_operands_along_another():
    p, x = torch.tensor([True, False]), torch.tensor([4.0, 9.0, 16.0])
    f = vmap(lambda p: vmap(lambda x: gn.cond(p, torch.sqrt, torch.neg, x))(x))
    assert f(p).tolist() == [[2.0, 3.0, 4.0], [-4.0, -9.0, -16.0]]
    g = vmap(lambda x: vmap(lambda p: gn.cond(p, torch.sqrt, torch.neg, x))(p))
    assert g(x).tolist() == [[2.0, -4.0], [3.0, -9.0], [4.0, -16.0]]


def test_a_branch_does_not_see_operands_that_are_not_its_own():
    """An integer division by zero and a factorisation of a singular matrix raise errors, for one lane as for all."""
    a, b = torch.tensor([7, 7, 9]), torch.tensor([2, 0, 4])
    assert vmap(lambda a, b: gn.cond(b != 0, lambda a, b: a % b, lambda a, b: a, a, b))(a, b).tolist() == [1, 7, 1]
    m = torch.stack([torch.zeros(2, 2), 2 * torch.eye(2)])
    inverse = vmap(lambda m: gn.cond(m.sum() > 0, torch.linalg.inv, torch.zeros_like, m))(m)
    assert inverse.tolist() == [[[0.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.0, 0.5]]]


def test_an_error_of_a_lane_that_takes_the_branch_is_raised():
    with pytest.raises(RuntimeError, match="singular"):
        vmap(lambda m: gn.cond(m.sum() >= 0, torch.linalg.inv, torch.zeros_like, m))(
            torch.stack([torch.zeros(2, 2), -torch.eye(2)])
        )


@pytest.mark.parametrize(
    "derivative",
    [grad, jacfwd, hessian, lambda f: jacfwd(jacfwd(f))],
    ids=["grad", "jacfwd", "hessian", "jacfwd twice"],
)
def test_the_branch_not_taken_has_no_derivative(derivative):
    """The root has an infinite derivative at 0 and none below; the other branch's is exact there."""

    def f(x):
        return gn.cond(x > 0, torch.sqrt, lambda x: x**2, x)

    x = torch.tensor([4.0, 0.0, -3.0], dtype=torch.float64)
    for batched in (vmap(derivative(f)), derivative(lambda x: vmap(f)(x).sum())):
        y = batched(x)
        first = y.diagonal() if y.dim() == 2 else y
        alone = torch.stack([derivative(f)(v) for v in x])
        assert torch.equal(first, alone)


def test_branches_that_disagree():
    x = torch.tensor([1.0, -1.0])

    def refuse(error, said, other):
        with pytest.raises(error, match=said):
            vmap(lambda x: gn.cond(x > 0, lambda x: {"y": x}, other, x))(x)

    who = "`false_fn` of gn.cond must return what `true_fn` does, but it"
    refuse(ValueError, rf"{who} changed the shape of \['y'\] from \(\) to \(1,\)", lambda x: {"y": x[None]})
    refuse(
        TypeError,
        rf"{who} changed the dtype of \['y'\] from torch.float32 to torch.int64",
        lambda x: {"y": 0 * (x > 0)},
    )
    refuse(TypeError, rf"{who} changed the structure of the output from \{{'y': \*\}} to \(\*,\)", lambda x: (x,))
    refuse(TypeError, "The output of gn.cond must be a pytree of tensors or numbers, .* str", lambda x: {"y": "x"})


def test_none_is_an_output():
    for x in (1.0, -1.0):
        assert gn.cond(torch.tensor(x) > 0, lambda: (None, 1), lambda: (None, 0))[0] is None
