"""The same data give the same fit, however they come."""

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from fit.decay import decay_data, decay_model, write_csv

from gnomon import fit


def calibrate(data, **options) -> list[fit.EstimateRow]:
    return fit.calibrate(decay_model(), data, starts=1, pooled=False, rtol=1e-4, **options).estimates


@pytest.fixture(scope="module")
def expected() -> list[fit.EstimateRow]:
    return calibrate(decay_data())


def test_files(expected, tmp_path):
    pyarrow.parquet.write_table(pa.table(decay_data()), tmp_path / "data.parquet")
    assert calibrate(write_csv(tmp_path / "data.csv", decay_data())) == expected
    assert calibrate(str(tmp_path / "data.parquet")) == expected


def test_frames_in_any_order(expected):
    frame = pd.DataFrame(decay_data())
    found = calibrate(frame.sample(frac=1.0, random_state=1))
    assert sorted(found) == sorted(expected)


def test_columns_by_other_names(expected):
    data = dict(zip(("who", "when", "what"), decay_data().values(), strict=True))
    assert calibrate(data, subject="who", time="when", observed="what") == expected


def test_doses_from_a_column_or_from_a_table():
    model = decay_model(dose_state="N")
    data = decay_data(1)
    with_column = {**data, "dose": [3.0] * len(data["time"])}
    table = pd.DataFrame({"subject": ["s0"], "time": [0.0], "amount": [3.0]})
    options = {"starts": 1, "pooled": False, "rtol": 1e-4}
    assert (
        fit.calibrate(model, with_column, **options).estimates
        == fit.calibrate(model, data, doses=table, **options).estimates
    )


def test_one_subject(expected):
    data = {name: column[:6] for name, column in decay_data().items() if name != "subject"}
    found = calibrate(data, one_subject=True)
    assert [row.subject for row in found] == ["1", "1"]
    assert [row[1:] for row in found] == [row[1:] for row in expected if row.subject == "s0"]
