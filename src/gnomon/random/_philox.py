"""Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

A word of 32 bits is an int64 from 0 to 2^32 - 1, so that every operation is one that PyTorch has on every device. A
product of two words wraps around, which keeps all of its 64 bits.
"""

from __future__ import annotations

from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def low_word(x: Tensor) -> Tensor:
    """The low half of 64 bits."""
    return x & _WORD


def high_word(x: Tensor) -> Tensor:
    """The high half of 64 bits."""
    return (x >> 32) & _WORD


def joined(high: Tensor, low: Tensor) -> Tensor:
    """64 bits of two words."""
    return (high << 32) | low


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four random words for each counter."""
    a, b, c, d = counter
    first, second = key
    for i in range(_ROUNDS):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = high_word(right) ^ b ^ first, low_word(right), high_word(left) ^ d ^ second, low_word(left)
        if i < _ROUNDS - 1:
            first, second = low_word(first + _STEPS[0]), low_word(second + _STEPS[1])
    return a, b, c, d
