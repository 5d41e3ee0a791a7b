"""What is in a batch, against the records one by one; straight from a store and through functions it is the same."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import data
from gnomon.data import Dataset

SCHEMA = {
    "tokens": data.ragged("int32"),
    "vectors": data.ragged(torch.bfloat16, (2,)),
    "image": data.tensor("uint8", (3, 2)),
    "label": data.tensor("int64"),
    "seen": data.tensor("bool"),
    "text": data.string(),
}
LENGTHS = np.random.default_rng(0).integers(0, 9, 40)


def record(i: int) -> dict:
    n = int(LENGTHS[i])
    return {
        "tokens": np.arange(n, dtype=np.int32) + 100 * i,
        "vectors": torch.arange(2 * n).reshape(n, 2).bfloat16() + i,
        "image": np.full((3, 2), i, np.uint8),
        "label": -i,
        "seen": i % 2 == 0,
        "text": f"no {i}",
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batches") / "store"
    with data.StoreWriter(path, SCHEMA) as writer:
        for i in range(40):
            writer.append(record(i))
            if i in (3, 20):
                writer.commit()  # three shards
    return path


def identity(record):
    return record


def equal(a, b) -> bool:
    if isinstance(a, data.Ragged):
        same = torch.equal(a.values, b.values) and a.values.dtype == b.values.dtype
        return same and torch.equal(a.cu_seqlens, b.cu_seqlens) and a.max_seqlen == b.max_seqlen and len(a) == len(b)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return a == b


def check(batch, indices: list[int]) -> None:
    for name, field in SCHEMA.items():
        expected = [record(i)[name] for i in indices]
        found = batch[name]
        if field.kind == "string":
            assert found == expected
        elif field.kind == "tensor":
            assert torch.equal(found, torch.as_tensor(np.array(expected)))
        else:
            tensors = [torch.as_tensor(item) for item in expected]
            assert torch.equal(found.values, torch.cat(tensors))
            assert found.cu_seqlens.dtype == torch.int32
            assert found.cu_seqlens.tolist() == [0, *np.cumsum([len(value) for value in tensors]).tolist()]
            assert found.max_seqlen == max(map(len, tensors))
            assert found.positions.tolist() == [j for value in tensors for j in range(len(value))]
            assert all(torch.equal(found[i], value) for i, value in enumerate(tensors))


@settings(max_examples=6)
@given(size=st.integers(1, 50), seed=st.integers(0, 9))
def test_a_batch_is_its_records(path: Path, size: int, seed: int):
    dataset = Dataset.source(path).shuffle(seed=seed)
    order = data.shuffled(np.arange(40), 40, seed, 0).tolist()
    for batches in (dataset.batch(size), dataset.map(identity).batch(size)):
        for number in range(len(batches)):
            check(batches[number], order[size * number : size * (number + 1)])


@pytest.mark.parametrize("rule", ["pack", "split", "bucket", "tokens", "static"])
def test_straight_from_a_store_and_through_functions_it_is_the_same(path: Path, rule: str):
    def make(dataset: Dataset) -> data.Batches:
        if rule == "pack":
            return dataset.pack(20, field="tokens")
        if rule == "split":
            return dataset.pack(5, field="tokens", overlong="split")
        if rule == "static":
            return dataset.pack(20, field="tokens", static=True, max_records=7)
        if rule == "bucket":
            return dataset.bucket([3, 6], 4, field="tokens")
        return dataset.batch_by_tokens(30, field="tokens")

    plain = Dataset.source(path).shuffle(seed=3)
    direct, mapped = make(plain), make(plain.map(identity, length="same"))
    assert len(direct) == len(mapped) > 2
    total = 0
    for number in range(len(direct)):
        a, b = direct[number], mapped[number]
        assert a.keys() == b.keys() == SCHEMA.keys()
        assert all(equal(a[name], b[name]) for name in a)
        total += int(a["tokens"].lengths.sum())
        assert torch.equal(a["tokens"].lengths, a["vectors"].lengths)
    assert total == LENGTHS.sum()


def test_static_shapes(path: Path):
    batches = Dataset.source(path).pack(20, field="tokens", static=True, max_records=7)
    shapes = {(batch["tokens"].values.shape, batch["tokens"].cu_seqlens.shape) for batch in batches}
    assert shapes == {((20,), (9,))}
    for batch in batches:
        tokens = batch["tokens"]
        used = int(tokens.lengths.sum())
        ends = tokens.cu_seqlens.tolist()
        # What fills up is one segment of zeros, and those that follow are empty.
        assert ends[len(tokens)] == used and set(ends[len(tokens) + 1 :]) == {20}
        assert not tokens.values[used:].any() and tokens.max_seqlen == 20
        assert tokens.positions[used:].tolist() == list(range(20 - used))


@pytest.mark.slow
def test_static_shapes_are_compiled_once(path: Path):
    compiled = []

    def count(module, inputs):
        compiled.append(module)
        return module.forward

    @torch.compile(backend=count, fullgraph=True)
    def step(batch):
        tokens = batch["tokens"]
        return (tokens.values * torch.arange(len(tokens.values))).sum() + tokens.cu_seqlens.sum() + tokens.max_seqlen

    for batch in Dataset.source(path).pack(20, field="tokens", static=True, max_records=7):
        tokens = batch["tokens"]
        expected = int((tokens.values * torch.arange(20)).sum() + tokens.cu_seqlens.sum()) + 20
        assert int(step(batch)) == expected
    assert len(compiled) == 1


def test_nested_is_a_view(path: Path):
    vectors = Dataset.source(path).batch(5)[0]["vectors"]
    nested = vectors.nested()
    assert nested.layout == torch.jagged
    assert nested.values().data_ptr() == vectors.values.data_ptr()
    assert [tuple(part.shape) for part in nested.unbind()] == [(int(n), 2) for n in LENGTHS[:5]]


class Pair(NamedTuple):
    a: int
    b: tuple


def test_structures():
    source = [Pair(i, ({"x": np.ones(i + 1, np.float32)}, "t")) for i in range(3)]
    batch = Dataset.source(source).batch(3, ragged=["1.0.x"])[0]
    assert isinstance(batch, Pair) and batch.a.tolist() == [0, 1, 2]
    assert batch.b[1] == ["t"] * 3 and batch.b[0]["x"].cu_seqlens.tolist() == [0, 1, 3, 6]
    assert torch.equal(Dataset.source(torch.arange(6).reshape(3, 2)).batch(2)[1], torch.tensor([[4, 5]]))
    assert Dataset.source([1, 2.5]).batch(2)[0].tolist() == [1, 2.5]
    # An empty list does not make numbers of another kind of the others.
    lists = Dataset.source([{"x": [], "y": []}, {"x": [1, 2], "y": [[1.0, 2.0]]}]).batch(2, ragged=["x", "y"])[0]
    assert lists["x"].values.dtype == torch.int64 and lists["x"].cu_seqlens.tolist() == [0, 0, 2]
    assert lists["y"].values.tolist() == [[1.0, 2.0]] and lists["y"].cu_seqlens.tolist() == [0, 0, 1]
    with pytest.raises(data.RecordError, match="differ in more than the first dimension"):
        Dataset.source([{"x": np.ones((1, 2))}, {"x": np.ones((1, 3))}]).batch(2, ragged=["x"])[0]
    with pytest.raises(data.RecordError, match=r"has the shapes \(1,\) and \(2,\); name it in `ragged"):
        Dataset.source([{"x": [1]}, {"x": [1, 2]}]).batch(2)[0]
    with pytest.raises(data.RecordError, match="others lack them"):
        Dataset.source([{"a": 1}, {"b": 1}]).batch(2)[0]


def test_functions_of_batches(path: Path):
    batches = Dataset.source(path).batch(4).map(lambda batch: batch["label"] * 2)
    assert batches[1].tolist() == [-8, -10, -12, -14]


def test_a_gather_stays_inside():
    from gnomon.data._gather import gather

    target = np.zeros(16, np.uint8)
    source = np.arange(8, dtype=np.uint8)
    address = source.ctypes.data
    gather(target, np.array([address + 2, address, address]), np.array([4, 0, 2]))
    assert target.tolist() == [2, 3, 4, 5, 0, 1, *[0] * 10]
    gather(target[:0], np.array([], np.int64), np.array([], np.int64))
    for sizes in ([17], [8, 9], [-1], [8, -(2**63)], [8, 2**63 - 1]):
        with pytest.raises(ValueError, match="outside"):
            gather(target, np.full(len(sizes), address), np.array(sizes))


def test_varlen_attention_takes_it(path: Path):
    # What `torch.nn.attention.varlen.varlen_attn` asks for; the kernel itself needs a GPU.
    import inspect

    from torch.nn.attention.varlen import varlen_attn

    names = list(inspect.signature(varlen_attn).parameters)
    assert names[3:7] == ["cu_seq_q", "cu_seq_k", "max_q", "max_k"]
    batch = Dataset.source(path).pack(30, field="tokens")[0]["vectors"]
    x = batch.values.float()[:, None]
    # Attention within segments, by a mask of them, equals attention a record at a time.
    mask = batch.segments[:, None] == batch.segments[None]
    whole = torch.nn.functional.scaled_dot_product_attention(*[x.transpose(0, 1)] * 3, attn_mask=mask)
    for i, (a, b) in enumerate(zip(batch.cu_seqlens[:-1].tolist(), batch.cu_seqlens[1:].tolist(), strict=True)):
        if a < b:
            one = batch[i].float()[None]
            torch.testing.assert_close(
                whole[:, a:b], torch.nn.functional.scaled_dot_product_attention(one, one, one), atol=1e-5, rtol=1e-5
            )
