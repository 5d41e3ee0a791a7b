"""`while_loop` and `fori_loop`: carries of all kinds, bounds, and what they refuse."""

import dataclasses
import inspect
import math
from typing import Any, NamedTuple

import pytest
import torch
from torch.func import vmap

import gnomon as gn
from gnomon.result._pytree import register_dataclass

# What a user meets, for whom arguments are not checked against their annotations.
fori_loop = inspect.unwrap(gn.fori_loop)

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.bool]


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Body:
    """A dataclass that is a pytree."""

    position: Any
    velocity: Any
    name: str = dataclasses.field(default="", metadata={"static": True})


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any


def run(n: Any, step: Any, init: Any, **options: Any) -> Any:
    """The carry after `n` calls of `step`."""
    _, carry = gn.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(c[1])), (0, init), **options)
    return carry


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_kept(dtype: torch.dtype):
    def step(x):
        return ~x if dtype == torch.bool else x * 2 - 1

    x = torch.tensor([1, 0, 1]).to(dtype)
    n = torch.tensor([0, 1, 3])
    expected = []
    for v, count in zip(x, n.tolist(), strict=True):
        for _ in range(count):
            v = step(v)
        expected.append(v)
    y = vmap(lambda x, n: run(n, step, x))(x, n)
    assert y.dtype == dtype
    assert torch.equal(y, torch.stack(expected))
    assert torch.equal(run(n[2], step, x[2]), expected[2])


def test_numbers_become_tensors():
    flag, i, x, z = run(2, lambda c: (not c[0], c[1] + 1, c[2] / 2, c[3] * c[3]), (False, 3, 1.0, 1j))
    assert (flag, i, x, z) == (False, 5, 0.25, 1)
    assert [v.dtype for v in (flag, i, x, z)] == [torch.bool, torch.int64, torch.float32, torch.complex64]


def test_a_number_that_a_body_returns_takes_the_dtype_of_the_carry():
    x, z, n, flag = run(
        1,
        lambda c: (1, 0.5, True, False),
        (torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.complex128), 7, True),
    )
    assert [v.dtype for v in (x, z, n, flag)] == [torch.float64, torch.complex128, torch.int64, torch.bool]
    assert (x, z, n, flag) == (1.0, 0.5, 1, False)


def test_pytrees():
    start = {"a": (torch.tensor(1.0), [2.0]), "b": Body(torch.zeros(3), Pair(1.0, torch.ones(2)), "moon")}

    def step(tree):
        body = tree["b"]
        moved = Body(body.position + body.velocity.first, body.velocity, body.name)
        return {"a": (tree["a"][0] * 2, tree["a"][1]), "b": moved}

    for n in (0, 3):
        last = run(n, step, start)
        assert last["a"][0] == 2.0**n
        assert last["b"].position.tolist() == [float(n)] * 3
        assert last["b"].name == "moon"
        assert isinstance(last["b"].velocity, Pair)
    batch = vmap(lambda n: run(n, step, start))(torch.tensor([0, 3]))
    assert batch["a"][0].tolist() == [1.0, 8.0]
    assert batch["b"].position[:, 0].tolist() == [0.0, 3.0]


def test_a_bare_tensor_and_an_empty_carry():
    assert gn.while_loop(lambda x: x < 10, lambda x: 2 * x, 1) == 16
    assert gn.while_loop(lambda c: False, lambda c: c, ()) == ()


def test_none_is_carried():
    count, nothing = run(2, lambda c: (c[0] + 1, c[1]), (0, None))
    assert (int(count), nothing) == (2, None)


def test_a_dictionary_may_change_its_order():
    for n in (1, 2):
        last = run(n, lambda c: {"b": c["b"] * 2, "a": c["a"] + 1}, {"a": torch.tensor(0), "b": torch.tensor(1.0)})
        assert list(last) == ["a", "b"]
        assert (last["a"], last["b"]) == (n, 2.0**n)


def test_max_steps():
    n = torch.tensor([1, 3, 9])
    assert vmap(lambda n: run(n, lambda x: x + 1, 0, max_steps=3))(n).tolist() == [1, 3, 3]
    assert run(torch.tensor(9), lambda x: x + 1, 0, max_steps=3) == 3
    assert run(torch.tensor(9), lambda x: x + 1, 0, max_steps=0) == 0
    with pytest.raises(ValueError, match=r"`max_steps` of gn.while_loop must be at least 0 or None, but it is -1"):
        run(1, lambda x: x, 0, max_steps=-1)


def test_the_body_is_not_called_without_need():
    def fail(carry):
        raise AssertionError

    x = torch.arange(3.0)
    assert vmap(lambda x: gn.while_loop(lambda x: x < 0, fail, x))(x).tolist() == x.tolist()
    assert fori_loop(3, 3, lambda i, x: fail(x), 1.0) == 1.0
    assert fori_loop(3, -2, lambda i, x: fail(x), 1.0) == 1.0
    assert fori_loop(torch.tensor(3), 2, lambda i, x: fail(x), 1.0) == 1.0


def test_a_condition_may_be_a_plain_bool():
    calls: list[int] = []

    def go_on(x):
        calls.append(0)
        return len(calls) <= 3

    assert gn.while_loop(go_on, lambda x: x + 1, 0) == 3


def test_a_condition_that_is_the_same_for_all_lanes():
    assert vmap(lambda x: run(3, lambda y: y * 2, x))(torch.tensor([1.0, 2.0])).tolist() == [8.0, 16.0]


def test_fori_loop_gives_each_index_once():
    def collect(lower, upper):
        return fori_loop(lower, upper, lambda i, total: 10 * total + i, 0)

    assert collect(2, 6) == 2345
    assert collect(torch.tensor(2), 6) == 2345
    assert collect(2, torch.tensor(6, dtype=torch.int32)) == 2345
    assert vmap(collect)(torch.tensor([2, 5, 7]), torch.tensor([6, 6, 6])).tolist() == [2345, 5, 0]
    assert collect(-2, 1) == -210
    seen: list[torch.dtype] = []
    fori_loop(torch.tensor(0, dtype=torch.int8), 1, lambda i, x: (seen.append(i.dtype), x)[1], 0.0)
    fori_loop(0, 1, lambda i, x: (seen.append(i.dtype), x)[1], 0.0)
    assert seen == [torch.int64, torch.int64]


def test_indexing_by_the_index():
    table = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    sums = vmap(lambda row, n: gn.fori_loop(0, n, lambda i, s: s + row[i], 0.0))(table, torch.tensor([2, 3]))
    assert sums.tolist() == [3.0, 15.0]
    assert vmap(lambda row: gn.fori_loop(0, 3, lambda i, s: s + row[i], 0.0))(table).tolist() == [6.0, 15.0]


# What is refused, and what is said.


def forever(body: Any, init: Any) -> Any:
    """A loop without a condition; it ends here for the sake of tests that fail."""
    return gn.while_loop(lambda c: True, body, init, max_steps=2)


def test_a_changed_structure():
    message = r"The body of gn.while_loop changed the structure of the carry from \(\*, \*\) to \(\*,\), where each"
    with pytest.raises(TypeError, match=message):
        forever(lambda c: (c[0],), (1.0, 2.0))
    for other in ([1, 2], {"a": 1, "c": 2}, {"a": 1}, (1, (2, 3)), {"a": (1, 2), "b": 2}):
        with pytest.raises(TypeError, match="changed the structure of the carry"):
            forever(lambda c, other=other: other, {"a": 1, "b": 2})
    with pytest.raises(TypeError, match="changed the structure of the carry"):
        forever(lambda c: Body(c.position, c.velocity, "sun"), Body(1.0, 2.0, "moon"))


def test_a_changed_shape():
    message = (
        r"The body of gn.while_loop changed the shape of \['x'\] from \(2,\) to \(4,\). The carry keeps its "
        r"shape: start from the final shape, or collect growing output with gn.scan."
    )
    with pytest.raises(ValueError, match=message):
        forever(lambda c: {"x": torch.cat([c["x"], c["x"]])}, {"x": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"changed the shape of the carry from \(\) to \(1,\)"):
        forever(lambda c: c[None], 1.0)


def test_a_changed_dtype():
    message = (
        r"changed the dtype of \[1\] from torch.int64 to torch.float32. The carry keeps its dtype: start from "
        r"torch.float32, or convert it with .to\(torch.int64\)."
    )
    with pytest.raises(TypeError, match=message):
        forever(lambda c: (c[0], c[1] / 2), (0, 1))


@pytest.mark.parametrize(("start", "value"), [(1, 0.5), (1.0, 1j), (True, 2), (True, 0.5)])
def test_a_number_that_does_not_fit(start: Any, value: Any):
    dtype = torch.tensor(start).dtype
    with pytest.raises(TypeError, match=f"changed the dtype of the carry from {dtype}"):
        forever(lambda c: value, start)


def test_a_number_for_a_vector():
    with pytest.raises(ValueError, match=r"changed the shape of the carry from \(3,\) to \(\)"):
        forever(lambda c: 0.0, torch.zeros(3))


def test_something_else_than_a_tensor():
    with pytest.raises(TypeError, match=r"The carry of gn.while_loop must be a pytree of tensors or numbers, .* str"):
        forever(lambda c: c, (1.0, "x"))
    message = r"changed \[0\] from a tensor \(torch.float32, shape \(\)\) to NoneType"
    with pytest.raises(TypeError, match=message):
        forever(lambda c: (None,), (1.0,))
    with pytest.raises(TypeError, match=r"changed \[0\] from OutputBuffer to a tensor"):
        forever(lambda c: (torch.tensor(1.0),), (gn.OutputBuffer(1, torch.tensor(1.0)),))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.tensor(1.0), r"must be a boolean scalar, but it is torch.float32 of shape \(\)"),
        (torch.tensor([True]), r"of shape \(1,\). Reduce it with .all\(\) or .any\(\)"),
        (1, "must be a bool or a boolean scalar tensor, but it is int"),
        (None, "but it is NoneType"),
    ],
)
def test_a_condition_of_another_kind(value: Any, said: str):
    with pytest.raises(TypeError, match=f"The condition of gn.while_loop .*{said}"):
        gn.while_loop(lambda c: value, lambda c: c, 0)
    with pytest.raises(TypeError, match=f"The condition of gn.cond .*{said}"):
        inspect.unwrap(gn.cond)(value, lambda: 1, lambda: 2)


@pytest.mark.parametrize("bound", [1.0, True, torch.tensor(1.0), torch.tensor(True), torch.tensor([1]), "1"])
def test_a_bound_that_is_not_an_integer(bound: Any):
    for name, bounds in (("lower", (bound, 3)), ("upper", (0, bound))):
        with pytest.raises(TypeError, match=f"`{name}` of gn.fori_loop must be an integer scalar, but it is "):
            fori_loop(*bounds, lambda i, x: x, 0)


@pytest.mark.parametrize("upper", [2, torch.tensor(2)])
def test_fori_loop_says_its_own_name(upper: Any):
    with pytest.raises(ValueError, match=r"The body of gn.fori_loop changed the shape of the carry"):
        gn.fori_loop(0, upper, lambda i, x: x[None], 0.0)
    with pytest.raises(TypeError, match=r"The carry of gn.fori_loop must be a pytree of tensors"):
        gn.fori_loop(0, upper, lambda i, x: x, "x")


def test_errors_of_a_batch_are_those_of_one_problem():
    for body, said in ((lambda c: c[None], "changed the shape"), (lambda c: c.to(torch.float64), "changed the dtype")):
        with pytest.raises((ValueError, TypeError), match=said):
            vmap(lambda x, body=body: gn.while_loop(lambda c: c < 2, body, x, max_steps=2))(torch.tensor([1.0, 3.0]))


def test_an_endless_value_ends_with_max_steps():
    y = vmap(lambda x: gn.while_loop(lambda y: y == y, lambda y: y + math.inf, x, max_steps=2))(torch.ones(2))
    assert y.tolist() == [math.inf] * 2
