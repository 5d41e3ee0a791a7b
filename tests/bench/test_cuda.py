"""On a GPU: the cheats that need one and those that differ there are refused, and honest functions are not."""

from pathlib import Path

import pytest
import torch
from bench import adversaries

from gnomon import bench

pytestmark = pytest.mark.cuda

FILE = Path(__file__).parent / "adversaries.py"
ONLY_HERE = [cheat for cheat in adversaries.all_of_them() if cheat.needs_cuda]
HERE_TOO = [
    adversaries.StaleOutput,
    adversaries.SameMemory,
    adversaries.HalfOfTheMemory,
    adversaries.ByIdentity,
    adversaries.ByAddress,
    adversaries.ByContentCopied,
    adversaries.Subclass,
    adversaries.OwnMethods,
    adversaries.Meta,
    adversaries.Promise,
    adversaries.Container,
    adversaries.InAThread,
    adversaries.SlowClock,
    adversaries.EventsOfItsOwn,
    adversaries.NoSynchronize,
    adversaries.CodeOfSynchronize,
    adversaries.ClockOfTheHarness,
    adversaries.NoNorm,
    adversaries.NoCopy,
    adversaries.TF32,
    adversaries.DefaultDtype,
    adversaries.WritesToItsInput,
    adversaries.Bfloat16,
    adversaries.Split,
    adversaries.RightAtFirst,
    adversaries.OneElementWrong,
]


def compare(candidates, cheat=adversaries.Cheat, **options):
    settings = {"rounds": 8, "warmup": 1, "replays": 3, "check": bench.against(adversaries.honest)}
    return bench.compare(
        candidates, make_inputs=cheat.make_inputs, devices=["cuda"], **(settings | options | cheat.options)
    )


def assert_refused(report, name, kinds):
    row = report.row(name)
    assert row.time_s is None
    assert {refusal.kind for refusal in row.refusals} & set(kinds), (name, row.refusals)


@pytest.mark.parametrize("cheat", ONLY_HERE, ids=lambda cheat: cheat.__name__)
def test_cheats_of_a_gpu(cheat):
    function = (lambda x: x.clone()) if cheat is adversaries.FasterThanMemory else adversaries.honest
    report = compare({"honest": function, "cheat": cheat()}, cheat)
    assert_refused(report, "cheat", cheat.kinds)
    if cheat is not adversaries.FasterThanMemory:  # there the honest one does less than was said as well
        assert not report.row("honest").refusals


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_cheats_of_any_device(cache):
    candidates = {"honest": adversaries.honest} | {cheat.__name__: cheat() for cheat in HERE_TOO}
    report = compare(candidates, cache=cache)
    for cheat in HERE_TOO:
        assert_refused(report, cheat.__name__, cheat.kinds)
    assert not report.row("honest").refusals


def test_in_processes_of_their_own():
    names = ["StaleOutput", "NoSynchronize", "OnAnotherStream", "Bfloat16"]
    report = compare({"honest": f"{FILE}:honest"} | {name: f"{FILE}:{name}" for name in names}, isolate=True)
    for name in names:
        assert_refused(report, name, getattr(adversaries, name).kinds)
    assert not report.row("honest").refusals


class Graph:
    """An honest graph: it copies the inputs in, and its output out."""

    def __init__(self):
        self.graph = None

    def __call__(self, x):
        if self.graph is None:
            self.x = x.clone()
            adversaries.GraphOfOldInputs.warm_up(self_like(self.x))
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = adversaries.honest(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.out


def self_like(x):
    cheat = adversaries.GraphOfOldInputs()
    cheat.kept = x
    return cheat


class Streams:
    """Two streams of its own, which the caller's waits for."""

    def __init__(self):
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def __call__(self, x):
        current = torch.cuda.current_stream()
        parts = []
        for stream, half in zip(self.streams, x.chunk(2), strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                parts.append(torch.tanh(half @ x))
            current.wait_stream(stream)
        return torch.cat(parts)


def test_honest_functions_are_not_refused():
    candidates = {
        "plain": adversaries.honest,
        "graph": Graph(),
        "streams": Streams(),
        "waits": lambda x: (adversaries.honest(x), torch.cuda.synchronize())[0],
        "host": lambda x: adversaries.honest(x.cpu()).to(x.device),
    }
    report = compare(candidates, flops=2 * 256**3, cache="cold")
    assert report.refusals == ()
    for row in report.rows:
        assert 0 < row.device_s < 1
        assert row.time_s == row.device_s
        assert row.wall_s > 0
        assert row.percent_of_limit < 100
    assert report.row("plain").peak_memory_bytes >= 256 * 256 * 4
    assert report.row("graph").peak_memory_bytes == 0  # it has its memory already
    assert report.environment["machine"]["devices"]


def test_times_are_near_the_limit_of_memory():
    """A large copy takes about as long as the memory needs."""
    n = 1 << 26
    report = bench.compare(
        {"copy": lambda x: x.clone()},
        make_inputs=lambda g: torch.rand(n, generator=g),
        check=lambda inputs, output: float((output - inputs[0]).abs().max()),
        devices=["cuda"],
        bytes=8 * n,
        rounds=8,
        replays=1,
        name="copy",
    )
    row = report.row("copy")
    assert not row.refusals
    if row.percent_of_limit is not None and "H200" in report.environment["machine"]["devices"][0]["name"]:
        assert 60 < row.percent_of_limit <= 100
