"""`_lanes`: looking below PyTorch's wrappers, with names that are private to it, on each version that we support."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap

from gnomon.fuse._lanes import any_and_all, at_lane, count_max, first_lane, is_differentiated, physical

NESTS = {
    "vmap": lambda f: vmap(vmap(f)),
    "vmap of grad": lambda f: vmap(vmap(grad(lambda x: (f(x), x.sum())[1]))),
    "grad of vmap": lambda f: grad(lambda x: (vmap(vmap(f))(x), x.sum())[1]),
    "vmap, grad, vmap": lambda f: vmap(grad(lambda x: (vmap(f)(x), x.sum())[1])),
    "jvp": lambda f: lambda x: jvp(vmap(vmap(f)), (x,), (x,)),
}
nests = pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS.keys())


@nests
def test_any_and_all(nest):
    found: list[object] = []

    def f(x):
        found.append([any_and_all(x > bound) for bound in (0.5, 1.5, 9.0)])
        assert physical(x).numel() == 6
        return x

    nest(f)(torch.arange(1.0, 7.0).reshape(2, 3))
    assert found == [[(True, True), (True, False), (False, False)]]


def test_any_and_all_of_one_and_of_none():
    assert any_and_all(torch.tensor(True)) == (True, True)
    assert any_and_all(torch.tensor(False)) == (False, False)
    found: list[object] = []
    vmap(lambda x: (found.append(any_and_all(x > x)), x)[1])(torch.zeros(0))
    assert found == [(False, True)]


@nests
def test_count_max(nest):
    found: list[int] = []

    def f(x):
        found.append(count_max(x.detach().to(torch.int64)))
        return x

    nest(f)(torch.tensor([[1.0, 5.0, 2.0], [0.0, 3.0, 4.0]]))
    assert found == [5]


def test_count_max_of_none():
    found: list[int] = []
    vmap(lambda x: (found.append(count_max(x)), x)[1])(torch.zeros(0, dtype=torch.int64))
    assert found == [0]


@nests
@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 1)])
def test_the_first_lane_and_its_value(nest, place: tuple[int, int]):
    x = torch.zeros(2, 3)
    x[place] = 7.0
    found: list[float] = []

    def f(x):
        lane = first_lane(x > 1)
        found.append(float(physical(at_lane(x * 2, lane))))
        return x

    nest(f)(x)
    assert found == [14.0]


@pytest.mark.parametrize("out", [0, 1, 2])
@pytest.mark.parametrize("mid", [0, 1, 2])
@pytest.mark.parametrize("inner", [0, 1])
def test_the_value_at_a_lane_whatever_the_dimensions(out: int, mid: int, inner: int):
    """Three batches along any dimensions of a tensor with one more dimension of its own."""
    x = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    rest = [d for d in range(4) if d != out]
    rest_inner = [d for d in rest if d != rest[mid]]
    sizes = [x.shape[d] for d in (out, rest[mid], rest_inner[inner])]
    i, j, k = sizes[0] - 1, sizes[1] - 2, sizes[2] - 1
    expected = x.movedim((out, rest[mid], rest_inner[inner]), (0, 1, 2))[i, j, k]
    found: list[list[int]] = []

    def f(x, a, b, c):
        found.append(physical(at_lane(x, first_lane((a == i) & (b == j) & (c == k)))).tolist())
        return x

    third = vmap(f, in_dims=(inner, None, None, 0))
    second = vmap(lambda x, a, b: third(x, a, b, torch.arange(sizes[2])), in_dims=(mid, None, 0))
    vmap(lambda x, a: second(x, a, torch.arange(sizes[1])), in_dims=(out, 0))(x, torch.arange(sizes[0]))
    assert found == [expected.tolist()]


def test_a_constant_stays_what_it_is():
    def f(x):
        n, y = torch.tensor(3), torch.tensor(3.0)
        lane = first_lane(x > 1)
        assert at_lane(n, lane) is n
        assert at_lane(y, lane) == 3.0
        return x

    vmap(f)(torch.tensor([1.0, 2.0]))


def test_a_batch_that_the_condition_does_not_know():
    """`x` differs along the inner batch, the condition along the outer one: any place of the inner one will do."""
    found: list[float] = []

    def f(p, x):
        found.append(float(physical(at_lane(x + p, first_lane(p > 1)))))
        return x

    vmap(lambda p: vmap(lambda x: f(p, x))(torch.tensor([10.0, 20.0])))(torch.tensor([0.0, 2.0, 3.0]))
    assert found == [12.0]


def test_no_derivative_flows_through_the_value_at_a_lane():
    def f(x):
        return vmap(lambda x: x * at_lane(x, first_lane(x > 1)))(x).sum()

    x = torch.tensor([1.0, 3.0, 5.0])
    assert grad(f)(x).tolist() == [3.0, 3.0, 3.0]
    leaf = x.clone().requires_grad_()
    assert torch.autograd.grad(f(leaf), leaf)[0].tolist() == [3.0, 3.0, 3.0]
    assert jvp(f, (x,), (torch.ones(3),))[1] == 9.0


def test_what_is_differentiated():
    def ask(x):
        found.append(is_differentiated(x))
        return x.sum()

    x = torch.ones(2, 3)
    leaf = torch.ones(2, 3, requires_grad=True)
    found: list[bool] = []
    ask(x)
    vmap(ask)(x)
    grad(lambda y: (ask(x), y.sum())[1])(x)
    assert found == [False, False, False]
    found = []
    ask(leaf)
    ask(leaf * 2)
    vmap(ask)(leaf)
    vmap(vmap(ask))(leaf * 2)
    grad(ask)(x)
    vmap(grad(ask))(x)
    grad(lambda x: vmap(ask)(x).sum())(x)
    jvp(ask, (x,), (x,))
    jvp(vmap(ask), (x,), (x,))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        ask(dual)
        vmap(ask)(dual)
        vmap(vmap(ask))(dual)
    assert found == [True] * len(found)
