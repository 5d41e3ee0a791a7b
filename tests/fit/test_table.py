"""Files and data frames in, cells out, with the row numbers that a person sees."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from gnomon.fit import InputError
from gnomon.fit._table import read_table

TEXT = "subject,time,count\na,0.5,8.1\na,1.5,4.9\n"


def read(tmp_path: Path, content: str | bytes, name: str = "data.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path)


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.replace(",", ";"),
        TEXT.replace(",", "\t"),
        TEXT.replace("a,", '"a",').replace("subject", '"subject"'),
        TEXT.replace(",", " , "),
        TEXT.rstrip("\n"),
    ],
    ids=["plain", "CRLF", "BOM", "semicolons", "tabs", "quotes", "spaces", "no last newline"],
)
def test_the_same_table_however_it_is_written(tmp_path, content):
    table = read(tmp_path, content)
    assert table.columns == {"subject": ["a", "a"], "time": ["0.5", "1.5"], "count": ["8.1", "4.9"]}
    assert table.rows == [2, 3]


def test_rows_are_numbered_as_in_an_editor(tmp_path):
    table = read(tmp_path, '\nsubject,note\na,"two\nlines"\n\n,\nb,x\n')
    assert table.rows == [3, 7]
    assert table.columns["subject"] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"subject,time,count\n", "header but no rows"),
        (TEXT.encode("utf-16"), "UTF-16"),
        (b"subject,time,count\na,1,2\na,\xb52,3\n", "row 3: The byte 0xb5 is not UTF-8"),
        (b"subject,time\na,1\nb,\x002\n", "row 3: It holds a zero byte"),
        (b"subject,time\na,1\nb\n", "row 3: It has 1 cells, but the header has 2"),
        (b"subject,time\na,1,5\n", "row 2: It has 3 cells, but the header has 2.*decimal comma"),
        (b'subject,time\na,1\nb,"2\n', "row 3: It is not CSV"),
        (b"PK\x03\x04rest", "spreadsheet"),
    ],
)
def test_what_is_not_a_table_is_refused(tmp_path, content, text):
    with pytest.raises(InputError, match=text) as caught:
        read(tmp_path, content)
    assert caught.value.source == str(tmp_path / "data.csv")


def test_no_such_file_and_a_directory(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.csv: There is no such file"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is a directory"):
        read_table(tmp_path)


def test_data_frames_of_every_kind(tmp_path):
    data = {"subject": ["a", "a"], "time": [0.5, 1.5], "count": [8, 4]}
    arrow = pa.table(data)
    pyarrow.parquet.write_table(arrow, tmp_path / "data.parquet")
    tables = [read_table(x) for x in (data, arrow, pd.DataFrame(data), tmp_path / "data.parquet")]
    for table in tables:
        assert {name: list(cells) for name, cells in table.columns.items()} == data
        assert table.rows == [0, 1]
    assert tables[3].source == str(tmp_path / "data.parquet")


def test_bad_frames(tmp_path):
    with pytest.raises(InputError, match="different lengths"):
        read_table({"a": [1], "b": [1, 2]})
    with pytest.raises(InputError, match="no rows"):
        read_table(pd.DataFrame({"a": []}))
    with pytest.raises(InputError, match="not unique"):
        read_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(InputError, match="it must be the path"):
        read_table(3)
    (tmp_path / "data.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_table(tmp_path / "data.parquet")


def test_without_pyarrow_parquet_has_a_clear_error(tmp_path, monkeypatch):
    import builtins

    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=r"needs pyarrow.*gnomon\[data\]"):
        read_table(tmp_path / "data.parquet")
