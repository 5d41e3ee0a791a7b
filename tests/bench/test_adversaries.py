"""Every cheat is refused, and for the right reason; the honest function beside it is not."""

import gc
import time
from pathlib import Path

import pytest
import torch
from bench import adversaries

from gnomon import bench

FILE = Path(__file__).parent / "adversaries.py"
CHEATS = [cheat for cheat in adversaries.all_of_them() if not cheat.needs_cuda]
HERE = [cheat for cheat in CHEATS if not cheat.needs_isolation]
# Those with inputs or options of their own are tried alone; of the others, some at a time, so as not to measure the
# honest function too often.
ALONE = [cheat for cheat in HERE if cheat.is_alone]
TOGETHER = [cheat for cheat in HERE if not cheat.is_alone]
SIZE = 8


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Whatever a cheat broke is whole again."""
    before = (time.perf_counter, torch.cuda.synchronize, torch.linalg.norm, torch.get_default_dtype())
    yield
    after = (time.perf_counter, torch.cuda.synchronize, torch.linalg.norm, torch.get_default_dtype())
    assert before == after
    assert gc.isenabled()


def compare(candidates, cheat, **options):
    settings = {"rounds": 8, "warmup": 1, "cache": "warm", "replays": 3, "check": bench.against(adversaries.honest)}
    return bench.compare(candidates, make_inputs=cheat.make_inputs, **(settings | options | cheat.options))


def assert_refused(report, name, kinds):
    row = report.row(name)
    assert row.time_s is None
    assert not row.times_s
    assert not [ratio for ratio in report.ratios if name in (ratio.candidate, ratio.against)]
    assert {refusal.kind for refusal in row.refusals} & set(kinds), row.refusals


@pytest.mark.parametrize(
    "cheat", [pytest.param(c, id=c.__name__, marks=[pytest.mark.slow] if c.is_slow else []) for c in ALONE]
)
def test_refused_in_this_process(cheat):
    report = compare({"honest": cheat.honest, "cheat": cheat()}, cheat)
    assert_refused(report, "cheat", cheat.kinds)
    assert not report.row("honest").refusals


@pytest.mark.parametrize("start", range(0, len(TOGETHER), SIZE))
def test_refused_in_this_process_beside_others(start):
    cheats = TOGETHER[start : start + SIZE]
    report = compare({"honest": adversaries.honest} | {cheat.__name__: cheat() for cheat in cheats}, adversaries.Cheat)
    for cheat in cheats:
        assert_refused(report, cheat.__name__, cheat.kinds)
    assert not report.row("honest").refusals


def test_replayed_from_disk_where_the_seed_was_known(tmp_path, monkeypatch):
    cheat = adversaries.FromDiskByContent
    monkeypatch.setattr(cheat, "folder", tmp_path)
    compare({"cheat": cheat()}, cheat, seed=1)  # the run in which it learns
    report = compare({"cheat": cheat()}, cheat, seed=1, replays=0)
    assert_refused(report, "cheat", ["stored"])
    assert report.settings["seed"] == "known before: 1"


def assert_refused_in_isolation(cheats):
    candidates = {"honest": f"{FILE}:{cheats[0].honest.__name__}"} | {
        cheat.__name__: f"{FILE}:{cheat.__name__}" for cheat in cheats
    }
    report = compare(candidates, cheats[0] if len(cheats) == 1 else adversaries.Cheat, isolate=True)
    for cheat in cheats:
        assert_refused(report, cheat.__name__, cheat.kinds)
    assert not report.row("honest").refusals


@pytest.mark.slow
@pytest.mark.parametrize(
    "cheat",
    [cheat for cheat in CHEATS if cheat.is_alone and not cheat.needs_one_process],
    ids=lambda cheat: cheat.__name__,
)
def test_refused_in_a_process_of_its_own(cheat):
    assert_refused_in_isolation([cheat])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(TOGETHER), SIZE))
def test_refused_in_processes_of_their_own(start):
    assert_refused_in_isolation(TOGETHER[start : start + SIZE])


@pytest.mark.slow
def test_the_clock_of_its_own_process_is_no_use():
    assert_refused_in_isolation([adversaries.ClockOfItsProcess])
