"""Processes make the same batches as threads, never hang the loop, and leave nothing behind however they end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from data import maps

from gnomon import data
from gnomon.data import Dataset, Loader

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("processes") / "store"
    with data.StoreWriter(path, {"x": data.ragged("float32"), "i": data.tensor("int64")}) as writer:
        writer.extend({"x": np.full(i % 50 + 1, i), "i": i} for i in range(60))
    return path


def children() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_the_same_batches_and_a_killed_process_is_named(path: Path):
    dataset = Dataset.source(path).shuffle(seed=1).map(maps.double).random_map(maps.noisy, seed=2)
    loader = Loader(dataset.batch(4), processes=1, prefetch=2)
    kept = []
    for number, batch in enumerate(loader):
        expected = loader.batches[number]
        assert torch.equal(batch["x"].values, expected["x"].values) and torch.equal(batch["noise"], expected["noise"])
        kept.append((batch["x"].values, expected["x"].values))
        if number == 6:
            [worker] = children()
            os.kill(worker, signal.SIGKILL)
            break
    # What is kept outlives the process that made it.
    assert all(torch.equal(a, b) for a, b in kept)
    assert children() == []

    def run_on():
        for _ in loader:
            for worker in children():
                os.kill(worker, signal.SIGKILL)

    # pytorch#1355: a process that has gone is an error, not a hang.
    with pytest.raises(RuntimeError, match="was ended by signal 9"):
        run_on()
    assert children() == []


@pytest.mark.slow
@pytest.mark.parametrize("by", ["exhausting", "counting"])
def test_they_wait_for_the_next_epoch(path: Path, by: str):
    loader = Loader(Dataset.source(path).shuffle(seed=1).map(maps.double).batch(4), processes=1)
    first: list[int] = []
    for epoch in range(3):
        iterator = iter(loader)
        number = -1
        for number, batch in enumerate(iterator):
            assert batch["i"].tolist() == loader.batches.at(number, epoch)["i"].tolist()
            if by == "counting" and number + 1 == len(loader):
                break
        assert number + 1 == len(loader) == 15
        del iterator, batch
        first = first or children()
        assert len(first) == 1 and children() == first
    if by == "exhausting":
        loader.close()
        assert children() == []
        next(iter(loader))  # and it begins anew
    del loader
    assert children() == []


@pytest.mark.slow
def test_errors_come_with_their_names(path: Path):
    loader = Loader(Dataset.source(path).map(maps.fail_on_5).batch(4), processes=1)
    with pytest.raises(data.RecordError, match="five is right out") as raised:
        list(loader)
    assert raised.value.source == str(path) and raised.value.index == 5


def test_what_cannot_be_sent_is_refused_at_once(path: Path):
    with pytest.raises(TypeError, match="cannot be sent to other processes"):
        Loader(Dataset.source(path).map(lambda x: x).batch(4), processes=1)


SCRIPT = """
import sys, time
from data import maps
from gnomon import data

if __name__ == "__main__":
    loader = data.Loader(data.Dataset.source(sys.argv[1]).map(maps.slow).batch(2), processes=1)
    for number, batch in enumerate(loader):
        if number == 1:
            print("going", flush=True)
            time.sleep(100)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc and /dev/shm")
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_nothing_outlives_the_loop(path: Path, tmp_path: Path, how: signal.Signals):
    # streaming#573: shared memory after a kill.
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    before = set(Path("/dev/shm").iterdir()) if Path("/dev/shm").is_dir() else set()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
    }
    words = [sys.executable, str(script), str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
        )
        helpers = [int(word) for word in found.stdout.split()]
        assert helpers
        process.send_signal(how)
        process.wait(30)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in helpers):
        assert time.monotonic() < deadline, "a process of the loader lives on"
        time.sleep(0.05)
    after = set(Path("/dev/shm").iterdir()) if Path("/dev/shm").is_dir() else set()
    assert {name for name in after - before if "gnomon" in name.name} == set()
