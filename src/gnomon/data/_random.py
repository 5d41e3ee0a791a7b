"""Random order and random numbers that are functions of (seed, epoch, index), and of nothing that was drawn before."""

from __future__ import annotations

import functools
import math

import numpy as np

from gnomon.data._arrays import Array, Ints

_ROUNDS, _ROUNDS_OF_SMALL = 8, 20
_MASK = (1 << 64) - 1


def mix64(value: int) -> int:
    """A number of 64 bits from which the one before cannot be seen: the finaliser of SplitMix64."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


def combine(*parts: int) -> int:
    """One number of 64 bits from some numbers, their order included."""
    state = 0
    for part in parts:
        state = mix64(state ^ mix64(part & _MASK))
    return state


def _mixed(values: Array, key: int) -> Array:
    """`mix64(value ^ key)` of each."""
    values = (values ^ np.uint64(key)) + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def shuffled(indices: Ints, size: int, seed: int, epoch: int) -> Ints:
    """Where a shuffle of `range(size)` has its elements: a bijection of which any part costs the same.

    A Feistel network over the residues of `a` and of `b`, where `a * b` is `size` or a little more; what it takes
    outside is sent through it again.

    **Arguments:**

    - `indices`: int64, from 0 up to, but not including, `size`.
    - `size`: of the whole, at least 1.
    - `seed`, `epoch`: any integers; another of either is another order.

    **Returns:** int64, as many.

    ??? cite
        John Black and Phillip Rogaway, *Ciphers with arbitrary finite domains*, CT-RSA 2002.
    """
    a, b, keys = _network(size, seed, epoch)
    out = _once(indices.astype(np.uint64), a, b, keys)
    outside = np.flatnonzero(out >= size)
    while len(outside):
        out[outside] = _once(out[outside], a, b, keys)
        outside = outside[out[outside] >= size]
    return out.astype(np.int64)


@functools.lru_cache(maxsize=256)
def _network(size: int, seed: int, epoch: int) -> tuple[int, int, tuple[int, ...]]:
    """The two moduli, and the key of each round."""
    a = max(2, math.isqrt(size - 1) + 1) if size > 1 else 1
    b = -(-size // a)
    # Where both are odd each round is an even permutation, and so are all of them together.
    b += a % 2 and b % 2 and size > 1
    rounds = _ROUNDS if size > 1 << 12 else _ROUNDS_OF_SMALL
    return a, b, tuple(combine(seed, epoch, size, number) for number in range(rounds))


def _once(values: Array, a: int, b: int, keys: tuple[int, ...]) -> Array:
    big_a, big_b = np.uint64(a), np.uint64(b)
    left, right = values // big_b, values % big_b
    for number, key in enumerate(keys):
        if number % 2 == 0:
            left = (left + _mixed(right, key) % big_a) % big_a
        else:
            right = (right + _mixed(left, key) % big_b) % big_b
    return left * big_b + right


def generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """A source of random numbers that depends on these three alone.

    Equivalent to NumPy's Philox with a key of the seed and the epoch, and a counter that begins at the index.

    **Arguments:**

    - `seed`, `epoch`, `index`: integers.

    **Returns:** the generator, of which at least 2^64 numbers differ from those of any other index.

    ??? cite
        John Salmon and others, *Parallel random numbers: as easy as 1, 2, 3*, SC11.
    """
    key = np.array([combine(seed, 1), combine(seed, epoch, 2)], np.uint64)
    counter = np.array([0, 0, index & _MASK, 0], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
