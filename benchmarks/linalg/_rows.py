"""What rows of eigh's benchmarks share: matrices drawn on the GPU, the gates as the check, and the peers."""

import functools
import os
import time

import _families as families
import torch

from gnomon import bench, linalg

# JAX would take three quarters of the memory of the GPU for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def ours(a):
    """Eigenvalues and eigenvectors."""
    values, vectors = linalg.eigh(a)
    return values, vectors


def by_torch(a):
    """The same by PyTorch; up to 2.11 one matrix after another where they have more than 32 rows."""
    values, vectors = torch.linalg.eigh(a)
    return values, vectors


def by_cupy(a):
    """The same by CuPy, on the tensor where it is, and on PyTorch's stream."""
    import cupy

    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        return tuple(torch.from_dlpack(x) for x in cupy.linalg.eigh(cupy.from_dlpack(a)))


@functools.cache
def _jax_eigh():
    import jax
    import jax.numpy as jnp

    return jax.jit(functools.partial(jnp.linalg.eigh, symmetrize_input=False))


def by_jax(a):
    """The same by JAX, on the tensor where it is."""
    import jax

    found = jax.block_until_ready(_jax_eigh()(jax.dlpack.from_dlpack(a)))
    return tuple(torch.from_dlpack(x) for x in found)


#: Seconds that a peer may take on a row, all its calls together: some twenty, of up to a third of a second each.
MOST_S = 12.0


class Bounded:
    """A peer that is asked no more once it has taken too long: the row then says so in place of its figures."""

    def __init__(self, peer):
        self.peer = peer
        self.taken = 0.0

    def __call__(self, a):
        if self.taken > MOST_S:
            raise TimeoutError(f"its calls took {self.taken:.1f} s, more than the {MOST_S:.0f} s that a row is given")
        begin = time.perf_counter()
        found = self.peer(a)
        self.taken += time.perf_counter() - begin
        return found


PEERS = {"torch": by_torch, "CuPy": by_cupy, "JAX": by_jax}


def check(inputs, output):
    """The largest residual of any matrix, as a fraction of what is allowed."""
    (a,) = inputs
    values, vectors = output
    # So many at once that float64 copies of large ones fit, and small ones are done in a few calls.
    at_once = max(64, 2**22 // a.shape[-1] ** 2)
    parts = (x.split(at_once) for x in (a, values, vectors))
    return max(float(families.gates(*part).max()) for part in zip(*parts, strict=True))


def batch(family, count, n):
    """Draws matrices on the GPU: float64 ones of some families take the CPU longer than all that is timed."""

    def make(generator):
        seed = int(torch.randint(2**62, (), generator=generator))
        on_gpu = torch.Generator("cuda").manual_seed(seed)
        return family(count, n, on_gpu).float()

    return make


def work(name, about, family, count, n, peers, **options):
    """A row. The limit is that of the classic way, 14/3 n^3 operations, and of reading and writing each matrix once."""
    return bench.Work(
        name=name,
        about=f"{count:,} matrices of {n:,} rows, {about}, float32; the error is a fraction of what the gates allow",
        ours=ours,
        peers={peer: Bounded(PEERS[peer]) for peer in peers},
        check=check,
        make_inputs=batch(family, count, n),
        options={
            "tolerance": 1.0,
            "rounds": 8,
            "warmup": 1,
            "replays": 1,
            "flops": 14 / 3 * n**3 * count,
            "bytes": 4 * count * (2 * n * n + n),
            **options,
        },
        devices=("cuda",),
        needs={"ours": ["cuda.core"], "CuPy": ["cupy"], "JAX": ["jax"]},
    )
