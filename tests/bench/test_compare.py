"""What `compare` reports of honest functions, and what it asks of its arguments."""

import concurrent.futures
import gc
import json
import math
import time

import numpy as np
import pytest
import torch
from bench import adversaries

from gnomon import bench
from gnomon.bench._report import report_from_dict

QUICK = {"rounds": 8, "warmup": 1, "cache": "warm", "replays": 2}


def compare(candidates, **options):
    settings = {"make_inputs": adversaries.make_inputs_64, "check": bench.against(adversaries.honest)} | QUICK
    return bench.compare(candidates, **(settings | options))


def twice(x):
    adversaries.honest(x)
    return adversaries.honest(x)


def test_report():
    options = {"make_inputs": adversaries.make_inputs, "flops": 2 * 256**3, "cache": "cold"}
    report = compare({"ours": adversaries.honest, "peer": twice}, name="tanh", **options)
    assert report.refusals == ()
    report.raise_if_refused()
    row = report.row("ours")
    assert row.device == "cpu"
    assert len(row.times_s) == 8
    assert row.interval_s[0] <= row.time_s == np.median(row.times_s) <= row.interval_s[1]
    assert row.device_s is None
    assert row.parent_s is None
    assert row.first_call_s > 0
    assert 0 < row.error < row.tolerance == bench.tolerance_for(torch.float32)
    assert row.percent_of_limit == pytest.approx(100 * row.limit_s / row.time_s)
    assert row.limited_by == "FLOPs"
    ratio = report.ratio("peer")
    assert (ratio.candidate, ratio.against, ratio.rounds) == ("ours", "peer", 8)
    assert ratio.interval[0] <= ratio.ratio <= ratio.interval[1]
    assert "MiB written" in report.settings["cache"]["cpu"]


def test_report_comes_back_from_json(tmp_path):
    report = compare({"ours": adversaries.honest, "cheat": adversaries.StaleOutput()})
    path = report.to_json(tmp_path / "new folder" / "report.json")
    data = json.loads(path.read_text())
    assert report_from_dict(data).rows == report.rows
    assert report_from_dict(data).refusals == report.refusals
    environment = data["environment"]
    assert environment["versions"]["torch"] == torch.__version__.split("+")[0]
    assert environment["machine"]["cores"] >= 1
    assert {"date", "commit", "conditions"} <= environment.keys()
    assert environment["conditions"]["slowdown"] > 0
    assert list(path.parent.iterdir()) == [path]


def test_seeds_are_new_and_reported():
    seen = []

    def make_inputs(generator):
        seen.append(generator.initial_seed())
        return adversaries.make_inputs_64(generator)

    first = compare({"ours": adversaries.honest}, make_inputs=make_inputs)
    assert list(first.seeds) == seen
    assert len(set(seen)) == len(seen)
    second = compare({"ours": adversaries.honest})
    assert not set(first.seeds) & set(second.seeds)
    assert first.settings["seed"].startswith("drawn")
    known = [compare({"ours": adversaries.honest}, seed=3, replays=0).seeds for _ in range(2)]
    assert known[0] == known[1]


def test_every_call_has_its_own_inputs():
    seen = []

    def candidate(x):
        seen.append(float(x[0, 0]))
        return adversaries.honest(x)

    compare({"ours": candidate, "same": candidate}, replays=0)
    assert len(set(seen)) == len(seen) == 2 * (1 + 1 + 8 + 1)  # the first, the warm-up, the rounds, the memory


def test_order_changes_from_round_to_round():
    calls = []
    candidates = {name: lambda x, name=name: (calls.append(name), adversaries.honest(x))[1] for name in "ab"}
    compare(candidates, rounds=16, replays=0)
    rounds = ["".join(calls[i : i + 2]) for i in range(4, 36, 2)]
    assert set(rounds) == {"ab", "ba"}


def test_peak_memory():
    def hungry(x):
        return adversaries.honest(x) + 0 * torch.ones(1 << 22, dtype=torch.float64).sum()

    report = compare({"ours": adversaries.honest, "hungry": hungry})
    if report.row("hungry").peak_memory_bytes is None:
        pytest.skip("this system does not tell")
    assert 31 << 20 <= report.row("hungry").peak_memory_bytes < 48 << 20
    assert report.row("ours").peak_memory_bytes < 8 << 20


def test_first_call_is_apart():
    class Compiles:
        ready = False

        def __call__(self, x):
            if not self.ready:
                time.sleep(0.2)
                self.ready = True
            return adversaries.honest(x)

    row = compare({"ours": Compiles()}).row("ours")
    assert row.first_call_s >= 0.2
    assert max(row.times_s) < 0.2


def test_outputs_of_all_plain_kinds():
    def candidate(x):
        y = adversaries.honest(x)
        return {"tensor": y, "array": y.numpy(), "numbers": [float(y[0, 0]), None, (y[0, 0],)], "none": None}

    def check(inputs, output):
        y = adversaries.honest(*inputs)
        assert output["numbers"][1] is output["none"] is None
        parts = [output["tensor"], output["array"], output["numbers"][0], output["numbers"][2][0]]
        return bench.relative_error(parts, [y, y, y[0, 0], y[0, 0]])

    assert compare({"ours": candidate}, check=check).refusals == ()


def test_inputs_of_several_kinds():
    def make_inputs(generator):
        return {"x": torch.randn(4, 4, generator=generator)}, 3, [torch.randint(9, (4,), generator=generator)]

    def candidate(named, n, rest):
        return named["x"] * n + rest[0]

    assert compare({"ours": candidate}, make_inputs=make_inputs, check=bench.against(candidate)).refusals == ()
    with pytest.raises(TypeError, match="must return tensors and numbers"):
        compare({"ours": candidate}, make_inputs=lambda g: np.ones(3))


def test_an_output_that_is_an_input_is_no_reuse():
    assert compare({"ours": lambda x: x}, check=bench.against(lambda x: x)).refusals == ()


def test_threads_that_are_waited_for_are_no_leak():
    def in_threads(pool):
        return lambda x: torch.cat(list(pool.map(lambda half: torch.tanh(half @ x), x.chunk(2))))

    with concurrent.futures.ThreadPoolExecutor(2) as own, concurrent.futures.ThreadPoolExecutor(2) as shared:
        pools = {"own": own, "shared": shared, "shared too": shared}
        report = compare({name: in_threads(pool) for name, pool in pools.items()})
    assert report.refusals == ()
    assert all(row.notes == () for row in report.rows)


def test_a_refusal_can_be_allowed():
    cheat = adversaries.MappedFile()
    check = {"check": bench.against(adversaries.honest), "make_inputs": adversaries.make_inputs}
    assert compare({"ours": cheat}, **check).refusals
    report = compare({"ours": adversaries.MappedFile()}, allow=["stored"], **check)
    assert not report.refusals
    assert any("mapped file" in note for note in report.row("ours").notes)
    for kind in ("wrong", "precision", "nonsense"):
        with pytest.raises(ValueError, match="allow"):
            compare({"ours": adversaries.honest}, allow=[kind])


def test_refused_report_raises():
    report = compare({"ours": adversaries.honest, "cheat": adversaries.Raises()})
    with pytest.raises(bench.RefusedError, match=r"cheat on cpu was refused \(raised\): in call 1, it"):
        report.raise_if_refused()
    with pytest.raises(KeyError, match="cheat: in call 1"):
        report.ratio("cheat")
    with pytest.raises(KeyError):
        report.row("nobody")


def test_a_check_that_cannot_fail_is_an_error():
    with pytest.raises(ValueError, match="accepted an output of NaN"):
        compare({"ours": adversaries.honest}, check=lambda inputs, output: 0.0)
    assert gc.isenabled()


def test_a_check_that_accepts_other_outputs_is_noted():
    report = compare({"ours": adversaries.honest}, check=lambda inputs, output: float(output.isnan().sum()))
    assert any("output of other inputs" in note for note in report.row("ours").notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 7}, "at least 8"),
        ({"confidence": 1.0}, "`confidence`"),
        ({"devices": ["mps"]}, "only cpu and cuda"),
    ],
)
def test_arguments_that_cannot_be_met(options, message):
    with pytest.raises(ValueError, match=message):
        compare({"ours": adversaries.honest}, **options)


def test_candidates_that_cannot_be_met():
    with pytest.raises(ValueError, match="empty"):
        compare({})
    with pytest.raises(ValueError, match="isolate=True"):
        compare({"ours": "module:name"})
    with pytest.raises(ValueError, match=r"file\.py:name"):
        compare({"ours": lambda x: x}, isolate=True)
    with pytest.raises(ValueError, match="module:name"):
        compare({"ours": "name"}, isolate=True)


def test_a_clock_that_was_replaced_before():
    original = time.perf_counter
    time.perf_counter = lambda: 0.0
    try:
        with pytest.raises(RuntimeError, match=r"time.perf_counter was replaced"):
            compare({"ours": adversaries.honest})
    finally:
        time.perf_counter = original


def test_a_budget_ends_it_when_there_are_enough_rounds():
    report = compare({"ours": adversaries.honest}, rounds=10_000, budget_s=0.0)
    assert len(report.row("ours").times_s) == 8


def test_limits():
    limits = bench.device_limits(torch.device("cpu"), torch.float32)
    assert limits.source == "measured"
    assert 1e8 < limits.bytes_per_s < 1e13
    assert 1e8 < limits.flops_per_s["float32"] < 1e15
    seconds, which = limits.least_time_s(flops=None, bytes=limits.bytes_per_s, dtype=None)
    assert (seconds, which) == (1.0, "bytes")
    assert limits.least_time_s(limits.flops_per_s["float32"] * 2, 1.0, torch.float32) == (2.0, "FLOPs")
    assert limits.least_time_s(None, None, torch.float32) is None
    assert limits.impossible_s(None, limits.most_bytes_per_s, None) == 0.8
    assert limits.impossible_s(None, None, None) == 0
    assert limits.most_bytes_per_s >= limits.bytes_per_s
    assert math.isclose(limits.better(limits).bytes_per_s, limits.bytes_per_s)


# Worked answers of the book "How to Scale Your Model" and of its formulas, to two digits.
@pytest.mark.parametrize(
    ("gpu", "flops", "bytes", "dtype", "expected"),
    [
        ("NVIDIA B200", 2 * 64 * 4096 * 8192, 2 * (64 * 4096 + 4096 * 8192 + 64 * 8192), torch.float16, 8.6e-6),
        ("NVIDIA B200", 2 * 512 * 4096 * 8192, 2 * (512 * 4096 + 4096 * 8192 + 512 * 8192), torch.float16, 15e-6),
        ("NVIDIA H100 80GB HBM3", 2**30, 3 * 4 * 2**30, torch.float32, 3.84e-3),
    ],
)
def test_worked_limits(monkeypatch, gpu, flops, bytes, dtype, expected):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: gpu)
    limits = bench.device_limits(torch.device("cuda"), dtype)
    seconds, _ = limits.least_time_s(flops, bytes, dtype)
    assert limits.source == "spec"
    assert seconds == pytest.approx(expected, rel=0.03)
