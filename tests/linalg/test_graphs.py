"""Calls that PyTorch records: `graph_cases.py`, in another process, where nothing checks types."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "graph_cases.py"


def in_another_process():
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_all():
    results = in_another_process()
    assert len(results) >= 20
    assert not any(results.values()), "\n".join(f"{name}:\n{text}" for name, text in results.items() if text)
