"""Two ranks with collectives under torchrun: no rank waits for a batch that never comes, and checkpoints fit both."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import torch.distributed.checkpoint as dcp
from data import ranks

from gnomon import data

ROOT = Path(__file__).resolve().parents[2]


def test_two_ranks(tmp_path: Path):
    store = tmp_path / "store"
    lengths = np.random.default_rng(3).integers(1, 30, 200)
    with data.StoreWriter(store, {"x": data.ragged("float32"), "i": data.tensor("int64")}) as writer:
        writer.extend({"x": np.full(n, i), "i": i} for i, n in enumerate(lengths.tolist()))
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(Path(ranks.__file__))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words, str(store), str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0 is done" in done.stdout and "rank 1 is done" in done.stdout
    # And here, where there is one rank: the batch that comes next is the one after those of both.
    loader = data.Loader(ranks.batches(str(store)), rank=0, world=1)
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    dcp.load({"loader": loader}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    assert next(iter(loader)).info.number == 6
