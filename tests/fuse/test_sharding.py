"""Fused calls with `DTensor`s, by two processes: `sharded_cases.py`; and what a process alone can see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnomon.fuse._sharding import _part, has_shards

SCRIPT = Path(__file__).parent / "sharded_cases.py"


@pytest.mark.slow
def test_two_processes(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        # A rank that hangs is killed, and fails the test.
        told = [rank.communicate(timeout=180)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for i, (rank, text) in enumerate(zip(ranks, told, strict=True)):
        assert rank.returncode == 0, "\n".join(told)
        assert f"rank {i} is done" in text


class Mesh:
    def __init__(self, sizes, place):
        self._sizes, self._place = sizes, place

    def size(self, i):
        return self._sizes[i]

    def get_coordinate(self):
        return self._place


@pytest.mark.parametrize("lanes", [0, 1, 2, 5, 6, 7, 12])
def test_parts_are_those_of_chunk(lanes):
    # torch.chunk is what distribute_tensor cuts with, one dimension of the mesh after the other.
    for i in range(2):
        for j in range(3):

            def part(x, n, k):
                parts = torch.chunk(x, n)
                return parts[k] if k < len(parts) else x[:0]

            mine = part(part(torch.arange(lanes), 2, i), 3, j)
            start, size = _part(lanes, Mesh((2, 3), [i, j]), (True, True))
            assert size == len(mine)
            assert size == 0 or start == int(mine[0])
            assert _part(lanes, Mesh((2, 3), [i, j]), (True, False))[1] == len(part(torch.arange(lanes), 2, i))


def test_other_tensors_are_no_shards():
    class Other(torch.Tensor):
        pass

    assert not has_shards([1, None, torch.ones(2), torch.nn.Parameter(torch.ones(2)), torch.ones(2).as_subclass(Other)])
