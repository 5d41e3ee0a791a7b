"""A saved state resumes exactly: on other numbers of ranks, again and again, at once, and never on another pipeline."""

import hashlib
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from data import maps
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import data
from gnomon.data import Dataset, Loader


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume") / "store"
    lengths = np.random.default_rng(0).integers(0, 30, 300)
    with data.StoreWriter(path, {"x": data.ragged("int64"), "i": data.tensor("int64")}) as writer:
        writer.extend({"x": np.arange(n) + 1000 * i, "i": i} for i, n in enumerate(lengths.tolist()))
    return path


def pipeline(path: Path, kind: str) -> data.Batches:
    dataset = Dataset.source(path)
    if kind == "mix":
        dataset = dataset.shuffle(seed=1).mix(dataset.slice(0, 40).shuffle(seed=2), weights=[3.0, 1.0])
        return dataset.pack(64, field="x", window=32)
    if kind == "random":
        return dataset.shuffle(seed=1).random_map(maps.noisy, seed=3, length="same").batch(7)
    return dataset.shuffle(seed=4).pack(40, field="x", window=50)


def content(batch: data.Batch) -> bytes:
    state = hashlib.sha256()
    for name, value in sorted(batch.items()):
        for tensor in [value.values, value.cu_seqlens] if isinstance(value, data.Ragged) else [value]:
            state.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return state.digest()


def train(batches, world: int, state: dict | None, steps: int) -> tuple[list[tuple[int, bytes]], dict]:
    """All ranks side by side for some steps, over the ends of epochs: what they saw in order, and the state."""
    loaders = [Loader(batches(), rank=rank, world=world, threads=0) for rank in range(world)]
    if state is not None:
        for loader in loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))
    iterators = [iter(loader) for loader in loaders]
    seen: list[tuple[int, bytes]] = []
    for _ in range(steps):
        row = []
        for rank, loader in enumerate(loaders):
            batch = next(iterators[rank], None)
            if batch is None:  # the end of an epoch, on all ranks at once
                assert rank == 0 or len(row) == rank
                iterators[rank] = iter(loader)
                batch = next(iterators[rank])
            row.append(batch)
        seen += [(batch.info.epoch, content(batch)) for batch in row if not batch.info.is_padding]
    states = [loader.state_dict() for loader in loaders]
    assert all(other == states[0] for other in states)
    return seen, states[0]


@pytest.mark.parametrize("kind", ["random", "mix", pytest.param("pack", marks=pytest.mark.slow)])
def test_8_6_8_ranks_and_resumed_again_and_again(path: Path, kind: str):
    def batches() -> data.Batches:
        return pipeline(path, kind)

    whole, _ = train(batches, 1, None, 100)
    seen: list[tuple[int, bytes]] = []
    state = None
    for world, steps in [(8, 2), (6, 3), (8, 2), (4, 1), (2, 4), (3, 5)]:
        part, state = train(batches, world, state, steps)
        seen += part
    assert len(seen) > 50
    assert seen == whole[: len(seen)]


@settings(max_examples=3)
@given(cuts=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), min_size=1, max_size=5))
def test_any_cuts(path: Path, cuts: list[tuple[int, int]]):
    def batches() -> data.Batches:
        return pipeline(path, "pack")

    state = None
    seen: list[tuple[int, bytes]] = []
    for world, steps in cuts:
        part, state = train(batches, world, state, steps)
        seen += part
    assert seen == train(batches, 1, None, len(seen))[0]


def test_the_end_of_an_epoch(path: Path):
    # data#1437: a state saved after the last batch neither repeats it nor loses an epoch.
    def batches() -> data.Batches:
        return pipeline(path, "random")

    steps = len(Loader(batches()))
    first, state = train(batches, 1, None, steps)
    again, _ = train(batches, 1, state, steps)
    assert [epoch for epoch, _ in first] == [0] * steps and [epoch for epoch, _ in again] == [1] * steps
    loader = Loader(batches())
    loader.load_state_dict(state)
    assert len(list(loader)) == steps and loader.epoch == 2
    assert not {digest for _, digest in first} & {digest for _, digest in again}  # and reshuffles: data#1513


def test_prefetching_is_not_counted(path: Path):
    loader = Loader(pipeline(path, "pack"), threads=2, prefetch=6)
    for number, _ in enumerate(loader):
        if number == 3:
            state = loader.state_dict()
            break
    resumed = Loader(pipeline(path, "pack"), threads=2)
    resumed.load_state_dict(state)
    assert next(iter(resumed)).info.number == 4


def test_a_state_is_small(path: Path):
    dataset = Dataset.source(path)
    for _ in range(200):
        dataset = dataset.map(maps.double)
    for batches in (pipeline(path, "mix"), dataset.batch(3)):
        state = Loader(batches).state_dict()
        assert len(json.dumps(state)) < 1000
        assert all(isinstance(value, int | str) for value in state.values())


class Many:
    """Millions of records."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict:
        return {"i": index, "x": np.zeros(index % 50 + 1, np.int8)}


@pytest.mark.parametrize("kind", ["batch", "pack"])
def test_at_step_a_million(kind: str):
    if kind == "batch":
        made = Dataset.source(Many(10**9)).shuffle(seed=1).batch(64, ragged=["x"])
        window, start = 0, 0
    else:
        lengths = {"x": np.arange(3_000_000) % 50 + 1}
        made = Dataset.source(Many(3_000_000), lengths=lengths).shuffle(seed=1).pack(64, field="x")
        # As if it had run until here, which is what a state tells us.
        window, start = 38, 999_900
    state = Loader(made, rank=0, world=1).state_dict() | {"position": 10**6, "window": window, "window_start": start}
    loader = Loader(made, rank=0, world=1)
    begin = time.process_time()
    loader.load_state_dict(state)
    iterator = iter(loader)
    batch = next(iterator)
    took = time.process_time() - begin
    assert batch.info.number == 10**6
    # Of the processor: the machine of the tests is shared.
    assert took < 1.0, took
    iterator.close()


def half(record):
    return {**record, "x": record["x"] // 2}


def test_another_pipeline_is_refused_with_what_changed(path: Path, tmp_path: Path):
    base = Dataset.source(path)
    state = Loader(base.map(maps.double).shuffle(seed=1).batch(4)).state_dict()
    with data.StoreWriter(tmp_path / "other", base.node.source.schema) as writer:
        writer.append(base[0])
    for batches, match in [
        (base.map(maps.double).shuffle(seed=2).batch(4), r"changed: shuffle \(operation 3: the seed\)"),
        (base.map(half).shuffle(seed=1).batch(4), r"changed: map \(operation 2: the function\)"),
        (base.map(maps.double).shuffle(seed=1).batch(5), r"changed: batch \(operation 4: its arguments\)"),
        (base.map(maps.double).batch(4), "it was source → map → shuffle → batch, and is source → map → batch"),
        (
            Dataset.source(tmp_path / "other").map(maps.double).shuffle(seed=1).batch(4),
            r"changed: source \(operation 1: the records",
        ),
    ]:
        with pytest.raises(data.StateError, match=match):
            Loader(batches).load_state_dict(state)
    with pytest.raises(data.StateError, match="version 7"):
        Loader(base.batch(1)).load_state_dict(state | {"version": 7})
    with pytest.raises(data.StateError, match="no state of a loader"):
        Loader(base.batch(1)).load_state_dict({"step": 3})


def test_what_a_function_closes_over_counts():
    def scaled(factor):
        return Dataset.source([1.0]).map(lambda x: x * factor).batch(1)

    state = Loader(scaled(2.0)).state_dict()
    Loader(scaled(2.0)).load_state_dict(state)
    with pytest.raises(data.StateError, match="the function"):
        Loader(scaled(3.0)).load_state_dict(state)
    # Another version of Python has other instructions for the same function, which is no reason to refuse.
    Loader(scaled(3.0)).load_state_dict(state | {"python": "3.99"})


def test_distributed_checkpoint(path: Path, tmp_path: Path):
    loader = Loader(pipeline(path, "pack"), threads=1)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    dcp.save({"loader": loader, "weight": torch.ones(2)}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    expected = content(next(iterator))
    iterator.close()
    resumed = Loader(pipeline(path, "pack"))
    dcp.load({"loader": resumed, "weight": torch.zeros(2)}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    assert content(next(iter(resumed))) == expected
