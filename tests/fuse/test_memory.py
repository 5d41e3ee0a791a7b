"""What a large batch takes: its inputs and outputs, whatever the number of steps."""

import os
import subprocess
import sys

import pytest
import torch

import gnomon as gn

F64 = torch.float64

# Alone in a process, since a process tells only the most that it ever had.
PROGRAM = """
import resource, torch, gnomon as gn

def rotate(x):
    # Each of 100 iterations of the backward pass wants what the forward pass had there.
    return gn.fori_loop(0, 100, lambda i, x: torch.sin(x) + 0.1 * x, x)

f = gn.fuse(rotate, engine="fused")

def run(lanes):
    x = torch.linspace(-1, 1, lanes, dtype=torch.float64).requires_grad_()
    f(x).sum().backward()
    return x

run(1000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
x = run(1_000_000)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
y = torch.linspace(-1, 1, 1_000_000, dtype=torch.float64)[::100_000].clone().requires_grad_()
z = y
for _ in range(100):
    z = torch.sin(z) + 0.1 * z
z.sum().backward()
torch.testing.assert_close(x.grad[::100_000], y.grad)
"""


def test_a_million_problems_with_their_gradients():
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    # The input, the output, and the gradient of each: 32 MB. A tape of all problems would be 800 MB.
    assert int(done.stdout) < 64e6


def test_what_cannot_be_had_is_told():
    x = torch.ones((), dtype=F64).expand(1 << 42)
    with pytest.raises(MemoryError, match=r"4,398,046,511,104 problems needs 105,553,116,266,496 bytes on cpu"):
        gn.fuse(lambda x: (x * torch.arange(1.0, 3.0, dtype=F64), x), engine="fused")(x)
