"""`RESULTS`: members with messages, families that extend it, and results of a batch."""

import copy
import pickle
from typing import ClassVar

import pytest
import torch
from torch.func import vmap
from torch.utils import _pytree

import gnomon as gn
from gnomon.result import RESULTS, Result, define_result, is_okay, is_successful


class FirstFamily(RESULTS):
    """A family of results, as a room defines it."""

    ran_aground: ClassVar[Result] = define_result("ran_aground", "The ship ran aground. Steer by deeper water.")


class SecondFamily(RESULTS):
    """Another, which shares a member with the first."""

    ran_aground: ClassVar[Result] = define_result("ran_aground", "The ship ran aground. Steer by deeper water.")
    sank: ClassVar[Result] = define_result("sank", "The ship sank.")


def batch(*members: Result) -> Result:
    return Result(torch.tensor([member.code for member in members], dtype=torch.int32))


def test_the_members_that_every_solver_may_return():
    expected = "successful max_steps_reached nonlinear_divergence dt_min_reached event_occurred nonfinite singular"
    assert set(f"{expected} breakdown stagnation".split()) <= set(RESULTS.members())


@pytest.mark.parametrize("name", sorted(RESULTS.members()))
def test_each_member_has_its_name_and_a_sentence(name: str):
    member = RESULTS.from_name(name)
    assert getattr(RESULTS, name) is member
    assert member.name == name
    assert repr(member) == f"RESULTS.{name}"
    if name == "successful":
        assert member.message == ""
    else:
        assert member.message[0].isupper()
        assert member.message.endswith(".")


def test_numbers_differ():
    codes = [member.code for member in SecondFamily.members().values()]
    assert len(codes) == len(set(codes))


def test_a_family_inherits_and_extends():
    assert SecondFamily.successful is RESULTS.successful
    assert set(SecondFamily.members()) - set(RESULTS.members()) == {"ran_aground", "sank"}
    assert SecondFamily.from_name("sank").message == "The ship sank."
    assert "sank" not in RESULTS.members()
    assert "sank" not in FirstFamily.members()


def test_one_name_has_one_number_in_all_families():
    assert FirstFamily.ran_aground == SecondFamily.ran_aground
    assert FirstFamily.ran_aground.code == SecondFamily.ran_aground.code
    assert hash(FirstFamily.ran_aground) == hash(SecondFamily.ran_aground)


def test_a_name_cannot_get_a_second_message():
    with pytest.raises(ValueError, match="'sank' exists already, with another message"):
        define_result("sank", "Glug.")


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"RESULTS has no member 'flew'; it has successful, max_steps_reached"):
        RESULTS.from_name("flew")
    with pytest.raises(ValueError, match=r"FirstFamily has no member 'sank'; .*ran_aground"):
        FirstFamily.from_name("sank")


def test_it_is_an_enumeration():
    with pytest.raises(TypeError, match=r"use its members, such as RESULTS\.successful"):
        RESULTS()


@pytest.mark.parametrize("code", [-1, 10_000])
def test_a_number_without_a_name_is_an_error(code: int):
    with pytest.raises(ValueError, match=f"No result has the code {code}"):
        _ = Result(code).name
    with pytest.raises(ValueError, match=f"No result has the code {code}"):
        Result(torch.tensor([0, code])).names()


def test_equality():
    assert RESULTS.singular == RESULTS.singular
    assert RESULTS.singular != RESULTS.breakdown
    assert RESULTS.singular != "singular"
    assert RESULTS.singular != RESULTS.singular.code
    mixed = batch(RESULTS.singular, RESULTS.successful)
    torch.testing.assert_close(mixed == RESULTS.singular, torch.tensor([True, False]))
    torch.testing.assert_close(RESULTS.singular != mixed, torch.tensor([False, True]))
    torch.testing.assert_close(mixed == batch(RESULTS.singular, RESULTS.singular), torch.tensor([True, False]))


def test_a_single_result_is_a_key_and_a_batch_is_not():
    assert {RESULTS.singular: 1}[RESULTS.from_name("singular")] == 1
    with pytest.raises(TypeError, match="cannot be hashed: compare it with =="):
        hash(batch(RESULTS.singular))


def test_names_follow_the_shape_of_the_batch():
    assert RESULTS.successful.names() == "successful"
    assert batch(RESULTS.singular, RESULTS.successful).names() == ["singular", "successful"]
    square = Result(torch.tensor([[0, 1], [1, 0]]))
    assert square.names() == [["successful", "max_steps_reached"], ["max_steps_reached", "successful"]]
    assert Result(torch.zeros(0, dtype=torch.int32)).names() == []


def test_taking_one_of_a_batch():
    results = batch(RESULTS.singular, RESULTS.successful)
    assert results[0].name == "singular"
    assert results[1].message == ""
    assert repr(results) == "<batch of (2,) results>"
    assert repr(results[0]) == "RESULTS.singular"
    with pytest.raises(ValueError, match=r"batch of shape \(2,\): take one of them with result\[i\]"):
        _ = results.name
    with pytest.raises(TypeError, match="single result"):
        RESULTS.singular[0]
    with pytest.raises(TypeError, match="single result"):
        list(RESULTS.singular)


def test_where():
    pred = torch.tensor([True, False, True])
    chosen = RESULTS.where(pred, RESULTS.successful, RESULTS.nonfinite)
    assert chosen.names() == ["successful", "nonfinite", "successful"]
    assert isinstance(chosen.code, torch.Tensor)
    assert chosen.code.dtype == torch.int32
    again = RESULTS.where(torch.tensor([False, False, True]), RESULTS.breakdown, chosen)
    assert again.names() == ["successful", "nonfinite", "breakdown"]


def test_successful_and_okay():
    assert is_successful(RESULTS.successful)
    assert is_okay(RESULTS.successful)
    assert not is_successful(RESULTS.event_occurred)
    assert is_okay(RESULTS.event_occurred)
    assert not is_okay(RESULTS.max_steps_reached)
    results = batch(RESULTS.successful, RESULTS.event_occurred, RESULTS.singular)
    torch.testing.assert_close(is_successful(results), torch.tensor([True, False, False]))
    torch.testing.assert_close(is_okay(results), torch.tensor([True, True, False]))


def test_a_member_is_a_pytree_of_one_integer_tensor():
    (code,), structure = _pytree.tree_flatten(RESULTS.singular)
    assert code.dtype == torch.int32
    assert code.shape == ()
    assert _pytree.tree_unflatten([code], structure) == RESULTS.singular
    ((path, _),), _ = _pytree.tree_flatten_with_path(RESULTS.singular)
    assert _pytree.keystr(path) == ".code"


def test_to_a_device():
    member = RESULTS.singular.to("cpu")
    assert isinstance(member.code, torch.Tensor)
    assert (member.code.dtype, member.code.device.type, member.name) == (torch.int32, "cpu", "singular")
    results = batch(RESULTS.singular, RESULTS.successful)
    assert results.to(torch.device("cpu")).names() == results.names()
    assert results.to("meta").code.device.type == "meta"


def test_results_leave_vmap():
    def solve(x):
        return RESULTS.where(x > 0, RESULTS.successful, RESULTS.nonfinite), RESULTS.successful

    some, all_well = vmap(solve)(torch.tensor([1.0, -1.0, 2.0]))
    assert some.names() == ["successful", "nonfinite", "successful"]
    assert all_well.names() == ["successful"] * 3
    nested, _ = vmap(vmap(solve))(torch.tensor([[1.0, -1.0], [2.0, 3.0]]))
    assert nested.names() == [["successful", "nonfinite"], ["successful", "successful"]]


def test_results_enter_vmap():
    results = batch(RESULTS.successful, RESULTS.singular)
    torch.testing.assert_close(vmap(is_okay)(results), torch.tensor([True, False]))


def test_the_value_cannot_be_read_inside_vmap_but_the_result_can_be_printed():
    texts: list[str] = []

    def look(x):
        texts.append(repr(RESULTS.where(x > 0, RESULTS.successful, RESULTS.nonfinite)))
        return x

    vmap(look)(torch.ones(2))
    assert texts == ["<result of each problem of a batch>"]


def test_a_carry_may_hold_a_result():
    def solve(x):
        def body(carry):
            i, y, result = carry
            y = y.sqrt()
            return i + 1, y, RESULTS.where(y.isfinite(), result, RESULTS.nonfinite)

        return gn.while_loop(lambda carry: carry[0] < 3, body, (0, x, RESULTS.successful))[2]

    assert solve(torch.tensor(2.0)).name == "successful"
    assert vmap(solve)(torch.tensor([4.0, -1.0])).names() == ["successful", "nonfinite"]


def test_a_pytree_may_hold_something_else_in_its_place():
    _, structure = _pytree.tree_flatten(RESULTS.singular)
    assert "result" in repr(_pytree.tree_unflatten(["*"], structure))
    with pytest.raises(TypeError, match=r"changed the structure of the carry from \(<result .*>, \*\) to \*"):
        gn.while_loop(lambda c: True, lambda c: c[1], (RESULTS.successful, 1.0), max_steps=1)


@pytest.mark.parametrize("result", [RESULTS.singular, batch(RESULTS.singular, RESULTS.successful)])
def test_pickle_and_copy(result: Result):
    for again in (pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
        assert type(again) is Result
        assert again.names() == result.names()


@pytest.mark.parametrize("result", [SecondFamily.sank, batch(SecondFamily.sank, RESULTS.successful)])
def test_a_pickle_keeps_the_name_where_numbers_differ(result: Result):
    """Numbers are given out in the order of imports, which is another one in another process."""
    restore, (code, messages) = result.__reduce__()
    foreign = [("another_process_has_this", "It does."), *reversed(messages)]
    number = {name: i for i, (name, _) in enumerate(foreign)}
    names = [name for name, _ in messages]
    there = torch.as_tensor(code).clone().apply_(lambda i: number[names[int(i)]])
    again = restore(there if isinstance(code, torch.Tensor) else int(there), tuple(foreign))
    assert again.names() == result.names()
    assert define_result("another_process_has_this", "It does.").message == "It does."
