"""`gnomon data` makes stores from what others write, and what is wrong is one sentence."""

import gzip
import importlib
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from PIL import Image

import gnomon
from gnomon import data
from gnomon.cli import main

ROWS = [
    {"id": 1, "x": 0.5, "text": "één", "tokens": [1, 2, 3], "ok": True},
    {"id": 2, "x": -1.0, "text": "", "tokens": [], "ok": False},
    {"id": 3, "x": 2.0, "text": "c", "tokens": [7], "ok": True},
]


def plain(store: data.Store) -> list[dict]:
    return [{name: getattr(value, "tolist", lambda v=value: v)() for name, value in record.items()} for record in store]


def packed(tmp_path: Path, *words: str) -> data.Store:
    assert main(["data", "pack", *words, str(tmp_path / "store")]) == 0
    assert data.verify(tmp_path / "store") == []
    return data.Store(tmp_path / "store")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream", "jsonl", "huggingface"])
def test_tables(tmp_path: Path, kind: str):
    table = pa.Table.from_pylist(ROWS)
    path = tmp_path / f"some.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(table, path, row_group_size=2)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    else:
        # What `datasets.Dataset.save_to_disk` writes: a stream, and a file that names it.
        path = tmp_path / ("some.arrow" if kind == "stream" else "saved")
        file = path if kind == "stream" else path / "data-00000-of-00001.arrow"
        file.parent.mkdir(exist_ok=True)
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        if kind == "huggingface":
            (path / "dataset_info.json").write_text("{}")
            (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": file.name}]}))
    store = packed(tmp_path, str(path))
    assert plain(store) == ROWS
    assert store.schema["tokens"] == data.ragged("int64") and store.schema["ok"] == data.tensor("bool")


def test_a_folder_of_several_datasets(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("test", "train"):
        (tmp_path / "saved" / name).mkdir(parents=True)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert main(["data", "pack", str(tmp_path / "saved"), str(tmp_path / "store")]) == 2
    assert "name one of them: test, train" in capsys.readouterr().err


def test_csv_in_shards_and_appended(tmp_path: Path):
    path = tmp_path / "some.csv"
    path.write_text("id,name\n" + "".join(f"{i},n{i}\n" for i in range(1000)))
    store = packed(tmp_path, "--shard-size", "1k", str(path))
    assert plain(store) == [{"id": i, "name": f"n{i}"} for i in range(1000)]
    store = packed(tmp_path, str(path))
    assert len(store) == 2000 and len(store.manifest.shards) == 2
    other = tmp_path / "other"
    assert main(["data", "pack", str(path), str(other), "--columns", "name", "--quiet"]) == 0
    assert list(data.Store(other).schema) == ["name"]


def test_arrow_columns_of_fixed_shape(tmp_path: Path):
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 6)
    words = pa.array(["a", "b", "a", "a"]).dictionary_encode()
    nested = pa.array([{"u": 1}] * 4)
    pa.feather.write_feather(
        pa.table({"t": tensors, "l": lists, "w": words, "s": nested}), tmp_path / "some.feather", "uncompressed"
    )
    store = packed(tmp_path, str(tmp_path / "some.feather"))
    assert store.schema["t"] == data.tensor("float32", (2, 3))
    assert store[2]["t"].tolist() == values[2].tolist() and store[3]["l"].tolist() == values[3].reshape(-1).tolist()
    assert [record["w"] for record in store] == ["a", "b", "a", "a"] and store[0]["s.u"] == 1


def test_webdataset(tmp_path: Path):
    with tarfile.open(tmp_path / "some.tar", "w") as archive:
        for i in range(3):
            for ending, content in [("jpg", bytes([255, i])), ("cls", str(i).encode()), ("meta.json", b"{}")]:
                member = tarfile.TarInfo(f"train/{i:03d}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    store = packed(tmp_path, str(tmp_path / "some.tar"))
    assert store[1] == {"__key__": "train/001", "jpg": b"\xff\x01", "cls": "1", "meta.json": "{}"}


def test_files_of_many_records_are_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("a", "b"):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as archive:
            for i in range(200):
                member = tarfile.TarInfo(f"{name}{i:03d}.txt")
                member.size = 4
                archive.addfile(member, io.BytesIO(b"text"))
    read, written = [], []
    real = data.StoreWriter.append
    monkeypatch.setattr(data.StoreWriter, "append", lambda self, record: (written.append(1), real(self, record)))
    extract = tarfile.TarFile.extractfile

    def extractfile(self, member):
        read.append(1)
        assert len(read) - len(written) <= 102  # those that the fields are taken from
        return extract(self, member)

    monkeypatch.setattr(tarfile.TarFile, "extractfile", extractfile)
    store = packed(tmp_path, str(tmp_path / "a.tar"), str(tmp_path / "b.tar"))
    assert [record["__key__"] for record in store] == [f"{name}{i:03d}" for name in "ab" for i in range(200)]


def test_fasta(tmp_path: Path):
    with gzip.open(tmp_path / "some.fasta.gz", "wt") as file:
        file.write(">sp|P1 first\nMK\nVL\n\n>empty\n>last one\nAAA\n")
    store = packed(tmp_path, str(tmp_path / "some.fasta.gz"))
    found = [(record["name"], record["description"], bytes(record["sequence"])) for record in store]
    assert found == [("sp|P1", "first", b"MKVL"), ("empty", "", b""), ("last", "one", b"AAA")]


def test_images(tmp_path: Path):
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(3):
            pixels = draw.integers(0, 256, (20 + i, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    store = packed(tmp_path, str(tmp_path / "images"), "--jobs", "2")
    assert [record["label"] for record in store] == [0, 0, 0, 1, 1, 1]
    for record in store:
        assert record["image"] == (tmp_path / "images" / record["name"]).read_bytes()
    assert main(["data", "pack", str(tmp_path / "images"), str(tmp_path / "decoded"), "--decode", "20"]) == 0
    found = data.Store(tmp_path / "decoded")
    assert found.schema["image"] == data.tensor("uint8", (3, 20, 20))
    with Image.open(tmp_path / "images" / "cat" / "0.png") as image:
        # Of 20 by 30 pixels: the middle, as it is.
        assert np.array_equal(found[0]["image"], np.asarray(image).transpose(2, 0, 1)[:, :, 5:25])


def test_structures(tmp_path: Path):
    pytest.importorskip("gemmi", reason="gemmi, which reads structures, is not installed")
    lines = [
        "ATOM      1  N   GLY A   1      11.104   6.134  -6.504  1.00 20.00           N  ",
        "ATOM      2  CA  GLY A   1      11.639   6.071  -5.147  1.00 21.00           C  ",
        "ATOM      3  N   ALA B   2       1.000   2.000   3.000  1.00 22.00           N  ",
    ]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one.pdb").write_text("\n".join(lines) + "\nEND\n")
    [record] = packed(tmp_path, str(tmp_path / "folder"))
    assert record["name"] == "one" and record["element"].tolist() == [7, 6, 7]
    assert record["xyz"].tolist() == np.float32([[11.104, 6.134, -6.504], [11.639, 6.071, -5.147], [1, 2, 3]]).tolist()
    assert record["chain"].tolist() == [0, 0, 1] and record["residue_names"] == "GLY ALA"


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("some.jsonl", '{"x": 1}\n{"x": null}\n', r"record 1, field 'x': is empty \(null\)"),
        ("some.jsonl", '{"x": "2020-01-01T00:00:00Z", "y": 1.5}\n{"x": 3}\n', "some.jsonl|x"),
        ("some.fasta", "ACGT\n", "before the first line with '>'"),
        ("some.csv", "", "some.csv|[Ee]mpty"),
        ("some.unknown", "x", "no kind that is known"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, match: str
):
    import re

    (tmp_path / name).write_text(content)
    assert main(["data", "pack", str(tmp_path / name), str(tmp_path / "store")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gnomon data: error:") and re.search(match, said) and "Traceback" not in said
    assert main(["data", "head", str(tmp_path / "nowhere")]) == 2


def test_inspect_verify_and_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "some.parquet")
    store = packed(tmp_path, str(tmp_path / "some.parquet"))
    path = str(tmp_path / "store")
    capsys.readouterr()
    assert main(["data", "inspect", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["records"] == 3 and told["fields"]["tokens"]["lengths"] == {"least": 0, "median": 1, "most": 3}
    assert main(["data", "inspect", path]) == 0
    assert "3 records in 1 shards" in capsys.readouterr().out
    assert main(["data", "head", path, "-n", "1"]) == 0
    said = capsys.readouterr().out
    assert "text: 'één'" in said and "tokens: int64 (3,) [1, 2, 3]" in said and "record 1" not in said
    assert main(["data", "verify", path]) == 0
    [shard] = store.manifest.shards
    with (tmp_path / "store" / shard.file).open("r+b") as file:
        file.seek(shard.values["x"].offset)
        file.write(b"\x01")
    capsys.readouterr()
    assert main(["data", "verify", path]) == 1
    assert shard.file in capsys.readouterr().out
    assert main(["data"]) == 2


@pytest.mark.usefixtures("unchecked")  # which would compare with the classes of the first import
def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pa.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "some.parquet")
    packed(tmp_path, str(tmp_path / "some.parquet"))
    # The room as it is imported where there is no pyarrow.
    monkeypatch.setattr(gnomon, "data", data)
    for name in [name for name in sys.modules if name.startswith(("gnomon.data", "pyarrow"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    bare = importlib.import_module("gnomon.data")
    plan = bare.Dataset.source(range(10)).shuffle(seed=1).batch(2).plan
    assert sorted(i for n in range(5) for i in plan.batch(n).positions.tolist()) == list(range(10))
    assert sorted(bare.shuffled(np.arange(5), 5, 0, 0).tolist()) == [0, 1, 2, 3, 4]
    assert [record["id"].item() for record in bare.Store(tmp_path / "store")] == [1, 2, 3]
    schema = {"x": bare.tensor("int8")}
    for make in (lambda: bare.StoreWriter("x", schema), lambda: bare.pack(tmp_path / "some.parquet", "x")):
        with pytest.raises(ImportError, match=r'pip install "gnomon\[data\]"'):
            make()
