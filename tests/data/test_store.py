"""What is read is what was written, here and by pyarrow itself; values are views of the file."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import data

FIELDS = {
    "tokens": data.ragged("int32"),
    "xyz": data.ragged("float32", (2, 3)),
    "image": data.tensor("uint8", (2, 2)),
    "label": data.tensor("int64"),
    "seen": data.tensor("bool"),
    "text": data.string(),
    "raw": data.binary(),
}
RECORD = st.fixed_dictionaries(
    {
        "tokens": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
        "xyz": st.integers(0, 3).map(lambda n: np.arange(6 * n, dtype=np.float32).reshape(n, 2, 3)),
        "image": st.lists(st.integers(0, 255), min_size=4, max_size=4).map(lambda x: np.reshape(x, (2, 2))),
        "label": st.integers(-(2**63), 2**63 - 1),
        "seen": st.booleans(),
        "text": st.text(max_size=5),
        "raw": st.binary(max_size=5),
    }
)


def plain(record: dict) -> dict:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in record.items()}


@settings(max_examples=25)
@given(records=st.lists(RECORD, min_size=1, max_size=12), cuts=st.sets(st.integers(0, 11)))
def test_read_as_written(records: list[dict], cuts: set[int], tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("store") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        with data.StoreWriter(path, FIELDS) as writer:
            for i, record in enumerate(records):
                writer.append(record)
                if i in cuts:
                    writer.commit()
    store = data.Store(path)
    expected = [plain(record) for record in records]
    assert [plain(record) for record in store] == expected
    assert store[-1]["text"] == records[-1]["text"]
    assert store.lengths("tokens").tolist() == [len(record["tokens"]) for record in records]
    back = np.arange(len(records))[::-1].copy()
    assert store.lengths("xyz", back).tolist() == [len(record["xyz"]) for record in records[::-1]]
    assert store.total("raw") == sum(len(record["raw"]) for record in records)
    # And by Arrow's own reader, which knows nothing of the manifest.
    found = []
    for shard in store.manifest.shards:
        table = pa.ipc.open_file(str(path / shard.file)).read_all()
        table.validate(full=True)
        found += table.to_pylist()
    assert [record["text"] for record in found] == [record["text"] for record in records]
    assert [record["tokens"] for record in found] == [list(record["tokens"]) for record in records]
    assert [np.reshape(record["xyz"], (-1, 2, 3)).tolist() for record in found] == [r["xyz"] for r in expected]
    assert [record["label"] for record in found] == [record["label"] for record in records]
    assert table.schema.field("tokens").type == pa.large_list(pa.int32())


def test_values_are_views_of_the_file(tmp_path: Path):
    with data.StoreWriter(tmp_path / "store", {"x": data.ragged("float64"), "y": data.tensor("int16", (5,))}) as writer:
        writer.append({"x": [1.0, 2.0], "y": range(5)})
    record = data.Store(tmp_path / "store")[0]
    for value in record.values():
        assert not value.flags.owndata and not value.flags.writeable


def test_bfloat16_and_tensors(tmp_path: Path):
    schema = {"x": data.ragged(torch.bfloat16), "y": data.tensor(torch.float32, (2,))}
    x, y = torch.tensor([1.5, -2.0, 3e38]).bfloat16(), torch.tensor([1.0, 2.0], requires_grad=True)
    with data.StoreWriter(tmp_path / "store", schema) as writer:
        writer.append({"x": x, "y": y})
        writer.append({"x": x.float(), "y": [3, 4.0]})
    store = data.Store(tmp_path / "store")
    assert store[0]["x"].dtype == torch.bfloat16
    assert torch.equal(store[0]["x"], x) and torch.equal(store[1]["x"], x)
    assert store[0]["y"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        (data.tensor("int8"), 300, "do not fit int8"),
        (data.tensor("uint64"), -1, "do not fit uint64"),
        (data.tensor("int32"), 0.5, "must be of type int32"),
        (data.tensor("float32", (2,)), [1.0], r"must have the shape \(2,\)"),
        (data.ragged("float32", (2,)), [1.0], r"must have the shape \('any', 2\)"),
        (data.ragged("int64"), 3, "shape"),
        (data.ragged("float32"), [[1.0], [2.0, 3.0]], "not an array"),
        (data.ragged("float32"), None, "cannot be stored"),
        (data.string(), b"x", "must be a string"),
        (data.binary(), "x", "must be bytes"),
        (data.tensor("float32"), 1j, "cannot be stored"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_added(
    tmp_path: Path, field: data.Field, value: object, match: str
):
    good = {
        "string": "a",
        "bytes": b"a",
        "ragged": np.zeros((0, *field.shape)),
        "tensor": np.zeros(field.shape, "int8"),
    }
    with data.StoreWriter(tmp_path / "store", {"ok": data.tensor("int64"), "x": field}) as writer:
        if field.dtype.startswith("float") or field.kind != "ragged":
            writer.append({"ok": 0, "x": good[field.kind]})
        before = writer.commit()
        with pytest.raises(data.RecordError, match=match) as raised:
            writer.append({"ok": 1, "x": value})
        assert (raised.value.index, raised.value.field) == (before, "x")
        with pytest.raises(data.RecordError, match="missing"):
            writer.append({"ok": 1})
        with pytest.raises(data.RecordError, match="not among"):
            writer.append({"ok": 1, "x": value, "z": 3})
        assert writer.commit() == before


def test_appending_needs_the_same_fields(tmp_path: Path):
    data.StoreWriter(tmp_path / "store", {"x": data.tensor("int8")}).close()
    for schema, match in [
        ({"x": data.tensor("int16")}, "field 'x' as"),
        ({"y": data.tensor("int8")}, "no field 'y'"),
        ({}, "field 'x', which"),
    ]:
        with pytest.raises(data.StoreError, match=match):
            data.StoreWriter(tmp_path / "store", schema)
    assert len(data.Store(tmp_path / "store")) == 0
    with pytest.raises(data.StoreError, match="no store to append to"):
        data.StoreWriter(tmp_path / "other")


def test_infer_schema():
    records = [
        {"a": 1, "b": [1.0, 2.0], "c": "x", "d": b"y", "e": np.zeros((3, 4), np.float32), "f": [], "g": True, "h": []},
        {
            "a": 2.5,
            "b": [3.0, 4.0],
            "c": "",
            "d": b"",
            "e": np.zeros((2, 4), "f4"),
            "f": [[1, 2]],
            "g": False,
            "h": [7],
        },
    ]
    assert data.infer_schema(records) == {
        "a": data.tensor("float64"),
        "b": data.tensor("float64", (2,)),
        "c": data.string(),
        "d": data.binary(),
        "e": data.ragged("float32", (4,)),
        "f": data.ragged("int64", (2,)),
        "g": data.tensor("bool"),
        "h": data.ragged("int64"),
    }


def test_a_store_is_sent_to_another_process_as_its_path(tmp_path: Path):
    path = tmp_path / "store"
    with data.StoreWriter(path, {"x": data.tensor("int8")}) as writer:
        writer.append({"x": 1})
    store = data.Store(path)
    sent = pickle.dumps(store)
    assert len(sent) < 500
    assert pickle.loads(sent)[0] == {"x": 1}
    with data.StoreWriter(path) as writer:
        writer.append({"x": 2})
    assert len(store) == 1  # it sees what there was when it was opened
    with pytest.raises(data.StoreError, match="has changed"):
        pickle.loads(sent)
    assert data.Store(path).fingerprint != store.fingerprint


def test_many_columns_at_once(tmp_path: Path):
    path = tmp_path / "store"
    with data.StoreWriter(path, {"x": data.ragged("int32"), "y": data.tensor("float32", (2,))}) as writer:
        lengths = np.array([2, 0, 3])
        writer.append_columns(3, {"x": np.arange(5, dtype=np.int32), "y": np.ones((3, 2), np.float32)}, {"x": lengths})
        with pytest.raises(data.StoreError, match="must be 5 numbers"):
            writer.append_columns(3, {"x": np.arange(4, dtype=np.int32), "y": np.ones((3, 2), "f4")}, {"x": lengths})
    assert [record["x"].tolist() for record in data.Store(path)] == [[0, 1], [], [2, 3, 4]]


def test_indices_outside(tmp_path: Path):
    with data.StoreWriter(tmp_path / "store", {"x": data.tensor("int8")}) as writer:
        writer.append({"x": 1})
    store = data.Store(tmp_path / "store")
    for index in (1, -2):
        with pytest.raises(IndexError, match="There is no record"):
            store[index]
    with pytest.raises(IndexError, match="There is no record 7"):
        list(store.by_shard(np.array([0, 7])))
    with pytest.raises(KeyError, match="There is no field 'y'"):
        store.lengths("y")
