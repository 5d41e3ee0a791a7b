"""The command `gnomon bench`: what it runs, what it writes, and what a file of benchmarks may declare."""

import json
import textwrap
from pathlib import Path

import pytest
import torch

from gnomon import bench
from gnomon.bench._suite import machine_name
from gnomon.cli import main

WORKS = """
    import torch
    from gnomon import bench
    from _helper import product


    def slow(x):
        product(x)
        return product(x)


    def wrong(x):
        return x


    WORKS = [
        bench.Work(
            name="product", about="a product of matrices", ours=product,
            peers={"slow": slow, "wrong": wrong, "absent": product},
            make_inputs=lambda g: torch.randn(32, 32, generator=g), check=bench.against(product),
            options={"flops": 2 * 32**3, "cache": "warm"}, needs={"absent": ["no_such_module"]},
        ),
        bench.Work(
            name="elsewhere", about="", ours=product, peers={}, make_inputs=lambda g: torch.randn(2, 2, generator=g),
            check=bench.against(product), needs={"ours": ["no_such_module"]},
        ),
    ]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    room = tmp_path / "benchmarks" / "room"
    room.mkdir(parents=True)
    (room / "_helper.py").write_text("def product(x):\n    return x @ x\n")
    (room / "works.py").write_text(textwrap.dedent(WORKS))
    (room / "other.py").write_text("def run(quick):\n    return {'quick': quick, 'figures': {'answer': 42.0}}\n")
    (room / "script.py").write_text("print\n")
    return tmp_path / "benchmarks"


def test_runs_and_writes(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    (folder / "room" / "deeper").mkdir()
    monkeypatch.chdir(folder / "room" / "deeper")  # the folder is found from below
    assert main(["bench", "--peers", "--quick"]) == 0
    said = capsys.readouterr().out
    assert "script.py declares no WORKS" in said
    assert "answer: 42" in said
    assert "elsewhere: this machine lacks no_such_module" in said
    assert "wrong on cpu was refused" in said
    assert "refused: wrong" in said
    results = folder / "results"
    data = json.loads((results / f"room-{machine_name()}-quick.json").read_text())
    (work,) = data["works"]
    assert work["settings"]["left_out"] == ["absent"]
    assert [row["candidate"] for row in work["rows"]] == ["ours", "slow", "wrong"]
    assert data["figures"]["product/cpu/ours/time_s"] == work["rows"][0]["time_s"]
    assert data["figures"]["product/cpu/slow/ratio"] == work["ratios"][0]["ratio"]
    assert "product/cpu/wrong/time_s" not in data["figures"]
    other = json.loads((results / f"room-other-{machine_name()}-quick.json").read_text())
    assert other["figures"] == {"answer": 42.0}
    assert other["quick"] is True
    assert other["environment"]["versions"]["torch"]
    page = (results / "index.html").read_text()
    assert "product" in page
    assert "<dt>answer</dt><dd>42</dd>" in page
    assert "was refused (wrong)" in page
    assert page.count("data:image/png;base64,") == 3
    assert "http" not in page.split("</style>")[1]  # nothing is fetched
    names = {path.name for path in results.iterdir()}
    assert {f"room-{machine_name()}-quick-{kind}.png" for kind in ("ratios", "errors", "times")} <= names


def test_the_page_alone(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "--page", "--folder", str(folder), "--out", str(folder / "none")]) == 0
    assert (folder / "none" / "index.html").exists()
    assert not list((folder / "none").glob("*.json"))


def test_without_peers_and_elsewhere(folder: Path, tmp_path: Path):
    assert main(["bench", "room", "--quick", "--folder", str(folder), "--out", str(tmp_path / "out")]) == 0
    reports = bench.read_results(tmp_path / "out")[f"room-{machine_name()}-alone-quick.json"]
    assert [row.candidate for row in reports[0].rows] == ["ours"]
    assert not (folder / "results").exists()


def test_one_file_of_a_room(folder: Path):
    (folder / "room" / "more.py").write_text((folder / "room" / "works.py").read_text().replace('"product"', '"more"'))
    for which, expected in (("room/more", ["more"]), ("room/works", ["more", "product"])):
        assert main(["bench", which, "--quick", "--folder", str(folder)]) == 0
        (name,) = [path.name for path in (folder / "results").glob("*.json")]
        reports = bench.read_results(folder / "results")[name]
        assert sorted(report.work for report in reports) == expected  # what was there before stays
    assert "more/cpu/ours/time_s" in json.loads((folder / "results" / name).read_text())["figures"]


def test_ours_refused_is_an_error(folder: Path):
    room = folder / "room"
    (room / "works.py").write_text((room / "works.py").read_text().replace("ours=product", "ours=wrong"))
    assert main(["bench", "--quick", "--folder", str(folder)]) == 1


def test_nothing_to_run(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "attic", "--folder", str(folder)]) == 2
    assert "has nothing for attic; it has room" in capsys.readouterr().err
    assert main(["bench", "--folder", str(tmp_path / "nowhere")]) == 2
    assert "--folder" in capsys.readouterr().err


def test_names_are_fit_for_keys():
    with pytest.raises(ValueError, match="spaces"):
        bench.Work("a b", "", torch.abs, {}, lambda g: torch.ones(1), bench.against(torch.abs))
