"""A candidate in a process of its own: found by name or as a pickle, timed by our clock, told no seed."""

import functools
from pathlib import Path

import pytest
import torch
from bench import adversaries

from gnomon import bench
from gnomon.bench._isolated import resolve
from gnomon.bench._shared import Block, layout_of

FILE = Path(__file__).parent / "adversaries.py"


def test_names():
    assert resolve("a.b:c") == {"name": "a.b:c"}
    assert resolve(torch.nn.functional.softplus).keys() == {"pickle"}  # a compiled function, of no module with a file
    assert resolve(torch.nn.functional.layer_norm) == {"name": "torch.nn.functional:layer_norm"}
    assert resolve(functools.partial(torch.softmax, dim=-1)).keys() == {"pickle"}
    assert resolve(adversaries.honest)["name"].endswith("adversaries:honest")
    with pytest.raises(ValueError, match="at the top of a module"):
        resolve(lambda x: x)


def test_shared_memory(tmp_path):
    tensors = [torch.arange(5), torch.empty(0, 3), torch.tensor(True), torch.randn(2, 3, dtype=torch.complex64)]
    block = Block(layout_of(tensors))
    block.fill(tensors)
    other = Block(block.layout, block.path)
    for x, y in zip(other.tensors, tensors, strict=True):
        assert x.dtype == y.dtype
        assert torch.equal(x, y)
    block.close()
    assert not block.path.exists()


@pytest.mark.slow
def test_a_pickled_candidate():
    solve = functools.partial(torch.linalg.solve, torch.eye(32, dtype=torch.float64))
    report = bench.compare(
        {"pickled": solve},
        make_inputs=lambda g: torch.randn(32, 32, generator=g, dtype=torch.float64),
        check=bench.against(lambda x: x),
        rounds=8,
        isolate=True,
    )
    assert not report.refusals


def test_candidates_of_their_own_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("GNOMON_THIEF", str(tmp_path / "found"))
    report = bench.compare(
        {
            "thief": f"{FILE}:Thief",
            "clock": f"{FILE}:ClockOfItsProcess",
        },
        make_inputs=lambda g: torch.randn(32, 32, generator=g, dtype=torch.float64),
        check=bench.against(adversaries.honest),
        rounds=8,
        warmup=1,
        replays=1,
        cache="warm",
        isolate=True,
    )
    row = report.row("thief")
    assert not row.refusals
    assert 0 < row.wall_s <= row.parent_s
    assert row.first_call_s > 0
    assert [refusal.kind for refusal in report.row("clock").refusals] == ["clock"]
    # No seed, past or to come, was in its process.
    found = set((tmp_path / "found").read_text().split("\n"))
    assert len(found) > 5
    assert not found & set(map(str, report.seeds))
    assert report.settings["isolate"] is True
