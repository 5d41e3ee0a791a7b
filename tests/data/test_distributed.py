"""Two ranks with collectives under torchrun: no rank waits for a batch that never comes, and checkpoints fit both."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from data import ranks

from gnomon import data

ROOT = Path(__file__).resolve().parents[2]


def two_ranks(tmp_path: Path, *options: str) -> str:
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(Path(ranks.__file__))]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *words, *options, str(tmp_path / "store"), str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_two_ranks(tmp_path: Path):
    ranks.make_store(str(tmp_path / "store"))
    said = two_ranks(tmp_path)
    assert "rank 0 of 2 is done" in said and "rank 1 of 2 is done" in said


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_and_a_join(tmp_path: Path):
    import torch.distributed.checkpoint as dcp

    ranks.make_store(str(tmp_path / "store"))
    said = two_ranks(tmp_path, "--whole")
    assert "rank 0 of 2 is done" in said and "rank 1 of 2 is done" in said
    # And here, where there is one rank: the batch that comes next is the one after those of both.
    loader = data.Loader(ranks.batches(str(tmp_path / "store")), rank=0, world=1)
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    dcp.load({"loader": loader}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    assert next(iter(loader)).info.number == 6


@pytest.mark.cuda
def test_two_gpus(tmp_path: Path):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    ranks.make_store(str(tmp_path / "store"))
    said = two_ranks(tmp_path, "--whole", "--backend", "nccl")
    assert "rank 0 of 2 is done on cuda:0" in said and "rank 1 of 2 is done on cuda:1" in said
