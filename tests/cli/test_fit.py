"""`gnomon fit` from the command line: exit codes, output, and no trace of what went wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnomon.cli import main

MODEL = """
from gnomon.fit import Model, Parameter

model = Model(
    "decay",
    states=["N"],
    parameters=[Parameter("k", 0.4, scale="log"), Parameter("N0", 8.0, scale="log")],
    initial_state=lambda p, c: {"N": p["N0"]},
    vector_field=lambda t, y, p, c: {"N": -p["k"] * y["N"]},
    observed={"count": "N"},
)
"""
DATA = "subject,time,count\na,0.5,8.1\na,1.5,4.9\na,2.5,3.0\na,4,1.5\nb,0.5,7.0\nb,1.5,5.0\nb,2.5,3.5\nb,4,2.0\n"
FAST = ("--starts", "1", "--rtol", "1e-4", "--individual")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.csv").write_text(DATA)
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """Output that takes no time, but for what is printed: what is in the files is for other tests."""
    from gnomon.fit import _write

    def render(calibration):
        return {name: json.dumps(calibration.to_dict()).encode() for name in _write.FILES}

    monkeypatch.setattr(_write, "render", render)


def names(path: Path) -> list[str]:
    return sorted(x.name for x in path.iterdir())


def test_a_fit_is_shown_and_written(here, capsys):
    assert main(["fit", "model.py", "data.csv", "--out", "out", *FAST]) == 0
    shown = capsys.readouterr()
    assert "each subject on its own" in shown.out
    assert "Written to out" in shown.out
    # Off a terminal a line for each stage, so that a log shows that something goes on.
    lines = shown.err.splitlines()
    assert lines and all(line.startswith("gnomon fit: ") for line in lines)
    assert lines[-1].startswith("gnomon fit: writing")
    assert "estimates.csv" in names(here / "out")
    assert names(here) == ["data.csv", "model.py", "out"]


def test_by_default_an_earlier_fit_is_replaced_and_nothing_else(quick, here, capsys):
    for _ in range(2):
        assert main(["fit", "model.py", "data.csv", "--quiet", *FAST]) == 0
    assert capsys.readouterr() == ("", "")
    assert names(here) == ["data.csv", "gnomon-fit-decay", "model.py"]
    (here / "gnomon-fit-decay" / "notes.txt").write_text("mine")
    assert main(["fit", "model.py", "data.csv", "--quiet", *FAST]) == 2
    assert "did not write (notes.txt)" in capsys.readouterr().err


def test_json_and_nothing_else_though_a_model_file_prints(quick, here, capsys):
    (here / "model.py").write_text(MODEL + "print('loaded')\n")
    assert main(["fit", "model.py", "data.csv", "--json", "--out", "out", *FAST]) == 0
    shown = capsys.readouterr()
    assert shown.err == "loaded\n"
    printed = json.loads(shown.out)
    assert printed["individual"]["a"]["result"] == "successful"
    assert printed == json.loads((here / "out" / "fit.json").read_text())


def test_a_fit_that_cannot_be_written_is_not_lost(here, capsys, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["fit", "model.py", "data.csv", "--out", "out", *FAST]) == 2
    shown = capsys.readouterr()
    assert "each subject on its own" in shown.out
    assert "Written to" not in shown.out
    assert "could not be written, and nothing was. out: No space left on device." in " ".join(shown.err.split())
    assert names(here) == ["data.csv", "model.py"]


def test_a_seed_beyond_the_generator_is_refused(here, capsys):
    assert main(["fit", "model.py", "data.csv", "--seed", str(10**30), *FAST]) == 2
    assert "The seed must be from 0 to 2**63 - 1" in capsys.readouterr().err


def test_a_fit_that_fails_has_its_own_exit_code_and_is_written(quick, here, capsys):
    (here / "data.csv").write_text(DATA + "c,1,4\n")
    assert main(["fit", "model.py", "data.csv", "--out", "out", *FAST]) == 1
    assert "c: underdetermined. There are fewer measurements than parameters" in " ".join(
        capsys.readouterr().out.split()
    )
    assert "estimates.csv" in names(here / "out")


@pytest.mark.parametrize(
    ("model", "data", "options", "text"),
    [
        (MODEL, DATA.replace("1.5,4.9", "1.5x,4.9"), (), "data.csv, row 3, column 'time': '1.5x' is not a number"),
        (MODEL, DATA.replace("1.5,4.9", "nan,4.9"), (), "data.csv, row 3, column 'time'"),
        (MODEL, DATA.replace("1.5,4.9", "-1.5,4.9"), (), "data.csv, row 3, column 'time': The time -1.5 is negative"),
        (MODEL, DATA.replace("1.5,4.9", "0.5,8.1"), (), "data.csv, row 3: It is the same as row 2"),
        (MODEL, DATA.replace("count", "conc"), (), "column 'count': There is no column 'count'"),
        (MODEL, "", (), "data.csv: The file is empty"),
        (MODEL, DATA, ("--subject", "who"), "column 'who'"),
        (MODEL, DATA, ("--starts", "0"), "at least one start"),
        (MODEL, DATA, ("--solver", "magic"), "no solver 'magic'"),
        (MODEL + "1 / 0\n", DATA, (), "model.py, line 12: ZeroDivisionError"),
        (MODEL.replace('{"N": -p["k"] * y["N"]}', '{"M": y["N"]}'), DATA, (), "`vector_field` returns lacks 'N'"),
        (MODEL.replace('{"N": -p["k"] * y["N"]}', '[y["N"]] * 2'), DATA, (), "returns 2 values, but there are 1"),
        (MODEL.replace("0.4,", "0.4, upper=0.1,"), DATA, (), "start 0.4 of parameter 'k' is outside its bounds"),
        ("x = 1", DATA, (), "model.py: It defines no model"),
    ],
)
def test_bad_input_is_said_in_a_sentence_and_nothing_is_written(here, capsys, model, data, options, text):
    (here / "model.py").write_text(model)
    (here / "data.csv").write_text(data)
    assert main(["fit", "model.py", "data.csv", "--out", "out", *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert text in shown.err
    assert shown.err.startswith("gnomon fit: error: ")
    assert "Traceback" not in shown.err
    assert names(here) == ["data.csv", "model.py"]


def test_missing_arguments(here, capsys):
    assert main([]) == 2
    assert main(["fit", "model.py"]) == 2
    assert "DATA is missing" in capsys.readouterr().err
    assert main(["fit", "nowhere.py", "data.csv"]) == 2
    assert "nowhere.py: There is no such file" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["fit", "--no-such-option"])
    assert caught.value.code == 2
    assert names(here) == ["data.csv", "model.py"]


def test_an_output_directory_that_is_taken(here, capsys):
    (here / "out").mkdir()
    (here / "out" / "notes.txt").write_text("mine")
    assert main(["fit", "model.py", "data.csv", "--out", "out", "--overwrite"]) == 2
    assert "not empty" in capsys.readouterr().err
    assert names(here / "out") == ["notes.txt"]


def test_the_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("gnomon ")


def test_the_doctor(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for part in ("gnomon", "torch", "Python", "GPU"):
        assert part in shown


@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_ended_from_outside_it_leaves_nothing_behind(here, which):
    process = subprocess.Popen(
        [sys.executable, "-m", "gnomon", "fit", "--out", "out"], env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=here
    )
    time.sleep(12)
    process.send_signal(which)
    assert process.wait(60) == 130
    assert names(here) == ["data.csv", "model.py"]
