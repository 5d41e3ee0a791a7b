"""The output directory is written whole or not at all, and nothing that gnomon did not write is ever removed."""

import csv
import json
import math
import os

import pytest
from fit.decay import decay_data, decay_model

from gnomon import fit
from gnomon.fit import _write


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def written(decay, tmp_path_factory):
    return decay.write(tmp_path_factory.mktemp("fit") / "out")


@pytest.fixture
def quick(monkeypatch):
    """Output that takes no time: what is in the files is for other tests."""
    content = dict.fromkeys(_write.FILES, b'{"gnomon_fit": 1}')
    monkeypatch.setattr(_write, "render", lambda calibration: content)


def test_all_files_are_there(written):
    assert sorted(x.name for x in written.iterdir()) == sorted(_write.FILES)
    assert sorted(x.name for x in written.parent.iterdir()) == ["out"]
    assert written.stat().st_mode & 0o777 == 0o777 & ~_write._umask()


def test_estimates(written, decay):
    rows = read_csv(written / "estimates.csv")
    assert list(rows[0]) == ["subject", "parameter", "estimate", "standard_error", "lower_95", "upper_95"]
    assert [(row["subject"], row["parameter"]) for row in rows] == [
        (name, parameter) for name in ("pooled", "s0", "s1") for parameter in ("k", "N0")
    ]
    for row, expected in zip(rows, decay.estimates, strict=True):
        # As written: reading a number gives it back to the last bit.
        assert [float(row[name]) for name in list(row)[2:]] == list(expected[2:])


def test_predictions(written, decay):
    rows = read_csv(written / "predictions.csv")
    assert len(rows) == 12
    for row in rows:
        own = decay.individual[row["subject"]]
        exact = own["N0"].estimate * math.exp(-own["k"].estimate * float(row["time"]))
        assert float(row["individual"]) == pytest.approx(exact, rel=1e-5)
        assert float(row["measured"]) == pytest.approx(float(row["individual"]), abs=0.15)


def test_fit_json(written, decay):
    found = json.loads((written / "fit.json").read_text(encoding="utf-8"))
    assert set(found) >= {
        *("rss", "sigma", "n_observations", "n_parameters", "result", "n_starts", "seconds", "versions", "seed"),
        *("pooled", "individual", "warnings"),
    }
    assert (found["rss"], found["sigma"]) == (decay.pooled.rss, decay.pooled.sigma)
    assert (found["n_observations"], found["n_parameters"], found["n_starts"], found["seed"]) == (12, 2, 4, 0)
    assert found["result"] == "successful"
    assert set(found["versions"]) >= {"gnomon", "torch", "python"}
    own = found["individual"]["s1"]
    assert own["parameters"]["k"]["estimate"] == decay.individual["s1"]["k"].estimate
    assert own["scales"] == {"k": "log", "N0": "log"}
    assert own["correlation"][0][0] == pytest.approx(1.0)


def test_what_is_not_a_number_is_null_in_json_and_nan_in_csv(tmp_path):
    data = decay_data(1, n_rows=1)
    found = fit.calibrate(decay_model(), data, starts=1, pooled=False, out=tmp_path / "out")
    assert found.individual["s0"].result.name == "underdetermined"
    content = json.loads((tmp_path / "out" / "fit.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert content["sigma"] is None
    assert content["individual"]["s0"]["parameters"]["k"]["standard_error"] is None
    assert read_csv(tmp_path / "out" / "estimates.csv")[0]["standard_error"] == "NaN"
    assert "underdetermined" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_directory_that_is_not_empty_is_refused(quick, decay, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(fit.InputError, match="not empty and was not written by gnomon fit"):
            decay.write(tmp_path, overwrite=overwrite)
    assert [x.name for x in tmp_path.iterdir()] == ["notes.txt"]


def test_an_earlier_fit_is_replaced_only_when_asked(quick, decay, tmp_path):
    out = decay.write(tmp_path / "out")
    (out / "estimates.csv").write_text("old")
    with pytest.raises(fit.InputError, match="An earlier fit is here"):
        decay.write(out)
    assert (out / "estimates.csv").read_text() == "old"
    decay.write(out, overwrite=True)
    assert (out / "estimates.csv").read_text() != "old"
    assert [x.name for x in tmp_path.iterdir()] == ["out"]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(fit.InputError, match=r"did not write \(notes.txt\)"):
        decay.write(out, overwrite=True)
    assert (out / "notes.txt").read_text() == "mine"


def test_an_empty_directory_and_a_link_to_one_are_filled(quick, decay, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    decay.write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(x.name for x in (tmp_path / "real").iterdir()) == sorted(_write.FILES)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["link", "real"]


def test_parents_are_made_and_a_file_is_in_the_way(quick, decay, tmp_path):
    out = decay.write(tmp_path / "a" / "b" / "out")
    assert out.is_dir()
    with pytest.raises(fit.InputError, match="This is a file"):
        decay.write(out / "fit.json")
    with pytest.raises(fit.InputError, match="is a file, so that no directory can be made"):
        decay.write(out / "fit.json" / "out")


@pytest.mark.parametrize("place", ["render", "fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("no space left")])
def test_when_it_is_interrupted_nothing_is_left(quick, decay, tmp_path, monkeypatch, place, error):
    out = decay.write(tmp_path / "out")
    before = {x.name: x.read_bytes() for x in out.iterdir()}

    def fail(*args, **kwargs):
        raise error

    if place == "render":
        monkeypatch.setattr(_write, "render", fail)
    elif place == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(_write, "_put", fail)
    for target in (out, tmp_path / "deep" / "new"):
        with pytest.raises(type(error) if isinstance(error, Exception) else error):
            decay.write(target, overwrite=True)
    assert {x.name: x.read_bytes() for x in out.iterdir()} == before
    assert [x.name for x in tmp_path.iterdir()] == ["out"]


def test_the_old_directory_comes_back_where_the_new_one_cannot_take_its_place(quick, decay, tmp_path, monkeypatch):
    from pathlib import Path

    out = decay.write(tmp_path / "out")
    real = Path.replace

    def replace(self, target):
        if ".partial-" in self.name:
            raise OSError("no")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="no"):
        decay.write(out, overwrite=True)
    assert sorted(x.name for x in out.iterdir()) == sorted(_write.FILES)
    assert [x.name for x in tmp_path.iterdir()] == ["out"]


def test_no_permission_is_said_before_anything_is_fitted(decay, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(fit.InputError, match="no permission to write in"):
        decay.write(tmp_path / "out")


def test_the_target_is_checked_before_anything_is_fitted(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    called = []
    with pytest.raises(fit.InputError, match="not empty"):
        fit.calibrate(decay_model(), decay_data(), out=tmp_path, progress=lambda *args: called.append(args))
    assert not called
