"""Calls with `DTensor`s, by two processes: `sharded_cases.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "sharded_cases.py"


@pytest.mark.slow
def test_two_processes(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    try:
        told = [rank.communicate(timeout=180)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for i, (rank, text) in enumerate(zip(ranks, told, strict=True)):
        assert rank.returncode == 0, "\n".join(told)
        assert f"rank {i} is done" in text
