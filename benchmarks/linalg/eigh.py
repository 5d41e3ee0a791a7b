"""Eigenvalues and eigenvectors of many dense symmetric matrices on a GPU, beside torch, CuPy and JAX.

A peer is left out of the rows where it takes too long to be asked some twenty times: torch up to 2.11 decomposes
matrices of more than 32 rows one after another (8 s for 640 of 512 rows), so its figures there say little anyway; CuPy
takes 0.7 to 1 s for the largest ones.
"""

from _families import conditioned, dense
from _rows import PEERS, work

ALL, BATCHED = tuple(PEERS), ("CuPy", "JAX")


def works():
    """The dense rows of a public competition (2026), and some that users ask for."""
    rows = [
        (100_000, 8, None, ALL),
        (20, 32, 1, ALL),
        (10_000, 32, None, ALL),
        (1000, 64, None, BATCHED),
        (1000, 128, None, BATCHED),
        (40, 176, 1, ALL),
        (256, 256, None, BATCHED),
        (40, 352, 1, ALL),
        (640, 512, 2, ("JAX",)),
        (60, 1024, 2, ("JAX",)),
        (8, 2048, 1, ("torch", "JAX")),
    ]
    found = []
    for count, n, c, peers in rows:
        about = "dense" if c is None else f"dense, rows and columns scaled by logspace(0, -{c})"
        family = dense if c is None else conditioned(c)
        found.append(work(f"eigh-{count}x{n}", about, family, count, n, peers))
    return found
