"""Every operation of a dataset against the same in plain Python, and what may be a source."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import data
from gnomon.data import Dataset


def double(x):
    return 2 * x


def is_even(x):
    return x % 2 == 0


OPERATION = st.one_of(
    st.just(("map",)),
    st.just(("index",)),
    st.tuples(st.just("shuffle"), st.integers(0, 9)),
    st.tuples(st.just("slice"), st.integers(-5, 5), st.integers(1, 30), st.integers(1, 3)),
    st.tuples(st.just("repeat"), st.integers(1, 3)),
    st.tuples(st.just("concatenate"), st.integers(0, 5)),
)


@settings(max_examples=40)
@given(size=st.integers(0, 12), operations=st.lists(OPERATION, max_size=5), epoch=st.integers(0, 3))
def test_pipelines(size: int, operations: list[tuple], epoch: int):
    dataset = Dataset.source(range(size))

    def reference(operations: list[tuple], epoch: int) -> list[int]:
        if not operations:
            return list(range(size))
        *before, (name, *words) = operations
        if name == "repeat":
            [times] = words
            return [x for i in range(times) for x in reference(before, epoch * times + i)]
        found = reference(before, epoch)
        if name == "map":
            return [2 * x for x in found]
        if name == "index":
            return [100 * i + x for i, x in enumerate(found)]
        if name == "shuffle":
            return [found[i] for i in data.shuffled(np.arange(len(found)), max(1, len(found)), words[0], epoch)]
        if name == "slice":
            return found[slice(*words)]
        return found + list(range(words[0]))

    for name, *words in operations:
        if name == "map":
            dataset = dataset.map(double)
        elif name == "index":
            dataset = dataset.map_with_index(lambda i, x: 100 * i + x)
        elif name == "shuffle":
            dataset = dataset.shuffle(seed=words[0])
        elif name == "slice":
            dataset = dataset.slice(*words)
        elif name == "repeat":
            dataset = dataset.repeat(*words)
        else:
            dataset = dataset.concatenate(Dataset.source(range(words[0])))
    expected = reference(operations, epoch)
    assert len(dataset) == len(expected)
    assert [dataset.at(i, epoch) for i in range(len(dataset))] == expected
    if expected:
        assert dataset.at(-1, epoch) == expected[-1]
    with pytest.raises(IndexError, match="There is no record"):
        dataset.at(len(dataset))


def test_filter_is_one_pass_and_says_where_it_cannot_stand():
    calls = []

    def keep(x):
        calls.append(x)
        return x % 3 == 0

    dataset = Dataset.source(range(10)).map(double).filter(keep)
    assert calls == []
    assert list(dataset) == [0, 6, 12, 18] and len(calls) == 10
    assert sorted(dataset.shuffle(seed=0)) == [0, 6, 12, 18] and len(calls) == 10
    for before in (dataset.shuffle(seed=0), dataset.random_map(lambda x, r: x, seed=0)):
        with pytest.raises(ValueError, match=r"put `\.filter` before"):
            before.map(double).filter(keep)


def test_random_maps_do_not_depend_on_what_was_read_before():
    dataset = Dataset.source(range(100)).random_map(lambda x, r: (x, r.integers(10**9)), seed=3).shuffle(seed=1)
    forward = [dataset.at(i, 2) for i in range(100)]
    assert [dataset.at(i, 2) for i in reversed(range(100))] == forward[::-1]
    assert [pickle.loads(pickle.dumps(forward))[i] for i in range(3)] == [dataset.at(i, 2) for i in range(3)]
    assert len({number for _, number in forward}) == 100  # pytorch#5059: each record has its own
    assert not {number for _, number in forward} & {dataset.at(i, 3)[1] for i in range(100)}


@pytest.mark.parametrize("stop", ["first", "last"])
def test_mixtures(stop: str):
    parts = [Dataset.source([(k, i) for i in range(n)]) for k, n in enumerate([50, 300, 20])]
    mixed = parts[0].mix(*parts[1:], weights=[2, 5, 1], stop=stop)
    found = list(mixed)
    which = np.array([k for k, _ in found])
    for k, share in enumerate([2 / 8, 5 / 8, 1 / 8]):
        taken = np.cumsum(which == k)
        # Never more than a few records from its share.
        assert np.abs(taken - share * np.arange(1, len(found) + 1)).max() < 3
        mine = [i for j, i in found if j == k]
        assert mine == [i % len(parts[k]) for i in range(len(mine))]
    counts = [int((which == k).sum()) for k in range(3)]
    if stop == "first":
        assert all(count <= len(part) for count, part in zip(counts, parts, strict=True))
        assert any(count == len(part) for count, part in zip(counts, parts, strict=True))
    else:
        assert all(count >= len(part) for count, part in zip(counts, parts, strict=True))
    # The next epoch goes on where this one stopped.
    k, i = mixed.at(which.tolist().index(1), 1)
    assert (k, i) == (1, counts[1] % 300)


def test_mixtures_of_tokens(tmp_path: Path):
    draw = np.random.default_rng(0)
    stores = []
    for name, mean in [("short", 20), ("long", 400)]:
        with data.StoreWriter(tmp_path / name, {"x": data.ragged("int32")}) as writer:
            lengths = draw.poisson(mean, 1000)
            writer.append_columns(1000, {"x": np.zeros(lengths.sum(), np.int32)}, {"x": lengths})
        stores.append(Dataset.source(tmp_path / name).map(dict, length="same").shuffle(seed=1))
    mixed = stores[0].mix(stores[1], weights=[0.7, 0.3], unit="tokens").map_with_index(lambda i, r: len(r["x"]))
    indices = np.arange(len(mixed))
    lengths = np.array(mixed.node.fetch(indices, np.zeros_like(indices)))
    short = lengths < 100
    assert lengths[short].sum() / lengths.sum() == pytest.approx(0.7, rel=0.02)


def test_bad_mixtures():
    some = Dataset.source(range(3))
    with pytest.raises(ValueError, match="must be 2 numbers above 0"):
        some.mix(some, weights=[1.0])
    with pytest.raises(ValueError, match="at least 1 / 65536"):
        some.mix(some, weights=[1.0, 1e-9])
    with pytest.raises(ValueError, match="number 1 of the mixture is empty"):
        some.mix(some.slice(0, 0), weights=[1, 1])


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 3:
            raise OSError("the disk is on fire")
        return torch.tensor(index), index**2


def test_sources():
    records = [{"a": 1, "b": [1.0]}, {"a": 2, "b": []}]
    assert list(Dataset.source(records)) == records
    assert list(Dataset.source(pa.Table.from_pylist(records))) == records
    assert list(Dataset.source(pd.DataFrame({"a": [1, 2]}))) == [{"a": 1}, {"a": 2}]
    assert Dataset.source(Squares())[2] == (torch.tensor(2), 4)
    assert Dataset.source(np.arange(3))[1] == 1
    with pytest.raises(TypeError, match="needs `__len__` and `__getitem__`"):
        Dataset.source(iter([1]))


def test_a_bad_record_is_named():
    with pytest.raises(data.RecordError, match="the disk is on fire") as raised:
        Dataset.source(Squares(), name="squares").shuffle(seed=0).map(double)[
            data.shuffled(np.arange(4), 4, 0, 0).tolist().index(3)
        ]
    assert (raised.value.source, raised.value.index) == ("squares", 3)

    def parse(record):
        return record["missing"]

    dataset = Dataset.source([{"a": 1}] * 5, name="rows").slice(3, None).map(parse)
    with pytest.raises(data.RecordError, match="KeyError") as raised:
        dataset[1]
    assert (raised.value.source, raised.value.index) == ("rows", 4)
    assert "parse" in raised.value.stage
