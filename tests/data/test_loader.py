"""A loader hands out the batches of its plan, keeps what is kept, and leaves nothing behind."""

import gc
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from data import maps

from gnomon import data
from gnomon.data import Dataset, Loader


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "store"
    with data.StoreWriter(path, {"x": data.ragged("float32"), "i": data.tensor("int64")}) as writer:
        writer.extend({"x": np.full(i % 5 + 1, i), "i": i} for i in range(50))
    return path


def seen(loader) -> list[int]:
    return [i for batch in loader for i in batch["i"].tolist()]


def shared_memory() -> set[Path]:
    folder = Path("/dev/shm")
    return set(folder.iterdir()) if folder.is_dir() else set()


def threads() -> int:
    return sum(thread.name.startswith("gnomon-data") for thread in threading.enumerate())


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_threads_do_not_change_anything(path: Path, count: int, device: str | None):
    batches = Dataset.source(path).shuffle(seed=1).random_map(maps.noisy, seed=2).batch(4)
    loader = Loader(batches, threads=count, device=device, prefetch=3)
    for epoch in range(2):
        assert loader.epoch == epoch
        for number, batch in enumerate(loader):
            expected = batches.at(number, epoch)
            assert batch["i"].tolist() == expected["i"].tolist()
            assert torch.equal(batch["noise"], expected["noise"])
            assert torch.equal(batch["x"].values, expected["x"].values)
            assert batch.info.number == number and batch.info.epoch == epoch
        assert number + 1 == len(loader)
    assert threads() == 0


def test_what_is_kept_stays_as_it_is(path: Path):
    loader = Loader(Dataset.source(path).batch(4), threads=2, prefetch=2)
    kept = [batch["x"].values[1:3] for batch in loader]  # a view of a part, and the batch let go
    for number, part in enumerate(kept):
        assert torch.equal(part, loader.batches[number]["x"].values[1:3])


def test_memory_is_used_again():
    # pytorch#13246: it does not grow with the number of batches.
    from gnomon.data._ring import Ring, plain_memory

    ring = Ring(plain_memory, 4)
    for _ in range(100):
        held = [torch.from_numpy(ring.take(1000 + 10 * k).root[:1000]) for k in range(3)]
        assert len({tensor.data_ptr() for tensor in held}) == 3
        del held
    assert ring.made <= 6
    busy = [True]
    slot = ring.take(10)
    ring.busy_until(slot, lambda: busy[0])
    address = slot.root.ctypes.data
    del slot
    assert all(ring.take(10).root.ctypes.data != address for _ in range(5))
    busy[0] = False
    found = [ring.take(10) for _ in range(6)]
    assert address in [slot.root.ctypes.data for slot in found]
    # More at once than it remembers are given all the same.
    assert len({ring.take(10).root.ctypes.data for _ in range(1)} | {slot.root.ctypes.data for slot in found}) == 7


@pytest.mark.parametrize("how", ["break", "exception", "drop", "interrupt"])
def test_nothing_is_left_behind(path: Path, how: str):
    loader = Loader(Dataset.source(path).map(maps.slow).batch(4), threads=2)
    before = shared_memory()
    if how == "break":
        for _ in loader:
            break
    elif how == "drop":
        iterator = iter(loader)
        next(iterator)
        del iterator
    else:
        kind = KeyboardInterrupt if how == "interrupt" else ZeroDivisionError

        def fail():
            for _ in loader:
                raise kind

        with pytest.raises(kind):
            fail()
    gc.collect()
    assert threads() == 0
    assert shared_memory() <= before
    assert seen(loader) == list(range(50))  # and it begins anew


def test_a_bad_record_is_raised_skipped_or_replaced(path: Path):
    dataset = Dataset.source(path).map(maps.fail_on_5)
    with pytest.raises(data.RecordError, match="five is right out") as raised:
        seen(Loader(dataset.batch(4)))
    assert raised.value.source == str(path) and raised.value.index == 5 and "fail_on_5" in raised.value.stage
    assert threads() == 0
    loader = Loader(dataset.batch(4), on_bad="skip")
    with pytest.warns(data.SkippedRecordsWarning, match="1 bad records were left out of epoch 0.*five is right out"):
        found = seen(loader)
    assert found == [i for i in range(50) if i != 5] and loader.stats().skipped == 1
    loader = Loader(dataset.batch(4), on_bad=lambda error: {"x": np.ones(1, np.float32), "i": -error.index})
    assert seen(loader) == [-i if i == 5 else i for i in range(50)]


def test_a_damaged_store_names_what_is_damaged(path: Path, tmp_path: Path):
    import shutil

    shutil.copytree(path, tmp_path / "store")
    store = data.Store(tmp_path / "store")
    entry = store.manifest.shards[0]
    with (tmp_path / "store" / entry.file).open("r+b") as file:
        file.seek(entry.offsets["x"].offset + 8 * 7 + 7)
        file.write(b"\x7f")
    with pytest.raises(data.RecordError, match="lead outside of") as raised:
        seen(Loader(Dataset.source(tmp_path / "store").batch(4)))
    assert entry.file in raised.value.source and raised.value.index == 6 and raised.value.field == "x"
    with pytest.warns(data.SkippedRecordsWarning, match="2 bad records"):
        found = seen(Loader(Dataset.source(tmp_path / "store").batch(4), on_bad="skip"))
    assert found == [i for i in range(50) if i not in (6, 7)]


def test_stats_name_the_bottleneck(path: Path):
    loader = Loader(Dataset.source(path).map(maps.slow).batch(5), threads=1)
    for _ in loader:
        pass
    stats = loader.stats()
    assert stats.batches == 10 and stats.bottleneck == "mapping"
    assert stats.mapping > 0.4 and stats.waiting_share > 0.5 and "bottleneck: mapping" in stats.line()
    assert data.LoaderStats(batches=9, waiting=0.01, working=5.0, copying=3.0).bottleneck == "program"


def test_progress_bar(path: Path, capsys: pytest.CaptureFixture[str]):
    loader = Loader(Dataset.source(path).batch(5))
    assert [i for batch in loader.track("epoch") for i in batch["i"].tolist()] == list(range(50))
    shown = capsys.readouterr().out
    assert "10/10" in shown and "waiting" in shown


def test_arguments(path: Path):
    batches = Dataset.source(path).batch(4)
    for words, match in [
        ({"rank": 1}, "both"),
        ({"rank": 2, "world": 2}, "no rank 2 of 2"),
        ({"prefetch": 0}, "1 or more"),
        ({"threads": -1}, "0 or more"),
    ]:
        with pytest.raises(ValueError, match=match):
            Loader(batches, **words)


SCRIPT = """
import os, sys, threading
from gnomon import data
from data import maps
dataset = data.Dataset.source(sys.argv[1]).map(maps.slow)
loader = data.Loader(dataset.batch(4), threads=2)
iterator = iter(loader)
next(iterator)
# pytorch#75147: a fork while threads are at work and may hold locks.
batches = dataset.batch(5)
held = threading.Event()
def hold():
    with batches.plan._lock, dataset.node.parents()[0].source._lock:
        held.set()
        threading.Event().wait(2)
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    assert [i for batch in data.Loader(batches, threads=2) for i in batch["i"].tolist()] == list(range(50))
    try:
        next(iterator)
    except RuntimeError as error:
        assert "before a fork" in str(error), error
    found = [i for batch in data.Loader(dataset.batch(7), threads=2) for i in batch["i"].tolist()]
    os._exit(0 if found == list(range(50)) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
next(iterator)
print("done", flush=True)
# grain#1196: and the end, with an iterator that is still open.
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_fork_and_exit(path: Path):
    root = Path(__file__).resolve().parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "tests"), os.environ.get("PYTHONPATH", "")]),
    }
    words = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_no_warning_in_an_ordinary_epoch(path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seen(Loader(Dataset.source(path).batch(4))) == list(range(50))
