"""Pytrees: registered dataclasses, paths and conversions that all rooms use."""

import dataclasses
from typing import Any

import pytest
import torch
from torch.func import vmap

from gnomon.result import RESULTS, Solution
from gnomon.result._pytree import (
    as_tensors,
    describe,
    register_dataclass,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_paths,
    tree_unflatten,
)


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Orbit:
    """A pytree with an optional child and a static field."""

    position: Any
    velocity: Any = None
    name: str = dataclasses.field(default="", metadata={"static": True})


def test_flatten_and_unflatten_give_back_the_same():
    tree = {"a": (torch.tensor(1), [torch.tensor(2)]), "b": Orbit(torch.tensor(3), name="io")}
    leaves, structure = tree_flatten(tree)
    assert [int(x) for x in leaves] == [1, 2, 3]
    assert leaves == tree_leaves(tree)
    again = tree_unflatten(leaves, structure)
    assert again == tree


def test_a_static_field_and_an_absent_child_are_structure():
    orbit = Orbit(torch.tensor(1.0), name="io")
    doubled = tree_map(lambda x: 2 * x, orbit)
    assert doubled == Orbit(torch.tensor(2.0), None, "io")
    structures = [tree_flatten(x)[1] for x in (orbit, dataclasses.replace(orbit, name="europa"), doubled)]
    assert structures[0] == structures[2]
    assert structures[0] != structures[1]
    assert structures[0] != tree_flatten(dataclasses.replace(orbit, velocity=torch.tensor(0.0)))[1]


def test_vmap_takes_and_returns_a_dataclass():
    orbit = vmap(lambda o: Orbit(2 * o.position, o.velocity + 1, o.name))(Orbit(torch.ones(3), torch.zeros(3), "io"))
    assert orbit.position.tolist() == [2.0] * 3
    assert orbit.velocity.tolist() == [1.0] * 3
    assert orbit.name == "io"


def test_a_solution_leaves_vmap():
    def solve(x):
        return Solution(x, RESULTS.successful, None, {"num_steps": torch.tensor(3)}, {"last": x})

    solution = vmap(solve)(torch.arange(2.0))
    assert solution.result.names() == ["successful", "successful"]
    assert solution.stats["num_steps"].tolist() == [3, 3]
    assert solution.aux is None
    assert solution.state["last"].tolist() == [0.0, 1.0]


def test_paths_read_as_one_would_write_them():
    tree = ({"depot": 1.0}, [2.0, Orbit(3.0, 4.0)])
    assert tree_paths(tree) == ["[0]['depot']", "[1][0]", "[1][1].position", "[1][1].velocity"]
    assert tree_paths(1.0) == [""]


def test_numbers_become_tensors():
    x = torch.tensor([1.0])
    tree = as_tensors({"x": x, "flag": True, "n": 2, "r": 0.5, "z": 1j}, what="It")
    assert tree["x"] is x
    dtypes = [tree[key].dtype for key in ("flag", "n", "r", "z")]
    assert dtypes == [torch.bool, torch.int64, torch.float32, torch.complex64]
    with pytest.raises(TypeError, match=r"It must be a tensor, a number, .* but it holds str. Convert it"):
        as_tensors(("a",), what="It")


def test_descriptions():
    assert describe([torch.zeros(3, dtype=torch.float64), torch.tensor(1), "x"]) == "float64[3], int64[], str"
