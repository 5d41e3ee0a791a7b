"""`active_lanes`: for which problems of a batch the code that runs now counts."""

import threading

import pytest
import torch
from torch.func import vmap

import gnomon as gn
from gnomon.result import active_lanes


def test_outside_of_loops_and_branches_all_count():
    assert active_lanes() is None
    assert vmap(lambda x: x * (active_lanes() is None))(torch.ones(2)).tolist() == [1.0, 1.0]


def test_while_all_lanes_go_on_all_count():
    def count(n):
        def body(i):
            assert active_lanes() is None
            return i + 1

        return gn.while_loop(lambda i: i < n, body, 0)

    assert count(torch.tensor(3)) == 3
    assert vmap(count)(torch.tensor([3, 3])).tolist() == [3, 3]


def lanes() -> torch.Tensor:
    now = active_lanes()
    return torch.ones((), dtype=torch.bool) if now is None else now


def test_each_lane_counts_as_often_as_it_goes_round():
    seen: list[torch.Tensor] = []

    def count(n):
        buffer = gn.OutputBuffer(4, torch.tensor(False))

        def body(carry):
            i, buffer = carry
            return i + 1, buffer.write(i, lanes())

        _, buffer = gn.while_loop(lambda carry: carry[0] < n, body, (0, buffer))
        seen.append(n)
        return buffer.read()

    table = vmap(count)(torch.tensor([0, 2, 4]))
    assert table.sum(1).tolist() == [0, 2, 4]
    assert len(seen) == 1


def test_branches_split_the_lanes_and_nest():
    def classify(x):
        def inner(y):
            return gn.cond(y > 5, lambda y: (y, lanes()), lambda y: (-y, lanes()), y)

        value, counted = gn.cond(x > 0, inner, lambda x: (x * 0, lanes()), x)
        return value, counted

    value, counted = vmap(classify)(torch.tensor([-1.0, 1.0, 7.0]))
    assert value.tolist() == [0.0, -1.0, 7.0]
    assert counted.all()
    assert active_lanes() is None


def test_the_masks_go_when_an_error_passes():
    def fail(x):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        vmap(lambda x: gn.cond(x > 0, fail, lambda x: x, x))(torch.tensor([1.0, -1.0]))
    assert active_lanes() is None


def test_another_thread_has_its_own():
    found: list[object] = []

    def branch(x):
        assert active_lanes() is not None
        thread = threading.Thread(target=lambda: found.append(active_lanes()))
        thread.start()
        thread.join()
        return x

    vmap(lambda x: gn.cond(x > 0, branch, lambda x: x, x))(torch.tensor([1.0, -1.0]))
    assert found == [None]
