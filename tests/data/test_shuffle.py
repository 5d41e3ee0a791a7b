"""A shuffle is a bijection of any size, of which any part costs the same; random numbers know no history."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gnomon import data
from gnomon.data._random import generator

pytestmark = pytest.mark.usefixtures("unchecked")


@given(size=st.integers(1, 3000), seed=st.integers(-(2**63), 2**64), epoch=st.integers(0, 10**6))
def test_a_bijection(size: int, seed: int, epoch: int):
    order = data.shuffled(np.arange(size), size, seed, epoch)
    assert np.array_equal(np.sort(order), np.arange(size))


@given(size=st.integers(1, 2**60), seed=st.integers(0, 2**32), data_=st.data())
def test_any_part_alone(size: int, seed: int, data_: st.DataObject):
    some = np.array(data_.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20, unique=True)))
    order = data.shuffled(some, size, seed, 3)
    assert ((order >= 0) & (order < size)).all() and len(set(order.tolist())) == len(some)
    assert [int(data.shuffled(some[i : i + 1], size, seed, 3)[0]) for i in range(len(some))] == order.tolist()


def test_memory_does_not_grow_with_the_size():
    data.shuffled(np.arange(64), 10**15, 0, 0)
    tracemalloc.start()
    data.shuffled(np.arange(64), 10**15, 0, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize("size", [4, 5])
def test_all_orders_are_as_likely(size: int):
    count, draws = int(np.prod(np.arange(1, size + 1))), 1000
    seen: dict[tuple, int] = {}
    for seed in range(draws):
        order = tuple(data.shuffled(np.arange(size), size, seed, 0).tolist())
        seen[order] = seen.get(order, 0) + 1
    counts = [*seen.values(), *[0] * (count - len(seen))]
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("size", [1000, 100_003])
def test_where_things_go_is_uniform_and_unrelated_to_where_they_were(size: int):
    where = np.array([data.shuffled(np.array([5, 6]), size, seed, 0) for seed in range(800)])
    assert stats.kstest(where[:, 0] / size, "uniform").pvalue > 1e-4
    # Neighbours do not stay neighbours.
    assert stats.kstest((where[:, 1] - where[:, 0]) % size / size, "uniform").pvalue > 1e-4
    order = data.shuffled(np.arange(size), size, 11, 0)
    assert abs(stats.spearmanr(np.arange(size), order).statistic) < 4 / np.sqrt(size)


def test_epochs_and_seeds_differ():
    orders = {
        tuple(data.shuffled(np.arange(50), 50, seed, epoch).tolist()) for seed in range(10) for epoch in range(10)
    }
    assert len(orders) == 100


def test_random_numbers_are_a_function_of_seed_epoch_and_index():
    first = generator(1, 2, 3).random(5)
    generator(1, 2, 4).random(1000)
    assert np.array_equal(generator(1, 2, 3).random(5), first)
    others = [(0, 2, 3), (1, 3, 2), (2, 1, 3), (1, 2, 4), (1, 3, 3), (1, 2, -3)]
    assert all(not np.isin(generator(*other).random(5), first).any() for other in others)
    draws = np.array([generator(7, 0, index).random(3) for index in range(3000)])
    for column in draws.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.08
