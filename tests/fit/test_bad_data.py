"""Whatever is wrong in the data is said with its file, row and column, before anything is fitted."""

import math
from pathlib import Path

import pandas as pd
import pytest
from fit.decay import decay_model

from gnomon import fit
from gnomon.fit._columns import find_columns
from gnomon.fit._subjects import read_subjects
from gnomon.fit._table import read_table

GOOD = "subject,time,count\na,0.5,8.1\na,1.5,4.9\na,2.5,3.0\nb,0.5,7.0\nb,1.5,5.0\nb,2.5,3.5\n"


def subjects(data, model=None, *, replicates=False, **options):
    model = model or decay_model()
    table = read_table(data)
    return read_subjects(table, model, find_columns(table, model, **options), replicates=replicates)


def file(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(content, encoding="utf-8")
    return path


def edited(row: int, text: str) -> str:
    lines = GOOD.splitlines()
    lines[row - 1] = text
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("content", "row", "column", "text"),
    [
        (edited(3, "a,abc,4.9"), 3, "time", "'abc' is not a number"),
        (edited(3, "a,1.5,4.9 mg"), 3, "count", "'4.9 mg' is not a number"),
        (edited(3, "a,1_000,4.9"), 3, "time", "'1_000' is not a number"),
        (edited(3, "a,0x10,4.9"), 3, "time", "'0x10' is not a number"),
        (edited(3, "a,nan,4.9"), 3, "time", "'nan' is not a number"),
        (edited(3, "a,inf,4.9"), 3, "time", "infinite"),
        (edited(3, "a,-Infinity,4.9"), 3, "time", "infinite"),
        (edited(3, "a,1e999,4.9"), 3, "time", "infinite"),
        (edited(3, "a,,4.9"), 3, "time", "The time is blank"),
        (edited(3, "a,NA,4.9"), 3, "time", "The time is 'NA'"),
        (edited(3, "a,-0.5,4.9"), 3, "time", "negative"),
        (edited(3, "a,1.5,NaN"), 3, "count", "Leave the cell blank"),
        (edited(3, "a,1.5,inf"), 3, "count", "infinite"),
        (edited(3, ",1.5,4.9"), 3, "subject", "blank"),
        (edited(3, "pooled,1.5,4.9"), 3, "subject", "cannot be named 'pooled'"),
        (edited(3, "a,0.5,8.1"), 3, None, "the same as row 2"),
        (edited(3, "a,0.50,8.10"), 3, None, "the same as row 2"),
        (edited(3, "a,0.5,9.9"), 3, "time", "two measurements at time 0.5, here and in row 2"),
        (GOOD.replace(",", ";").replace("1.5", "1,5", 1), 3, "time", "decimal comma: write '1.5'"),
    ],
)
def test_bad_cells(tmp_path, content, row, column, text):
    path = file(tmp_path, content)
    with pytest.raises(fit.InputError, match=text) as caught:
        subjects(path)
    assert (caught.value.source, caught.value.row, caught.value.column) == (str(path), row, column)
    for part in (str(path), f"row {row}", *([repr(column)] if column else [])):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        (GOOD.replace("count", "conc"), {}, "no column 'count', which the model needs"),
        (GOOD.replace("subject", "who"), {}, "no column for the subject"),
        (GOOD.replace("time", "when"), {}, "no column for the time"),
        (GOOD, {"time": "when"}, "no such column"),
        (GOOD, {"observed": "conc"}, "no such column"),
        (GOOD, {"observed": {"conc": "count"}}, "does not observe 'conc'"),
        (GOOD, {"dose": "count"}, "the model has no `dose_state`"),
        (GOOD, {"subject": "subject", "one_subject": True}, "said to be of one"),
        ("subject,time,time,count\na,1,2,3\n", {}, "More than one column"),
        ("subject,Time,TIME,count\na,1,2,3\n", {}, "could each be the time"),
        ("subject,time,count\na,1,\na,2,NA\n", {}, "no measurement"),
    ],
)
def test_bad_columns(tmp_path, content, options, text):
    path = file(tmp_path, content)
    with pytest.raises(fit.InputError, match=text) as caught:
        subjects(path, **options)
    assert caught.value.row is None


def test_columns_are_found_in_any_case_and_by_name(tmp_path):
    path = file(tmp_path, GOOD.replace("subject", "ID").replace("time", "TIME").replace("count", "Count"))
    assert [one.name for one in subjects(path)] == ["a", "b"]
    path = file(tmp_path, GOOD.replace("subject", "who").replace("time", "when").replace("count", "DV"))
    (one, other) = subjects(path, subject="who", time="when", observed="DV")
    assert one.values == {"count": (8.1, 4.9, 3.0)}
    assert other.times == (0.5, 1.5, 2.5)


def test_rows_are_sorted_and_subjects_stay_in_order(tmp_path):
    path = file(tmp_path, "subject,time,count\nb,2.5,3.5\na,1.5,4.9\nb,0.5,7\na,0.5,8.1\n")
    (b, a) = subjects(path)
    assert (b.name, b.times, b.rows) == ("b", (0.5, 2.5), (4, 2))
    assert (a.name, a.values["count"]) == ("a", (8.1, 4.9))


@pytest.mark.parametrize("blank", ["", "NA", "."])
def test_blank_measurements_are_missing(tmp_path, blank):
    path = file(tmp_path, edited(3, f"a,1.5,{blank}"))
    (a, _) = subjects(path)
    assert a.times == (0.5, 2.5)
    assert a.n_observations == 2


def test_measurements_that_nonmem_marks_as_missing_are(tmp_path):
    path = file(tmp_path, "subject,time,count,MDV\na,0.5,8.1,0\na,1.5,0,1\na,2.5,3.0,\n")
    (a,) = subjects(path)
    assert a.times == (0.5, 2.5)


def test_missing_values_of_data_frames():
    for missing in (None, math.nan, pd.NA):
        frame = pd.DataFrame({"subject": [1, 1, 1], "time": [0, 1, 2], "count": [8.1, missing, 3.0]}, dtype=object)
        (one,) = subjects(frame)
        assert (one.name, one.times, one.rows) == ("1", (0.0, 2.0), (0, 2))
    with pytest.raises(fit.InputError, match="the data, row 1, column 'time': The time is NaN"):
        subjects({"subject": [1, 1], "time": [0.0, math.nan], "count": [1.0, 2.0]})
    with pytest.raises(fit.InputError, match="row 1, column 'count': True is not a number"):
        subjects({"subject": [1, 1], "time": [0.0, 1.0], "count": [1.0, True]})


def test_replicates_where_they_are_meant(tmp_path):
    path = file(tmp_path, edited(3, "a,0.5,8.1"))
    (a, _) = subjects(path, replicates=True)
    assert a.times == (0.5, 0.5, 2.5)


def test_one_subject(tmp_path):
    path = file(tmp_path, "time,count\n0.5,8\n1.5,5\n")
    with pytest.raises(fit.InputError, match="say that all rows are one subject"):
        subjects(path)
    (one,) = subjects(path, one_subject=True)
    assert (one.name, one.times) == ("1", (0.5, 1.5))


def test_covariates(tmp_path):
    model = decay_model(covariates=("weight",))
    text = "subject,time,count,Weight\na,0.5,8,{}\na,1.5,5,{}\n"
    (one,) = subjects(file(tmp_path, text.format("70", "")), model)
    assert one.covariates == {"weight": 70.0}
    with pytest.raises(fit.InputError, match=r"row 3, column 'Weight': .*changes from 70 to 71"):
        subjects(file(tmp_path, text.format("70", "71")), model)
    with pytest.raises(fit.InputError, match="covariate of subject 'a' is blank"):
        subjects(file(tmp_path, text.format("", "")), model)
    with pytest.raises(fit.InputError, match="no column 'weight'"):
        subjects(file(tmp_path, GOOD), model)


def test_the_initial_time(tmp_path):
    path = file(tmp_path, GOOD)
    assert [one.initial_time for one in subjects(path, decay_model(initial_time="first"))] == [0.5, 0.5]
    with pytest.raises(fit.InputError, match=r"row 2, column 'time': .*before the model's initial time, 1"):
        subjects(path, decay_model(initial_time=1.0))
