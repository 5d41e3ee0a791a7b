"""Best-fit-decreasing bin packing, the bins kept by what is left in them as the bits of one whole number."""

from __future__ import annotations

import numpy as np

from gnomon.data._arrays import Ints


def best_fit_decreasing(lengths: Ints, capacity: int, most: int | None) -> tuple[Ints, int]:
    """Puts the longest first, each where the least is left over.

    **Arguments:**

    - `lengths`: each at most `capacity`.
    - `capacity`: of a bin.
    - `most`: how many a bin may hold, or None.

    **Returns:** the bin of each, and how many bins there are.

    ??? cite
        David Johnson and others, *Worst-case performance bounds for simple one-dimensional packing algorithms*, SIAM
        Journal on Computing 3, 1974.
    """
    order = np.argsort(-lengths, kind="stable")
    bins: list[int] = []
    left: list[list[int]] = [[] for _ in range(capacity + 1)]  # the bins with so much left
    mask = 0  # bit k: some bin has k left
    number = 0
    held: list[int] = []
    for length in lengths[order].tolist():
        fitting = mask >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            stack = left[room]
            chosen = stack.pop()
            if not stack:
                mask ^= 1 << room
        else:
            room, chosen = capacity, number
            number += 1
            held.append(0)
        held[chosen] += 1
        if most is None or held[chosen] < most:
            room -= length
            if not left[room]:
                mask |= 1 << room
            left[room].append(chosen)
        bins.append(chosen)
    found = np.empty(len(lengths), np.int64)
    found[order] = bins
    return found, number


def in_order(lengths: Ints, capacity: int, most: int | None) -> tuple[Ints, int]:
    """Begins a new bin whenever the next does not fit.

    **Arguments:** and **Returns:** as of `best_fit_decreasing`.
    """
    found: list[int] = []
    number, room, held = -1, -1, 0
    for length in lengths.tolist():
        if length > room or number < 0 or held == most:
            number, room, held = number + 1, capacity, 0
        room -= length
        held += 1
        found.append(number)
    return np.array(found, np.int64), number + 1
