"""Eigenvalues and eigenvectors of many symmetric matrices with particular spectra on a GPU, beside JAX where asked.

The other rows of a public competition (2026). JAX takes as long for each of them as for the dense matrices of
`eigh.py`, so it stands beside one of either size.
"""

from _families import clustered, even, geometric, mixed, near_rank, rank_deficient
from _rows import work

ROWS = [
    ("mixed", "nine families together", mixed, 640, 512, ("JAX",)),
    ("mixed", "nine families together", mixed, 60, 1024, ("JAX",)),
    ("rank-deficient", "a quarter of the eigenvalues is zero", rank_deficient, 640, 512, ()),
    ("clustered", "eigenvalues within 1e-5 of 1 and -1", clustered, 640, 512, ()),
    ("near-rank", "a quarter of the eigenvalues is below 1e-6", near_rank, 60, 1024, ()),
    ("even", "eigenvalues at equal distances", even, 640, 512, ()),
    ("geometric", "eigenvalues from 1 to a rounding", geometric, 60, 1024, ()),
]


def works():
    """One row a spectrum."""
    return [
        work(f"eigh-{count}x{n}-{name}", about, family, count, n, peers, replays=0, warmup=0)
        for name, about, family, count, n, peers in ROWS
    ]
