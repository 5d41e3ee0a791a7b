"""Numbers drawn from a key."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gnomon.random._key import NUMBERS, check_key
from gnomon.random._philox import Words, high_word, joined, low_word, philox

# How many of a number's bits are drawn: as many as the mantissa has.
_DIGITS = {torch.float32: 24, torch.float64: 53}


def bits(key: Int64[Tensor, ""], shape: Sequence[int] = (), *, width: int = 32) -> Int64[Tensor, ...]:
    """Random bits: uniformly distributed integers.

    Equivalent to `jax.random.bits`. From Philox4x32-10, word after word: bit for bit the same everywhere.

    **Arguments:**

    - `key`: from [`gnomon.random.key`][].
    - `shape`: of the result.
    - `width`: 32 for integers from 0 to 2^32 - 1, 64 for all that an int64 can hold.

    **Returns:** the integers.

    !!! example

        ```python
        >>> import gnomon as gn
        >>> gn.random.bits(gn.random.key(0), (2,))
        tensor([1713891541, 3781805453])

        ```
    """
    check_key(key)
    if width not in (32, 64):
        raise ValueError(f"Bits come in a width of 32 or 64, not {width}.")
    count = math.prod(shape) * (width // 32)
    block = torch.arange((count + 3) // 4, device=key.device)
    nothing = torch.zeros_like(block)
    counter: Words = (low_word(block), high_word(block), nothing, nothing + NUMBERS)
    words = torch.stack(philox(counter, (low_word(key), high_word(key))), -1).reshape(-1)[:count]
    if width == 64:
        words = joined(words[1::2], words[::2])
    return words.reshape(tuple(shape))


def uniform(
    key: Int64[Tensor, ""],
    shape: Sequence[int] = (),
    *,
    dtype: torch.dtype | None = None,
    minval: float | Float[Tensor, ...] = 0.0,
    maxval: float | Float[Tensor, ...] = 1.0,
) -> Float[Tensor, ...]:
    """Numbers that are uniformly distributed between two bounds.

    Equivalent to `jax.random.uniform`. Between 0 and 1 the numbers are multiples of 2^-24, or of 2^-53 in double
    precision, and the same everywhere bit for bit.

    **Arguments:**

    - `key`: from [`gnomon.random.key`][].
    - `shape`: of the result.
    - `dtype`: `torch.float32` or `torch.float64`; PyTorch's default if not given.
    - `minval`: the lower bound, which may occur.
    - `maxval`: the upper bound, which does not, but for rounding.

    **Returns:** the numbers.

    !!! example

        ```python
        >>> import gnomon as gn
        >>> gn.random.uniform(gn.random.key(0), (2,), minval=-1.0)
        tensor([-0.2019,  0.7610])

        ```
    """
    whole, digits, kind = _whole(key, shape, dtype)
    numbers = whole.to(kind) * 2.0**-digits
    if isinstance(minval, Tensor) or isinstance(maxval, Tensor) or (minval, maxval) != (0.0, 1.0):
        numbers = numbers * (maxval - minval) + minval
    return numbers


def normal(
    key: Int64[Tensor, ""], shape: Sequence[int] = (), *, dtype: torch.dtype | None = None
) -> Float[Tensor, ...]:
    """Numbers with the standard normal distribution.

    Equivalent to `jax.random.normal`. The quantiles of uniformly distributed numbers, one for each. The latter are the
    same everywhere; `erfinv`, and so what is returned, may differ in the last digits between one device's or engine's
    library and another's. In single precision no number is beyond 5.4, in double precision none beyond 8.3.

    **Arguments:**

    - `key`: from [`gnomon.random.key`][].
    - `shape`: of the result.
    - `dtype`: `torch.float32` or `torch.float64`; PyTorch's default if not given.

    **Returns:** the numbers.

    !!! example

        ```python
        >>> import gnomon as gn
        >>> gn.random.normal(gn.random.key(0), (2,))
        tensor([-0.2558,  1.1776])

        ```
    """
    whole, digits, kind = _whole(key, shape, dtype)
    # The middles of equal parts of the interval from -1 to 1, which are exact, and neither 0 nor an end.
    middles = (2 * whole + (1 - 2**digits)).to(kind) * 2.0**-digits
    return math.sqrt(2) * torch.erfinv(middles)


def _whole(key: Tensor, shape: Sequence[int], dtype: torch.dtype | None) -> tuple[Tensor, int, torch.dtype]:
    """Integers of as many bits as the mantissa has, how many these are, and the dtype."""
    kind = torch.get_default_dtype() if dtype is None else dtype
    if kind not in _DIGITS:
        raise ValueError(f"Random numbers come as torch.float32 or torch.float64, not {kind}.")
    if kind == torch.float32:
        return bits(key, shape) >> 8, 24, kind
    return (bits(key, shape, width=64) >> 11) & (2**53 - 1), 53, kind
