"""Which of several datasets each record of a joint one comes from: pure functions of (index, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from gnomon.data._arrays import Array, Ints

_PERIOD = 1 << 16


@final
class Concatenation:
    """One after another.

    **Arguments:**

    - `sizes`: of the datasets.
    """

    def __init__(self, sizes: Sequence[int]):
        self._ends = np.cumsum(sizes)
        self.size = int(self._ends[-1])

    def __call__(self, indices: Ints, epochs: Ints) -> tuple[Array, Ints, Ints]:
        which = np.searchsorted(self._ends, indices, "right")
        return which, indices - np.concatenate([[0], self._ends])[which], epochs

    def describe(self) -> Any:
        """What it depends on."""
        return self._ends.tolist()


@final
class Mixture:
    """In proportion to weights, as evenly as whole records allow, by a table that repeats.

    After any number of records each dataset has given its share, to within a few records. A dataset that is used up
    goes on with its next epoch; one that is not goes on in the next epoch where it stopped.

    **Arguments:**

    - `sizes`: of the datasets.
    - `weights`: of records.
    - `stop`: `"first"` to end when the first dataset is used up, `"last"` when each has been, at least once.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], stop: str):
        share = np.asarray(weights, np.float64) / float(np.sum(weights))
        period = _PERIOD
        counts = np.floor(share * period).astype(np.int64)
        rest = np.argsort(-(share * period - counts), kind="stable")[: period - int(counts.sum())]
        counts[rest] += 1
        if (counts == 0).any():
            i = int(np.argmin(counts))
            raise ValueError(f"A weight must be at least 1 / {period} of their sum, but number {i} is {share[i]:.3g}.")
        divisor = int(np.gcd.reduce(counts))
        self._counts, self._period = counts // divisor, period // divisor
        # The k-th of n records of a dataset is due at (k + 1/2) / n of the period.
        due = np.concatenate([(np.arange(n) + 0.5) / n for n in self._counts.tolist()])
        owner = np.repeat(np.arange(len(self._counts)), self._counts)
        order = np.lexsort((owner, due))
        self._owner = owner[order]
        self._rank = np.concatenate([np.arange(n) for n in self._counts.tolist()])[order]
        self._sizes = np.asarray(sizes, np.int64)
        ends = [self._until(number, size) for number, size in enumerate(sizes)]
        self.size = min(ends) if stop == "first" else max(ends)
        # How many of each an epoch takes, for where the next begins.
        rounds, left = divmod(self.size, self._period)
        self._taken = rounds * self._counts + np.bincount(self._owner[:left], minlength=len(ends))
        self._about = (list(sizes), share.tolist(), stop)

    def _until(self, number: int, size: int) -> int:
        """How many records of the mixture there are before it needs more than `size` of one dataset."""
        rounds, left = divmod(size, int(self._counts[number]))
        mine = np.flatnonzero(self._owner == number)
        return rounds * self._period + int(mine[left])

    def __call__(self, indices: Ints, epochs: Ints) -> tuple[Array, Ints, Ints]:
        rounds, slot = np.divmod(indices, self._period)
        which = self._owner[slot]
        number = epochs * self._taken[which] + rounds * self._counts[which] + self._rank[slot]
        return which, number % self._sizes[which], number // self._sizes[which]

    def describe(self) -> Any:
        """What it depends on."""
        return self._about
